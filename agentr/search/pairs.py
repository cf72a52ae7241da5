"""Which paths of a tree a revision is made from, and where the bad one went wrong: pure queries.

Agent-R (arXiv 2501.11425, section 3.1, Eq. 4): a good and a bad path of the same tree, a transition point on the bad
one.
"""

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from statistics import fmean

from pydantic import NonNegativeInt

from agentr.config.checks import Problem, Proportion, Section
from agentr.search.tree import Node, Origin, Tree
from agentr.seeds import derived_seed


class Pairing(StrEnum):
    gap = "gap"
    """good - bad > beta (the released code)."""
    threshold = "threshold"
    """bad < beta and good > alpha (Agent-R Eq. 4)."""


@dataclass
class PairingConfig(Section):
    """Which paths of a tree are a bad and a good one."""

    alpha: list[Proportion] = field(default_factory=lambda: [0.5, 0.7, 1.0])
    """Least return of a good path, by round; the last value holds for later rounds (paper 4.2)."""
    alpha_inclusive: bool = True
    """good >= alpha, for pairs and for good trajectories; the released code has >, which leaves nothing at alpha =
    1."""
    beta: Proportion = 0.2
    """Largest return of a bad path, or least difference to the good one: see pairing. Also the tree judge's margin."""
    pairing: Pairing = Pairing.gap
    """What makes a bad and a good path a pair."""
    pairs_per_task: NonNegativeInt = 8
    """Most pairs of a tree, deepest common ancestor first; 0 means all, in random order (the original)."""

    def problems(self) -> Iterator[Problem]:
        if not self.alpha:
            yield Problem(
                "alpha", "the list is empty", "Give one threshold for each round; the last one holds for later rounds."
            )
        if not self.alpha_inclusive and any(alpha >= 1 for alpha in self.alpha):
            message = "alpha = 1 with alpha_inclusive = false accepts no path at all (a fault of the released code)"
            yield Problem("alpha", message, "Set alpha_inclusive=true, or lower the last alpha.")


@dataclass(frozen=True)
class Pair:
    """A bad and a good ended leaf, and the deepest node that both paths share."""

    bad: int
    good: int
    ancestor: int


def pair_paths(tree: Tree, config: PairingConfig, alpha: float) -> list[Pair]:
    """Pairs of ended paths that differ enough.

    The released code takes every pair in a random order (``pairs_per_task`` = 0). With a cap, paths with the same
    actions count once, each bad path gets its nearest good path before any gets a second one, and among equals the
    deepest common ancestor comes first: the later two paths part, the more they have in common, and the more the
    difference explains.

    Args:
        alpha: Least return of a good path in this round.
    """
    leaves = [n for n in tree.ended() if n.depth > 0 and all(t.origin is Origin.POLICY for t in tree.path(n.id))]
    good = [n for n in leaves if n.reward > alpha or (config.alpha_inclusive and n.reward >= alpha)]
    good = [n for n in good if not by_luck(tree.path(n.id), -1)]
    if config.pairs_per_task:
        leaves, good = _distinct(tree, leaves), _distinct(tree, good)
    pairs = [
        Pair(bad.id, winner.id, tree.common_ancestor(bad.id, winner.id))
        for bad in leaves
        for winner in good
        if _differ(bad, winner, config)
    ]
    if not config.pairs_per_task:
        random.Random(derived_seed(tree.seed, "pairs")).shuffle(pairs)
        return pairs
    pairs.sort(key=lambda p: (-tree.nodes[p.ancestor].depth, tree.nodes[p.good].depth, p.bad, p.good))
    rank: dict[int, int] = {}
    ranked: list[tuple[int, Pair]] = []
    for pair in pairs:
        rank[pair.bad] = rank.get(pair.bad, -1) + 1
        ranked.append((rank[pair.bad], pair))
    return [pair for _, pair in sorted(ranked, key=lambda r: r[0])][: config.pairs_per_task]


def _differ(bad: Node, good: Node, config: PairingConfig) -> bool:
    if bad.id == good.id:
        return False
    return good.reward - bad.reward > config.beta if config.pairing is Pairing.gap else bad.reward < config.beta


def _distinct(tree: Tree, leaves: list[Node]) -> list[Node]:
    """The first leaf of each sequence of actions."""
    first: dict[tuple[str, ...], Node] = {}
    for leaf in leaves:
        first.setdefault(tuple(n.action for n in tree.path(leaf.id)), leaf)
    return list(first.values())


def good_suffix(tree: Tree, pair: Pair) -> list[Node]:
    """The good path after the common ancestor, without turns that the environment did not understand: they changed
    nothing."""
    depth = tree.nodes[pair.ancestor].depth
    return [n for n in tree.path(pair.good)[depth:] if n.valid]


def by_luck(path: Sequence[Node], turn: int) -> bool:
    """Whether a turn of a path earned what it did by luck: in other worlds that fit what was observed before it, it
    earns less than half of what it does in its own. False where it was not tried in any.

    What it earns in its own is the mean below it, for the policy goes on in the others, too; of a turn that no search
    backed up, the path's return.
    """
    node = path[turn]
    if not node.worlds:
        return False
    return fmean(node.worlds) < (node.mean if node.visits else path[-1].reward) / 2


def falls_behind(tree: Tree, node: Node, margin: float) -> bool:
    """Whether the mean return below ``node`` is less than that of its best sibling by more than ``margin``.

    The value judge's verdict "bad": the tree itself says that another turn at this point leads further.
    """
    siblings = [tree.nodes[c] for c in tree.nodes[node.parent].children if c != node.id and tree.nodes[c].visits]
    return bool(siblings) and max(s.mean for s in siblings) - node.mean > margin
