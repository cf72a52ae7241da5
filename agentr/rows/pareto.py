"""Chooses the tasks that tell most: those on which the policy's episodes differ most, in what they earn and in how
often they call (ET-Agent's group-wise Pareto sampling, arXiv 2601.06860, section 3.3, by NSGA-II's selection, Deb et
al. 2002).

Fronts of two objectives are found by a sweep, in n log n.
"""

import bisect
import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from statistics import pstdev, pvariance

from pydantic import NonNegativeInt, PositiveInt

from agentr.config.checks import Problem, Section
from agentr.search.episode import episodes
from agentr.search.tree import Tree
from agentr.types import Task


class Dispersion(StrEnum):
    std = "std"
    """Standard deviation over the episodes (the paper)."""
    variance = "variance"
    """Variance (the released code); the order of tasks in one objective is the same, distances within a front are
    not."""


class Settled(StrEnum):
    """What is done about tasks of which all episodes succeed, or none: they give no signal on success."""

    after = "after"
    """They are left out of what was chosen (ET-Agent): fewer tasks remain."""
    before = "before"
    """They are left out, and others are chosen in their place."""
    keep = "keep"
    """They may be chosen: their numbers of calls may differ."""


@dataclass
class ParetoConfig(Section):
    """Which of a round's tasks are trained on: those on which the present policy's episodes differ most."""

    tasks: NonNegativeInt = 0
    """Most tasks; 0 means all tasks of the round, without a look at them (ET-Agent: 8000)."""
    episodes: PositiveInt = 8
    """Episodes of each task that show how much they differ (ET-Agent: 16 in the paper, 8 in the released code)."""
    dispersion: Dispersion = Dispersion.std
    """How a task's episodes differ."""
    settled: Settled = Settled.after
    """Tasks of which all episodes succeed, or none."""
    balance: str = ""
    """A label of the tasks (``agentr list environments``) of whose values each gets the same share; empty for none."""

    def problems(self) -> Iterator[Problem]:
        if self.tasks and self.episodes < 2:
            yield Problem("episodes", "one episode of a task cannot differ from another", "Give at least 2.")


@dataclass(frozen=True)
class MeasuredTask:
    """How much a task's episodes differ.

    Attributes:
        earned: Dispersion of their returns.
        calls: Dispersion of their numbers of calls.
        settled: All of them succeed, or none.
    """

    task: Task
    earned: float
    calls: float
    settled: bool


def measure(trees: Iterable[Tree], dispersion: Dispersion, answer_prefix: str) -> list[MeasuredTask]:
    """Measures the episodes of each tree; a tree without any is left out."""
    spread = pstdev if dispersion is Dispersion.std else pvariance
    found = []
    for tree in trees:
        group = list(episodes(tree, answer_prefix))
        if group:
            right = sum(episode.succeeded for episode in group)
            earned, calls = spread([e.earned for e in group]), spread([float(e.calls) for e in group])
            found.append(MeasuredTask(tree.task, earned, calls, right in (0, len(group))))
    return found


def choose(measured: Sequence[MeasuredTask], config: ParetoConfig) -> list[MeasuredTask]:
    """Chooses tasks, front by front; of the front that does not fit, those that stand most alone.
    In the order of ``measured``."""
    open_ = [one for one in measured if not (one.settled and config.settled is Settled.before)]
    shares: dict[object, list[MeasuredTask]] = {}
    for one in open_:
        shares.setdefault(one.task.labels.get(config.balance) if config.balance else None, []).append(one)
    chosen: set[int] = set()
    for place, group in enumerate(sorted(shares.values(), key=len)):
        share = (config.tasks - len(chosen)) // (len(shares) - place)
        chosen |= {id(group[index]) for index in select([(one.earned, one.calls) for one in group], share)}
    return [one for one in open_ if id(one) in chosen and not (one.settled and config.settled is Settled.after)]


def select(points: Sequence[tuple[float, float]], count: int) -> list[int]:
    """Returns the indices of so many points by NSGA-II's selection: whole fronts while they fit, then by crowding
    distance.

    Args:
        points: Two objectives each; more is better.
    """
    ranks = fronts(points)
    by_front: dict[int, list[int]] = {}
    for index, rank in enumerate(ranks):
        by_front.setdefault(rank, []).append(index)
    found: list[int] = []
    for _, front in sorted(by_front.items()):
        if len(found) + len(front) > count:
            distance = crowding([points[index] for index in front])
            front = [
                index for _, index in sorted(zip(distance, front, strict=True), key=lambda pair: (-pair[0], pair[1]))
            ]
        found += front[: count - len(found)]
        if len(found) == count:
            break
    return found


def fronts(points: Sequence[tuple[float, float]]) -> list[int]:
    """Returns the front of each point, from 0: how often the points that nothing dominates are to be taken away until
    it is one of them.

    A point dominates another if it is at least as good in both objectives and better in one.
    """
    lowest: list[float] = []  # of each front, minus the best second objective so far; rising
    rank: dict[tuple[float, float], int] = {}
    for point in sorted(set(points), reverse=True):  # whatever may dominate a point comes before it
        front = bisect.bisect_right(lowest, -point[1])
        lowest[front : front + 1] = [-point[1]]
        rank[point] = front
    return [rank[point] for point in points]


def crowding(front: Sequence[tuple[float, float]]) -> list[float]:
    """Returns how alone each point of a front stands (Deb et al. 2002, section III-B): infinite at the ends; an
    objective that does not differ counts nothing."""
    distance = [0.0] * len(front)
    for objective in (0, 1):
        order = sorted(range(len(front)), key=lambda index: front[index][objective])
        span = front[order[-1]][objective] - front[order[0]][objective]
        if not span:
            continue
        distance[order[0]] = distance[order[-1]] = math.inf
        for before, index, after in zip(order, order[1:], order[2:], strict=False):
            distance[index] += (front[after][objective] - front[before][objective]) / span
    return distance
