"""What a policy is worth on held-out tasks: its episodes, and what is made of them besides, a stage each."""

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from agentr.collect.episode_judge import Assess
from agentr.collect.grow import AfterHarm, AfterRefusals, BadBeginning, Grow
from agentr.collect.job import TreeJob, Work
from agentr.collect.shorten import Shorten
from agentr.collect.units import Limits
from agentr.config.policy import SamplingConfig, Who
from agentr.config.schema import Beginning, EvalConfig, TaskSelection
from agentr.errors import ConfigError
from agentr.evaluate.metrics import Evaluation, conciseness, evaluate, judged
from agentr.evaluate.statistics import Estimate
from agentr.rounds.experiment import Experiment
from agentr.search import Sample
from agentr.store.files import read_json, write_json
from agentr.store.forest import Forest
from agentr.store.layout import (
    EVAL,
    EVALUATION,
    JUDGED,
    SAMPLED,
    SELECTION,
    SHORTENED,
    WARM_START,
    Arm,
    Checkpoint,
    recovery_stage,
)
from agentr.store.summaries import EvalSummary, TreeSummary
from agentr.types import Task


def evaluations(config: EvalConfig, arm: Arm) -> list[str]:
    """Returns the names of an arm's stages of evaluation, in the order in which `HeldOut.measure` makes them."""
    asked = {
        SELECTION: bool(config.select) and not arm.reference,
        SAMPLED: config.sampled > 0,
        **{recovery_stage(beginning): config.recovery for beginning in config.recovery_from},
        SHORTENED: config.conciseness,
        JUDGED: config.judge.who is not Who.nobody,
    }
    return [arm.stage(name) for name in (EVAL, *(name for name, wanted in asked.items() if wanted))]


def check(experiment: Experiment) -> None:
    """Checks that the environment has what policies are measured with.

    Raises:
        ConfigError: It has not.
    """
    config = experiment.plan.config.eval
    if not config.recovery or Beginning.harm not in config.recovery_from:
        return
    spec = experiment.spec()
    if not spec.guides:
        message = f"eval.recovery_from: harm: {spec.name} has no expert that says from any state what is left to do"
        raise ConfigError(message, hint="Leave harm out.")


