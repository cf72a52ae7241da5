"""The steps of a round of online training: collect, reward, write rows, wait for the weights, and again.

Steps are sealed one by one, and the trainer goes through the sealed ones to the same weights whatever died, so a run that is killed
anywhere comes to the same end. The trainer stays up for the whole round, beside the engines.

The folder of the stage ``rollouts``::

    000001/             the trees of a step: a forest
    000001/dataset/     its rows
    validation/000010/  held-out episodes after a step
    steps.jsonl         what there is to say of each step
    pareto.json         how tasks were chosen, if they were
    best.json           the step that did best in validation
"""

from __future__ import annotations

import itertools
import random
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import fmean
from typing import Any

from agentr.build.advantages import differ
from agentr.build.dataset import Candidate, write_dataset
from agentr.build.rollouts import rollout_rows
from agentr.build.sequences import dropped
from agentr.cluster.causes import Cause, CauseKind
from agentr.collect.grow import Grow
from agentr.collect.job import TreeJob, Work
from agentr.collect.units import Limits
from agentr.errors import InfraError
from agentr.evaluate.metrics import evaluate
from agentr.observe.progress import Update
from agentr.observe.troubles import note
from agentr.rewards import Rewards
from agentr.rewards.apart import RewardLost
from agentr.rewards.group import Group, Reward, group_of
from agentr.rounds.background import Beside
from agentr.rounds.online_config import OnlineConfig
from agentr.rounds.round import Round
from agentr.rounds.step_numbers import alarms, describe
from agentr.search import Sample
from agentr.search.stored import split_counts
from agentr.search.tree import Tree
from agentr.seeds import derived_seed
from agentr.store.dataset import iter_rows
from agentr.store.files import append_line, copy_folder, make_folder, read_json, read_lines, remove, write_json
from agentr.store.forest import Forest
from agentr.store.layout import BEST_STEP, EVALUATION, PARETO, ROLLOUTS, STEPS, TRAIN, Checkpoint
from agentr.store.rows import Rollout
from agentr.store.summaries import TrainSummary, TreeSummary
from agentr.tasks.tools import described
from agentr.train.online_job import OnlineJob
from agentr.types import Cost, Task

#: Seconds between two looks for new weights.
POLL_S = 0.02


