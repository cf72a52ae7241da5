"""ETO's pairs: of two runs of one task, the one that earned more is preferred (arXiv 2403.02502, section 3.2 and its released code).

- Trajectory pairs: the prompt is the task's opening, a side is a whole run, all of the agent's turns count. Both sides may begin with the
  same turns. They stay, as in the original: equal turns after equal contexts have equal log-probabilities on both sides, so they cancel
  in the loss.
- Step pairs (appendix B): the prompt is the conversation before turn t of the expert's path, a side is one turn, and what counts is what
  each turn led to. They come from trees of :class:`agentr.search.stepwise.Stepwise`.

Turns that the environment did not understand count like all others: to make them less likely is what a rejected side is for.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import combinations

from agentr.build.sequences import make_pair, recorded
from agentr.config.methods import Against, BuildConfig, ContrastConfig, Unit
from agentr.search.tree import Node, Origin, Tree
from agentr.store.rows import Preference
from agentr.types import Outcome

#: How an episode ends that can be compared: by the environment, or after the allowed number of turns.
_FINISHED = (Outcome.SUCCESS, Outcome.FAILURE, Outcome.STEP_LIMIT)


@dataclass(frozen=True)
class _Run:
    """Turns that may become a side, and the return that they led to.

    Attributes:
        before: Node after which they come.
        finished: The run ended for a reason of its own, not because the context was full.
    """

    turns: tuple[Node, ...]
    earned: float
    by: Origin
    before: int = 0
    finished: bool = True


@dataclass(frozen=True)
class _Contest:
    better: _Run
    worse: _Run

    @property
    def order(self) -> tuple[float, int]:
        """Largest difference first, then the shortest chosen side."""
        return self.worse.earned - self.better.earned, len(self.better.turns)


def contrast_rows(
    tree: Tree, expert: Tree | None, config: ContrastConfig, build: BuildConfig, dropped: Counter[str]
) -> Iterator[Preference]:
    """Pairs of one task, at most ``pairs_per_task`` of each unit.

    A tree that begins with a given path gives step pairs, any other gives trajectory pairs; ``config.unit`` says which are wanted, and
    with ``mixture`` it is either.

    Args:
        tree: The policy's runs: branches of the root, or of the points of an expert's path.
        expert: The demonstration of the same task, for trajectory pairs against the expert.
        dropped: Counts, by reason, what was left out.
    """
    runs = _runs(tree, config, dropped)
    path = _demonstration(tree, config)
    if config.unit is Unit.step or (config.unit is Unit.mixture and path is not None):
        contests, kind = _steps(tree, path, runs, config, dropped), "step"
    else:
        contests, kind = _trajectories(tree, expert, runs, config, dropped), "trajectory"
    made = 0
    seen: set[frozenset[tuple[int, ...]]] = set()
    for contest in sorted(contests, key=lambda c: c.order):
        if made >= config.pairs_per_task > 0:
            dropped["pairs over the cap"] += 1
        elif (pair := _pair(tree, contest, kind, config, build, seen, dropped)) is not None:
            made += 1
            yield pair


# runs -----------------------------------------------------------------------------------------------------------------


def _runs(tree: Tree, config: ContrastConfig, dropped: Counter[str]) -> list[_Run]:
    """The policy's ended runs, in the order of where they begin."""
    found: list[_Run] = []
    for leaf in tree.nodes:
        if leaf.origin is not Origin.POLICY or leaf.outcome is None:
            continue
        finished = leaf.outcome in _FINISHED
        if not finished and not (config.unfinished and leaf.outcome is Outcome.CONTEXT_LIMIT):
            dropped[f"run without an end: {leaf.outcome.value}"] += 1
            continue
        turns = tuple(n for n in tree.path(leaf.id) if n.origin is Origin.POLICY)
        found.append(_Run(turns, leaf.reward, Origin.POLICY, turns[0].parent, finished))
    if not found:
        dropped["no run of the policy in the tree"] += 1
    return sorted(found, key=lambda run: run.before)


