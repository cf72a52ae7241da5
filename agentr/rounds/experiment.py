"""The stages of a run: trees, datasets, trainings, evaluations. Each is sealed when it is done and skipped when it is sealed.

A stage reads sealed stages and writes its own folder. Policies are named by the stage that trained them, so that every tree and every
row says which policy it came from. ``agentr.rounds.loop`` puts the stages in order.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, replace
from functools import cache, cached_property
from pathlib import Path

from agentr.build.dataset import write_dataset
from agentr.build.imports import demonstrated_turns
from agentr.build.revision import demonstrated_rows
from agentr.build.targets import Targets
from agentr.cluster.causes import Cause, CauseKind
from agentr.collect.demonstrate import Demonstrate
from agentr.collect.episode_judge import Assess
from agentr.collect.grow import BadBeginning, Grow
from agentr.collect.job import TreeJob, Work
from agentr.collect.shorten import Shorten
from agentr.collect.units import Limits
from agentr.config.policy import Who
from agentr.config.schema import CollectConfig, Config
from agentr.config.training import TrainConfig
from agentr.errors import ConfigError
from agentr.evaluate.metrics import Evaluation, conciseness, evaluate, judged, revision_length
from agentr.evaluate.statistics import Estimate
from agentr.models.load import load_codec, resolve
from agentr.observe.progress import Reporter
from agentr.observe.troubles import tell
from agentr.rounds.services import Services
from agentr.search import Sample
from agentr.store.dataset import rows_hash
from agentr.store.files import read_json, write_json
from agentr.store.forest import Forest
from agentr.store.layout import (
    CONTROL,
    DATASET,
    DEMONSTRATIONS,
    EVAL,
    EVALUATION,
    JUDGED,
    MODEL,
    RECOVERY,
    SELECTION,
    SHORTENED,
    TRAIN,
    WARM_START,
    Arm,
    Checkpoint,
)
from agentr.store.run import RunStore
from agentr.store.seal import hash_folder
from agentr.store.summaries import DatasetSummary, EvalSummary, ModelSummary, TrainSummary, TreeSummary
from agentr.tasks.tools import ACT, described
from agentr.train.job import TrainJob
from agentr.types import Task
from agentr.words import counted


class Experiment:
    """The stages of one run.

    Args:
        services: Ray, engines, environment servers; started when a stage first needs them.
        config_at: Gives the configuration that holds in a round; by default it is the same in all.
    """

    def __init__(
        self, config: Config, store: RunStore, services: Services, reporter: Reporter, config_at: Callable[[int], Config] | None = None
    ) -> None:
        self.config = config
        self.config_at = cache(config_at) if config_at is not None else lambda round_: config
        self.store = store
        self.services = services
        self.reporter = reporter
        store.say = reporter.say

    @property
    def root(self) -> Path:
        return self.store.root

    def seed(self, round_: int) -> int:
        """Returns the seed of everything that a round draws; 0 is the warm start."""
        return self.config.run.seed * 1000 + round_

    # models -----------------------------------------------------------------------------------------------------------

    def base_model(self) -> Checkpoint:
        """Returns the model that the experiment starts from, as a folder in the run directory (or the user's own folder)."""

        def work(folder: Path) -> ModelSummary:
            with self.reporter.task(f"model {self.config.model.source}"):
                path = resolve(self.config.model, folder)
                outside = not path.is_relative_to(self.root)
                trains = {self.config_at(round_).build.train_on_reasoning for round_ in range(self.config.run.rounds + 1)}
                codec = load_codec(path, self.config.model)
                codec.offering([ACT], self.config.turns)  # refused now, not after the engines have started
                remarks = codec.remarks(self.config.turns.keep_reasoning, trains.pop() if len(trains) == 1 else None)
            for remark in remarks:
                self.reporter.say(f"model: {remark}")
            kept = self.store.stored_path(path)
            return ModelSummary(path=kept, folder_hash=hash_folder(path) if outside else None, remarks=remarks or None)

        path = self.store.model_path(self.store.stage(MODEL, ModelSummary, work, {"model": self.config.model}).path)
        self.services.model = path
        return Checkpoint(MODEL, path)

    @cached_property
    def codec(self):
        """Conversations as token ids, for the model's tokenizer. Training does not change it."""
        return load_codec(self.base_model().path, self.config.model)

    # trees ------------------------------------------------------------------------------------------------------------

    def trees(
        self,
        name: str,
        work: Work,
        policy: Checkpoint | None,
        seed: int,
        tasks: Callable[[], Sequence[Task]],
        source: Forest | None = None,
        collect: CollectConfig | None = None,
    ) -> Forest:
        """Runs a stage of trees as ``collect`` says, unless it is sealed, and returns them.

        Args:
            collect: What holds in the round; by default what holds in the first.
            policy: Who answers; None for stages without a policy.
            tasks: Tasks to choose from; asked only if the stage is not sealed.
            source: Trees that the work starts from.
        """
        collect = collect or self.config.collect

        def make(folder: Path) -> TreeSummary:
            for used in (policy.name if policy else "", source.stage if source else ""):
                if used:
                    self.store.use(used)
            limited = work.max_completions(self.services.spec().step_limit)
            job = TreeJob(
                folder=folder,
                tasks=tuple(work.tasks(tasks(), source)),
                seed=seed,
                policy=policy.name if policy else "",
                work=work,
                sampling=collect.sampling,
                limits=self._limits(collect.in_flight, collect.max_completions if limited else 0),
                source=source.folder if source else None,
            )
            summary = self._make(name, job, policy)
            if source is None or not work.extends:
                return summary
            length, paths = revision_length(Forest(folder))
            return replace(summary, revision_length=length, judged_paths=paths, includes=source.stage)

        made_with = {"kind": work.kind, "work": work, "sampling": collect.sampling, "seed": seed}
        new = not self.store.sealed(name)
        self.store.stage(name, TreeSummary, make, made_with)
        forest = self.forest(name)
        if new:
            self._tell_identical(forest)
        return forest

    def _tell_identical(self, forest: Forest) -> None:
        """Says so if no tree of a stage has two different episodes."""
        trees = forest.manifest["trees"]
        if trees and forest.manifest["progress"].get("identical", 0) == trees:
            evidence = f"each of {trees} trees has one episode, drawn again and again"
            hint = "Raise collect.sampling.temperature, or choose other tasks (collect.tasks)."
            cause = Cause(CauseKind.trees_identical, "every tree is identical in itself: there is nothing to choose from", evidence, hint)
            tell(self.reporter, self.store.event, forest.stage, [cause])

    def forest(self, name: str) -> Forest:
        """Returns the trees that a stage left.

        Raises:
            RunError: It was not run yet.
        """
        self.store.use(name)
        return Forest(self.store.layout.stage(name), name)

    def demonstrations(self) -> Forest:
        """Plays the expert's episodes of the warm start's tasks, or those of the user's files."""

        def tasks() -> list[Task]:
            chosen = [task for selection in self.config.warm_start.tasks for task in self.services.tasks(selection, training=True)]
            found = list(dict.fromkeys(chosen))
            self._need_scripted(work, found)
            return found

        name, work = WARM_START.stage(DEMONSTRATIONS), Demonstrate(self._scripted_turns())
        new = not self.store.sealed(name)
        forest = self.trees(name, work, None, self.seed(0), tasks)
        record = self.store.record(name)
        if new and work.scripted_turns is not None and record is not None:
            played = record.read(TreeSummary)
            self.reporter.say(f"        {played.solved} of {played.trees} succeeded when they were played")
        return forest

    def _scripted_turns(self) -> dict[str, tuple[str, ...]] | None:
        files = self.config.warm_start.files
        return demonstrated_turns([Path(file) for file in files]) if files else None

    def _need_scripted(self, work: Demonstrate, tasks: Sequence[Task]) -> None:
        """Says how many trajectories of the user's files are used; none is an error."""
        if work.scripted_turns is None:
            return
        files, found = self.config.warm_start.files, work.tasks(tasks, None)
        if not found:
            raise ConfigError(
                f"no trajectory in {', '.join(files)} has the id of a task that warm_start.tasks selects",
                hint=f"Ids there: {_some(work.scripted_turns)}. Ids of the tasks: {_some(task.id for task in tasks)}.",
            )
        self.reporter.say(f"        {len(found)} of {len(work.scripted_turns)} trajectories are of tasks that warm_start.tasks selects")

    def _limits(self, in_flight: int, max_completions: int = 0) -> Limits:
        collect = self.config.collect
        return Limits(
            in_flight=in_flight, infra_retries=collect.infra_retries, max_failed=collect.max_failed, max_completions=max_completions
        )

    def _make(self, title: str, job: TreeJob, policy: Checkpoint | None) -> TreeSummary:
        """Runs a job on the services, seals its forest and returns its summary."""
        forest = Forest(job.folder)
        if not forest.sealed:
            progress = self.services.run_job(title, job, policy)
            about = {"kind": job.work.kind, "version": job.policy, "seed": job.seed, **described(self.services.spec(), self.config.turns)}
            forest.seal(stage=about, progress=progress)
        manifest = forest.manifest
        progress = manifest["progress"]
        if progress.get("regrown"):
            self.reporter.say(
                f"        set aside as damaged, and grown anew: {counted(len(progress['regrown']), 'tree')}: {_some(progress['regrown'])}"
            )
        counts = {"trees": manifest["trees"], "failed": progress["failed"], "solved": progress["successes"]}
        return TreeSummary.read({**counts, **progress["counts"], "trees_hash": manifest.get("trees_hash")})

    # evaluation -------------------------------------------------------------------------------------------------------

    def evaluations(self, arm: Arm) -> list[str]:
        """Returns the names of an arm's stages of evaluation, in the order in which ``evaluate`` makes them."""
        config = self.config.eval
        asked = {
            SELECTION: bool(config.select) and arm != CONTROL,
            RECOVERY: config.recovery,
            SHORTENED: config.conciseness,
            JUDGED: config.judge.who is not Who.nobody,
        }
        return [arm.stage(name) for name in (EVAL, *(name for name, wanted in asked.items() if wanted))]

    def evaluate(self, arm: Arm, policy: Checkpoint) -> None:
        """Measures a policy on the held-out tasks, unless other stages alone are to be run."""
        wanted = list(filter(self.store.wants, self.evaluations(arm)))
        if not wanted:
            return
        config = self.config.eval
        episodes = Grow(Sample(config.episodes, config.max_steps, config.max_invalid))
        self._measure(arm.stage(EVAL), episodes, policy, lambda: self.services.tasks(config.tasks, training=False))
        if arm.stage(SELECTION) in wanted:
            choosing = replace(config.tasks, split=config.select)
            self._measure(arm.stage(SELECTION), episodes, policy, lambda: self.services.tasks(choosing, training=False))
        if arm.stage(RECOVERY) in wanted:
            self._measure_recovery(arm, policy)
        if arm.stage(SHORTENED) in wanted:
            work = Shorten(2 if config.sampling.temperature else 1, config.max_steps, config.max_invalid)
            self._measure_besides(arm, SHORTENED, work, conciseness, policy)
        if arm.stage(JUDGED) in wanted:
            self._measure_besides(arm, JUDGED, Assess(config.judge), judged, policy)
        result = Evaluation.from_dict(read_json(self.store.layout.evaluation(arm.stage(EVAL))))
        self.reporter.say(f"        {arm.title}: success {result.success.as_percent()} % on {result.success.n} held-out tasks")

    def _measure_recovery(self, arm: Arm, policy: Checkpoint) -> None:
        """Measures how often the policy still succeeds from the beginnings of the warm start's failed episodes (Agent-R, Table 3)."""
        source = Forest(self.store.layout.stage(WARM_START.stage(EVAL)), WARM_START.stage(EVAL))
        one = Sample(1, self.config.eval.max_steps, self.config.eval.max_invalid)
        work = Grow(one, BadBeginning(self.seed(0)))
        self._measure(arm.stage(RECOVERY), work, policy, source.tasks, source)

    def _measure_besides(self, arm: Arm, stage: str, work: Work, metric: Callable[..., dict[str, Estimate]], policy: Checkpoint) -> None:
        """Makes a stage of a policy's held-out episodes, and writes a metric of what came of it."""
        name = arm.stage(stage)
        source = Forest(self.store.layout.stage(arm.stage(EVAL)), arm.stage(EVAL))

        def measure(folder: Path) -> TreeSummary:
            made = self._make(name, self._held_out(folder, work, policy, (), source), policy)
            found = metric(Forest(folder), self.services.spec().identity)
            write_json(folder / EVALUATION, {key: asdict(value) for key, value in found.items()})
            return made

        self.store.stage(name, TreeSummary, measure, self._measured_with(work))

    def _held_out(self, folder: Path, work: Work, policy: Checkpoint, tasks: Sequence[Task], source: Forest | None) -> TreeJob:
        """Returns the job of a stage of held-out episodes, and notes what it reads.

        Args:
            tasks: Tasks to choose from, for a work that does not take them from ``source``.
        """
        self.store.use(policy.name)
        if source is not None:
            self.store.use(source.stage)
        return TreeJob(
            folder=folder,
            tasks=tuple(work.tasks(tasks, source)),
            seed=self.seed(0),
            policy=policy.name,
            work=work,
            sampling=self.config.eval.sampling,
            limits=self._limits(self.config.eval.in_flight),
            source=source.folder if source else None,
        )

    def _measured_with(self, work: Work) -> dict[str, object]:
        return {"kind": work.kind, "work": work, "sampling": self.config.eval.sampling, "seed": self.seed(0)}

    def _measure(
        self, name: str, work: Work, policy: Checkpoint, tasks: Callable[[], Sequence[Task]], source: Forest | None = None
    ) -> None:
        """Plays a stage of episodes as ``eval`` says and writes its metrics."""

        def measure(folder: Path) -> EvalSummary:
            made = self._make(name, self._held_out(folder, work, policy, tasks(), source), policy)
            spec = self.services.spec()
            labels = tuple(spec.strata)
            # Of any round's method: all policies of a run are measured alike.
            methods = [self.config_at(round_).method for round_ in range(self.config.run.rounds + 1)]
            said = tuple(dict.fromkeys(sentence for method in methods for sentence in method.reflections()))
            found = evaluate(Forest(folder), labels, spec.identity, spec.answer_prefix, said)
            write_json(folder / EVALUATION, found.as_dict())
            return EvalSummary(
                trees=made.trees,
                failed=made.failed,
                solved=made.solved,
                cost=made.cost,
                events=made.events,
                success=found.success.mean,
                success_low=found.success.low,
                success_high=found.success.high,
                best=found.best,
                tasks=found.success.n,
                reward=found.reward.mean,
                steps=found.steps,
                invalid_rate=found.invalid_rate,
                repeated_rate=found.repeated_rate,
                within_answers=found.within_answers,
                trees_hash=made.trees_hash,
            )

        self.store.stage(name, EvalSummary, measure, self._measured_with(work))

    # training ---------------------------------------------------------------------------------------------------------

    def demonstration_dataset(self) -> Path:
        """Writes the warm start's dataset: the experts' episodes that earned a success, trained on every turn."""
        name = WARM_START.stage(DATASET)

        def work(folder: Path) -> DatasetSummary:
            build = self.config.build
            rows = (row for tree in self.demonstrations() for row in demonstrated_rows(tree, Targets.of(build)))
            hint = "Set warm_start.enabled=false, widen its tasks, or raise build.max_length."
            return DatasetSummary.read(write_dataset(folder, rows, build.max_length, source="the environment's expert", hint=hint))

        self.store.stage(name, DatasetSummary, work, {"build": self.config.build})
        self.store.use(name)
        return self.store.layout.stage(name)

    def warm_start(self) -> tuple[Checkpoint, Path | None]:
        """Returns the first policy and the demonstrations it was made from, or the base model if there is no warm start."""
        model = self.base_model()
        if not self.config.warm_start.enabled:
            return model, None
        self.demonstrations()
        dataset = self.demonstration_dataset()
        return self.train(WARM_START.stage(TRAIN), dataset, model, self.config.warm_start.train), dataset

    def train_config(self, round_: int) -> TrainConfig:
        """Returns how a round trains."""
        train = self.config_at(round_).train
        return train[min(round_, len(train)) - 1]

    def train(self, name: str, dataset: Path, start: Checkpoint, train: TrainConfig) -> Checkpoint:
        """Trains ``start`` on a dataset, with the loss of the dataset's type.

        Args:
            name: Stage of the training.
        """

        def work(folder: Path) -> TrainSummary:
            self.store.use(start.name)
            if dataset.is_relative_to(self.root):
                self.store.use(self.store.stored_path(dataset))
            return self.train_many([self.train_job(name, dataset, start, folder, train)], name)[0]

        self.store.stage(name, TrainSummary, work, {"train": train, "seed": self.config.run.seed, "dataset": rows_hash(dataset)})
        return self.store.layout.checkpoint(name)

    def train_many(self, jobs: list[TrainJob], title: str) -> list[TrainSummary]:
        """Trains a chain of jobs and returns their results as the manifest keeps them."""
        results = self.services.train(jobs, title)
        return [replace(result, checkpoint=self.store.stored_path(Path(result.checkpoint))) for result in results]

    def train_job(self, name: str, dataset: Path, start: Checkpoint, folder: Path, train: TrainConfig) -> TrainJob:
        """Returns a job of training with the run's seed."""
        seeded = replace(train, seed=train.seed + self.config.run.seed)
        return TrainJob(
            dataset=dataset,
            start=start.path,
            out=folder,
            config=seeded,
            trainer=self.config.trainer,
            name=name.replace("/", "-"),
            chat_template=self.codec.replaced,
            stop_ids=self.codec.stop_ids,
        )


def _some(ids: Iterable[str]) -> str:
    """The first few of many."""
    first = list(itertools.islice(ids, 4))
    return ", ".join([*first[:3], "..."] if len(first) > 3 else first)
