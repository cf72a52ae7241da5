"""What one line for a stage says."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from agentr.observe import progress
from agentr.observe.progress import Reporter, read_now
from agentr.observe.status import describe_now, describe_stage
from agentr.store.seal import StageRecord
from agentr.store.summaries import DatasetSummary, EvalSummary, ModelSummary, Summary, TrainSummary, TreeSummary
from agentr.types import Cost


def record(name: str, state: str, summary: dict[str, Any]) -> StageRecord:
    return StageRecord(name=name, state=state, started=0.0, seconds=1.0, summary=summary)


@pytest.mark.parametrize(
    ("stage", "summary", "words"),
    [
        ("model", ModelSummary(path="/m"), ""),
        (
            "rounds/01/collect",
            TreeSummary(trees=4, solved=3, cost=Cost(calls=9, judge_calls=2)),
            "trees 4, solved 3, calls 11",
        ),
        ("rounds/01/mine", TreeSummary(trees=4, failed=1), "trees 4, solved 0, calls 0, failed 1"),
        (
            "rounds/01/dataset",
            DatasetSummary(rows=5, kinds={"good": 5}, trained_tokens=7),
            "rows 5 (good 5), trained tokens 7",
        ),
        (
            "rounds/01/train",
            TrainSummary(steps=30, first_loss=2.5, last_loss=0.125),
            "optimiser steps 30, loss 2.5 -> 0.125",
        ),
        (
            "control/eval",
            EvalSummary(success=0.25, tasks=8, steps=3.5),
            "success 25.0 % of 8 tasks, 3.5 actions an episode",
        ),
    ],
)
def test_a_sealed_stage_says_what_it_came_to(stage: str, summary: Summary, words: str) -> None:
    assert describe_stage(record(stage, "sealed", summary.stored()), {}) == words
    assert describe_stage(record(stage, "running", {}), {}) == ""


def test_calls_of_a_stage_are_its_own_and_not_those_of_the_stage_that_it_includes() -> None:
    searched = record(
        "rounds/01/collect", "sealed", TreeSummary(trees=4, solved=3, cost=Cost(calls=9, judge_calls=2)).stored()
    )
    includes = TreeSummary(trees=4, solved=3, cost=Cost(calls=12, judge_calls=7), includes="rounds/01/collect")
    revised = record("rounds/01/revise", "sealed", includes.stored())
    assert describe_stage(revised, {searched.name: searched}) == "trees 4, solved 3, calls 8"
    assert describe_stage(revised, {}) == "trees 4, solved 3, calls 19", "the other is not there any more"


def test_what_a_driver_is_doing_is_read_from_elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "now.json"
    monkeypatch.setattr(progress, "KEEP_EVERY_S", 0.0)
    reporter = Reporter()
    assert read_now(path) is None
    with reporter.kept(path), reporter.task("rounds/01/collect") as update:
        assert describe_now(read_now(path) or pytest.fail()).startswith("round 1: collect: begun (said 0 s ago)")
        update(10, 40, "solved 3")
        now = read_now(path)
        assert now is not None and (now.done, now.total, now.details) == (10, 40, "solved 3")
        line = describe_now(replace(now, rate=2.0, left_s=900.0))
        assert line.startswith("round 1: collect: 10 of 40, 2 a minute, about 15 min left; solved 3 (said")
    assert not path.exists(), "nobody does anything any more"
    path.write_text("{")
    assert read_now(path) is None
