"""Pareto sampling, against NSGA-II as its paper has it (Deb et al. 2002)."""

import math
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentr.rows.pareto import (
    Dispersion,
    MeasuredTask,
    ParetoConfig,
    Settled,
    choose,
    crowding,
    fronts,
    measure,
    select,
)
from agentr.search.tree import Tree
from agentr.types import Outcome, Task
from tests.support import lines_run
from tests.trees import add, child, new_tree

POINT = st.tuples(st.integers(0, 5).map(float), st.integers(0, 5).map(float))


def textbook(points: list[tuple[float, float]]) -> list[int]:
    """Fast non-dominated sort as in the paper: n squared."""

    def dominates(a: tuple[float, float], b: tuple[float, float]) -> bool:
        return a[0] >= b[0] and a[1] >= b[1] and a != b

    rank, left, front = [-1] * len(points), set(range(len(points))), 0
    while left:
        best = {i for i in left if not any(dominates(points[j], points[i]) for j in left)}
        for i in best:
            rank[i] = front
        left, front = left - best, front + 1
    return rank


@given(st.lists(POINT, max_size=40))
def test_the_sweep_finds_the_fronts_of_the_textbook(points: list[tuple[float, float]]) -> None:
    assert fronts(points) == textbook(points)


def test_crowding_by_hand() -> None:
    """NSGA-II, section III-B: the ends are kept; between them the sides of the box around a point, each by its
    objective's range."""
    front = [(0.0, 4.0), (1.0, 3.0), (3.0, 1.0), (4.0, 0.0)]
    assert crowding(front) == [math.inf, 3 / 4 + 3 / 4, 3 / 4 + 3 / 4, math.inf]
    assert crowding([(1.0, 1.0), (1.0, 1.0), (1.0, 1.0)]) == [0.0, 0.0, 0.0]


@given(st.lists(POINT, min_size=1, max_size=40), st.integers(0, 50))
def test_no_point_is_chosen_while_one_of_a_better_front_is_not(points: list[tuple[float, float]], count: int) -> None:
    ranks, chosen = textbook(points), select(points, count)
    assert len(chosen) == len(set(chosen)) == min(count, len(points))
    others = [ranks[i] for i in range(len(points)) if i not in chosen]
    assert max((ranks[i] for i in chosen), default=0) <= min(others, default=len(points))


def test_the_ends_of_the_front_that_does_not_fit_are_kept() -> None:
    points = [(0.0, 4.0), (1.0, 3.0), (2.0, 2.0), (3.0, 1.0), (4.0, 0.0)]
    assert set(select(points, 2)) == {0, 4}


def test_it_is_no_slower_than_n_log_n() -> None:
    """The textbook's way takes 25 times the steps for 5 times the points."""
    rng = random.Random(0)
    points = [(rng.random(), rng.random()) for _ in range(10_000)]
    few = lines_run(lambda: select(points[:2_000], 1_000))
    assert 0 < lines_run(lambda: select(points, 5_000)) < 6 * few


def of(name: str, earned: float, calls: float, settled: bool = False, domain: str = "") -> MeasuredTask:
    return MeasuredTask(Task("made-up", name, "train", {"domain": domain}), earned, calls, settled)


TASKS = [
    of("a", 0.5, 0.0),
    of("b", 0.0, 2.0, settled=True),
    of("c", 0.4, 1.0),
    of("d", 0.1, 0.1),
    of("e", 0.0, 0.0, settled=True),
]


@pytest.mark.parametrize(
    ("settled", "chosen"),
    [(Settled.after, ["a", "c"]), (Settled.before, ["a", "c", "d"]), (Settled.keep, ["a", "b", "c"])],
)
def test_settled_tasks(settled: Settled, chosen: list[str]) -> None:
    """Of three places, b has one by its calls; ET-Agent leaves it empty."""
    assert [one.task.id for one in choose(TASKS, ParetoConfig(tasks=3, settled=settled))] == chosen


def test_each_domain_has_its_share_and_what_one_cannot_fill_goes_to_the_others() -> None:
    math_ = [of(f"m{i}", 0.5, float(i), domain="math") for i in range(6)]
    few = [of("q0", 0.01, 0.0, domain="qa")]
    config = ParetoConfig(tasks=5, balance="domain", settled=Settled.keep)
    assert [one.task.id for one in choose([*math_, *few], config)] == ["m2", "m3", "m4", "m5", "q0"]
    assert [one.task.id for one in choose([*math_, *few], ParetoConfig(tasks=5, settled=Settled.keep))] == [
        "m1",
        "m2",
        "m3",
        "m4",
        "m5",
    ]


def test_more_places_than_tasks_take_all() -> None:
    assert len(choose(TASKS, ParetoConfig(tasks=100, settled=Settled.keep))) == len(TASKS)
    assert choose([], ParetoConfig(tasks=3)) == []


def test_what_is_measured() -> None:
    """S_corr and S_tool (arXiv 2601.06860, section 3.3): over two episodes of 1 and 3 calls, of which one succeeds."""
    (found,) = measure([played(Outcome.SUCCESS)], Dispersion.std, "")
    assert (found.earned, found.calls, found.settled) == (0.5, 1.0, False)
    (found,) = measure([played(Outcome.SUCCESS)], Dispersion.std, "push")
    assert (found.earned, found.calls) == (0.5, 0.5), "an answer is no call"
    (found,) = measure([played(Outcome.FAILURE), new_tree()], Dispersion.variance, "")
    assert (found.earned, found.calls, found.settled) == (0.0, 1.0, True)


def played(first: Outcome) -> Tree:
    """An episode of one call that ends like this, and one of three that fails."""
    tree = new_tree()
    add(tree, 0, child("open", float(first is Outcome.SUCCESS), first))
    node = 0
    for action in ("look", "wait"):
        node = add(tree, node, child(action)).id
    add(tree, node, child("push", 0.0, Outcome.FAILURE))
    return tree
