"""Monte Carlo tree search as in Agent-R (arXiv 2501.11425, section 3.2, Eq. 5, and its released code).

One iteration is a *dive*: from the root, descend by UCT to a leaf, expand it with ``width`` turns, go on from there, until every
sibling has ended. There is no separate rollout policy: the dive is the rollout. A node is expanded at most once. An ended leaf is
backed up once, when it is made, so Q(s) is the mean return of all ended leaves below s, those beside the dive's path included.

What the default does differently from the original, each by a switch of ``SearchConfig``: a dive ends at the first success
(``stop_dive_at_success``), the search ends when there is enough to learn from (``enough_good``, ``enough_bad``,
``stop_hopeless_after``), siblings are one node when their action is the same (``dedupe``).
"""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass

from agentr.config.methods import Dedupe, SearchConfig
from agentr.search.strategy import Expansion, already_told, cut_off, request
from agentr.search.tree import Child, Node, Origin, Tree
from agentr.seeds import derived_seed
from agentr.types import Outcome


@dataclass(frozen=True)
class UCT:
    """The strategy. State in the tree: ``iteration`` (finished dives), ``cursor`` (where this dive is), ``stopped`` (why it is over)."""

    config: SearchConfig

    @property
    def most(self) -> int:
        return self.config.iterations * (self.config.max_depth + 1) * self.config.width

    def ask(self, tree: Tree) -> list[Expansion]:
        if tree.search.get("stopped"):
            return []
        leaf = self.descend(tree, tree.search.get("cursor", 0))
        return [] if leaf is None else [request(tree, leaf, self.config.width)]

    def tell(self, tree: Tree, expansion: Expansion, children: Sequence[Child]) -> None:
        if already_told(tree, expansion):
            return
        parent = tree.nodes[expansion.node]
        parent.expansions += 1
        known = {self._identity(tree.nodes[c]) for c in parent.children}
        new: list[Node] = []
        for child in children:
            identity = self._identity(child)
            if identity is not None and identity in known:
                tree.count(duplicates=1)
                continue
            known.add(identity)
            cut = cut_off(tree, parent.id, child, self.config.max_depth + 1, self.config.max_invalid)
            new.append(tree.add(parent.id, cut, Origin.POLICY))
        for node in new:
            if node.terminal:
                tree.back_up(node.id)
        self._advance(tree, parent, new)

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

    def _identity(self, turn: Node | Child) -> str | None:
        match self.config.dedupe:
            case Dedupe.text:
                return turn.text
            case Dedupe.action:
                return turn.action
            case Dedupe.none:
                return None

    def _advance(self, tree: Tree, expanded: Node, new: list[Node]) -> None:
        """Moves the cursor down the dive, or ends the dive and perhaps the search."""
        tree.search.setdefault("iteration", 0)
        succeeded = any(n.outcome is Outcome.SUCCESS for n in new)
        if self.descend(tree, expanded.id) is not None and not (succeeded and self.config.stop_dive_at_success):
            tree.search["cursor"] = expanded.id
            return
        tree.search["cursor"] = 0
        tree.search["iteration"] += 1
        if reason := self._reason_to_stop(tree):
            tree.search["stopped"] = reason

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
