"""What is said of a run whose figures are known: differences in words, whether it is complete, and what it cost."""

from collections.abc import Collection
from pathlib import Path

import pytest

from agentr.config.identity import Identity
from agentr.errors import DataError
from agentr.methods import load
from agentr.observe.summary import RunSummary, summarise
from agentr.read.run import Run
from agentr.store.run import RunStore
from agentr.store.summaries import DatasetSummary, TreeSummary
from agentr.types import Cost
from tests.runs import written
from tests.tiny import IMITATE

ALL, NONE = "abcdefgh", ""


def summary(
    folder: Path,
    *solved: Collection[str],
    control: Collection[str] | None = None,
    ceiling: Collection[str] | None = None,
) -> RunSummary:
    """Of a run of eight held-out tasks."""
    tasks = {task: task for task in ALL}
    return summarise(Run(written(folder, "run", 0, solved, 5, control=control, ceiling=ceiling, tasks=tasks).root))


@pytest.mark.parametrize(
    ("before", "after", "words"),
    [
        (
            NONE,
            ALL,
            "round 1 is better than warm start by +100.0 points (95 % interval +100.0 to +100.0, n = 8): a real gain",
        ),
        (
            ALL,
            NONE,
            (
                "round 1 is worse than warm start by -100.0 points (95 % interval -100.0 to -100.0, n = 8): "
                "self-training did harm"
            ),
        ),
        ("ad", "abc", "round 1 against warm start: +12.5 points"),  # two tasks are won, and one is lost
    ],
)
def test_a_difference_is_real_if_its_interval_holds_no_0(tmp_path: Path, before: str, after: str, words: str) -> None:
    (said,) = summary(tmp_path, before, after).comparisons
    assert said.words.startswith(words)
    assert ("The interval holds 0: no evidence of a difference" in said.words) is (after == "abc")
    assert ("real gain" in said.words) is (after == ALL)


def test_the_last_round_is_held_against_the_control_too(tmp_path: Path) -> None:
    start, control = summary(tmp_path, NONE, "ab", ALL, control=NONE).comparisons
    assert (start.after, start.before, control.before) == ("round 2", "warm start", "control")
    assert "more than the same number of optimiser steps on the demonstrations alone explains" in control.words
    assert "real gain" not in control.words


@pytest.mark.parametrize(
    ("control", "after", "ceiling", "way", "words"),
    [
        ("a", "abc", "abcde", 0.5, "round 1 against ceiling: -25.0 points"),
        ("a", "ab", ALL, 1 / 7, "the expert's episodes of the searched tasks teach more in as many steps"),
        (NONE, ALL, "abcde", 8 / 5, "better than ceiling by +37.5 points"),
        ("ab", ALL, "abc", None, "better than ceiling by +62.5 points"),
    ],
)
def test_a_gain_is_a_share_of_the_way_from_control_to_ceiling(
    tmp_path: Path, control: str, after: str, ceiling: str, way: float | None, words: str
) -> None:
    *_, found = summary(tmp_path, NONE, after, control=control, ceiling=ceiling).comparisons
    assert found.before == "ceiling" and words in found.words
    if way is None:
        assert found.way is None and found.words.endswith("no way to go, as far as can be told.")
    else:
        assert found.way is not None and found.way.mean == pytest.approx(way) and found.way.n == len(ALL)
        assert found.way.low < way and f"{found.way.as_percent()} % are gone" in found.words


def test_without_a_control_nothing_is_said_of_the_way(tmp_path: Path) -> None:
    *_, found = summary(tmp_path, NONE, "abc", ceiling=ALL).comparisons
    assert (found.before, found.way) == ("ceiling", None) and "Of the way" not in found.words


def test_a_run_is_complete_with_its_last_round_and_its_control(tmp_path: Path) -> None:
    runs = {
        "without a control": written(tmp_path, "one", 0, [NONE, "a"], 1),
        "its control is missing": written(tmp_path, "two", 0, [NONE, "a"], 1, planned=["control"]),
        "with its control": written(tmp_path, "three", 0, [NONE, "a"], 1, control="a"),
        "its ceiling is missing": written(tmp_path, "five", 0, [NONE, "a"], 1, control="a", planned=["ceiling"]),
        "with both": written(tmp_path, "six", 0, [NONE, "a"], 1, control="a", ceiling="a"),
        "its round is missing": written(tmp_path, "four", 0, [NONE], 1),
    }
    found = {name: summarise(Run(store.root)).complete for name, store in runs.items()}
    assert found == {
        "without a control": True,
        "its control is missing": False,
        "with its control": True,
        "its ceiling is missing": False,
        "with both": True,
        "its round is missing": False,
    }


def test_trees_that_hold_those_of_another_stage_are_paid_for_once(tmp_path: Path) -> None:
    """Revised trees are the searched ones with more in them, so what those cost is in them; other stages' costs are
    added."""
    store = RunStore(tmp_path / "run")
    store.open(Identity.of(load(None, [IMITATE])))
    for stage, calls, includes in (("collect", 5, None), ("revise", 8, "rounds/01/collect"), ("steps", 100, None)):
        made = TreeSummary(
            trees=3,
            solved=2,
            cost=Cost(calls=calls, judge_calls=1, prompt_tokens=40, cached_tokens=10),
            includes=includes,
        )
        store.stages.run(f"rounds/01/{stage}", TreeSummary, lambda _, made=made: made)
    splices = {"tried": 4, "kept after execution": 1}
    for number in (1, 2):
        store.stages.run(f"rounds/0{number}/dataset", DatasetSummary, lambda _: DatasetSummary(rows=7, splices=splices))
    store.close()
    found = summarise(Run(store.root))
    arm = next(arm for arm in found.arms if arm.title == "round 1")
    assert (arm.cost.calls, arm.cost.judge_calls, arm.calls) == (108, 2, 110)
    assert (arm.trees, arm.solved, arm.rows, arm.cached_share) == (3, 2, 7, 0.25), "trees are those of the first stage"
    assert found.splices == {"tried": 8, "kept after execution": 2}, "of all rounds"


def test_a_run_without_a_stage_says_how_to_start(tmp_path: Path) -> None:
    store = RunStore(tmp_path / "run")
    store.open(Identity.of(load(None, [IMITATE])))
    store.close()
    with pytest.raises(DataError, match=r"has no stage yet.*agentr run CONFIG"):
        summarise(Run(store.root))
