"""Behavioural cloning alone: more steps on the demonstrations. What every other method has to beat."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from agentr.collect.job import Work
from agentr.config.schema import MethodConfig
from agentr.rounds.method import Offline
from agentr.rounds.round import Round
from agentr.rows.dataset import Candidate
from agentr.types import Loss


@dataclass
class SFTConfig(MethodConfig):
    """Supervised fine-tuning on the demonstrations (docs/comparison.md)."""

    type: str = "sft"


class SFT(Offline[SFTConfig]):
    """No exploration; imitation of the demonstrations, once more."""

    name = "sft"
    title = "SFT (behavioural cloning)"
    page = "docs/comparison.md"
    config_class = SFTConfig
    loss = Loss.IMITATE

    def exploration(self, round_: int) -> Mapping[str, Work]:
        return {}

    def rows(self, round_: Round) -> Iterator[Candidate]:
        yield from round_.demonstration_rows()


METHOD = SFT
