"""What a reward sees: all rollouts of one task in one step."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from agentr.search.episode import Episode, episodes
from agentr.search.tree import Tree


@dataclass(frozen=True)
class Group:
    """The rollouts of one task that are compared with each other.

    Attributes:
        progress: How far the training is, from 0 at its first step to 1 at its last.
        round_: The round that it is in, counted from 1.
    """

    episodes: Sequence[Episode]
    progress: float = 0.0
    round_: int = 1

    def __len__(self) -> int:
        return len(self.episodes)


@dataclass(frozen=True)
class Reward:
    """What a rollout is worth, in all and by component; components are for people and need not add up.

    Attributes:
        shaping: How much of the total says how the rollout came to its end and not what came of it: a price, a bonus.
            ``method.gate`` decides for which rollouts it counts.
    """

    total: float
    parts: dict[str, float] = field(default_factory=dict)
    shaping: float = 0.0


def group_of(tree: Tree, answer_prefix: str = "", progress: float = 0.0, round_: int = 1) -> Group:
    """Returns the rollouts in a tree, in the order of their leaves.
    An episode that failed for infrastructure reasons is none."""
    return Group(list(episodes(tree, answer_prefix)), progress, round_)
