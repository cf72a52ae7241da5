"""The steps of a round of online training: collect, reward, write rows, wait for the weights, and again.

Steps are sealed one by one, and the trainer goes through the sealed ones to the same weights whatever died, so a run
that is killed anywhere comes to the same end. The trainer stays up for the whole round, beside the engines.

The folder of the stage ``rollouts``::

    000001/             the trees of a step: a forest
    000001/dataset/     its rows
    validation/000010/  held-out episodes after a step
    steps.jsonl         the summary of each step
    pareto.json         how tasks were chosen, if they were
    best.json           the step that did best in validation
"""

import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from agentr.background import Beside
from agentr.collect.job import TreeJob, Work
from agentr.collect.units import Limits
from agentr.errors import InfraError
from agentr.observe.progress import Update
from agentr.policy.adapters import base_of, write_merged
from agentr.rounds.judging import rewards_of
from agentr.rounds.online_config import OnlineConfig
from agentr.rounds.round import Round
from agentr.rounds.step_notes import StepNotes
from agentr.rounds.step_tasks import StepTasks
from agentr.rounds.step_trees import MakeRows, StepTrees
from agentr.rounds.validation import Validation
from agentr.rows.dataset import write_dataset
from agentr.search.stored import split_counts
from agentr.seeds import derived_seed
from agentr.store.files import copy_folder, make_folder, remove, write_json
from agentr.store.forest import Forest
from agentr.store.layout import PARETO, ROLLOUTS, TRAIN, Checkpoint
from agentr.store.summaries import TrainSummary, TreeSummary
from agentr.tasks.tools import described
from agentr.train.online_job import OnlineJob
from agentr.types import Cost, Task

#: Seconds between two looks for new weights.
POLL_S = 0.02


