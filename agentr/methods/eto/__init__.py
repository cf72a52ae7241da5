"""ETO (Song et al. 2024, arXiv 2403.02502): explore each training task, prefer what earned more, round after round."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from pydantic import NonNegativeInt, PositiveInt

from agentr.collect.grow import ExpertPath, Grow
from agentr.collect.job import Work
from agentr.config.checks import Problem
from agentr.config.schema import Config
from agentr.methods.eto.rows import ComparedWith, ContrastConfig, Granularity, contrast_rows
from agentr.rounds.method import PreferenceConfig, Preferring, read_presets, sampling_problems
from agentr.rounds.round import Round
from agentr.rows.dataset import Candidate
from agentr.search import Sample, Stepwise


@dataclass
class ETOConfig(PreferenceConfig):
    """ETO (docs/eto.md)."""

    type: str = "eto"
    episodes: PositiveInt = 1
    """Runs of each task, or from each turn of the expert's episode; more than one needs a temperature."""
    max_steps: NonNegativeInt = 0
    """Actions in a run; 0 means the environment's own limit."""
    max_invalid: NonNegativeInt = 0
    """A run ends after so many invalid actions in a row; 0 means never."""
    pairs: ContrastConfig = field(default_factory=ContrastConfig)
    """Which runs are a better and a worse one."""

    def problems(self) -> Iterator[Problem]:
        pairs = self.pairs
        if pairs.baseline is ComparedWith.own and self.episodes == 1:
            message = "method.pairs.baseline = own compares runs of one task, and method.episodes = 1 makes only one"
            yield Problem("pairs.baseline", message, "Set method.episodes=2 or more, and a temperature.")
        if pairs.baseline is ComparedWith.own and pairs.granularity is not Granularity.trajectory:
            message = (
                f"granularity = {pairs.granularity.value} needs the expert's turns, and baseline = own does without"
            )
            yield Problem(
                "pairs.granularity",
                message,
                "Set method.pairs.baseline=expert, or method.pairs.granularity=trajectory.",
            )


class ETO(Preferring[ETOConfig]):
    """Runs of each task, pairs of a better and a worse one, preference optimisation."""

    name = "eto"
    title = "ETO (arXiv 2403.02502)"
    environments = ("webshop", "sciworld", "alfworld", "household")
    page = "docs/eto.md"
    config_class = ETOConfig
    presets = read_presets(__file__)

    @classmethod
    def check(cls, config: Config) -> Iterator[Problem]:
        yield from sampling_problems(config)
        granularity = config.method.pairs.granularity  # type: ignore[attr-defined]
        if not config.turns.keep_reasoning and granularity is not Granularity.step:
            message = (
                "false leaves reasoning out of later prompts, so that a run is no one sequence, and the sides of pairs "
                "are whole runs"
            )
            yield Problem(
                "turns.keep_reasoning", message, "Set turns.keep_reasoning=true, or method.pairs.granularity=step."
            )

    def exploration(self, round_: int) -> Mapping[str, Work]:
        config, granularity = self.config, self.config.pairs.granularity
        stages: dict[str, Work] = {}
        if granularity is not Granularity.step:  # whole runs
            stages["collect"] = Grow(Sample(config.episodes, config.max_steps, config.max_invalid))
        if granularity is not Granularity.trajectory:  # runs from every point of the expert's episode
            stages["steps"] = Grow(Stepwise(config.episodes, config.max_steps, config.max_invalid), ExpertPath())
        return stages

    def rows(self, round_: Round) -> Iterator[Candidate]:
        pairs, build = self.config.pairs, round_.config.build
        experts = round_.demonstrations() if pairs.baseline is ComparedWith.expert else None
        known = experts.finished() if experts is not None else set()
        for stage in self.exploration(round_.number):
            for tree in round_.trees(stage):
                expert = experts.read(tree.task.key) if experts is not None and tree.task.key in known else None
                yield from contrast_rows(
                    tree, expert, pairs, build.max_length, train_on_reasoning=build.train_on_reasoning
                )


METHOD = ETO