def _demonstration(tree: Tree, config: ContrastConfig) -> _Run | None:
    """The best finished path on which no turn is a policy's."""
    leaves = [n for n in tree.nodes if n.depth > 0 and n.origin is not Origin.POLICY and n.outcome in _FINISHED]
    best = max(leaves, key=lambda n: n.reward, default=None)
    if best is None:
        return None
    return _Run(tuple(tree.path(best.id)), 1.0 if config.expert_is_perfect else best.reward, Origin.EXPERT)


# contests -------------------------------------------------------------------------------------------------------------


def _trajectories(tree: Tree, expert: Tree | None, runs: list[_Run], config: ContrastConfig, dropped: Counter[str]) -> Iterable[_Contest]:
    whole = [run for run in runs if run.before == 0]
    if config.against is Against.own:
        return _decided(combinations(whole, 2), config, dropped)
    if expert is None:
        dropped["no demonstration of the task"] += 1
        return []
    if expert.prompt_ids != tree.prompt_ids:
        dropped["the demonstration has another prompt"] += 1
        return []
    shown = _demonstration(expert, config)
    if shown is None:
        dropped["the demonstration has no end"] += 1
        return []
    return _decided(((shown, run) for run in whole), config, dropped)


def _steps(tree: Tree, path: _Run | None, runs: list[_Run], config: ContrastConfig, dropped: Counter[str]) -> Iterable[_Contest]:
    if path is None:
        dropped["no finished path of the expert in the tree"] += 1
        return []
    # A turn of the expert's is worth what the expert's path earned in the end.
    shown = {turn.parent: _Run((turn,), path.earned, Origin.EXPERT, turn.parent) for turn in path.turns}
    firsts = [_Run(run.turns[:1], run.earned, run.by, run.before, run.finished) for run in runs if run.before in shown]
    return _decided(((shown[first.before], first) for first in firsts), config, dropped)


def _decided(contests: Iterable[tuple[_Run, _Run]], config: ContrastConfig, dropped: Counter[str]) -> Iterator[_Contest]:
    for one, other in contests:
        better, worse = (one, other) if one.earned > other.earned else (other, one)
        if better.earned == worse.earned:
            dropped["tie"] += 1
        elif not better.earned - worse.earned > config.margin:
            dropped["difference within the margin"] += 1
        elif not better.finished:
            dropped["the better run has no end"] += 1
        elif worse.by is Origin.EXPERT and not config.policy_may_win:
            dropped["the policy did better than the expert"] += 1
        else:
            yield _Contest(better, worse)


# rows -----------------------------------------------------------------------------------------------------------------


def _pair(
    tree: Tree,
    contest: _Contest,
    kind: str,
    config: ContrastConfig,
    build: BuildConfig,
    seen: set[frozenset[tuple[int, ...]]],
    dropped: Counter[str],
) -> Preference | None:
    better, worse = contest.better, contest.worse
    longest = len(better.turns) + config.extra_turns if config.extra_turns >= 0 else len(worse.turns)
    pair = make_pair(
        tree,
        tree.prompt(better.before),
        recorded(better.turns, trained=True),
        recorded(worse.turns[:longest], trained=True),
        kind,
        chosen_by=better.by.value,
        rejected_by=worse.by.value,
        chosen_return=better.earned,
        rejected_return=worse.earned,
        depth=tree.nodes[better.before].depth,
        cut=max(0, len(worse.turns) - longest),
    )
    if pair is None:
        dropped["a side with nothing to train on"] += 1
        return None
    # Either way round: the same two sides with opposite verdicts would only pull against each other.
    sides = frozenset((*pair.prompt_ids, *side) for side in (pair.chosen_ids, pair.rejected_ids))
    if len(sides) == 1:
        dropped["both sides are the same"] += 1
    elif sides in seen:
        dropped["pair made twice"] += 1
    elif pair.longest > build.max_length:
        dropped["longer than build.max_length"] += 1
    else:
        seen.add(sides)
        return pair
    return None
