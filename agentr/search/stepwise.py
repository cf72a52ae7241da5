"""Rollouts from every point of a given path: what the policy makes of each situation that an expert was in.

ETO's step-wise variant (arXiv 2403.02502, appendix B): the expert's first t - 1 turns are taken as given, the policy
goes on from there to the end, and its turn t is compared with the expert's by what each led to.
"""

from dataclasses import dataclass

from agentr.search.sample import Sample
from agentr.search.strategy import Expansion, request
from agentr.search.tree import Node, Origin, Tree


def given_path(tree: Tree) -> list[Node]:
    """The turns of a tree that no policy took, from the first one down: the expert's path, or none."""
    found: list[Node] = []
    node = tree.root
    while given := next((tree.nodes[c] for c in node.children if tree.nodes[c].origin is not Origin.POLICY), None):
        node = given
        found.append(node)
    return found


@dataclass(frozen=True)
class Stepwise(Sample):
    """The strategy, for a tree that begins with a given path: ``episodes`` rollouts from each of its points that
    another given turn follows, the root included. Attributes as in :class:`Sample`; the given turns before a rollout
    count towards ``max_steps``.

    The order is deterministic (the given path's states first, then open leaves, each by id), so a resumed search asks
    in the same order as an uninterrupted one.
    """

    kind = "stepwise"

    @property
    def max_completions(self) -> int:
        return self.episodes * self.max_steps * (self.max_steps + 1) // 2

    def ask(self, tree: Tree) -> list[Expansion]:
        if tree.root.outcome is not None:
            return []
        points = [tree.nodes[turn.parent] for turn in given_path(tree)]
        fresh = [
            p
            for p in points
            if p.depth < self.max_steps and not any(tree.nodes[c].origin is Origin.POLICY for c in p.children)
        ]
        going = [n for n in tree.nodes if n.origin is Origin.POLICY and n.is_leaf and not n.terminal]
        return [*(request(tree, p.id, self.episodes) for p in fresh), *(request(tree, n.id, 1) for n in going)]
