"""How many seeds and tasks tell a difference, against simulated comparisons."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from agentr.evaluate.power import Spread
from agentr.evaluate.statistics import paired_difference

TRUE = Spread(between_seeds=0.04**2, between_problems=0.2**2, rest=0.25**2, seeds=3, problems=36, tasks=288)


def drawn(
    rng: np.random.Generator, seeds: int, problems: int, each: int, effect: float, true: Spread = TRUE
) -> dict[str, Any]:
    """Differences of two methods by ``seed/problem/task``: those of a task vary beside those of its problem."""
    noise = 0.5
    of_cell = true.rest - noise**2 / each
    table = effect + (
        rng.normal(0, true.between_seeds**0.5, (seeds, 1, 1))
        + rng.normal(0, true.between_problems**0.5, (1, problems, 1))
        + rng.normal(0, of_cell**0.5, (seeds, problems, 1))
        + rng.normal(0, noise, (seeds, problems, each))
    )
    keys = {f"{s}/{p}/{t}": (s, p, t) for s in range(seeds) for p in range(problems) for t in range(each)}
    return {
        "differences": {key: float(table[place]) for key, place in keys.items()},
        "problems": {key: str(place[1]) for key, place in keys.items()},
        "seeds": {key: place[0] for key, place in keys.items()},
    }


def test_variances_are_found() -> None:
    rng, true = np.random.default_rng(0), replace(TRUE, between_seeds=0.1**2)
    found = [Spread.of(**drawn(rng, 5, 36, 8, 0.1, true)) for _ in range(200)]
    assert all(found)
    for name in ("between_seeds", "between_problems", "rest"):
        assert np.mean([getattr(one, name) for one in found]) == pytest.approx(getattr(true, name), rel=0.15), name
    assert {(one.seeds, one.problems, one.tasks) for one in found if one} == {(5, 36.0, 288)}


@pytest.mark.slow
@pytest.mark.parametrize("by", ["seeds", "tasks"])
def test_the_difference_is_told_as_often_as_was_said(by: str) -> None:
    difference = 0.12
    seeds, tasks = (TRUE.seeds_for(difference), TRUE.tasks) if by == "seeds" else (5, TRUE.tasks_for(difference, 5))
    assert seeds is not None and tasks is not None
    rng, told, times = np.random.default_rng(1), 0, 200
    for _ in range(times):
        made = drawn(rng, seeds, round(tasks / 8), 8, difference)
        none = dict.fromkeys(made["differences"], 0.0)
        told += paired_difference(made["differences"], none, made["problems"], made["seeds"]).low > 0
    assert 0.7 <= told / times <= 0.92, (seeds, tasks, told)


def test_more_is_not_always_enough() -> None:
    """What problems add does not go away with seeds, nor what seeds add with problems."""
    assert TRUE.seeds_for(0.05) is None and TRUE.tasks_for(0.05, 3) is None
    few, many = (TRUE.tasks_for(0.05, seeds) for seeds in (10, 40))
    assert few is not None and many is not None and few > many > 288
    found = TRUE.told()
    assert TRUE.seeds_for(found * 1.001) == 3 and TRUE.tasks_for(found, 3) in (288, 289)


def test_one_seed_says_nothing_of_seeds() -> None:
    rng = np.random.default_rng(0)
    assert Spread.of(**drawn(rng, 1, 36, 8, 0.1)) is None and Spread.of(**drawn(rng, 3, 1, 8, 0.1)) is None
    assert Spread.of({}, {}, {}) is None


def test_problems_that_a_seed_lacks_do_not_count_and_uneven_ones_count_for_less() -> None:
    made = drawn(np.random.default_rng(0), 3, 10, 8, 0.1)
    assert (whole := Spread.of(**made)) and whole.problems == 10
    short = {**made, "differences": {k: v for k, v in made["differences"].items() if not k.startswith("2/9/")}}
    assert (found := Spread.of(**short)) and (found.problems, found.tasks) == (9, 72)
    uneven = {k: v for k, v in made["differences"].items() if k.split("/")[1] == "0" or k.endswith("/0")}
    assert (found := Spread.of(**{**made, "differences": uneven})) and found.tasks == 17
    assert found.problems == pytest.approx(17**2 / (8**2 + 9))
