"""DensePolicy's adaptive tree: wide where siblings differ in value, deep everywhere.

A node is a turn with a *label* 0 .. base - 1, kept in its note; the label says at what temperature the turn is drawn, and each label of
a node is drawn once. A *rollout* is an index of ``max_depth`` labels: it follows the turns that are there, draws those that are missing,
and ends where the episode ends. The first batch is (i, 0, 0, ...) for each label i. For a later one the open node with the highest score
is selected, and its labels are followed by random ones. The rollouts of a batch advance together: one ``ask`` names every turn that any
of them needs next.

Where this differs from the released code, whose search does not run as published:

- A proposal is dropped if any finished rollout covers it, that is, if it leads to a turn that ended an episode. The original drops
  extensions of successes alone, and so tries failures that ended early again, to the same end.
- Nodes with nothing open below are not selected. The original selects any node, and gets nothing new from those.
- A selection that gives nothing new counts as a visit for the next selection; the original counts every selection, for good.
- Rollouts of a batch that turn out to end at the same turn are one: visits count distinct ended paths (the original stops with an error).
"""

from __future__ import annotations

import heapq
import math
import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from agentr.config.methods import DenseConfig, SiblingsConfig
from agentr.errors import ConfigError
from agentr.search.siblings import contrasts, estimates, sibling_pairs
from agentr.search.strategy import Expansion, cut_off
from agentr.search.tree import Child, Node, Origin, Tree
from agentr.seeds import derived_seed
from agentr.types import Outcome


