"""Rejection-sampling fine-tuning: train on one's own runs that earned enough (the baseline RFT of ETO's paper, arXiv
2403.02502)."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from pydantic import NonNegativeInt, PositiveInt

from agentr.collect.grow import Grow
from agentr.collect.job import Work
from agentr.config.checks import Problem, Proportion
from agentr.config.schema import Config
from agentr.rounds.method import Imitation, ImitationConfig, by_round, sampling_problems
from agentr.rounds.round import Round
from agentr.rows.dataset import Candidate
from agentr.rows.revision import good_rows
from agentr.rows.targets import Targets
from agentr.search import Sample


@dataclass
class RFTConfig(ImitationConfig):
    """Rejection-sampling fine-tuning (docs/comparison.md)."""

    type: str = "rft"
    episodes: PositiveInt = 1
    """Runs of each task; more than one needs a temperature."""
    max_steps: NonNegativeInt = 0
    """Actions in a run; 0 means the environment's own limit."""
    max_invalid: NonNegativeInt = 0
    """A run ends after so many invalid actions in a row; 0 means never."""
    min_return: list[Proportion] = field(default_factory=lambda: [1.0])
    """Least return of a run that is imitated, by round; the last value holds for later rounds."""
    good_per_task: PositiveInt = 2
    """Most runs of a task that are imitated (shortest first)."""

    def problems(self) -> Iterator[Problem]:
        if not self.min_return:
            yield Problem(
                "min_return",
                "the list is empty",
                "Give one threshold for each round; the last one holds for later rounds.",
            )


class RFT(Imitation[RFTConfig]):
    """Runs of each task, imitation of those that earned enough."""

    name = "rft"
    title = "RFT (baseline of arXiv 2403.02502)"
    page = "docs/comparison.md"
    config_class = RFTConfig

    @classmethod
    def check(cls, config: Config) -> Iterator[Problem]:
        yield from super().check(config)
        yield from sampling_problems(config)

    def exploration(self, round_: int) -> Mapping[str, Work]:
        return {"collect": Grow(Sample(self.config.episodes, self.config.max_steps, self.config.max_invalid))}

    def rows(self, round_: Round) -> Iterator[Candidate]:
        config, targets = self.config, Targets.of(round_.config.build)
        least = by_round(config.min_return, round_.number)
        for tree in round_.trees("collect"):
            yield from good_rows(tree, least, limit=config.good_per_task, targets=targets)


METHOD = RFT
