"""Independent rollouts: a tree whose root has K children and whose other nodes have one.

Evaluation is this with K = episodes; ETO's exploration and best-of-N are this too.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from agentr.search.strategy import Expansion, already_told, cut_off, request
from agentr.search.tree import Child, Origin, Tree


@dataclass(frozen=True)
class Sample:
    """The strategy.

    Attributes:
        episodes: Rollouts of the task.
        max_steps: Actions after which a rollout ends.
        max_invalid: Invalid actions in a row after which it ends; 0 means never.
    """

    episodes: int
    max_steps: int
    max_invalid: int = 0

    @property
    def most(self) -> int:
        return self.episodes * self.max_steps

    def ask(self, tree: Tree) -> list[Expansion]:
        if tree.root.terminal:
            return []
        if not tree.root.children:
            return [request(tree, 0, self.episodes)]
        return [request(tree, n.id, 1) for n in tree.nodes if n.is_leaf and not n.terminal]

    def tell(self, tree: Tree, expansion: Expansion, children: Sequence[Child]) -> None:
        if already_told(tree, expansion):
            return
        tree.nodes[expansion.node].expansions += 1
        for child in children:
            child = cut_off(tree, expansion.node, child, self.max_steps, self.max_invalid)
            node = tree.add(expansion.node, child, Origin.POLICY)
            if node.terminal:
                tree.back_up(node.id)
