"""Rollouts that branch: some from the root, then more from turns that were taken before, until the tree has so many
ended leaves.

For the same number of leaves a branch draws only what comes after it, and what came before is shared: by the policy's
cache, by the environment's copy of a state, and by the trainer. Tree-GRPO (arXiv 2509.21240, section 3.2) draws its
turns at random.
"""

import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from statistics import fmean

from agentr.search.strategy import Expansion, Strategy, add_turn
from agentr.search.tree import Child, Node, Tree
from agentr.seeds import derived_seed
from agentr.types import Outcome


class Select(StrEnum):
    random = "random"
    """Any turn, with equal probability (Tree-GRPO)."""
    unsure = "unsure"
    """The turns after which the policy was least sure: greatest mean of -log p over the tokens drawn there, by the
    times it was chosen."""
    mistake = "mistake"
    """Where rollouts that failed went wrong: before their first turn that the environment refused; of one without,
    before any of its turns. Rollouts that were not begun again come first, and turns at random if none failed."""


@dataclass(frozen=True)
class Branch(Strategy):
    """The strategy.

    State in the tree: ``pending`` (expansions of the last ``ask`` that were not told yet: node, attempt, turns).

    Attributes:
        leaves: Ended leaves of a tree, in the end exactly so many.
        initial: Rollouts from the root.
        at_once: Branches that begin together; between two such times all rollouts run to their ends.
        max_steps: Actions after which a rollout ends; 0 means the environment's own limit.
        max_invalid: Invalid actions in a row after which it ends; 0 means never.
        select: Where branches begin.
    """

    kind = "branch"
    revisits = True

    leaves: int
    initial: int
    at_once: int = 1
    max_steps: int = 0
    max_invalid: int = 0
    select: Select = Select.random

    @property
    def max_completions(self) -> int:
        return self.leaves * self.max_steps

    def bounded(self, step_limit: int) -> Strategy:
        return self if self.max_steps else replace(self, max_steps=step_limit)

    def ask(self, tree: Tree) -> list[Expansion]:
        pending = tree.search.get("pending") or self._next(tree)
        return [
            Expansion(node, attempt, n, derived_seed(tree.seed, "expand", node, attempt))
            for node, attempt, n in pending
        ]

    def record(self, tree: Tree, expansion: Expansion, children: Sequence[Child]) -> list[Node | None]:
        pending = tree.search.get("pending") or self._next(tree)
        tree.search["pending"] = [entry for entry in pending if entry[:2] != [expansion.node, expansion.attempt]]
        return [add_turn(tree, expansion.node, child, self.max_steps, self.max_invalid) for child in children]

    def _next(self, tree: Tree) -> list[list[int]]:
        """The expansions that come next: node, attempt, turns.
        First those of rollouts that go on, then new branches."""
        if tree.root.outcome is not None:
            return []
        going_on = [[node.id, node.expansions, 1] for node in tree.nodes[1:] if node.is_leaf and node.outcome is None]
        if going_on:
            return going_on
        if not tree.root.children:
            return [[0, 0, min(self.initial, self.leaves)]]
        left = self.leaves - sum(node.outcome is not None for node in tree.nodes)
        chosen = Counter(node.id for node in self._chosen(tree, min(left, self.at_once))) if left > 0 else Counter()
        return [[node, tree.nodes[node].expansions, times] for node, times in chosen.items()]

    def _chosen(self, tree: Tree, count: int) -> list[Node]:
        if self.select is Select.mistake and (wrong := _mistakes(tree)):
            return wrong[:count]
        nodes = [node for node in tree.nodes if node.outcome is None]
        if self.select is not Select.unsure:
            return random.Random(derived_seed(tree.seed, "branch", len(tree.nodes))).sample(
                nodes, min(count, len(nodes))
            )
        return sorted(nodes, key=lambda node: (-_doubt(tree, node) / node.expansions, node.id))[:count]


def _mistakes(tree: Tree) -> list[Node]:
    """The turns before each failed rollout's mistake, those first that fewest rollouts began again."""
    found = []
    for leaf in tree.ended():
        if leaf.outcome is not Outcome.SUCCESS and leaf.id:
            path = tree.path(leaf.id)
            refused = [turn for turn in path if not turn.valid]
            wrong = refused[0] if refused else random.Random(derived_seed(tree.seed, "mistake", leaf.id)).choice(path)
            found.append((tree.nodes[wrong.parent], leaf.id))
    return [node for node, _ in sorted(found, key=lambda entry: (entry[0].expansions, entry[1]))]


def _doubt(tree: Tree, node: Node) -> float:
    """Mean of -log p over the tokens of the turns drawn after a node: an estimate of the policy's entropy there."""
    drawn = [-logprob for child in node.children for logprob in tree.nodes[child].logprobs]
    return fmean(drawn) if drawn else 0.0
