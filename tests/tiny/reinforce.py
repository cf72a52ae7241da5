"""Rollouts of a few tasks, compared with each other, step after step."""

from dataclasses import dataclass

from agentr.collect.grow import Grow
from agentr.collect.job import Work
from agentr.rounds.online import Online
from agentr.rounds.online_config import OnlineConfig
from agentr.search import Sample


@dataclass
class ReinforceConfig(OnlineConfig):
    """Online policy gradients."""

    type: str = "reinforce"


class Reinforce(Online[ReinforceConfig]):
    """Rollouts, each trained on at once."""

    name = "reinforce"
    title = "Reinforce"
    config_class = ReinforceConfig

    def rollouts(self) -> Work:
        return Grow(Sample(self.config.episodes, self.config.max_steps, self.config.max_invalid))


METHOD = Reinforce
