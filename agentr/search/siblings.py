"""Which turns of a tree are worth more than their siblings: pure queries.

DensePolicy's estimate of a turn is the value of what follows it, and its pairs are two turns after the same conversation whose values
differ enough, each seen often enough. The released code has no paper; ``docs/dense_policy.md`` maps its names.
"""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass
from itertools import combinations
from typing import NamedTuple

from agentr.config.methods import SiblingsConfig
from agentr.search.tree import Node, Origin, Tree
from agentr.types import Outcome

#: Values are means of means, so 0.7 - 0.2 must count as 0.5 although it is a little less in floating point.
_ROUNDING = 1e-9


class Estimate(NamedTuple):
    """What follows a node.

    Attributes:
        value: In [0, 1]. The return of an ended leaf; else the unweighted mean of the children's values.
        turns_left: Turns until the episode ends: 0 at an ended leaf, else one more than the unweighted mean of the children's.
    """

    value: float
    turns_left: float


@dataclass(frozen=True)
class SiblingPair:
    """Two turns after the same conversation.

    Attributes:
        chosen: Node with the higher value.
        rejected: Its sibling.
        gap: Difference of their values, in (0, 1].
    """

    chosen: int
    rejected: int
    gap: float


def estimates(tree: Tree) -> list[Estimate | None]:
    """The estimate of each node, None where no ended leaf is below it; shape [nodes].

    Only the policy's own turns count: a revision's success is not what the policy makes of the point where it begins. A path that ended
    for infrastructure reasons is no evidence. One that ended because the context was full counts with its return so far, which is 0
    where only the end is rewarded, as in the original.
    """
    found: list[Estimate | None] = [None] * len(tree.nodes)
    value, turns, known = [0.0] * len(tree.nodes), [0.0] * len(tree.nodes), [0] * len(tree.nodes)
    for node in reversed(tree.nodes):  # a parent has a smaller id than its children
        if node.outcome is Outcome.INFRA:
            continue
        if node.outcome is not None:
            own = Estimate(node.reward, 0.0)
        elif known[node.id]:
            own = Estimate(value[node.id] / known[node.id], 1 + turns[node.id] / known[node.id])
        else:
            continue
        found[node.id] = own
        if node.origin is Origin.POLICY:
            value[node.parent] += own.value
            turns[node.parent] += own.turns_left
            known[node.parent] += 1
    return found


def contrasts(tree: Tree, found: list[Estimate | None]) -> list[float]:
    """The largest difference between a node's value and that of a sibling, 0 where there is none to compare with; shape [nodes]."""
    largest = [0.0] * len(tree.nodes)
    for parent in tree.nodes:
        values = {c: e.value for c in parent.children if (e := found[c]) is not None and tree.nodes[c].origin is Origin.POLICY}
        for child, value in values.items():
            largest[child] = max(max(values.values()) - value, value - min(values.values()))
    return largest


def sibling_pairs(tree: Tree, config: SiblingsConfig, dropped: Counter[str] | None = None) -> list[SiblingPair]:
    """The pairs of a tree, largest gap first. Caps are not applied: they say how many of these are used.

    Two siblings are a pair if their values differ by at least ``min_gap``, if each has min(floor(2 ^ turns left), ``max_visits``)
    visits, and if their texts differ by more than white space at the ends.

    Args:
        dropped: Counts, by reason, siblings whose values differ and that are no pair all the same.
    """
    found, reasons = estimates(tree), Counter() if dropped is None else dropped
    pairs: list[SiblingPair] = []
    for parent in tree.nodes:
        turns = [(tree.nodes[c], e) for c in parent.children if (e := found[c]) is not None and tree.nodes[c].origin is Origin.POLICY]
        for (a, of_a), (b, of_b) in combinations(turns, 2):
            gap = of_a.value - of_b.value
            if abs(gap) <= _ROUNDING:
                continue
            if abs(gap) < config.min_gap - _ROUNDING:
                reasons["siblings that differ by less than build.siblings.min_gap"] += 1
            elif not (_seen_enough(a, of_a, config) and _seen_enough(b, of_b, config)):
                reasons["siblings with too few visits"] += 1
            elif a.text.strip() == b.text.strip():
                reasons["siblings with the same text"] += 1
            else:
                pairs.append(SiblingPair(a.id, b.id, gap) if gap > 0 else SiblingPair(b.id, a.id, -gap))
    pairs.sort(key=lambda p: (-p.gap, p.chosen, p.rejected))
    return _distinct(tree, pairs, reasons) if config.dedupe else pairs


def _seen_enough(node: Node, estimate: Estimate, config: SiblingsConfig) -> bool:
    """Whether a node's value rests on enough rollouts. The released code adds 1 when a node is made and 2 whenever it is updated again."""
    visits = 2 * node.visits - 1 if config.released_visits else node.visits
    return visits >= min(math.floor(2**estimate.turns_left), config.max_visits)


def _distinct(tree: Tree, pairs: list[SiblingPair], reasons: Counter[str]) -> list[SiblingPair]:
    """The first pair of each two texts after a conversation, whichever way round: the same turn drawn twice can lead to different values,
    and two pairs that contradict each other teach nothing."""
    first: dict[object, SiblingPair] = {}
    for pair in pairs:
        chosen, rejected = tree.nodes[pair.chosen], tree.nodes[pair.rejected]
        before = tuple((turn.text, turn.observation) for turn in tree.path(chosen.parent))
        first.setdefault((before, frozenset((chosen.text.strip(), rejected.text.strip()))), pair)
    reasons["sibling pairs with the same two texts"] += len(pairs) - len(first)
    return list(first.values())
