"""Episodes: what stands on a path of a tree from its root to an ended leaf, and what can be said of it."""

from collections import Counter
from collections.abc import Container, Iterator
from dataclasses import dataclass
from functools import cached_property

from agentr.search.tree import Node, Origin, Tree
from agentr.types import CallStatus, Outcome


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
    def answer(self) -> str:
        """The answer that it ends with; empty if it ends without one, or if no action is an answer."""
        return (
            self.leaf.action.removeprefix(self.answer_prefix).strip()
            if self.answer_prefix and not self.unanswered
            else ""
        )

    @property
    def unanswered(self) -> bool:
        """Whether it ends without an answer where it should end with one: at a limit of steps or tokens, or by another
        action."""
        return bool(self.answer_prefix) and not self.leaf.action.startswith(self.answer_prefix)

    @property
    def failed_calls(self) -> int:
        """Calls that the environment did not understand, or could not carry out."""
        return sum(self._is_call(node) and not node.valid for node in self.path)

    @property
    def calls(self) -> int:
        """Actions that the environment was asked to carry out, answers aside."""
        return sum(map(self._is_call, self.path))

    @property
    def statuses(self) -> Counter[CallStatus]:
        """Calls by how they came out."""
        return Counter(node.status for node in self.path if self._is_call(node))

    def _is_call(self, node: Node) -> bool:
        return bool(node.action) and not (self.answer_prefix and node.action.startswith(self.answer_prefix))

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


#: Who may take the last turn of an episode that was evolved of the policy's.
EVOLVED = (Origin.POLICY, Origin.REPLAY, Origin.REWRITE)


def episodes(tree: Tree, answer_prefix: str = "", origins: Container[Origin] = (Origin.POLICY,)) -> Iterator[Episode]:
    """Yields the policy's episodes in a tree, in the order of their leaves.
    One that failed for infrastructure reasons is none.

    Args:
        origins: Whose last turns make an episode the policy's.
    """
    for leaf in tree.ended():
        if leaf.depth and leaf.origin in origins:
            yield Episode(tree, tuple(tree.path(leaf.id)), answer_prefix)
