"""Rollouts that branch where the policy is unsure after a tool's answer (ARPO, arXiv 2507.19849, section 3.2 and its
released code).

Some rollouts begin at the root. After each answer of the environment a rollout may split: with probability
``base + weight (H - H0)``, cut to [0, 1], for each branch that it may get, where H is the entropy of the turn that
decides and H0 that of the rollout's first turn, or of a branch's own. The random part is deliberate: by entropy alone
all branches gather on a few rollouts. Where no rollout goes on and leaves are missing, one more begins at the root. So
a tree has exactly so many leaves.

Entropies are estimated by -log p of the tokens drawn, whose mean is the entropy over the whole vocabulary; the original
sums p log p over the ten likeliest tokens.
"""

import random
from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

from agentr.search.strategy import Expansion, Strategy, add_turn, request
from agentr.search.tree import Child, Node, Tree
from agentr.seeds import derived_seed


class Decides(StrEnum):
    """Which turn's entropy decides whether a rollout splits after an answer of the environment."""

    after = "after"
    """The turn after the answer (the paper): others are drawn beside it."""
    before = "before"
    """The turn that the answer is to (the released code)."""


@dataclass(frozen=True)
class EntropyBranch(Strategy):
    """The strategy.

    State in the tree: ``begun`` (rollouts and branches so far), ``extra`` (branches that a node still gets, by its id).

    Attributes:
        leaves: Ended leaves of a tree, in the end exactly so many.
        initial: Rollouts that begin at the root together.
        beam: Rollouts that one becomes at most when it splits.
        base: Probability of a branch where the entropy is that of the first turn.
        weight: What a difference of 1 in normalised entropy adds to it.
        tokens: Tokens at the start of a turn whose entropies are summed.
        scale: What the sum is divided by; the original's is the logarithm of the vocabulary's size.
        decides: Which turn's entropy counts.
        own_first: Whether H0 of a branch is the entropy of its own first turn.
        max_steps: Actions after which a rollout ends; 0 means the environment's own limit.
        max_invalid: Invalid actions in a row after which it ends; 0 means never.
    """

    kind = "entropy"
    revisits = True

    leaves: int
    initial: int
    beam: int = 2
    base: float = 0.5
    weight: float = 0.2
    tokens: int = 20
    scale: float = 1.0
    decides: Decides = Decides.after
    max_steps: int = 0
    max_invalid: int = 0
    own_first: bool = False

    @property
    def max_completions(self) -> int:
        return self.leaves * self.max_steps

    def bounded(self, step_limit: int) -> Strategy:
        return self if self.max_steps else replace(self, max_steps=step_limit)

    def ask(self, tree: Tree) -> list[Expansion]:
        if tree.root.outcome is not None:
            return []
        extra = tree.search.get("extra", {})
        going_on = [
            node for node in tree.nodes[1:] if node.outcome is None and (node.is_leaf or extra.get(str(node.id)))
        ]
        if going_on:
            return [request(tree, node.id, node.is_leaf + extra.get(str(node.id), 0)) for node in going_on]
        if not tree.root.children:
            return [request(tree, 0, min(self.initial, self.leaves))]
        # One at a time where leaves are missing in the end, as in the original.
        return [request(tree, 0, 1)] if tree.search["begun"] < self.leaves else []

    def record(self, tree: Tree, expansion: Expansion, children: Sequence[Child]) -> list[Node | None]:
        if expansion.node == 0:
            tree.search["begun"] = tree.search.get("begun", 0) + len(children)
        return [add_turn(tree, expansion.node, child, self.max_steps, self.max_invalid) for child in children]

    def advance(self, tree: Tree, expanded: Node, new: list[Node]) -> None:
        extra = tree.search.setdefault("extra", {})
        extra.pop(str(expanded.id), None)
        if self.decides is Decides.before:
            splitting = [(node, node) for node in new if node.outcome is None]
        else:  # beside the first turn after an answer; what is drawn beside it does not split again
            splitting = [(expanded, node) for node in new] if expanded.id and expanded.expansions == 1 else []
        for node, deciding in splitting:
            if branches := self._branches(tree, node, deciding):
                extra[str(node.id)] = branches
                tree.search["begun"] += branches

    def probability(self, tree: Tree, deciding: Node) -> float:
        """How likely each branch is: base + weight (H - H0), cut to [0, 1], for the turn that decides and the first of
        its rollout."""
        path = tree.path(deciding.id)
        # Of the turns drawn after a turn the first goes on with the rollout, and the others begin branches.
        branches = (above for above in reversed(path) if tree.nodes[above.parent].children[0] != above.id)
        first = next(branches, path[0]) if self.own_first else path[0]
        return min(1.0, max(0.0, self.base + self.weight * (self._entropy(deciding) - self._entropy(first))))

    def _branches(self, tree: Tree, node: Node, deciding: Node) -> int:
        """How many branches a node gets: at most so many as the beam allows and leaves are missing."""
        probability = self.probability(tree, deciding)
        rng = random.Random(derived_seed(tree.seed, "branch", node.id))
        wanted = sum(rng.random() < probability for _ in range(self.beam - 1))
        return min(wanted, self.leaves - tree.search["begun"])

    def _entropy(self, node: Node) -> float:
        return -sum(node.logprobs[: self.tokens]) / self.scale
