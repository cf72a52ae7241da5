"""GRPO: independent rollouts of each task, each compared with the others, trained on at once (arXiv 2402.03300)."""

from dataclasses import dataclass

from agentr.collect.grow import Grow
from agentr.collect.job import Work
from agentr.rounds.online import Online
from agentr.rounds.online_config import OnlineConfig
from agentr.search import Sample


@dataclass
class GRPOMethodConfig(OnlineConfig):
    """Group relative policy optimisation (docs/rl.md)."""

    type: str = "grpo"


class GRPO(Online[GRPOMethodConfig]):
    """Rollouts of each task, a policy gradient on how each compares with the others, step after step."""

    name = "grpo"
    title = "GRPO (arXiv 2402.03300)"
    page = "docs/rl.md"
    config_class = GRPOMethodConfig

    def rollouts(self) -> Work:
        return Grow(Sample(self.config.episodes, self.config.max_steps, self.config.max_invalid))


METHOD = GRPO