class Steps:
    """The steps of one round of online training.

    Args:
        tasks: The tasks that steps draw from.
        differing: How they were chosen, if they were: what is to be written down of each task of the round.
    """

    def __init__(
        self,
        config: OnlineConfig,
        work: Work,
        round_: Round,
        job: OnlineJob,
        start: Checkpoint,
        tasks: Sequence[Task],
        differing: Sequence[dict[str, Any]] | None = None,
    ) -> None:
        self.config = config
        self.round = round_
        self.job = job
        self.start = start
        self.experiment = round_.experiment
        self.work = work
        self.tasks = tasks
        self.differing = differing
        self.rewards = Rewards.of(self.config.rewards, self.config.gate)
        self.training: Beside[TrainSummary]
        self._alarms: set[str] = set()
        self._silent = False
        self._scores: dict[str, tuple[Group, list[Reward]]] = {}  # of the step that is being made, by the tree's key

    @property
    def _notes(self) -> Path:
        return self.job.dataset / STEPS

    @property
    def _best(self) -> Path:
        return self.job.dataset / BEST_STEP

    def run(self) -> TrainSummary:
        """Runs the steps that are left, and returns what the training came to."""
        store = self.experiment.store
        make_folder(self.job.dataset, below=store.root)
        remove(self.job.abandoned)
        name = self.round.arm.stage(ROLLOUTS)
        if store.sealed(name) and self._best.exists() and not (self.job.out / "best").exists():
            # Only the weights are to be made anew: those that were chosen.
            self.job = replace(self.job, last=read_json(self._best)["step"])
        made_with = {"kind": self.work.kind, "work": self.work, "sampling": self.round.config.collect.sampling, "seed": self.round.seed}
        if not store.sealed(name):
            self.experiment.services.engines(self.start.path)
        self.training = self.experiment.services.train_beside(self.job)
        try:
            store.stage(name, TreeSummary, lambda _: self._collect(), made_with)
            store.use(name)
        except BaseException:  # also when interrupted: the workers must not wait for steps that do not come
            write_json(self.job.abandoned, {})
            self.training.wait(60.0)
            raise
        with self.experiment.reporter.task(f"{self.round.arm.title}: the last online step"):
            trained = self.training.result()
        remove(self.job.all_published)
        return self._finished(trained)

    def _finished(self, trained: TrainSummary) -> TrainSummary:
        store, steps = self.experiment.store, len(self._finished_steps())
        best = read_json(self._best)["step"] if self._best.exists() else None
        if best is not None and best != (self.job.last or steps):
            copy_folder(self.job.out / "best", self.job.model)
            self.experiment.reporter.say(
                f"        online step {best} did best on {self.config.validation.tasks.split}: its weights are kept"
            )
        remove(self.job.out / "best")
        return replace(trained, checkpoint=store.stored_path(self.job.model), online_steps=steps, best_step=best)

    # collecting -------------------------------------------------------------------------------------------------------

    def _collect(self) -> TreeSummary:
        if self.differing is not None:
            write_json(self.job.dataset / PARETO, list(self.differing))
        pool, name = self._pool(), self.round.arm.stage(ROLLOUTS)
        with self.experiment.reporter.task(name, "online steps") as update:
            for step in range(1, self.job.steps + 1):
                if self._stopped(step):
                    break
                made = not self.job.fed(step)
                if made:
                    self._step(step, pool, update)
                self._note(step)
                if made:  # what an earlier process made says nothing of how fast it goes on
                    update(step, self.job.steps, self._said(step))
                if self._validates(step) and not self._validated(step):
                    self._validate(step)
        return self._summary()

    def _pool(self) -> list[list[Task]]:
        """Returns the tasks of each step: seeded permutations of the round's tasks, cut into equal parts."""
        size = min(self.config.tasks, len(self.tasks))
        steps: list[list[Task]] = []
        for turn in range(self.job.steps):
            shuffled = list(self.tasks)
            random.Random(derived_seed(self.round.seed, "tasks", turn)).shuffle(shuffled)
            steps += [shuffled[first : first + size] for first in range(0, len(shuffled) - size + 1, size)]
            if len(steps) >= self.job.steps:
                break
        return steps[: self.job.steps]

    def _in_order(self, step: int, pool: list[list[Task]]) -> list[Task]:
        """Returns the tasks that a step may draw, in the order in which it does: its own, then those that may take their place."""
        own = pool[step - 1]
        others = [task for task in self.tasks if task not in set(own)]
        random.Random(derived_seed(self.round.seed, "more", step)).shuffle(others)
        return [*own, *others][: max(self.config.max_tasks, len(own))]

    def _step(self, step: int, pool: list[list[Task]], update: Update) -> None:
        """Collects a step, and writes its rows, with which the trainer goes on."""
        folder = self.job.step(step)
        make_folder(folder)
        forest = Forest(folder, f"{self.round.arm.stage(ROLLOUTS)}/{step:06d}")
        tasks = self._in_order(step, pool)
        self._scores.clear()
        if not forest.sealed:
            self._grow(step, forest, tasks, update)
            self.experiment.services.sleep_engines()  # before there are rows, on which the trainer goes on
        limit = self.round.config.build.max_length
        hint = "Raise build.max_length, or let turns be shorter."
        rows = self._rows(step, forest, tasks)
        write_dataset(self.job.rows_of(step), rows, limit, source=f"the trees of step {step}", hint=hint, step=step)

    def _grow(self, step: int, forest: Forest, tasks: list[Task], update: Update) -> None:
        """Grows the trees of a step. Where a task says nothing another one is drawn, as far as there are ``tasks``."""
        waiting = time.monotonic()
        policy = self._policy(max(0, step - 1 - self.config.max_staleness))
        started = time.monotonic()

        said = self._said(step - 1)

        def told(done: float, total: float, _: str) -> None:
            update(step - 1 + done / max(1, total), self.job.steps, said)

        drawn = min(self.config.tasks, len(tasks))
        while True:
            job = TreeJob(
                folder=forest.folder,
                tasks=tuple(tasks[:drawn]),
                seed=derived_seed(self.round.seed, "step", step),
                policy=policy.name,
                work=self.work,
                sampling=self.round.config.collect.sampling,
                limits=self._limits(),
            )
            progress = self.experiment.services.run_job(f"online step {step}", job, policy, told)
            missing = self.config.tasks - len(self._telling(step, forest, tasks)) if drawn < len(tasks) else 0
            if missing <= 0 or progress["skipped"]:
                break
            drawn = min(drawn + missing, len(tasks))
        about = {
            "kind": self.work.kind,
            "version": policy.name,
            "seed": job.seed,
            **described(self.experiment.services.spec(), self.experiment.config.turns),
            "seconds": {"waited": round(started - waiting, 3), "collected": round(time.monotonic() - started, 3)},
        }
        forest.seal(stage=about, progress=progress)

    def _scored(self, step: int, tree: Tree) -> tuple[Group, list[Reward]]:
        if tree.task.key not in self._scores:
            progress = (step - 1) / max(1, self.job.steps - 1)
            group = group_of(tree, self.round.answer_prefix, progress, self.round.number)
            try:
                self._scores[tree.task.key] = group, self.rewards(group)
            except RewardLost as error:
                self.experiment.reporter.say(f"        online step {step}: {error}; its rollouts are left out", "yellow")
                self._scores[tree.task.key] = group, []
        return self._scores[tree.task.key]

    def _telling(self, step: int, forest: Forest, tasks: list[Task]) -> list[str]:
        """Returns the keys of the tasks whose rollouts are not all worth the same, in the order drawn; at most as many as a step has."""
        there = forest.finished()
        trees = (forest.read(task.key) for task in tasks if task.key in there)
        telling = (tree.task.key for tree in trees if differ([reward.total for reward in self._scored(step, tree)[1]]))
        return list(itertools.islice(telling, self.config.tasks))

    def _rows(self, step: int, forest: Forest, tasks: list[Task]) -> Iterator[Candidate]:
        there = forest.finished()
        grown = [task.key for task in tasks if task.key in there][: self.config.tasks]
        reasoning = self.round.config.build.train_on_reasoning
        chosen = (self._telling(step, forest, tasks) or grown) if self.config.max_tasks else grown
        for tree in forest:
            group, rewards = self._scored(step, tree)
            if len(group) and not rewards:
                yield dropped(tree, "a reward gave no answer")
            elif tree.task.key in chosen:
                yield from rollout_rows(group, rewards, self.config.advantages, train_on_reasoning=reasoning, trees=self.config.trees)
            else:
                equal = not differ([reward.total for reward in rewards])
                yield dropped(tree, "all rollouts of the task are worth the same" if equal else "more tasks than an online step has")

    def _limits(self) -> Limits:
        collect = self.round.config.collect
        left = max(1, collect.max_completions - self._spent()) if collect.max_completions else 0
        return Limits(in_flight=collect.in_flight, infra_retries=collect.infra_retries, max_failed=collect.max_failed, max_completions=left)

    def _spent(self) -> int:
        """Completions of the steps that are finished."""
        return sum(line["completions"] for line in self._finished_steps().values())

    def _stopped(self, step: int) -> bool:
        """Whether no step comes any more: validation has shown that it gets no better, or the budget is used up."""
        stopped = self.job.stopped()
        if stopped is not None:
            return step > stopped
        before = Forest(self.job.step(step - 1)) if step > 1 else None
        budget = self.round.config.collect.max_completions
        if before is not None and budget and (before.manifest["progress"]["skipped"] or self._spent() >= budget):
            self.experiment.reporter.say(f"        {budget:,} completions were drawn: online step {step - 1} was the last")
            if self.config.validation.every and not self._validated(step - 1):
                self._validate(step - 1)
            self.job.stop(step - 1)
            return True
        return False

    def _policy(self, version: int) -> Checkpoint:
        """Returns the weights after a step, once they are published.

        Raises:
            AgentrError: The training ended before, with what was wrong.
        """
        if not version:
            return self.start
        name = f"{self.round.arm.stage(TRAIN)}@{version}"
        with self.experiment.services.awaiting(self.job, f"the weights of online step {version}"):
            while True:
                ended = self.training.ended()
                if self.job.published(version).exists():
                    return Checkpoint(name, self.job.published(version))
                if ended and self.job.finished():
                    return Checkpoint(name, self.job.model)
                if ended:
                    raise InfraError(f"the training ended without the weights of online step {version}")
                time.sleep(POLL_S)

    # watching ---------------------------------------------------------------------------------------------------------

    def _finished_steps(self) -> dict[int, dict[str, Any]]:
        return {line["step"]: line for line in read_lines(self._notes)}

    def _note(self, step: int) -> None:
        """Writes down what there is to say of a step, once, and says what looks like a collapse."""
        notes = self._finished_steps()
        if step in notes:
            return
        forest = Forest(self.job.step(step))
        line = {"step": step, **describe(forest, self.round.answer_prefix), **self._rewarded(step)}
        append_line(self._notes, line)
        entropy = next((trained["entropy"] for trained in reversed(self.job.read_metrics()) if "entropy" in trained), None)
        for alarm in alarms(line, notes.get(1, line), entropy):
            if alarm not in self._alarms:
                self._alarms.add(alarm)
                self.experiment.reporter.say(f"        online step {step}: {alarm}", "yellow")
                self.experiment.store.event("online_alarm", step=step, alarm=alarm)
        silent = bool(line["groups"]) and line["silent_groups"] == line["groups"]
        if silent != self._silent:
            self._silent = silent
            evidence = f"in all {line['groups']} tasks of online step {step} the rollouts are worth the same"
            hint = "Choose other tasks (collect.tasks), rewards (method.rewards) or more method.episodes; method.max_tasks draws others."
            causes = [
                Cause(CauseKind.trees_identical, "every tree is identical in its rewards: there is nothing to learn from", evidence, hint)
            ]
            note(self.experiment.store.event, self.round.arm.stage(ROLLOUTS), causes if silent else [])

    def _said(self, step: int) -> str:
        """Returns what came of a step in a few words, for who watches; nothing before the first."""
        line = self._finished_steps().get(step)
        if line is None:
            return ""
        reward = f", reward {line['rewards']['total']:.2f}" if "total" in line["rewards"] else ""
        return f"success {100 * line['success']:.0f} %, calls {line['calls']:.2f}{reward}"

    def _rewarded(self, step: int) -> dict[str, Any]:
        rows = list(iter_rows(self.job.rows_of(step)))
        names = sorted({name for row in rows for name in row.rewards})
        groups: dict[str, list[Rollout]] = {}
        for row in rows:
            groups.setdefault(row.group, []).append(row)
        silent = [group for group in groups.values() if all(row.silent for row in group)]
        gated = {
            "gated_rows": sum("gate" in row.rewards for row in rows),
            "gated_groups": sum(differ([row.rewards.get("gate", 0.0) for row in group]) for group in silent),
        }
        rewards = {name: round(fmean(row.rewards.get(name, 0.0) for row in rows), 5) for name in names}
        return {"rows": len(rows), "groups": len(groups), "silent_groups": len(silent), **gated, "rewards": rewards}

    def _validates(self, step: int) -> bool:
        every = self.config.validation.every
        return bool(every) and (step % every == 0 or step == self.job.steps)

    def _validation(self, step: int) -> Path:
        return self.job.dataset / "validation" / f"{step:06d}"

    def _validated(self, step: int) -> bool:
        return (self._validation(step) / EVALUATION).exists()

    def _validate(self, step: int) -> None:
        """Measures the weights after a step, keeps them if they are the best so far, and may end the training."""
        settings, config = self.config.validation, self.round.config.eval
        folder, policy = self._validation(step), self._policy(step)
        make_folder(folder, below=self.job.dataset)
        forest = Forest(folder)
        if not forest.sealed:
            limits = replace(self._limits(), in_flight=config.in_flight, max_completions=0)
            job = TreeJob(
                folder=folder,
                tasks=tuple(self.experiment.services.tasks(settings.tasks, training=False)),
                seed=self.experiment.seed(0),
                policy=policy.name,
                work=Grow(Sample(config.episodes, config.max_steps, config.max_invalid)),
                sampling=config.sampling,
                limits=limits,
            )
            progress = self.experiment.services.run_job(f"validation after online step {step}", job, policy, lambda *_: None)
            forest.seal(stage={"kind": "validation", "version": policy.name}, progress=progress)
        found = evaluate(forest)
        best = read_json(self._best) if self._best.exists() else {"step": 0, "success": -1.0}
        if found.success.mean > best["success"]:
            copy_folder(policy.path, self.job.out / "best")
            write_json(self._best, {"step": step, "success": found.success.mean})
        write_json(folder / EVALUATION, found.as_dict())
        best = read_json(self._best)
        self.experiment.reporter.say(
            f"        online step {step}: {found.success.as_percent()} % on {found.success.n} tasks of {settings.tasks.split}"
            f" (best: online step {best['step']}, {100 * best['success']:.1f} %)"
        )
        if settings.patience and step - best["step"] >= settings.patience * settings.every and step < self.job.steps:
            self.experiment.reporter.say(f"        no better for {settings.patience} measurements: online step {step} was the last")
            self.job.stop(step)

    def _summary(self) -> TreeSummary:
        steps = self._finished_steps()
        manifests = [Forest(self.job.step(step)).manifest for step in steps]
        cost, events = Cost(), Counter[str]()
        for manifest in manifests:
            more, counted = split_counts(manifest["progress"]["counts"])
            cost, events = cost + more, events + Counter(counted)
        return TreeSummary(
            trees=sum(manifest["trees"] for manifest in manifests),
            failed=sum(manifest["progress"]["failed"] for manifest in manifests),
            solved=sum(manifest["progress"]["successes"] for manifest in manifests),
            cost=cost,
            events=dict(events),
        )
