"""The seam between search and everything else: ask which turns to draw, tell what came of them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

from agentr.search.tree import Child, Node, Origin, Tree
from agentr.seeds import derived_seed
from agentr.types import Outcome


@dataclass(frozen=True)
class Expansion:
    """A request to sample ``n`` candidate turns after ``node``.

    Attributes:
        attempt: How often the node had been expanded when this was asked; with ``node`` it identifies the expansion, so
            that a result that is told twice counts once.
        seed: Seed of the request.
        temperature: In place of the collector's, if the strategy decides it.
    """

    node: int
    attempt: int
    n: int
    seed: int
    temperature: float | None = None


class Strategy(ABC):
    """A search strategy: a stateless, picklable object over a serialisable tree. All its state is in ``Tree.search``.

    ``ask`` does not change the tree, and gives the same answer until something is told. A driver may work on all
    expansions of one ``ask`` at the same time, but tells them in the order asked. Two strategies that are equal grow
    equal trees.
    """

    #: Names the strategy in seeds and manifests.
    kind: ClassVar[str]
    #: Whether expanded nodes are expanded again, so that it pays to keep their sessions open.
    revisits: ClassVar[bool] = False

    @property
    @abstractmethod
    def max_completions(self) -> int:
        """Upper bound on the completions that one tree can request; keeps ``collect.max_completions`` a hard limit."""

    @property
    def at_once(self) -> int:
        """States of a tree that are gone on from in turns: with more than a program's environment has programs, each of
        them would be begun again for each turn."""
        return 1

    def bounded(self, step_limit: int) -> Strategy:
        """Returns the strategy for an environment with this limit on the actions of an episode."""
        return self

    @abstractmethod
    def ask(self, tree: Tree) -> list[Expansion]:
        """Returns what to expand next; nothing when the search is over."""

    def tell(self, tree: Tree, expansion: Expansion, children: Sequence[Child]) -> list[Node | None]:
        """Records the turns that were drawn; an expansion that was told before is ignored.

        Args:
            children: All turns drawn, duplicates included.

        Returns:
            The node of each turn, None for one that was merged into an equal turn; nothing for an expansion that was
            told before.
        """
        parent = tree.nodes[expansion.node]
        if expansion.attempt < parent.expansions:
            return []
        added = self.record(tree, expansion, children)
        parent.expansions += 1
        self.advance(tree, parent, [node for node in added if node is not None])
        return added

    @abstractmethod
    def record(self, tree: Tree, expansion: Expansion, children: Sequence[Child]) -> list[Node | None]:
        """Adds the turns of a new expansion to the tree, and backs up those that ended. Returns as ``tell``."""

    def advance(self, tree: Tree, expanded: Node, new: list[Node]) -> None:  # noqa: B027 - most strategies need none
        """Decides how the search goes on after ``expanded`` got the nodes ``new``; by default ``ask`` sees it from the
        tree."""


def request(tree: Tree, node: int, n: int) -> Expansion:
    """An expansion of ``node`` with its derived seed."""
    attempt = tree.nodes[node].expansions
    return Expansion(node, attempt, n, derived_seed(tree.seed, "expand", node, attempt))


def cut_off(tree: Tree, parent: int, child: Child, turns: int, invalid: int) -> Child:
    """A turn after ``parent``, as the end of its path if that then has ``turns`` turns, or ended with ``invalid``
    invalid ones in a row.

    Args:
        turns: At least 1.
        invalid: 0 means no limit.
    """
    if child.outcome is not None:
        return child
    path = [*tree.path(parent), child]
    last = path[-invalid:] if invalid else []
    stuck = len(last) == invalid > 0 and not any(turn.valid for turn in last)
    return replace(child, outcome=Outcome.STEP_LIMIT) if stuck or len(path) >= turns else child


def add_turn(tree: Tree, parent: int, child: Child, turns: int, invalid: int) -> Node:
    """Adds a turn of the policy, cut off as by ``cut_off``, and backs it up if it ended.
    The turns above stay open: others may still begin there."""
    node = tree.add(parent, cut_off(tree, parent, child, turns, invalid), Origin.POLICY)
    if node.outcome is not None and node.outcome.is_the_agents:
        tree.back_up(node.id)
        for above in tree.path(node.id, root=True)[:-1]:
            above.terminal = False  # backing up closes a node whose children have all ended
    return node
