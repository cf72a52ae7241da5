"""The stages of a run: trees, datasets, trainings, evaluations.
Each is sealed when it is done and skipped when it is sealed.

A stage reads sealed stages and writes its own folder. Policies are named by the stage that trained them, so that every
tree and every row says which policy it came from. ``agentr.rounds.loop`` puts the stages in order.
"""

import itertools
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path

from agentr.cluster.causes import Cause, CauseKind
from agentr.collect.job import TreeJob, Work
from agentr.collect.units import Limits
from agentr.config.schema import CollectConfig
from agentr.config.training import TrainConfig
from agentr.evaluate.metrics import revision_length
from agentr.models.load import load_codec, resolve
from agentr.observe.progress import Reporter
from agentr.observe.troubles import announce
from agentr.rounds.plan import Plan
from agentr.rounds.services import Services
from agentr.store.dataset import rows_hash
from agentr.store.forest import Forest
from agentr.store.layout import (
    MODEL,
    Checkpoint,
)
from agentr.store.run import RunStore
from agentr.store.seal import hash_folder
from agentr.store.summaries import ModelSummary, TrainSummary, TreeSummary
from agentr.tasks.tools import ACT, described
from agentr.train.job import TrainJob
from agentr.types import Task
from agentr.words import counted
from env_servers.observation import NOT_AGAIN
from env_servers.protocol import EnvironmentSpec


