"""Metrics of a policy over a forest of evaluation episodes. All of them are queries over stored trees."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from math import comb
from statistics import fmean
from typing import Any

from agentr.evaluate.reflections import Reflections
from agentr.evaluate.statistics import Estimate, mean_interval
from agentr.outside import typed
from agentr.search.episode import Episode
from agentr.search.revision import Rating
from agentr.search.stored import stored_counts
from agentr.search.tree import Node, Origin, Tree
from agentr.types import CallStatus, Outcome

#: Lengths of repeated action sequences that are counted (Agent-R, figure 4).
REPEAT_LENGTHS = (1, 2, 3)

#: Numbers of refused turns from which on success is reported.
REFUSALS = (1, 2, 3)

#: Numbers of answers within which success is reported (DensePolicy's tables).
ANSWERS = (1, 4, 8, 10)

#: The summary of how economical an episode is. P is its return, T its calls (answers aside), W those of them
#: that failed, L the tokens that the policy generated (ET-Agent, arXiv 2601.06860, section 4.1).
BEHAVIOUR: dict[str, Callable[[Episode], float]] = {
    "calls": lambda e: e.calls,  # T
    "efficiency": lambda e: e.earned / max(e.calls, 1),  # P / max(T, 1)
    "successful execution": lambda e: e.earned / max(e.failed_calls, 1),  # P / max(W, 1)
    "reasoning length": lambda e: 1000 * e.earned / max(e.tokens, 1),  # 1000 P / L
}


@dataclass(frozen=True)
class Evaluation:
    """Metrics of one policy on one split.

    Attributes:
        success: Share of episodes that ended in success; each task counts once, with the mean of its episodes.
        reward: Mean return in [0, 1].
        steps: Mean actions in an episode.
        invalid_rate: Share of actions that the environment did not understand, malformed turns included.
        repeated_rate: Share of actions that stood in the same episode before.
        repeats: Mean number of repeated action sequences in an episode, by length.
        outcomes: Episodes by outcome.
        by_label: Success by value of a task label (depth and so on): mean and number of tasks.
        per_task: Success of each task, for paired comparisons.
        problems: Which problem each task poses: intervals are over problems.
        best: Share of tasks that at least one of their episodes solved (best-of-N).
        passes: Of several episodes a task, ``pass@k`` and ``pass^k`` by these names (`passes`).
        after_refusals: Of the episodes with at least so many turns that the environment did not carry out, the share
            that succeeds; for 1 to 3. A description: a better policy is refused on harder tasks only, so this may fall
            while it improves.
        within_answers: Share of episodes that were solved within so many answers, where wrong ones do not end an
            episode.
        behaviour: How economical episodes are, by the names of ``BEHAVIOUR``.
        scores: The environment's scores of answers by name, where it gives any; an episode without an answer has 0.
        statuses: Share of calls, answers aside, that came out so, by status.
        reflections: Of a method that reflects, how often that is false, and how often it is left out
            (``agentr.evaluate.reflections``).
    """

    success: Estimate
    reward: Estimate
    steps: float
    invalid_rate: float
    repeated_rate: float
    repeats: dict[int, float]
    outcomes: dict[str, int]
    by_label: dict[str, dict[str, tuple[float, int]]] = field(default_factory=dict)
    per_task: dict[str, float] = field(default_factory=dict)
    counts: dict[str, int] = field(default_factory=dict)
    problems: dict[str, str] = field(default_factory=dict)
    best: float = 0.0
    passes: dict[str, Estimate] = field(default_factory=dict)
    after_refusals: dict[int, Estimate] = field(default_factory=dict)
    within_answers: dict[int, float] = field(default_factory=dict)
    behaviour: dict[str, Estimate] = field(default_factory=dict)
    scores: dict[str, Estimate] = field(default_factory=dict)
    statuses: dict[str, float] = field(default_factory=dict)
    reflections: dict[str, Estimate] = field(default_factory=dict)

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Evaluation:
        """Reads what ``as_dict`` returned.

        Raises:
            DataError: Something in it is missing, or of another type.
        """
        return typed(cls, data, "an evaluation")


def evaluate(
    trees: Iterable[Tree],
    labels: tuple[str, ...] = (),
    identity: str = "",
    answer_prefix: str = "",
    reflections: Sequence[str] = (),
) -> Evaluation:
    """Metrics over the episodes in ``trees``.
    An episode that failed for infrastructure reasons is in no number, and one whose prompt was refused in ``outcomes``
    alone.

    Args:
        labels: Task labels to break success down by: an environment's `strata`.
        identity: Label that says which problem a task poses; empty if each task is its own.
        answer_prefix: How an action begins that is an answer; empty where answers are not counted.
        reflections: Openings of reflections, of a method that reflects.
    """
    grown = [_Played.of(tree, identity, answer_prefix) for tree in trees]
    played = [one for one in grown if one.leaves]
    paths = [episode.path for one in played for episode in one.episodes]
    turns = [node for path in paths for node in path]
    problems = [one.problem for one in played]
    interval = partial(mean_interval, problems=problems)
    reflected = Reflections(reflections)
    for one in played:
        reflected.add(one.problem, [episode.path for episode in one.episodes])
    return Evaluation(
        success=interval([one.success for one in played]),
        reward=interval([fmean(leaf.reward for leaf in one.leaves) for one in played]),
        steps=fmean(map(len, paths)) if paths else 0.0,
        invalid_rate=fmean(not turn.valid for turn in turns) if turns else 0.0,
        repeated_rate=sum(repeated(path, 1) for path in paths) / max(1, len(turns)),
        repeats={
            length: fmean(repeated(path, length) for path in paths) if paths else 0.0 for length in REPEAT_LENGTHS
        },
        outcomes=dict(Counter(outcome for one in grown for outcome in one.outcomes())),
        by_label={label: rows for label in labels if (rows := _by_label(played, label))},
        per_task={one.tree.task.key: one.success for one in played},
        counts=dict(sum((Counter(stored_counts(one.tree.cost, one.tree.events)) for one in played), Counter[str]())),
        problems={one.tree.task.key: one.problem for one in played},
        best=fmean(one.success > 0 for one in played) if played else 0.0,
        after_refusals=_after_refusals(played),
        passes=passes([one.counts for one in played], problems),
        behaviour={name: interval([one.mean(of) for one in played]) for name, of in BEHAVIOUR.items()} if paths else {},
        scores={
            name: interval([fmean(leaf.scores.get(name, 0.0) for leaf in one.leaves) for one in played])
            for name in _scores(played)
        },
        statuses=_shares(played),
        reflections=reflected.shares(),
        within_answers=_within_answers(played, answer_prefix) if answer_prefix else {},
    )


@dataclass(frozen=True)
class _Played:
    """The policy's episodes of one task. One that ended before its first turn has an empty path."""

    tree: Tree
    problem: str
    leaves: list[Node]
    episodes: list[Episode]

    @classmethod
    def of(cls, tree: Tree, identity: str, answer_prefix: str) -> _Played:
        leaves = [n for n in tree.ended() if n.depth == 0 or n.origin is Origin.POLICY]
        episodes = [Episode(tree, tuple(tree.path(leaf.id)), answer_prefix) for leaf in leaves]
        return cls(tree, str(tree.task.labels.get(identity, tree.task.key)), leaves, episodes)

    @property
    def counts(self) -> tuple[int, int]:
        """How many episodes there are, and how many of them succeeded."""
        return len(self.leaves), sum(leaf.outcome is Outcome.SUCCESS for leaf in self.leaves)

    @property
    def success(self) -> float:
        return fmean(leaf.outcome is Outcome.SUCCESS for leaf in self.leaves)

    def mean(self, of: Callable[[Episode], float]) -> float:
        return fmean(of(episode) if episode.path else 0.0 for episode in self.episodes)

    def outcomes(self) -> Iterator[str]:
        """Yields the outcome of each episode, those whose prompts were refused first."""
        yield from (Outcome.REFUSED.value for node in self.tree.nodes if node.outcome is Outcome.REFUSED)
        yield from (str(leaf.outcome) for leaf in self.leaves)


