"""The stages of an experiment, each a method: what a recipe is written in.

A stage reads sealed stages and writes its own folder; :class:`RunStore` seals it and skips it when it is sealed. Policies are named by
the stage that trained them, so that every tree and every row says which policy it came from.

    rounds/00/{demonstrations,dataset,train,eval}          the warm start
    rounds/01/{collect,revise,steps,dataset,train,eval}    a round; which of the first three there are is the recipe's choice
    control/{train,eval}                                   the control arm
"""

from __future__ import annotations

import itertools
import shutil
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from agentr.build.assemble import demonstration_rows, is_own
from agentr.build.imports import demonstrated_turns
from agentr.collect.stage import Kind, Stage, can_recover
from agentr.config.schema import Config, TaskSelection, TrainConfig
from agentr.errors import ConfigError, RunError
from agentr.evaluate.metrics import Evaluation, evaluate, revision_length
from agentr.models.load import load_codec, resolve
from agentr.observe.progress import Reporter
from agentr.rounds.services import Services
from agentr.store.files import read_json, write_json
from agentr.store.forest import Forest
from agentr.store.rows import Row, read_manifest, read_rows, write_rows
from agentr.store.run import RunStore
from agentr.tasks.formats import ActionFormat, action_format
from agentr.train.job import TrainJob
from agentr.types import Task


@dataclass(frozen=True)
class Checkpoint:
    """A policy: ``version`` is the stage that made it, ``path`` its Hugging Face folder."""

    version: str
    path: Path


