"""What the manifest keeps of a stage reads back as what the stage returned."""

import json

import pytest

from agentr.store.summaries import DatasetSummary, EvalSummary, ModelSummary, Summary, TrainSummary, TreeSummary
from agentr.types import Cost

COST = Cost(calls=2, completions=8, prompt_tokens=100, judge_calls=1)
WHOLE = [
    Summary(more={"written by": "another version"}),
    ModelSummary(path="runs/x/model"),
    TreeSummary(trees=3, failed=1, solved=2, cost=COST, events={"duplicates": 4}, more={"note": "x"}),
    TreeSummary(trees=3, cost=COST, revision_length=0.0, judged_paths=0, includes="rounds/01/collect"),
    DatasetSummary(
        type="sequences",
        rows=3,
        kinds={"good": 3},
        dropped={"tie": 1},
        splices={"tried": 2},
        tasks=2,
        more={"hash": "0"},
    ),
    TrainSummary(checkpoint="runs/x/model", steps=5, first_loss=0.0, last_loss=None, margin=0.5),
    EvalSummary(
        trees=4, cost=COST, success=0.5, success_low=0.25, success_high=0.75, best=1.0, tasks=4, reward=0.5, steps=3.5
    ),
    EvalSummary(trees=4, events={"unparsed": 1}, success=1.0, within_answers={1: 0.25, 10: 1.0}, includes="x"),
]


@pytest.mark.parametrize("summary", WHOLE, ids=lambda summary: type(summary).__name__)
def test_a_summary_reads_back_equal(summary: Summary) -> None:
    stored = summary.stored()
    assert all(not isinstance(value, Cost) for value in stored.values()), "the table is flat"
    assert type(summary).read(json.loads(json.dumps(stored))) == summary


def test_what_is_missing_has_its_default_and_nothing_unknown_is_lost() -> None:
    assert TrainSummary.read({"steps": 3, "gpus": 8}) == TrainSummary(steps=3, more={"gpus": 8})
    assert TreeSummary.read({"trees": 1, "calls": 5, "oddities": 2}) == TreeSummary(
        trees=1, cost=Cost(calls=5), events={"oddities": 2}
    )
