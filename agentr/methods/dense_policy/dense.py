"""DensePolicy's adaptive tree: wide where siblings differ in value, deep everywhere.

A node is a turn on one of its parent's *branches* 0 .. base - 1; the branch says at what temperature the turn is drawn,
and each branch is drawn once. A *rollout* is an index of ``max_depth`` branches: it follows the turns that are there,
draws those that are missing, and ends where the episode ends. The first batch is (i, 0, 0, ...) for each branch i. For
a later one the open node with the highest score is selected, and its branches are followed by random ones. The rollouts
of a batch advance together: one ``ask`` names every turn that any of them needs next.

Where this differs from the released code, whose search does not run as published:

- A proposal is dropped if any finished rollout covers it, that is, if it leads to a turn that ended an episode. The
  original drops extensions of successes alone, and so tries failures that ended early again, to the same end.
- Nodes with nothing open below are not selected. The original selects any node, and gets nothing new from those.
- A selection that gives nothing new counts as a visit for the next selection; the original counts every selection, for
  good.
- Rollouts of a batch that turn out to end at the same turn are one: visits count distinct ended paths (the original
  stops with an error).
"""

import heapq
import math
import random
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from pydantic import NonNegativeFloat, NonNegativeInt, PositiveFloat, PositiveInt

from agentr.config.checks import Problem, Section
from agentr.methods.dense_policy.siblings import SiblingRule, contrasts, estimates, sibling_pairs
from agentr.search.strategy import Expansion, Strategy, cut_off
from agentr.search.tree import Child, Node, Origin, Tree
from agentr.seeds import derived_seed


@dataclass
class DenseConfig(Section):
    """DensePolicy's adaptive tree (docs/dense_policy.md).
    Each of a node's branches is one turn; its number decides the temperature."""

    base: PositiveInt = 10
    """Branches of a node: most children that it can have, and first rollouts of a tree."""
    max_depth: PositiveInt = 8
    """Turns of a path."""
    max_invalid: NonNegativeInt = 0
    """A path ends after so many invalid actions in a row; 0 means never (the original)."""
    window: PositiveInt = 8
    """Rollouts of a batch after the first."""
    greedy_branch: bool = True
    """Branch 0 is drawn at temperature 0."""
    temperatures: list[NonNegativeFloat] = field(default_factory=lambda: [1.0, 0.5, 0.7])
    """Temperatures of branches 1, 2, 3, 4, ... in turn."""
    contrast_weight: NonNegativeFloat = 0.8
    """Selection adds up three terms.
    The first: this weight x (largest difference in value to a sibling) ^ contrast_power."""
    contrast_power: PositiveFloat = 0.25
    """Exponent of the first term."""
    depth_weight: NonNegativeFloat = 0.2
    """The second term: this weight x (mean turns left below the node / max_depth)."""
    explore_weight: NonNegativeFloat = 1.0
    """The third term: this weight x 2 sqrt(1 + n) / (2 + n), n the node's visits."""
    stop_pairs: NonNegativeInt = 512
    """The tree is done when it has so many pairs that the sibling rule selects, caps by task aside; 0 means never."""
    stop_rollouts: PositiveInt = 1000
    """Rollouts of a tree at most."""
    stop_empty: PositiveInt = 1000
    """The tree is done after so many batches in a row that found nothing new to try."""

    def problems(self) -> Iterator[Problem]:
        if not self.temperatures:
            yield Problem("temperatures", "the list is empty", "Give at least one temperature.")