@dataclass(frozen=True)
class HeldOut:
    """The measurements of one policy."""

    experiment: Experiment
    arm: Arm
    policy: Checkpoint

    @property
    def config(self) -> EvalConfig:
        return self.experiment.plan.config.eval

    def measure(self) -> None:
        """Measures the policy, unless other stages alone are to be run."""
        config, store = self.config, self.experiment.store
        wanted = list(filter(store.stages.wants, evaluations(config, self.arm)))
        if not wanted:
            return
        episodes = Grow(Sample(config.episodes, config.max_steps, config.max_invalid))
        self._play(EVAL, episodes, self._tasks(config.tasks))
        if self.arm.stage(SELECTION) in wanted:
            self._play(SELECTION, episodes, self._tasks(replace(config.tasks, split=config.select)))
        if self.arm.stage(SAMPLED) in wanted:
            drawn = Grow(Sample(config.sampled, config.max_steps, config.max_invalid))
            temperature = config.sampling.temperature or 1.0
            sampling = replace(config.sampling, temperature=temperature)
            self._play(SAMPLED, drawn, self._tasks(config.tasks), sampling=sampling)
        for beginning in config.recovery_from:
            if self.arm.stage(recovery_stage(beginning)) in wanted:
                self._recover(beginning)
        if self.arm.stage(SHORTENED) in wanted:
            work = Shorten(2 if config.sampling.temperature else 1, config.max_steps, config.max_invalid)
            self._make_of_episodes(SHORTENED, work, conciseness)
        if self.arm.stage(JUDGED) in wanted:
            self._make_of_episodes(JUDGED, Assess(config.judge), judged)
        result = Evaluation.from_dict(read_json(store.layout.evaluation(self.arm.stage(EVAL))))
        said = f"        {self.arm.title}: success {result.success.as_percent()} % on {result.success.n} held-out tasks"
        self.experiment.reporter.message(said)

    def _tasks(self, selection: TaskSelection) -> Callable[[], Sequence[Task]]:
        return lambda: self.experiment.services.collecting.tasks(selection, training=False)

    def _recover(self, beginning: Beginning) -> None:
        """Measures how often the policy still succeeds from beginnings of the warm start's episodes: the same states
        for every policy."""
        prefixes = {
            Beginning.random: BadBeginning(self.experiment.plan.seed(0)),
            Beginning.refusal: AfterRefusals(1),
            Beginning.two_refusals: AfterRefusals(2),
            Beginning.harm: AfterHarm(),
        }
        source = self._episodes(WARM_START)
        one = Sample(1, self.config.max_steps, self.config.max_invalid)
        self._play(recovery_stage(beginning), Grow(one, prefixes[beginning]), source.tasks, source)

    def _episodes(self, arm: Arm) -> Forest:
        return Forest(self.experiment.store.layout.stage(arm.stage(EVAL)), arm.stage(EVAL))

    def _make_of_episodes(self, stage: str, work: Work, metric: Callable[..., dict[str, Estimate]]) -> None:
        """Makes a stage of the policy's held-out episodes, and writes a metric of what came of it."""
        name, source = self.arm.stage(stage), self._episodes(self.arm)

        def make(folder: Path) -> TreeSummary:
            job = self._job(folder, work, (), source, self.config.sampling)
            made = self.experiment.play(name, job, self.policy)
            found = metric(Forest(folder), self.experiment.services.collecting.spec().identity)
            write_json(folder / EVALUATION, {key: asdict(value) for key, value in found.items()})
            return made

        self.experiment.store.stages.run(name, TreeSummary, make, self._made_with(work, self.config.sampling))

    def _play(
        self,
        stage: str,
        work: Work,
        tasks: Callable[[], Sequence[Task]],
        source: Forest | None = None,
        sampling: SamplingConfig | None = None,
    ) -> None:
        """Plays a stage of episodes and writes its metrics.

        Args:
            sampling: How turns are drawn; by default as ``eval.sampling`` says.
        """
        name, sampling = self.arm.stage(stage), sampling or self.config.sampling

        def make(folder: Path) -> EvalSummary:
            job = self._job(folder, work, tasks(), source, sampling)
            made = self.experiment.play(name, job, self.policy)
            spec = self.experiment.services.collecting.spec()
            # Of any round's method: all policies of a run are measured alike.
            methods = [config.method for config in self.experiment.plan.rounds]
            said = tuple(dict.fromkeys(sentence for method in methods for sentence in method.reflections()))
            found = evaluate(Forest(folder), tuple(spec.strata), spec.identity, spec.answer_prefix, said)
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

        self.experiment.store.stages.run(name, EvalSummary, make, self._made_with(work, sampling))

    def _job(
        self, folder: Path, work: Work, tasks: Sequence[Task], source: Forest | None, sampling: SamplingConfig
    ) -> TreeJob:
        """Returns the job of a stage of held-out episodes, and notes what it reads.

        Args:
            tasks: Tasks to choose from, for a work that does not take them from ``source``.
        """
        self.experiment.store.stages.use(self.policy.name)
        if source is not None:
            self.experiment.store.stages.use(source.stage)
        return TreeJob(
            folder=folder,
            tasks=tuple(work.tasks(tasks, source)),
            seed=self.experiment.plan.seed(0),
            policy=self.policy.name,
            work=work,
            sampling=sampling,
            limits=replace(Limits.of(self.experiment.plan.config.collect), in_flight=self.config.in_flight),
            source=source.folder if source else None,
        )

    def _made_with(self, work: Work, sampling: SamplingConfig) -> dict[str, object]:
        return {"kind": work.kind, "work": work, "sampling": sampling, "seed": self.experiment.plan.seed(0)}