def passes(counts: Sequence[tuple[int, int]], problems: Sequence[str]) -> dict[str, Estimate]:
    """What k episodes of a task come to, for k a power of 2 and for all of them; nothing of one episode a task.

    ``pass@k`` is the probability that at least one of k succeeds, 1 - C(n - c, k) / C(n, k) with c of n that did (Chen
    et al. 2021, arXiv 2107.03374, equation 1); ``pass^k`` that all k do, C(c, k) / C(n, k) (Yao et al. 2024, arXiv
    2406.12045, section 3). Tasks with fewer than k episodes do not count.

    Args:
        counts: Of each task its episodes, and those that succeeded.
    """
    most = max((n for n, _ in counts), default=0)
    found: dict[str, Estimate] = {}
    for k in sorted({*(2**power for power in range(most.bit_length())), most} if most > 1 else ()):
        enough = [(n, c, problem) for (n, c), problem in zip(counts, problems, strict=True) if n >= k]
        of = [problem for _, _, problem in enough]
        found[f"pass@{k}"] = mean_interval([1 - comb(n - c, k) / comb(n, k) for n, c, _ in enough], problems=of)
        if k > 1:
            found[f"pass^{k}"] = mean_interval([comb(c, k) / comb(n, k) for n, c, _ in enough], problems=of)
    return found