class Steps:
    """The steps of one round of online training.

    Args:
        rows: Makes the rows of a task.
        tasks: The tasks that steps draw from.
        differing: How they were chosen, if they were: what is to be written down of each task of the round.
    """

    def __init__(
        self,
        config: OnlineConfig,
        work: Work,
        rows: MakeRows,
        round_: Round,
        job: OnlineJob,
        start: Checkpoint,
        tasks: Sequence[Task],
        differing: Sequence[dict[str, Any]] | None = None,
    ) -> None:
        self.config, self.work, self.rows = config, work, rows
        self.round, self.experiment = round_, round_.experiment
        self.job, self.start = job, start
        self._tasks = StepTasks(tasks, config, job.steps, round_.seed)
        self.differing = differing
        self.stage = round_.arm.stage(ROLLOUTS)
        self.training: Beside[TrainSummary]
        self._rewards = rewards_of(config, self.experiment)
        self._notes = StepNotes(job, self.stage, self.experiment.reporter, self.experiment.store.event)
        self._validation = Validation(config.validation, round_, job)

    def run(self) -> TrainSummary:
        """Runs the steps that are left, and returns what the training came to."""
        store = self.experiment.store
        make_folder(self.job.dataset, below=store.root)
        remove(self.job.abandoned)
        name, best = self.stage, self._validation.best()
        if store.sealed(name) and best is not None and not self._validation.best_weights.exists():
            # Only the weights are to be made anew: those that were chosen.
            self.job = replace(self.job, last=best["step"])
        made_with = {
            "kind": self.work.kind,
            "work": self.work,
            "sampling": self.round.config.collect.sampling,
            "seed": self.round.seed,
        }
        if not store.sealed(name):
            self.experiment.services.engines.start(self.start.path)
        self.training = self.experiment.services.trainings.beside(self.job)
        try:
            store.stages.run(name, TreeSummary, lambda _: self._collect(), made_with)
            store.stages.use(name)
        except BaseException:  # also when interrupted: the workers must not wait for steps that do not come
            write_json(self.job.abandoned, {})
            self.training.wait(60.0)
            raise
        with self.experiment.reporter.task(f"{self.round.arm.title}: the last online step"):
            trained = self.training.result()
        remove(self.job.all_published)
        return self._finished(trained)

    def _finished(self, trained: TrainSummary) -> TrainSummary:
        store, steps = self.experiment.store, len(self._notes.lines())
        found = self._validation.best()
        best = found["step"] if found is not None else None
        if best is not None and best != (self.job.last or steps):
            self._keep(self._validation.best_weights)
            self.experiment.reporter.message(
                f"        online step {best} did best on {self.config.validation.tasks.split}: its weights are kept"
            )
        remove(self._validation.best_weights)
        return replace(trained, checkpoint=store.stored_path(self.job.model), online_steps=steps, best_step=best)

    def _keep(self, weights: Path) -> None:
        """Puts the weights that did best in the place of the last ones."""
        if base_of(weights) is None:
            copy_folder(weights, self.job.model)
        else:
            write_merged(weights, self.job.model, self.job.dtype)

    # collecting -------------------------------------------------------------------------------------------------------

    def _collect(self) -> TreeSummary:
        if self.differing is not None:
            write_json(self.job.dataset / PARETO, list(self.differing))
        with self.experiment.reporter.task(self.stage, "online steps") as update:
            for step in range(1, self.job.steps + 1):
                if self._stopped(step):
                    break
                trees, made = self._trees(step), not self.job.fed(step)
                if made:
                    self._step(trees, update)
                if step not in self._notes.lines():
                    self._notes.note(step, trees.groups(), trees.forest.manifest)
                if made:  # what an earlier process made says nothing of how fast it goes on
                    update(step, self.job.steps, self._notes.said(step))
                if self._validation.due(step):
                    self._validation.measure(step, self._policy)
        return _summary([Forest(self.job.step(step)).manifest for step in self._notes.lines()])

    def _trees(self, step: int) -> StepTrees:
        forest = Forest(self.job.step(step), f"{self.stage}/{step:06d}")
        made = (self._tasks.of(step), self.config, self.rows, self._rewards, self.round)
        return StepTrees(step, forest, *made, progress=(step - 1) / max(1, self.job.steps - 1))

    def _step(self, trees: StepTrees, update: Update) -> None:
        """Collects a step, and writes its rows, with which the trainer goes on."""
        make_folder(trees.forest.folder)
        if not trees.forest.sealed:
            self._grow(trees, update)
            self.experiment.services.engines.sleep()  # before there are rows, on which the trainer goes on
        limit, step = self.round.config.build.max_length, trees.step
        hint = "Raise build.max_length, or let turns be shorter."
        write_dataset(
            self.job.rows_of(step), trees.rows(), limit, source=f"the trees of step {step}", hint=hint, step=step
        )

    def _grow(self, trees: StepTrees, update: Update) -> None:
        """Grows the trees of a step. Where a task says nothing another one is drawn, as far as the step may draw."""
        step, tasks, services = trees.step, trees.tasks, self.experiment.services
        waiting = time.monotonic()
        policy = self._policy(max(0, step - 1 - self.config.max_staleness))
        started = time.monotonic()
        said = self._notes.said(step - 1)

        def show(done: float, total: float, _: str) -> None:
            update(step - 1 + done / max(1, total), self.job.steps, said)

        drawn = min(self.config.tasks, len(tasks))
        while True:
            job = TreeJob(
                folder=trees.forest.folder,
                tasks=tuple(tasks[:drawn]),
                seed=derived_seed(self.round.seed, "step", step),
                policy=policy.name,
                work=self.work,
                sampling=self.round.config.collect.sampling,
                limits=self._limits(),
            )
            progress = services.collect(f"online step {step}", job, policy, show)
            missing = self.config.tasks - len(trees.telling()) if drawn < len(tasks) else 0
            if missing <= 0 or progress["skipped"]:
                break
            drawn = min(drawn + missing, len(tasks))
        about = {
            "kind": self.work.kind,
            "version": policy.name,
            "seed": job.seed,
            **described(services.collecting.spec(), self.round.config.turns),
            "seconds": {"waited": round(started - waiting, 3), "collected": round(time.monotonic() - started, 3)},
        }
        trees.forest.seal(stage=about, progress=progress)

    def _limits(self) -> Limits:
        collect = self.round.config.collect
        return Limits.of(collect, max(1, collect.max_completions - self._spent()) if collect.max_completions else 0)

    def _spent(self) -> int:
        """Completions of the steps that are finished."""
        return sum(line["completions"] for line in self._notes.lines().values())

    def _stopped(self, step: int) -> bool:
        """Whether no step comes any more: validation has shown that it gets no better, or the budget is used up."""
        stopped = self.job.stopped()
        if stopped is not None:
            return step > stopped
        before = Forest(self.job.step(step - 1)) if step > 1 else None
        budget = self.round.config.collect.max_completions
        if before is not None and budget and (before.manifest["progress"]["skipped"] or self._spent() >= budget):
            self.experiment.reporter.message(
                f"        {budget:,} completions were drawn: online step {step - 1} was the last"
            )
            if self.config.validation.every and not self._validation.done(step - 1):
                self._validation.measure(step - 1, self._policy)
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
        with self.experiment.services.trainings.awaiting(self.job, f"the weights of online step {version}"):
            while True:
                ended = self.training.ended()
                if self.job.published(version).exists():
                    return Checkpoint(name, self.job.published(version))
                if ended and self.job.finished():
                    return Checkpoint(name, self.job.model)
                if ended:
                    raise InfraError(f"the training ended without the weights of online step {version}")
                time.sleep(POLL_S)


def _summary(manifests: Sequence[Mapping[str, Any]]) -> TreeSummary:
    """Returns what the trees of the steps come to."""
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