@dataclass(frozen=True)
class Dense:
    """The strategy.

    State in the tree: ``batches`` (how many were begun), ``batch`` (the rollouts of this one), ``wave`` (what of the last ``ask`` was not
    told yet: node, attempt, labels), ``stopped`` (why the search is over: exhausted, pairs, rollouts or empty).

    Attributes:
        siblings: The rule by which pairs are counted for ``stop_pairs``.

    Raises:
        ConfigError: A size in ``config`` that leaves nothing to do.
    """

    config: DenseConfig
    siblings: SiblingsConfig

    def __post_init__(self) -> None:
        for key in ("base", "max_depth", "window", "temperatures", "stop_rollouts", "stop_empty"):
            value = getattr(self.config, key)
            if not value or (isinstance(value, int) and value < 0):
                raise ConfigError(f"collect.dense.{key} = {value} leaves nothing to draw", hint="Give at least 1, or one temperature.")

    @property
    def most(self) -> int:
        return self.config.stop_rollouts * self.config.max_depth

    def ask(self, tree: Tree) -> list[Expansion]:
        if tree.search.get("stopped") or tree.root.terminal:
            return []
        wave = tree.search["wave"] if "wave" in tree.search else self._missing(tree, self._first_batch())
        return [
            Expansion(node, attempt, len(labels), derived_seed(tree.seed, "expand", node, attempt), self.temperature(labels[0]))
            for node, attempt, labels in wave
        ]

    def tell(self, tree: Tree, expansion: Expansion, children: Sequence[Child]) -> None:
        search = tree.search
        if "wave" not in search:
            search |= {"batches": 1, "batch": self._first_batch(), "wave": self._missing(tree, self._first_batch())}
        wish = next((w for w in search["wave"] if w[:2] == [expansion.node, expansion.attempt]), None)
        if wish is None:  # told before
            return
        for label, child in zip(wish[2], children, strict=True):
            self._add(tree, expansion.node, label, child)
        tree.nodes[expansion.node].expansions += 1
        search["wave"].remove(wish)
        if not search["wave"]:
            self._advance(tree)

    def temperature(self, label: int) -> float:
        """At what temperature the turn of a label is drawn. Without a greedy label, label 0 is one more in the cycle."""
        if label == 0 and self.config.greedy_label:
            return 0.0
        return self.config.temperatures[(label - 1) % len(self.config.temperatures)]

    def score(self, contrast: float, turns_left: float, visits: int) -> float:
        """How much is to be learnt below a node: a contrast^power + b turns_left / max_depth + c 2 sqrt(1 + n) / (2 + n).

        The released code's, with its constants as defaults; there is no paper.

        Args:
            contrast: Largest difference in value to a sibling, in [0, 1].
            turns_left: Mean turns below the node.
            visits: Rollouts that ended below it, n.
        """
        config = self.config
        return (
            config.contrast_weight * contrast**config.contrast_power
            + config.depth_weight * turns_left / config.max_depth
            + config.explore_weight * 2 * math.sqrt(1 + visits) / (2 + visits)
        )

    # ------------------------------------------------------------------------------------------------------------------

    def _first_batch(self) -> list[list[int]]:
        count = min(self.config.base, self.config.stop_rollouts)
        return [[label] + [0] * (self.config.max_depth - 1) for label in range(count)]

    def _missing(self, tree: Tree, batch: list[list[int]]) -> list[list]:
        """The turns that the rollouts of a batch need next: node, attempt, and labels that are drawn at the same temperature."""
        needed: dict[int, set[int]] = {}
        for index in batch:
            node, label = _follow(tree, index)
            if label is not None:
                needed.setdefault(node.id, set()).add(label)
        wave: list[list] = []
        for node in sorted(needed):
            alike: dict[float, list[int]] = {}
            for label in sorted(needed[node]):
                alike.setdefault(self.temperature(label), []).append(label)
            wave += [[node, tree.nodes[node].expansions + i, labels] for i, labels in enumerate(alike.values())]
        return wave

    def _add(self, tree: Tree, parent: int, label: int, child: Child) -> None:
        child = cut_off(tree, parent, child, self.config.max_depth, self.config.max_invalid)
        node = tree.add(parent, child, Origin.POLICY)
        node.note["label"] = label
        if not node.terminal:
            return
        if node.outcome is not Outcome.INFRA:
            tree.back_up(node.id)
        for above in tree.path(node.id, root=True)[-2::-1]:  # backing up knows of no labels that are still to be drawn
            above.terminal = len(above.children) == self.config.base and all(tree.nodes[c].terminal for c in above.children)

    def _advance(self, tree: Tree) -> None:
        """Takes the batch one turn further, or begins the next one, or ends the search."""
        search = tree.search
        search["wave"] = self._missing(tree, search["batch"])
        if search["wave"]:
            return
        reason = self._reason_to_stop(tree)
        search["batch"] = [] if reason else self._propose(tree)
        if search["batch"]:
            search["batches"] += 1
            search["wave"] = self._missing(tree, search["batch"])
        else:
            search["stopped"] = reason or "empty"

    def _reason_to_stop(self, tree: Tree) -> str:
        if tree.root.terminal:
            return "exhausted"
        if self.config.stop_pairs and self._pairs(tree) >= self.config.stop_pairs:
            return "pairs"
        return "rollouts" if tree.root.visits >= self.config.stop_rollouts else ""

    def _pairs(self, tree: Tree) -> int:
        """Pairs that the sibling rule selects. The cap of a task does not count: it takes the best of what the tree has."""
        below = Counter(tree.nodes[pair.chosen].parent for pair in sibling_pairs(tree, self.siblings))
        return sum(min(n, self.siblings.pairs_per_parent or n) for n in below.values())

    def _propose(self, tree: Tree) -> list[list[int]]:
        """The next batch: up to ``window`` new ones of 2 ``window`` indices drawn below the best node, none after ``stop_empty`` tries."""
        config, found = self.config, estimates(tree)
        contrast = contrasts(tree, found)
        chance = random.Random(derived_seed(tree.seed, "batch", tree.search["batches"]))

        def entry(node: Node, vain: int, tie: float) -> tuple[float, float, int, int]:
            turns_left = estimate.turns_left if (estimate := found[node.id]) is not None else 0.0
            return -self.score(contrast[node.id], turns_left, node.visits + vain), tie, node.id, vain

        queue = [entry(node, 0, chance.random()) for node in tree.nodes if not node.terminal]
        heapq.heapify(queue)
        room = min(config.window, config.stop_rollouts - tree.root.visits)
        for _ in range(config.stop_empty):
            _, tie, selected, vain = queue[0]
            labels = [node.note["label"] for node in tree.path(selected)]
            drawn = [
                tuple(labels + [chance.randrange(config.base) for _ in range(config.max_depth - len(labels))])
                for _ in range(2 * config.window)
            ]
            new = [list(index) for index in dict.fromkeys(drawn) if _follow(tree, index)[1] is not None]
            if new:
                return new[:room]
            heapq.heapreplace(queue, entry(tree.nodes[selected], vain + 1, tie))
        return []


def _follow(tree: Tree, index: Sequence[int]) -> tuple[Node, int | None]:
    """Where an index leads: the last turn that is there, and the label to draw after it, None if the episode ended."""
    node = tree.root
    for label in index:
        if node.outcome is not None:
            break
        child = next((c for c in node.children if tree.nodes[c].note["label"] == label), None)
        if child is None:
            return node, label
        node = tree.nodes[child]
    return node, None