def _after_refusals(played: Sequence[_Played]) -> dict[int, Estimate]:
    ended = [
        (sum(not node.valid for node in episode.path), leaf.outcome is Outcome.SUCCESS, one.problem)
        for one in played
        for leaf, episode in zip(one.leaves, one.episodes, strict=True)
    ]
    found = {}
    for least in REFUSALS:
        there = [(won, problem) for refused, won, problem in ended if refused >= least]
        found[least] = mean_interval([won for won, _ in there], problems=[problem for _, problem in there])
    return found


def _by_label(played: Sequence[_Played], label: str) -> dict[str, tuple[float, int]]:
    found: dict[str, list[float]] = {}
    for one in played:
        if label in one.tree.task.labels:
            found.setdefault(str(one.tree.task.labels[label]), []).append(one.success)
    return {value: (fmean(of), len(of)) for value, of in sorted(found.items(), key=_by_value)}


def _scores(played: Sequence[_Played]) -> list[str]:
    return sorted({name for one in played for leaf in one.leaves for name in leaf.scores})


def _shares(played: Sequence[_Played]) -> dict[str, float]:
    found = Counter[CallStatus]()
    for one in played:
        for episode in one.episodes:
            found += episode.statuses
    return {str(status): found[status] / found.total() for status in CallStatus} if found else {}


def _within_answers(played: Sequence[_Played], prefix: str) -> dict[int, float]:
    ends = [pair for one in played for pair in zip(one.leaves, one.episodes, strict=True)]
    answers = [_answers(episode.path, prefix) if leaf.outcome is Outcome.SUCCESS else None for leaf, episode in ends]
    return {k: fmean(a is not None and a <= k for a in answers) for k in ANSWERS} if answers else {}


def _by_value(row: tuple[str, Any]) -> tuple[bool, float, str]:
    """Sorts numbers by size, before texts."""
    try:
        return False, float(row[0]), row[0]
    except ValueError:
        return True, 0.0, row[0]


def _answers(episode: Sequence[Node], prefix: str) -> int:
    return sum(node.valid and node.action.startswith(prefix) for node in episode)


def repeated(episode: Sequence[Node], length: int) -> int:
    """Counts the action sequences of ``length`` that stood in the episode before, at an earlier start."""
    actions = [n.action for n in episode]
    sequences = [tuple(actions[i : i + length]) for i in range(len(actions) - length + 1)]
    return len(sequences) - len(set(sequences))


def conciseness(trees: Iterable[Tree], identity: str = "") -> dict[str, Estimate]:
    """What the successes in ``trees`` needed, where it was tried which of their turns could be left out; nothing if
    there is no success.

    Returns:
        ``concise``: the share of successes of which no turn could be left out. ``needed turns``: the mean share of
        their turns that were
        needed. A problem's successes count once, with their mean.
    """
    return _over_problems(trees, _needed, identity)


def _needed(tree: Tree) -> dict[str, float]:
    tried = [(tree.path(made.parent), tree.path(made.end) if made.end >= 0 else None) for made in tree.evolutions]
    if not tried:
        return {}
    shares = (1.0 if after is None else len(after) / len(before) for before, after in tried)
    return {"concise": fmean(after is None for _, after in tried), "needed turns": fmean(shares)}


def judged(trees: Iterable[Tree], identity: str = "") -> dict[str, Estimate]:
    """What a judge says of the episodes in ``trees``, those of a problem with their mean; nothing if it was not asked.

    Returns:
        ``judged right``: the share of episodes that the judge finds right. ``judge agrees``: the share of which it says
        what the
        environment says; a judge that is uncertain disagrees.
    """
    return _over_problems(trees, _verdicts, identity)


def _verdicts(tree: Tree) -> dict[str, float]:
    said = [(leaf.outcome is Outcome.SUCCESS, leaf.verdict.rating) for leaf in tree.ended() if leaf.verdict]
    if not said:
        return {}
    agrees = (rating is (Rating.GOOD if succeeded else Rating.BAD) for succeeded, rating in said)
    return {"judged right": fmean(rating is Rating.GOOD for _, rating in said), "judge agrees": fmean(agrees)}


def _over_problems(
    trees: Iterable[Tree], measure: Callable[[Tree], dict[str, float]], identity: str
) -> dict[str, Estimate]:
    """Returns each thing that ``measure`` finds in trees with its interval over problems; trees in which it finds
    nothing do not count."""
    found = [
        (str(tree.task.labels.get(identity, tree.task.key)), values) for tree in trees if (values := measure(tree))
    ]
    problems = [problem for problem, _ in found]
    names = found[0][1] if found else ()
    return {name: mean_interval([values[name] for _, values in found], problems=problems) for name in names}


def revision_length(trees: Iterable[Tree]) -> tuple[float, int]:
    """Mean number of actions from the start of a bad path to its first judged error (Agent-R, figure 5), and over how
    many paths."""
    lengths = [
        tree.nodes[transition].depth for tree in trees for transition in sorted({r.transition for r in tree.revisions})
    ]
    return (fmean(lengths) if lengths else 0.0), len(lengths)