@dataclass(frozen=True)
class Dense(Strategy):
    """The strategy.

    State in the tree: ``batches`` (how many were begun), ``batch`` (the rollouts of this one), ``pending`` (expansions
    of the last ``ask`` that were not told yet: node, attempt, branches), ``stopped`` (why the search is over:
    exhausted, pairs, rollouts or empty).

    Attributes:
        siblings: The rule by which pairs are counted for ``stop_pairs``.
    """

    kind = "dense"
    revisits = True

    config: DenseConfig
    siblings: SiblingRule

    @property
    def max_completions(self) -> int:
        return self.config.stop_rollouts * self.config.max_depth

    def ask(self, tree: Tree) -> list[Expansion]:
        if tree.root.terminal:
            return []
        pending = tree.search["pending"] if "pending" in tree.search else self._missing(tree, self._first_batch())
        return [
            Expansion(
                node,
                attempt,
                len(branches),
                derived_seed(tree.seed, "expand", node, attempt),
                self.temperature(branches[0]),
            )
            for node, attempt, branches in pending
        ]

    def record(self, tree: Tree, expansion: Expansion, children: Sequence[Child]) -> list[Node | None]:
        if "pending" not in tree.search:
            first = self._first_batch()
            tree.search.update(batches=1, batch=first, pending=self._missing(tree, first))
        pending = tree.search["pending"]
        drawn = next(entry for entry in pending if entry[:2] == [expansion.node, expansion.attempt])
        added: list[Node | None] = [
            self._add(tree, expansion.node, branch, child) for branch, child in zip(drawn[2], children, strict=True)
        ]
        pending.remove(drawn)
        return added

    def advance(self, tree: Tree, expanded: Node, new: list[Node]) -> None:
        """Takes the batch one turn further once all its pending expansions were told, or begins the next one, or ends
        the search."""
        search = tree.search
        if search["pending"]:
            return
        search["pending"] = self._missing(tree, search["batch"])
        if search["pending"]:
            return
        reason = self._reason_to_stop(tree)
        search["batch"] = [] if reason else self._propose(tree)
        if search["batch"]:
            search["batches"] += 1
            search["pending"] = self._missing(tree, search["batch"])
        else:
            search["stopped"] = reason or "empty"

    def temperature(self, branch: int) -> float:
        """Returns the temperature at which a branch is drawn.
        Without a greedy branch, branch 0 is one more in the cycle."""
        if branch == 0 and self.config.greedy_branch:
            return 0.0
        return self.config.temperatures[(branch - 1) % len(self.config.temperatures)]

    def score(self, contrast: float, turns_left: float, visits: int) -> float:
        """How much is to be learnt below a node: a contrast^power + b turns_left / max_depth + c 2 sqrt(1 + n) / (2 +
        n).

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
        return [[branch] + [0] * (self.config.max_depth - 1) for branch in range(count)]

    def _missing(self, tree: Tree, batch: list[list[int]]) -> list[list]:
        """The turns that the rollouts of a batch need next: node, attempt, and branches that are drawn at the same
        temperature."""
        needed: dict[int, set[int]] = {}
        for index in batch:
            node, branch = _follow(tree, index)
            if branch is not None:
                needed.setdefault(node.id, set()).add(branch)
        missing: list[list] = []
        for node in sorted(needed):
            alike: dict[float, list[int]] = {}
            for branch in sorted(needed[node]):
                alike.setdefault(self.temperature(branch), []).append(branch)
            missing += [[node, tree.nodes[node].expansions + i, branches] for i, branches in enumerate(alike.values())]
        return missing

    def _add(self, tree: Tree, parent: int, branch: int, child: Child) -> Node:
        child = cut_off(tree, parent, child, self.config.max_depth, self.config.max_invalid)
        node = tree.add(parent, child, Origin.POLICY)
        node.branch = branch
        if node.outcome is None:
            return node
        if node.outcome.is_the_agents:
            tree.back_up(node.id)
        # Backing up closes a parent whose children have all ended; here it is closed only if no branch is left to draw.
        *ancestors, _ = tree.path(node.id, root=True)
        for above in reversed(ancestors):
            above.terminal = len(above.children) == self.config.base and all(
                tree.nodes[c].terminal for c in above.children
            )
        return node

    def _reason_to_stop(self, tree: Tree) -> str:
        if tree.root.terminal:
            return "exhausted"
        if self.config.stop_pairs and self._pairs(tree) >= self.config.stop_pairs:
            return "pairs"
        return "rollouts" if tree.root.visits >= self.config.stop_rollouts else ""

    def _pairs(self, tree: Tree) -> int:
        """Pairs that the sibling rule selects.
        The cap of a task does not count: it takes the best of what the tree has."""
        below = Counter(tree.nodes[pair.chosen].parent for pair in sibling_pairs(tree, self.siblings))
        return sum(min(n, self.siblings.pairs_per_parent or n) for n in below.values())

    def _propose(self, tree: Tree) -> list[list[int]]:
        """The next batch: up to ``window`` new ones of 2 ``window`` indices drawn below the best node, none after
        ``stop_empty`` tries."""
        config, found = self.config, estimates(tree, self.siblings.turns_left)
        contrast = contrasts(tree, found)
        rng = random.Random(derived_seed(tree.seed, "batch", tree.search["batches"]))

        def entry(node: Node, failed_tries: int, tie: float) -> tuple[float, float, int, int]:
            turns_left = estimate.turns_left if (estimate := found[node.id]) is not None else 0.0
            return -self.score(contrast[node.id], turns_left, node.visits + failed_tries), tie, node.id, failed_tries

        queue = [entry(node, 0, rng.random()) for node in tree.nodes if not node.terminal]
        heapq.heapify(queue)
        room = min(config.window, config.stop_rollouts - tree.root.visits)
        for _ in range(config.stop_empty):
            _, tie, selected, failed_tries = queue[0]
            branches = [node.branch for node in tree.path(selected) if node.branch is not None]
            drawn = [
                tuple(branches + [rng.randrange(config.base) for _ in range(config.max_depth - len(branches))])
                for _ in range(2 * config.window)
            ]
            new = [list(index) for index in dict.fromkeys(drawn) if _follow(tree, index)[1] is not None]
            if new:
                return new[:room]
            heapq.heapreplace(queue, entry(tree.nodes[selected], failed_tries + 1, tie))
        return []


def _follow(tree: Tree, index: Sequence[int]) -> tuple[Node, int | None]:
    """Where an index leads: the last turn that is there, and the branch to draw after it, None if the episode ended."""
    node = tree.root
    for branch in index:
        if node.outcome is not None:
            break
        child = next((c for c in node.children if tree.nodes[c].branch == branch), None)
        if child is None:
            return node, branch
        node = tree.nodes[child]
    return node, None
