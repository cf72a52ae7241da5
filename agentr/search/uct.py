"""Monte Carlo tree search as in Agent-R (arXiv 2501.11425, section 3.2, Eq. 5, and its released code).

One iteration is a simulation: from the root, descend by UCT to a leaf, expand it with ``width`` turns, go on from
there, until every sibling has ended. There is no separate rollout policy: the simulation is the rollout. A node is
expanded at most once. An ended leaf is backed up once, when it is made, so Q(s) is the mean return of all ended leaves
below s, those beside the simulation's path included.

What the default does differently from the original, each by a switch of ``UCTConfig``: a simulation ends at the first
success (``stop_simulation_at_success``), the search ends when there is enough to learn from (``enough_good``,
``enough_bad``, ``stop_hopeless_after``), siblings are one node when their action is the same (``dedupe``).
"""

import math
import random
import re
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from pydantic import NonNegativeFloat, NonNegativeInt, PositiveInt

from agentr.config.checks import Section
from agentr.search.strategy import Expansion, Strategy, cut_off, request
from agentr.search.tree import Child, Node, Origin, Tree
from agentr.seeds import derived_seed
from agentr.types import Outcome

_NUMBERED = re.compile(r"\b(Action|Thought) ?\d+:")


class Dedupe(StrEnum):
    none = "none"
    """Every turn is a node of its own."""
    text = "text"
    """Siblings with the same whole turn are one node."""
    normalised = "normalised"
    """The same up to white space at the ends and numbers as in "Action 1:" and "Thought 1:" (the released code)."""
    action = "action"
    """Siblings with the same action are one node."""


@dataclass
class UCTConfig(Section):
    """UCT as in Agent-R (section 3.2 and the released code); docs/agent_r.md maps every variable of the original to its
    key."""

    iterations: PositiveInt = 8
    """Simulations from the root (ITERA)."""
    max_depth: NonNegativeInt = 20
    """A node deeper than this is terminal (MAX_DEPTH), so a path has at most max_depth + 1 actions."""
    width: PositiveInt = 4
    """Completions for each expansion (N_GEN)."""
    c_uct: NonNegativeFloat = 0.25
    """Exploration constant (Eq. 5)."""
    dedupe: Dedupe = Dedupe.action
    """Which siblings are one node."""
    stop_simulation_at_success: bool = True
    """A simulation ends as soon as one of the new siblings succeeded; the original goes on beside it."""
    enough_good: NonNegativeInt = 4
    """Stop the search when the tree has this many successes and enough_bad other ended paths; 0 means never."""
    enough_bad: NonNegativeInt = 2
    """Ended paths without success that the search needs, beside enough_good successes, to stop early."""
    stop_hopeless_after: NonNegativeInt = 0
    """Stop after so many simulations without any reward; 0 means never."""
    max_invalid: NonNegativeInt = 0
    """A path ends after so many invalid actions in a row; 0 means never."""


@dataclass(frozen=True)
class UCT(Strategy):
    """The strategy.
    State in the tree: ``iteration`` (finished simulations), ``cursor`` (node that this simulation has reached),
    ``stopped`` (why the search is over: exhausted, iterations, enough, hopeless or leaves).

    Attributes:
        leaves: Most ended leaves of a tree, at which the search ends; 0 means any number.
    """

    kind = "search"

    config: UCTConfig
    leaves: int = 0

    @property
    def max_completions(self) -> int:
        return self.config.iterations * (self.config.max_depth + 1) * self.config.width

    def ask(self, tree: Tree) -> list[Expansion]:
        if tree.search.get("stopped"):
            return []
        leaf = self.descend(tree, tree.search.get("cursor", 0))
        return [] if leaf is None else [request(tree, leaf, min(self.config.width, self._left(tree)))]

    def record(self, tree: Tree, expansion: Expansion, children: Sequence[Child]) -> list[Node | None]:
        parent = tree.nodes[expansion.node]
        known = {self._identity(tree.nodes[c]): tree.nodes[c] for c in parent.children}
        added: list[Node | None] = []
        for child in children:
            identity = self._identity(child)
            if identity is not None and identity in known:
                tree.count(duplicates=1)
                known[identity].draws += 1
                added.append(None)
                continue
            cut = cut_off(tree, parent.id, child, self.config.max_depth + 1, self.config.max_invalid)
            known[identity] = tree.add(parent.id, cut, Origin.POLICY)
            added.append(known[identity])
        for node in added:
            if node is not None and node.terminal:
                tree.back_up(node.id)
        return added

    def advance(self, tree: Tree, expanded: Node, new: list[Node]) -> None:
        """Moves the cursor down the simulation, or ends the simulation and perhaps the search."""
        tree.search.setdefault("iteration", 0)
        succeeded = any(n.outcome is Outcome.SUCCESS for n in new)
        if not self._left(tree):
            tree.search["stopped"] = "leaves"
            return
        if self.descend(tree, expanded.id) is not None and not (succeeded and self.config.stop_simulation_at_success):
            tree.search["cursor"] = expanded.id
            return
        tree.search["cursor"] = 0
        tree.search["iteration"] += 1
        if reason := self._reason_to_stop(tree):
            tree.search["stopped"] = reason

    def descend(self, tree: Tree, start: int) -> int | None:
        """The open leaf that UCT leads to from ``start``, or None if everything below has ended."""
        node = tree.nodes[start]
        while node.children:
            candidates = [tree.nodes[c] for c in node.children if not tree.nodes[c].terminal]
            if not candidates:
                return None
            node = self.select(tree, node, candidates)
        return None if node.terminal else node.id

    def select(self, tree: Tree, parent: Node, candidates: list[Node]) -> Node:
        """The candidate with the highest UCT score (Eq. 5); ties, and so all unvisited ones, at random."""
        scores = [self.score(parent, candidate) for candidate in candidates]
        best = [c for c, score in zip(candidates, scores, strict=True) if score == max(scores)]
        if len(best) == 1:
            return best[0]
        return random.Random(derived_seed(tree.seed, "tie", parent.id, parent.visits)).choice(best)

    def score(self, parent: Node, child: Node) -> float:
        """Eq. 5: Q(s) + c_uct * sqrt(ln N(parent) / N(s)); infinite for an unvisited node."""
        if child.visits == 0:
            return math.inf
        return child.mean + self.config.c_uct * math.sqrt(math.log(parent.visits) / child.visits)

    # ------------------------------------------------------------------------------------------------------------------

    def _left(self, tree: Tree) -> int:
        """How many leaves may still end: no more turns are drawn at a time, so that there are never more."""
        return self.leaves - sum(1 for _ in tree.ended()) if self.leaves else self.config.width

    def _identity(self, turn: Node | Child) -> str | None:
        match self.config.dedupe:
            case Dedupe.text:
                return turn.text
            case Dedupe.normalised:
                return _NUMBERED.sub(r"\1:", turn.text).strip()
            case Dedupe.action:
                return turn.action
            case Dedupe.none:
                return None

    def _reason_to_stop(self, tree: Tree) -> str:
        config, iteration = self.config, tree.search["iteration"]
        if tree.root.terminal:
            return "exhausted"
        if iteration >= config.iterations:
            return "iterations"
        good = len(tree.successes())
        bad = sum(1 for n in tree.ended()) - good
        if config.enough_good and good >= config.enough_good and bad >= config.enough_bad:
            return "enough"
        if config.stop_hopeless_after and iteration >= config.stop_hopeless_after and tree.root.value == 0:
            return "hopeless"
        return ""
