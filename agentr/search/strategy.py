"""The seam between search and everything else: ask which turns to draw, tell what came of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from agentr.search.tree import Child, Tree
from agentr.seeds import derived_seed
from agentr.types import Outcome


@dataclass(frozen=True)
class Expansion:
    """A wish: ``n`` turns after ``node``.

    Attributes:
        attempt: How often the node had been expanded when this was asked; with ``node`` it identifies the expansion, so that a result
            that is told twice counts once.
        seed: Seed of the request.
        temperature: In place of the collector's, where the strategy decides it.
    """

    node: int
    attempt: int
    n: int
    seed: int
    temperature: float | None = None


class Strategy(Protocol):
    """A search strategy: a stateless object over a serialisable tree.

    ``ask`` does not change the tree, and gives the same answer until something is told. ``tell`` ignores an expansion that was told
    before. A driver may work on all expansions of one ``ask`` at the same time, but tells them in the order asked.
    """

    @property
    def most(self) -> int:
        """Completions that no tree exceeds."""
        ...

    def ask(self, tree: Tree) -> list[Expansion]:
        """What to expand next; empty when the search is over."""
        ...

    def tell(self, tree: Tree, expansion: Expansion, children: Sequence[Child]) -> None:
        """Records the turns that were drawn, duplicates included."""
        ...


def request(tree: Tree, node: int, n: int) -> Expansion:
    """An expansion of ``node`` with its derived seed."""
    attempt = tree.nodes[node].expansions
    return Expansion(node, attempt, n, derived_seed(tree.seed, "expand", node, attempt))


def cut_off(tree: Tree, parent: int, child: Child, turns: int, invalid: int) -> Child:
    """A turn after ``parent``, as the end of its path if that then has ``turns`` turns, or ended with ``invalid`` invalid ones in a row.

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


def already_told(tree: Tree, expansion: Expansion) -> bool:
    return expansion.attempt < tree.nodes[expansion.node].expansions