class Experiment:
    """What the stages of one run have in common.

    Args:
        services: Ray, engines, environment servers; started when a stage first needs them.
    """

    def __init__(self, plan: Plan, store: RunStore, services: Services, reporter: Reporter) -> None:
        self.plan = plan
        self.store = store
        self.services = services
        self.reporter = reporter
        store.notify = reporter.message

    @property
    def root(self) -> Path:
        return self.store.root

    # models -----------------------------------------------------------------------------------------------------------

    def base_model(self) -> Checkpoint:
        """Returns the model that the experiment starts from, as a folder in the run directory (or the user's own
        folder)."""

        model, turns = self.plan.config.model, self.plan.config.turns

        def work(folder: Path) -> ModelSummary:
            with self.reporter.task(f"model {model.source}"):
                path = resolve(model, folder)
                outside = not path.is_relative_to(self.root)
                trains = {config.build.train_on_reasoning for config in self.plan.rounds}
                codec = load_codec(path, model)
                codec.offering([ACT], turns)  # refused now, not after the engines have started
                remarks = codec.remarks(turns.keep_reasoning, trains.pop() if len(trains) == 1 else None)
            for remark in remarks:
                self.reporter.message(f"model: {remark}")
            kept = self.store.stored_path(path)
            return ModelSummary(path=kept, folder_hash=hash_folder(path) if outside else None, remarks=remarks or None)

        path = self.store.model_path(self.store.stages.run(MODEL, ModelSummary, work, {"model": model}).path)
        self.services.collecting.model = path
        return Checkpoint(MODEL, path)

    def spec(self) -> EnvironmentSpec:
        """Returns the environment's specification; who asks for it needs the model's tokenizer."""
        self.base_model()
        return self.services.collecting.spec()

    @cached_property
    def codec(self):
        """Conversations as token ids, for the model's tokenizer. Training does not change it."""
        return load_codec(self.base_model().path, self.plan.config.model)

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
        collect = collect or self.plan.config.collect

        def make(folder: Path) -> TreeSummary:
            for used in (policy.name if policy else "", source.stage if source else ""):
                if used:
                    self.store.stages.use(used)
            limited = work.max_completions(self.services.collecting.spec().step_limit)
            job = TreeJob(
                folder=folder,
                tasks=tuple(work.tasks(tasks(), source)),
                seed=seed,
                policy=policy.name if policy else "",
                work=work,
                sampling=collect.sampling,
                limits=Limits.of(collect, collect.max_completions if limited else 0),
                source=source.folder if source else None,
            )
            summary = self.play(name, job, policy)
            if source is None or not work.extends:
                return summary
            length, paths = revision_length(Forest(folder))
            return replace(summary, revision_length=length, judged_paths=paths, includes=source.stage)

        made_with = {"kind": work.kind, "work": work, "sampling": collect.sampling, "seed": seed}
        new = not self.store.sealed(name)
        self.store.stages.run(name, TreeSummary, make, made_with)
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
            cause = Cause(
                CauseKind.trees_identical,
                "every tree is identical in itself: there is nothing to choose from",
                evidence,
                hint,
            )
            announce(self.reporter, self.store.event, forest.stage, [cause])

    def forest(self, name: str) -> Forest:
        """Returns the trees that a stage left.

        Raises:
            RunError: It was not run yet.
        """
        self.store.stages.use(name)
        return Forest(self.store.layout.stage(name), name)

    def play(self, title: str, job: TreeJob, policy: Checkpoint | None) -> TreeSummary:
        """Runs a job on the services, seals its forest and returns its summary."""
        forest = Forest(job.folder)
        if not forest.sealed:
            progress = self.services.collect(title, job, policy)
            about = {
                "kind": job.work.kind,
                "version": job.policy,
                "seed": job.seed,
                **described(self.services.collecting.spec(), self.plan.config.turns),
            }
            forest.seal(stage=about, progress=progress)
        manifest = forest.manifest
        progress = manifest["progress"]
        if progress.get("regrown"):
            self.reporter.message(
                f"        set aside as damaged, and grown anew: {counted(len(progress['regrown']), 'tree')}: "
                f"{some(progress['regrown'])}"
            )
        starts, answers, seconds = progress.get("again", NOT_AGAIN)
        if starts:
            self.reporter.message(
                f"        programs begun again: {starts:,}, with {answers:,} answers, in {seconds:,.0f} s of theirs"
            )
        counts = {"trees": manifest["trees"], "failed": progress["failed"], "solved": progress["successes"]}
        return TreeSummary.read({**counts, **progress["counts"], "trees_hash": manifest.get("trees_hash")})

    # training ---------------------------------------------------------------------------------------------------------

    def train(self, name: str, dataset: Path, start: Checkpoint, train: TrainConfig) -> Checkpoint:
        """Trains ``start`` on a dataset, with the loss of the dataset's type.

        Args:
            name: Stage of the training.
        """

        def work(folder: Path) -> TrainSummary:
            self.store.stages.use(start.name)
            if dataset.is_relative_to(self.root):
                self.store.stages.use(self.store.stored_path(dataset))
            return self.train_many([self.train_job(name, dataset, start, folder, train)], name)[0]

        made_with = {"train": train, "seed": self.plan.config.run.seed, "dataset": rows_hash(dataset)}
        return self.checkpoint(name, self.store.stages.run(name, TrainSummary, work, made_with))

    def checkpoint(self, name: str, trained: TrainSummary) -> Checkpoint:
        """Returns the policy that a stage of training came to."""
        return Checkpoint(name, self.store.model_path(trained.checkpoint))

    def train_many(self, jobs: list[TrainJob], title: str) -> list[TrainSummary]:
        """Trains a chain of jobs and returns their results as the manifest keeps them."""
        results = self.services.train(jobs, title)
        return [replace(result, checkpoint=self.store.stored_path(Path(result.checkpoint))) for result in results]

    def train_job(self, name: str, dataset: Path, start: Checkpoint, folder: Path, train: TrainConfig) -> TrainJob:
        """Returns a job of training with the run's seed."""
        return TrainJob(
            dataset=dataset,
            start=start.path,
            out=folder,
            config=self.plan.seeded(train),
            trainer=self.plan.config.trainer,
            name=name.replace("/", "-"),
            chat_template=self.codec.replaced,
            stop_ids=self.codec.stop_ids,
        )


def some(ids: Iterable[str]) -> str:
    """The first few of many."""
    first = list(itertools.islice(ids, 4))
    return ", ".join([*first[:3], "..."] if len(first) > 3 else first)