class Experiment:
    """The stages of one run.

    Args:
        services: Ray, engines, environment servers; started when a stage first needs them.
    """

    def __init__(self, config: Config, store: RunStore, services: Services, reporter: Reporter) -> None:
        self.config = config
        self.store = store
        self.services = services
        self.reporter = reporter

    @property
    def root(self) -> Path:
        return self.store.root

    def policy(self, round_: int) -> Checkpoint:
        """The policy that a round trained (0: the warm start), or the base model where there is no warm start.

        Raises:
            RunError: It was not trained yet.
        """
        if round_ == 0 and not self.config.warm_start.enabled:
            return self.base_model()
        name = f"rounds/{round_:02d}/train"
        if not self.store.sealed(name):
            raise RunError(f"{self.root} has no policy of round {round_} yet", hint=f"Train it first: agentr train CONFIG --round {round_}")
        return Checkpoint(name, self.root / name / "model")

    def rounds(self) -> Iterator[int]:
        yield from range(1, self.config.run.rounds + 1)

    # models -----------------------------------------------------------------------------------------------------------

    def base_model(self) -> Checkpoint:
        """The model that the experiment starts from, as a folder in the run directory (or the user's own folder)."""

        def work(folder: Path) -> dict[str, Any]:
            with self.reporter.task(f"model {self.config.model.source}"):
                return {"path": str(resolve(self.config.model, folder))}

        path = Path(self.store.stage("model", work)["path"])
        self.services.model = path
        return Checkpoint("model", path)

    @cached_property
    def codec(self):
        """Conversations as token ids, for the model's tokenizer. Training does not change it."""
        return load_codec(self.base_model().path, self.config.model)

    # tree stages ------------------------------------------------------------------------------------------------------

    def demonstrations(self) -> Forest:
        """The expert's episodes of the warm start's tasks."""
        name = "rounds/00/demonstrations"

        def work(folder: Path) -> dict[str, Any]:
            chosen = [task for selection in self.config.warm_start.tasks for task in self._tasks(selection, training=True)]
            stage = self._stage(Kind.EXPERT, folder, list(dict.fromkeys(chosen)), "")
            if self.config.warm_start.files:
                stage = self._given(stage)
            summary = self._make_trees("demonstrations", None, stage)
            if stage.given:
                self.reporter.say(f"        {summary['solved']} of {summary['trees']} succeeded when they were played")
            return summary

        self.store.stage(name, work)
        return Forest(self.root / name)

    def _given(self, stage: Stage) -> Stage:
        """A stage that plays the trajectories of the user's files."""
        files = self.config.warm_start.files
        given = demonstrated_turns([Path(file) for file in files])
        tasks = tuple(task for task in stage.tasks if task.id in given)
        if not tasks:
            raise ConfigError(
                f"no trajectory in {', '.join(files)} has the id of a task that warm_start.tasks selects",
                hint=f"Ids there: {_some(given)}. Ids of the tasks: {_some(task.id for task in stage.tasks)}.",
            )
        self.reporter.say(f"        {len(tasks)} of {len(given)} trajectories are of tasks that warm_start.tasks selects")
        return replace(stage, tasks=tasks, given={task.id: given[task.id] for task in tasks})

    def collect(self, round_: int, policy: Checkpoint, kind: Kind = Kind.SEARCH) -> Forest:
        """The policy's trees of this round's tasks: of SEARCH, DENSE or SAMPLE."""
        name = f"rounds/{round_:02d}/collect"

        def work(folder: Path) -> dict[str, Any]:
            stage = self._exploration(kind, folder, self._round_tasks(round_), policy, round_)
            return self._make_trees(f"round {round_}: {kind.value}", policy, stage)

        self.store.stage(name, work)
        return Forest(self.root / name)

    def steps(self, round_: int, policy: Checkpoint, experts: Forest) -> Forest:
        """The policy's runs from every point of the experts' episodes of this round's tasks."""
        name = f"rounds/{round_:02d}/steps"

        def work(folder: Path) -> dict[str, Any]:
            known = {tree.task.key for tree in experts if any(tree.ended())}
            tasks = [task for task in self._round_tasks(round_) if task.key in known]
            stage = replace(self._exploration(Kind.STEPWISE, folder, tasks, policy, round_), source=experts.folder)
            return self._make_trees(f"round {round_}: steps", policy, stage)

        self.store.stage(name, work)
        return Forest(self.root / name)

    def revise(self, round_: int, policy: Checkpoint, forest: Forest) -> Forest:
        """The trees with their revisions: bad paths judged, splices executed."""
        name = f"rounds/{round_:02d}/revise"

        def work(folder: Path) -> dict[str, Any]:
            tasks = [tree.task for tree in forest]
            stage = self._stage(Kind.REVISE, folder, tasks, policy.version, salt=round_)
            stage = replace(
                stage,
                search=self.config.collect.search,
                source=forest.folder,
                revise=self.config.revise,
                alpha=self.alpha(round_),
            )
            summary = self._make_trees(f"round {round_}: revise", policy, stage)
            length, paths = revision_length(Forest(folder))
            return {**summary, "revision_length": length, "judged_paths": paths}

        self.store.stage(name, work)
        return Forest(self.root / name)

    def forest(self, round_: int, stage: str) -> Forest:
        """The trees that a stage of a round left.

        Raises:
            RunError: It was not run yet.
        """
        name = f"rounds/{round_:02d}/{stage}"
        if not self.store.sealed(name):
            raise RunError(f"{self.root} has no {name} yet", hint=f"Collect first: agentr collect CONFIG --round {round_}")
        return Forest(self.root / name)

    def evaluate(self, name: str, policy: Checkpoint) -> Evaluation:
        """The policy on the held-out tasks."""

        def work(folder: Path) -> dict[str, Any]:
            stage = self._stage(Kind.SAMPLE, folder, self._tasks(self.config.eval.tasks, training=False), policy.version)
            return self._measure(f"{name}: held-out episodes", policy, replace(stage, episodes=self.config.eval.episodes))

        self.store.stage(f"{name}/eval", work)
        if self.config.eval.recovery:
            self._recover(name, policy)
        result = Evaluation.from_dict(read_json(self.root / name / "eval" / "evaluation.json"))
        self.reporter.say(f"        {name}: success {result.success.as_percent()} % on {result.success.n} held-out tasks")
        return result

    def _recover(self, name: str, policy: Checkpoint) -> None:
        """How often the policy still succeeds from the beginnings of the warm start's failed episodes (Agent-R, Table 3)."""

        def work(folder: Path) -> dict[str, Any]:
            source = Forest(self.root / "rounds/00/eval")
            tasks = [tree.task for tree in source if can_recover(tree)]
            stage = self._stage(Kind.RECOVER, folder, tasks, policy.version)
            return self._measure(f"{name}: recovery from bad beginnings", policy, replace(stage, source=source.folder))

        self.store.stage(f"{name}/recovery", work)

    def _measure(self, title: str, policy: Checkpoint, stage: Stage) -> dict[str, Any]:
        """Plays a stage of episodes as ``eval`` says, writes its ``evaluation.json`` and returns its summary."""
        config = self.config.eval
        stage = replace(
            stage, sampling=config.sampling, in_flight=config.in_flight, max_steps=config.max_steps, max_invalid=config.max_invalid
        )
        summary = self._make_trees(title, policy, stage)
        spec = self.services.spec()
        result = evaluate(
            Forest(stage.folder), config.bootstrap, labels=tuple(spec.strata), identity=spec.identity, answer_prefix=spec.answer_prefix
        )
        write_json(stage.folder / "evaluation.json", result.as_dict())
        return {
            **summary,
            "success": result.success.mean,
            "success_low": result.success.low,
            "success_high": result.success.high,
            "best": result.best,
            **{f"within_{k}_answers": share for k, share in result.within_answers.items()},
            "tasks": result.success.n,
            "reward": result.reward.mean,
            "steps": result.steps,
            "invalid_rate": result.invalid_rate,
            "repeated_rate": result.repeated_rate,
        }

    # datasets ---------------------------------------------------------------------------------------------------------

    def demonstration_dataset(self, forest: Forest) -> Path:
        """The warm start's dataset."""
        name = "rounds/00/dataset"

        def work(folder: Path) -> dict[str, Any]:
            rows = demonstration_rows(forest, self.config.build)
            if not rows:
                raise RunError("the environment's expert gave no demonstration", hint="Set warm_start.enabled=false, or widen its tasks.")
            return write_rows(folder, rows)

        self.store.stage(name, work)
        return self.root / name

    def build(self, round_: int, make: Callable[[Path], dict[str, Any]]) -> Path:
        """This round's dataset.

        Args:
            make: Writes the dataset into the folder that it is given and returns its manifest.
        """
        name = f"rounds/{round_:02d}/dataset"

        def work(folder: Path) -> dict[str, Any]:
            with self.reporter.task(f"round {round_}: dataset"):
                return make(folder)

        self.store.stage(name, work)
        return self.root / name

    def earlier_rows(self, round_: int) -> list[Row]:
        """The agent's own rows of the rounds before this one that ``build.earlier_rounds`` asks for."""
        first = max(1, round_ - self.config.build.earlier_rounds)
        return [r for n in range(first, round_) for r in read_rows(self.root / f"rounds/{n:02d}/dataset") if is_own(r)]

    def demonstration_rows(self) -> list[Row]:
        """The warm start's rows, where ``build.demonstrations`` mixes them in."""
        folder = self.root / "rounds/00/dataset"
        return read_rows(folder) if self.config.build.demonstrations and folder.exists() else []

    def seed(self, round_: int) -> int:
        """Seed of what a round draws."""
        return self.config.run.seed * 1000 + round_

    @property
    def action_format(self) -> ActionFormat:
        return action_format(self.services.spec().action_format)

    # training ---------------------------------------------------------------------------------------------------------

    def train(self, name: str, dataset: Path, start: Checkpoint, train: TrainConfig) -> Checkpoint:
        """Training of ``start`` on a dataset: fine-tuning on sequences, DPO on preferences."""

        def work(folder: Path) -> dict[str, Any]:
            return self.services.train([self._job(name, dataset, start.path, folder, train)], f"{name}: training")[0]

        self.store.stage(f"{name}/train", work)
        return Checkpoint(f"{name}/train", self.root / name / "train" / "model")

    def warm_start(self) -> tuple[Checkpoint, Path | None]:
        """The first policy and the demonstrations it was made from, or the base model where there is no warm start."""
        model = self.base_model()
        if not self.config.warm_start.enabled:
            return model, None
        dataset = self.demonstration_dataset(self.demonstrations())
        return self.train("rounds/00", dataset, model, self.config.warm_start.train), dataset

    def control(self, warm_start: Checkpoint, demonstrations: Path | None) -> None:
        """The same steps with the same schedules on the demonstrations alone, evaluated beside the last round."""
        if demonstrations is None:
            raise RunError("run.control needs a warm start: there are no demonstrations", hint="Set run.control=false.")

        def work(folder: Path) -> dict[str, Any]:
            jobs: list[TrainJob] = []
            for round_ in self.rounds():
                done = self.store.record(f"rounds/{round_:02d}/train")
                assert done is not None, "the control comes after the rounds"
                start = jobs[-1].model if jobs and self.config.trainer.continue_from == "previous" else warm_start.path
                config = replace(self._control_config(round_), steps=done.summary["steps"])
                jobs.append(self._job(f"control-{round_:02d}", demonstrations, start, folder / f"{round_:02d}", config))
            results = self.services.train(jobs, "control: training")
            return {**results[-1], "steps": sum(r["steps"] for r in results)}

        self.store.stage("control/train", work)
        model = self.root / "control/train" / f"{self.config.run.rounds:02d}" / "model"
        self.evaluate("control", Checkpoint("control/train", model))

    def _control_config(self, round_: int) -> TrainConfig:
        """How the control trains in place of a round: like the round, or like the warm start where the round's rows are preferences."""
        preferences = read_manifest(self.root / f"rounds/{round_:02d}/dataset")["type"] == "preferences"
        return self.config.warm_start.train if preferences else self.train_config(round_)

    def _job(self, name: str, dataset: Path, start: Path, out: Path, train: TrainConfig) -> TrainJob:
        seeded = replace(train, seed=train.seed + self.config.run.seed)
        return TrainJob(dataset, start, out, seeded, self.config.trainer, name=name.replace("/", "-"))

    def promote(self) -> None:
        """Points ``best`` at the round with the highest held-out success; among equals the earliest."""
        results = {
            name: record.summary["success"]
            for name in ["rounds/00", *(f"rounds/{r:02d}" for r in self.rounds())]
            if (record := self.store.record(f"{name}/eval")) is not None and record.state == "sealed"
        }
        if not results:
            return
        best = max(results, key=lambda name: results[name])
        model = self.root / best / "train" / "model"
        if model.exists():
            link = self.root / "best"
            link.unlink(missing_ok=True) if link.is_symlink() else shutil.rmtree(link, ignore_errors=True)
            link.symlink_to(model.relative_to(self.root))
        write_json(self.root / "best.json", {"round": best, "success": results[best], "all": results})

    # ------------------------------------------------------------------------------------------------------------------

    def alpha(self, round_: int) -> float:
        """Least return of a good path in a round."""
        alphas = self.config.revise.alpha
        return alphas[min(round_, len(alphas)) - 1]

    def train_config(self, round_: int) -> TrainConfig:
        return self.config.train[min(round_, len(self.config.train)) - 1]

    def _tasks(self, selection: TaskSelection, *, training: bool) -> list[Task]:
        return self.services.tasks(selection, training=training)

    def _round_tasks(self, round_: int) -> list[Task]:
        """This round's share of the training tasks: the next ones in the selection's order, or the same ones each round."""
        selection = self.config.collect.tasks
        if selection.limit is None or not self.config.collect.fresh_tasks:
            return self._tasks(selection, training=True)
        everything = self._tasks(replace(selection, limit=None), training=True)
        count = min(selection.limit, len(everything))
        first = (round_ - 1) * count
        return [everything[i % len(everything)] for i in range(first, first + count)]

    def _stage(self, kind: Kind, folder: Path, tasks: list[Task], version: str, salt: int = 0) -> Stage:
        collect = self.config.collect
        return Stage(
            kind,
            folder,
            tuple(tasks),
            self.seed(salt),
            version,
            collect.sampling,
            in_flight=collect.in_flight,
            infra_retries=collect.infra_retries,
            max_failed=collect.max_failed,
        )

    def _exploration(self, kind: Kind, folder: Path, tasks: list[Task], policy: Checkpoint, round_: int) -> Stage:
        """A stage in which a round's policy explores as ``collect`` says."""
        config = self.config.collect
        return replace(
            self._stage(kind, folder, tasks, policy.version, salt=round_),
            search=config.search,
            dense=config.dense,
            siblings=self.config.build.siblings,
            episodes=config.episodes,
            max_invalid=config.search.max_invalid,
            max_completions=config.max_completions,
        )

    def _make_trees(self, title: str, policy: Checkpoint | None, stage: Stage) -> dict[str, Any]:
        """Runs a stage of trees on the services, seals its forest and returns its summary."""
        forest = Forest(stage.folder)
        if not forest.sealed:
            progress = self.services.run_stage(title, stage, policy.path if policy else None)
            about = {"kind": stage.kind, "version": stage.version, "seed": stage.seed, "action_format": self.services.spec().action_format}
            forest.seal(stage=about, progress=progress)
        progress = forest.manifest["progress"]
        return {
            "trees": forest.manifest["trees"],
            "failed": progress["failed"],
            "solved": progress["successes"],
            **progress["counts"],
        }


def _some(ids: Iterable[str]) -> str:
    """The first few of many."""
    return ", ".join(itertools.islice(ids, 3)) + ", ..."
