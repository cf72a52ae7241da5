"""GRPO: independent rollouts of each task, each compared with the others, trained on at once (arXiv 2402.03300)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from agentr.collect.grow import Grow
from agentr.collect.job import Work
from agentr.config.checks import number
from agentr.rounds.online import Online
from agentr.rounds.online_config import OnlineConfig
from agentr.search import Sample


@dataclass
class GRPOMethodConfig(OnlineConfig):
    """Group relative policy optimisation (docs/rl.md)."""

    type: str = "grpo"
    max_steps: int = number(0, least=0)
    """Actions in a rollout; 0 means the environment's own limit."""
    max_invalid: int = number(0, least=0)
    """A rollout ends after so many invalid actions in a row; 0 means never."""


class GRPO(Online[GRPOMethodConfig]):
    """Rollouts of each task, a policy gradient on how each compares with the others, step after step."""

    name = "grpo"
    title = "GRPO (arXiv 2402.03300)"
    page = "docs/rl.md"
    Config = GRPOMethodConfig

    def exploration(self, round_: int) -> Mapping[str, Work]:
        return {"rollouts": Grow(Sample(self.config.episodes, self.config.max_steps, self.config.max_invalid))}


RECIPE = GRPO
