"""ETO's pairs: of two runs of one task, the one with the higher return is preferred (arXiv 2403.02502, section 3.2 and
its released code).

- Trajectory pairs: the prompt is the task's opening, a side is a whole run, all of the agent's turns count. Both sides
  may begin with the same turns. They stay, as in the original: equal turns after equal contexts have equal
  log-probabilities on both sides, so they cancel in the loss.
- Step pairs (appendix B): the prompt is the conversation before turn t of the expert's path, a side is one turn, and
  the side with the higher return in the end is chosen. They come from trees of
  :class:`agentr.search.stepwise.Stepwise`.

Turns that the environment did not understand count like all others: a rejected side makes them less likely.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from enum import StrEnum
from itertools import combinations
from typing import Annotated

from pydantic import Field, NonNegativeInt

from agentr.config.checks import Section
from agentr.rows.sequences import dropped, make_pair, recorded
from agentr.search.tree import Node, Origin, Tree
from agentr.store.rows import Dropped, Preference
from agentr.types import Outcome

#: How an episode ends that can be compared: by the environment, or after the allowed number of turns.
_FINISHED = (Outcome.SUCCESS, Outcome.FAILURE, Outcome.STEP_LIMIT)


class ComparedWith(StrEnum):
    expert = "expert"
    """The task's demonstration (ETO section 3.2)."""
    own = "own"
    """Another run of the policy in the same task: self-play, without an expert. Needs more than one episode."""


class Granularity(StrEnum):
    trajectory = "trajectory"
    """Whole runs (ETO's own)."""
    step = "step"
    """One turn: the expert's against the policy's at the same point, by what each led to (ETO, appendix)."""
    mixture = "mixture"
    """Both."""


@dataclass
class ContrastConfig(Section):
    """Pairs of a better and a worse run of the same task (ETO, arXiv 2403.02502, section 3.2 and its released code)."""

    baseline: ComparedWith = ComparedWith.expert
    """What a run is compared with."""
    granularity: Granularity = Granularity.trajectory
    """What a side of a pair is."""
    margin: Annotated[float, Field(ge=0, lt=1)] = 0.0
    """The better return must exceed the other by more than this."""
    policy_may_win: bool = True
    """A run that earns more than the expert's is chosen over it."""
    expert_is_perfect: bool = False
    """Take the expert's return to be 1 whatever was recorded (the original, in ScienceWorld and ALFWorld)."""
    extra_turns: Annotated[int, Field(ge=-1)] = 5
    """Most turns by which a rejected run may outlast the chosen one; the rest is cut off. -1 means no limit."""
    pairs_per_task: NonNegativeInt = 1
    """Most pairs of a task of each granularity, those with the largest difference first; 0 means all."""
    unfinished: bool = False
    """Also reject runs that ended because the context was full: they failed for no reason of their own (the original,
    in ALFWorld)."""


@dataclass(frozen=True)
class _Trajectory:
    """A candidate for a side of a pair: turns, and the return at their end.

    Attributes:
        tree: The tree that they are of.
        before: Node before the first turn.
        finished: The environment or the limit on actions ended the run; false if the context was full.
    """

    turns: tuple[Node, ...]
    return_: float
    by: Origin
    tree: Tree
    before: int = 0
    finished: bool = True


@dataclass(frozen=True)
class _Comparison:
    better: _Trajectory
    worse: _Trajectory

    @property
    def order(self) -> tuple[float, int]:
        """Sort key: largest difference first, then the shortest chosen side."""
        return self.worse.return_ - self.better.return_, len(self.better.turns)


def contrast_rows(
    tree: Tree, expert: Tree | None, config: ContrastConfig, max_length: int, *, train_on_reasoning: bool = True
) -> Iterator[Preference | Dropped]:
    """Yields the pairs of one task, at most ``pairs_per_task`` of each granularity, then what was dropped.

    A tree that begins with an expert's path gives step pairs, any other tree gives trajectory pairs;
    ``config.granularity`` selects the kind, and ``mixture`` allows both.

    Args:
        tree: The policy's runs: branches of the root, or of the points of an expert's path.
        expert: The demonstration of the same task, for trajectory pairs against the expert.
        max_length: Most tokens of a pair's longer side.
        train_on_reasoning: Also train on the turns' reasoning.

    Raises:
        DataError: Runs are to be compared as a whole, and the policy did not see the reasoning of their earlier turns.
    """
    contrast = _Contrast(tree, config, max_length, train_on_reasoning)
    yield from contrast.pairs(expert)
    yield from contrast.dropped


