"""What a reward sees: all rollouts of one task in one step."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property

from agentr.search.tree import Node, Origin, Tree
from agentr.types import Outcome


@dataclass(frozen=True)
class Episode:
    """An episode of the policy: the path from the root of a tree to an ended leaf.

    Attributes:
        answer_prefix: How an action begins that is an answer and no call; empty if all actions are calls.
    """

    tree: Tree
    path: tuple[Node, ...]
    answer_prefix: str = ""

    @property
    def leaf(self) -> Node:
        return self.path[-1]

    @property
    def earned(self) -> float:
        """The environment's return, in [0, 1]."""
        return self.leaf.reward

    @property
    def succeeded(self) -> bool:
        return self.leaf.outcome is Outcome.SUCCESS

    @property
    def calls(self) -> int:
        """Actions that the environment was asked to carry out, answers aside."""
        return sum(bool(n.action) and not (self.answer_prefix and n.action.startswith(self.answer_prefix)) for n in self.path)

    @property
    def malformed(self) -> int:
        """Turns from which no action could be read."""
        return sum(not node.action for node in self.path)

    @cached_property
    def tokens(self) -> int:
        """Tokens that the policy generated."""
        return sum(len(node.token_ids) for node in self.path)

    @cached_property
    def tokens_with_observations(self) -> int:
        """The same and the tokens of the observations between."""
        return self.tokens + sum(len(node.bridge_ids) for node in self.path[:-1])

    @property
    def text(self) -> str:
        """The policy's turns and the environment's answers, one after another."""
        return "\n".join(part for node in self.path for part in (node.text, node.observation) if part)


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
    """What a rollout is worth, in all and by component; components are for people and need not add up."""

    total: float
    parts: dict[str, float] = field(default_factory=dict)


def group_of(tree: Tree, answer_prefix: str = "", progress: float = 0.0, round_: int = 1) -> Group:
    """Returns the rollouts in a tree, in the order of their leaves. An episode that failed for infrastructure reasons is none."""
    paths = [tuple(tree.path(leaf.id)) for leaf in tree.ended() if leaf.depth and leaf.origin is Origin.POLICY]
    return Group([Episode(tree, path, answer_prefix) for path in paths], progress, round_)
