"""Independent rollouts: a tree whose root has K children and whose other nodes have one.

Evaluation is this with K = episodes; ETO's exploration and best-of-N are this too.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from agentr.search.strategy import Expansion, Strategy, cut_off, request
from agentr.search.tree import Child, Node, Origin, Tree


@dataclass(frozen=True)
class Sample(Strategy):
    """The strategy.

    Attributes:
        episodes: Rollouts of the task.
        max_steps: Actions after which a rollout ends; 0 means the environment's own limit.
        max_invalid: Invalid actions in a row after which it ends; 0 means never.
    """

    kind = "sample"

    episodes: int
    max_steps: int = 0
    max_invalid: int = 0

    @property
    def max_completions(self) -> int:
        return self.episodes * self.max_steps

    @property
    def at_once(self) -> int:
        return self.episodes

    def bounded(self, step_limit: int) -> Strategy:
        return self if self.max_steps else replace(self, max_steps=step_limit)

    def ask(self, tree: Tree) -> list[Expansion]:
        if tree.root.terminal:
            return []
        if not tree.root.children:
            return [request(tree, 0, self.episodes)]
        return [request(tree, n.id, 1) for n in tree.nodes if n.is_leaf and not n.terminal]

    def record(self, tree: Tree, expansion: Expansion, children: Sequence[Child]) -> list[Node | None]:
        added: list[Node | None] = []
        for child in children:
            cut = cut_off(tree, expansion.node, child, self.max_steps, self.max_invalid)
            node = tree.add(expansion.node, cut, Origin.POLICY)
            if node.terminal:
                tree.back_up(node.id)
            added.append(node)
        return added