@dataclass
class _Contrast:
    """The pairs of one tree, and the candidates that were dropped."""

    tree: Tree
    config: ContrastConfig
    max_length: int
    on_reasoning: bool = True
    dropped: list[Dropped] = field(default_factory=list)

    def pairs(self, expert: Tree | None) -> Iterator[Preference]:
        runs = self._runs()
        path = _demonstration(self.tree, self.config)
        granularity = self.config.granularity
        if granularity is Granularity.step or (granularity is Granularity.mixture and path is not None):
            comparisons, kind = self._steps(path, runs), "step"
        else:
            comparisons, kind = self._trajectories(expert, runs), "trajectory"
        made = 0
        seen: set[frozenset[tuple[int, ...]]] = set()
        for comparison in sorted(comparisons, key=lambda c: c.order):
            if made >= self.config.pairs_per_task > 0:
                self._drop("pairs over the cap", comparison.better, comparison.worse)
            elif (pair := self._pair(comparison, kind, seen)) is not None:
                made += 1
                yield pair

    def _drop(self, reason: str, better: _Trajectory | None = None, worse: _Trajectory | None = None) -> None:
        tree = better.tree if better else self.tree
        nodes, rejected = ([turn.id for turn in side.turns] if side else [] for side in (better, worse))
        self.dropped.append(dropped(tree, reason, nodes, rejected, worse.tree if worse else None))

    def _runs(self) -> list[_Trajectory]:
        """Returns the policy's ended runs, in the order of their first nodes."""
        found: list[_Trajectory] = []
        for leaf in self.tree.nodes:
            if leaf.origin is not Origin.POLICY or leaf.outcome is None:
                continue
            finished = leaf.outcome in _FINISHED
            if not finished and not (self.config.unfinished and leaf.outcome is Outcome.CONTEXT_LIMIT):
                self._drop(f"run without an end: {leaf.outcome.value}", self._run(leaf, finished))
                continue
            found.append(self._run(leaf, finished))
        if not found:
            self._drop("no run of the policy in the tree")
        return sorted(found, key=lambda run: run.before)

    def _run(self, leaf: Node, finished: bool) -> _Trajectory:
        turns = tuple(n for n in self.tree.path(leaf.id) if n.origin is Origin.POLICY)
        return _Trajectory(turns, leaf.reward, Origin.POLICY, self.tree, turns[0].parent, finished)

    def _trajectories(self, expert: Tree | None, runs: list[_Trajectory]) -> Iterable[_Comparison]:
        whole = [run for run in runs if run.before == 0]
        if self.config.baseline is ComparedWith.own:
            return self._ranked(combinations(whole, 2))
        if expert is None:
            self._drop("no demonstration of the task")
            return []
        if expert.prompt_ids != self.tree.prompt_ids:
            self._drop("the demonstration has another prompt")
            return []
        shown = _demonstration(expert, self.config)
        if shown is None:
            self._drop("the demonstration has no end")
            return []
        return self._ranked((shown, run) for run in whole)

    def _steps(self, path: _Trajectory | None, runs: list[_Trajectory]) -> Iterable[_Comparison]:
        if path is None:
            self._drop("no finished path of the expert in the tree")
            return []
        # A turn of the expert's is worth the return that the expert's path had in the end.
        shown = {
            turn.parent: _Trajectory((turn,), path.return_, Origin.EXPERT, self.tree, turn.parent)
            for turn in path.turns
        }
        firsts = [replace(run, turns=run.turns[:1]) for run in runs if run.before in shown]
        return self._ranked((shown[first.before], first) for first in firsts)

    def _ranked(self, candidates: Iterable[tuple[_Trajectory, _Trajectory]]) -> Iterator[_Comparison]:
        for one, other in candidates:
            better, worse = (one, other) if one.return_ > other.return_ else (other, one)
            if better.return_ == worse.return_:
                self._drop("tie", better, worse)
            elif not better.return_ - worse.return_ > self.config.margin:
                self._drop("difference within the margin", better, worse)
            elif not better.finished:
                self._drop("the better run has no end", better, worse)
            elif worse.by is Origin.EXPERT and not self.config.policy_may_win:
                self._drop("the policy did better than the expert", better, worse)
            else:
                yield _Comparison(better, worse)

    def _pair(self, comparison: _Comparison, kind: str, seen: set[frozenset[tuple[int, ...]]]) -> Preference | None:
        better, worse = comparison.better, comparison.worse
        extra = self.config.extra_turns
        longest = len(better.turns) + extra if extra >= 0 else len(worse.turns)
        shown = worse.turns[:longest]
        pair = make_pair(
            self.tree.prompt(better.before),
            (better.tree, recorded(better.turns, trained=True, on_reasoning=self.on_reasoning)),
            (worse.tree, recorded(shown, trained=True, on_reasoning=self.on_reasoning)),
            kind,
            chosen_by=better.by.value,
            rejected_by=worse.by.value,
            chosen_return=better.return_,
            rejected_return=worse.return_,
            depth=self.tree.nodes[better.before].depth,
            cut=max(0, len(worse.turns) - longest),
        )
        if pair is None:
            self._drop("a side with nothing to train on", better, worse)
            return None
        # Either way round: the same two sides with opposite verdicts would only pull against each other.
        sides = frozenset((*pair.prompt_ids, *side) for side in (pair.chosen_ids, pair.rejected_ids))
        if len(sides) == 1:
            self._drop("both sides are the same", better, worse)
        elif sides in seen:
            self._drop("pair made twice", better, worse)
        elif pair.longest > self.max_length:
            self._drop("longer than build.max_length", better, worse)
        else:
            seen.add(sides)
            return pair
        return None


def _demonstration(tree: Tree, config: ContrastConfig) -> _Trajectory | None:
    """Returns the finished path with the highest return on which no turn is the policy's, or None."""
    leaves = [n for n in tree.nodes if n.depth > 0 and n.origin is not Origin.POLICY and n.outcome in _FINISHED]
    best = max(leaves, key=lambda n: n.reward, default=None)
    if best is None:
        return None
    return _Trajectory(tuple(tree.path(best.id)), 1.0 if config.expert_is_perfect else best.reward, Origin.EXPERT, tree)
