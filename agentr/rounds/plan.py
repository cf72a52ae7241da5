"""What a run is, derived once from its configuration and frozen. Each later stop takes its own part of it."""

from dataclasses import dataclass, replace

from agentr.cluster.places import Places
from agentr.config.identity import Identity
from agentr.config.schema import Config
from agentr.config.training import TrainConfig
from agentr.store.layout import CEILING, CONTROL, Arm


@dataclass(frozen=True)
class Plan:
    """A run before it begins.

    Attributes:
        config: What holds over all rounds, and in the warm start.
        rounds: What holds in each round, from the warm start's, 0, on.
        places: Where its parts are.
        identity: What its directory keeps of the configuration.
    """

    config: Config
    rounds: tuple[Config, ...]
    places: Places
    identity: Identity

    @property
    def references(self) -> list[Arm]:
        """The arms that the rounds are compared with, in the order in which they are trained."""
        run = self.config.run
        return [arm for arm, wanted in ((CONTROL, run.control), (CEILING, run.ceiling)) if wanted and run.rounds]

    def at(self, round_: int) -> Config:
        """Returns what holds in a round."""
        return self.rounds[min(round_, len(self.rounds) - 1)]

    def seed(self, round_: int) -> int:
        """Returns the seed of everything that a round draws; 0 is the warm start."""
        return self.config.run.seed * 1000 + round_

    def train(self, round_: int) -> TrainConfig:
        """Returns how a round trains."""
        train = self.at(round_).train
        return train[min(round_, len(train)) - 1]

    def seeded(self, train: TrainConfig) -> TrainConfig:
        """Returns how a training is done, with the run's seed."""
        return replace(train, seed=train.seed + self.config.run.seed)
