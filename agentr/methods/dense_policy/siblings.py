"""Which turns of a tree are worth more than their siblings: pure queries.

DensePolicy's estimate of a turn is the value of what follows it, and its pairs are two turns after the same
conversation whose values differ enough, each seen often enough. The released code has no paper;
``docs/dense_policy.md`` maps its names.
"""

import math
from dataclasses import dataclass, replace
from enum import StrEnum
from itertools import combinations
from typing import NamedTuple

from pydantic import NonNegativeInt

from agentr.config.checks import Proportion, Section
from agentr.search.tree import Node, Origin, Tree

#: Values are means of means, so 0.7 - 0.2 must count as 0.5 although it is a little less in floating point.
_ROUNDING = 1e-9


class TurnsLeft(StrEnum):
    """Over what the turns left below a node are averaged."""

    children = "children"
    """Its children: one more than the mean of theirs, as values are averaged."""
    rollouts = "rollouts"
    """The rollouts that ended below it (the released code)."""


@dataclass
class SiblingRule(Section):
    """Which two turns after the same conversation are a pair (DensePolicy)."""

    min_gap: Proportion = 0.5
    """Least difference in value."""
    max_visits: NonNegativeInt = 8
    """Each side needs min(floor(2 ^ mean turns below it), this) visits: deep nodes need more evidence."""
    turns_left: TurnsLeft = TurnsLeft.children
    """Over what the mean turns below a node are taken, here and in the search's second term."""
    released_visits: bool = False
    """Count visits as the released code does, 2n - 1 for n rollouts."""
    dedupe: bool = True
    """The same two texts after the same conversation are one pair."""
    pairs_per_parent: NonNegativeInt = 0
    """Most pairs below one node, largest difference first; 0 means all."""


class TurnValue(NamedTuple):
    """What follows a node.

    Attributes:
        value: In [0, 1]. The return of an ended leaf; else the unweighted mean of the children's values.
        turns_left: Turns until the episode ends: 0 at an ended leaf, else a mean, over what ``TurnsLeft`` says.
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
        fault: Why they are no pair; empty if they are one.
    """

    chosen: int
    rejected: int
    gap: float
    fault: str = ""


def estimates(tree: Tree, turns_left: TurnsLeft = TurnsLeft.children) -> list[TurnValue | None]:
    """The estimate of each node, None where no ended leaf is below it; shape [nodes].

    Only the policy's own turns count: a revision's success is not what the policy makes of the point where it begins. A
    path that ended for infrastructure reasons is no evidence. One that ended because the context was full counts with
    its return so far, which is 0 where only the end is rewarded, as in the original.
    """
    found: list[TurnValue | None] = [None] * len(tree.nodes)
    value, known = [0.0] * len(tree.nodes), [0] * len(tree.nodes)
    turns, weight = [0.0] * len(tree.nodes), [0] * len(tree.nodes)  # of the mean turns left: a sum, and of how many
    for node in reversed(tree.nodes):  # a parent has a smaller id than its children
        if node.outcome is not None:
            if not node.outcome.is_the_agents:
                continue
            own = TurnValue(node.reward, 0.0)
        elif known[node.id]:
            own = TurnValue(value[node.id] / known[node.id], 1 + turns[node.id] / weight[node.id])
        else:
            continue
        found[node.id] = own
        if node.origin is Origin.POLICY:
            value[node.parent] += own.value
            known[node.parent] += 1
            ended = max(1, weight[node.id]) if turns_left is TurnsLeft.rollouts else 1
            turns[node.parent] += ended * own.turns_left
            weight[node.parent] += ended
    return found


def contrasts(tree: Tree, found: list[TurnValue | None]) -> list[float]:
    """The largest difference between a node's value and that of a sibling, 0 where there is none to compare with; shape
    [nodes]."""
    largest = [0.0] * len(tree.nodes)
    for parent in tree.nodes:
        values = {
            c: e.value for c in parent.children if (e := found[c]) is not None and tree.nodes[c].origin is Origin.POLICY
        }
        for child, value in values.items():
            largest[child] = max(max(values.values()) - value, value - min(values.values()))
    return largest


def sibling_pairs(tree: Tree, rule: SiblingRule) -> list[SiblingPair]:
    """Returns the pairs of a tree, largest gap first. Caps are not applied: they limit how many of these are used.

    Two siblings are a pair if their values differ by at least ``min_gap``, if each has min(floor(2 ^ turns left),
    ``max_visits``) visits, and if their texts differ by more than white space at the ends.
    """
    return [candidate for candidate in sibling_candidates(tree, rule) if not candidate.fault]


def sibling_candidates(tree: Tree, rule: SiblingRule) -> list[SiblingPair]:
    """Returns all siblings whose values differ, with the reason why some are no pair.
    Pairs come first, largest gap first."""
    found = estimates(tree, rule.turns_left)
    pairs: list[SiblingPair] = []
    faulty: list[SiblingPair] = []
    for parent in tree.nodes:
        turns = [
            (tree.nodes[c], e)
            for c in parent.children
            if (e := found[c]) is not None and tree.nodes[c].origin is Origin.POLICY
        ]
        for (a, of_a), (b, of_b) in combinations(turns, 2):
            gap = of_a.value - of_b.value
            if abs(gap) <= _ROUNDING:
                continue
            pair = SiblingPair(a.id, b.id, gap) if gap > 0 else SiblingPair(b.id, a.id, -gap)
            if abs(gap) < rule.min_gap - _ROUNDING:
                faulty.append(replace(pair, fault="siblings that differ by less than method.pairs.min_gap"))
            elif not (_seen_enough(a, of_a, rule) and _seen_enough(b, of_b, rule)):
                faulty.append(replace(pair, fault="siblings with too few visits"))
            elif a.text.strip() == b.text.strip():
                faulty.append(replace(pair, fault="siblings with the same text"))
            else:
                pairs.append(pair)
    pairs.sort(key=lambda p: (-p.gap, p.chosen, p.rejected))
    return [*(_distinct(tree, pairs) if rule.dedupe else pairs), *faulty]


def _seen_enough(node: Node, estimate: TurnValue, rule: SiblingRule) -> bool:
    """Whether a node's value rests on enough rollouts.
    The released code adds 1 when a node is made and 2 whenever it is updated again."""
    visits = 2 * node.visits - 1 if rule.released_visits else node.visits
    return visits >= min(math.floor(2**estimate.turns_left), rule.max_visits)


def _distinct(tree: Tree, pairs: list[SiblingPair]) -> list[SiblingPair]:
    """Marks all but the first pair of each two texts after a conversation, whichever way round: the same turn drawn
    twice can lead to different values, and two pairs that contradict each other teach nothing."""
    seen: set[object] = set()
    marked: list[SiblingPair] = []
    for pair in pairs:
        chosen, rejected = tree.nodes[pair.chosen], tree.nodes[pair.rejected]
        before = tuple((turn.text, turn.observation) for turn in tree.path(chosen.parent))
        texts = (before, frozenset((chosen.text.strip(), rejected.text.strip())))
        marked.append(replace(pair, fault="sibling pairs with the same two texts") if texts in seen else pair)
        seen.add(texts)
    return marked
