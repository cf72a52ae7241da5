"""The tables of a run's page: what evaluations say of answers and calls, of reflections, of labels."""

from dataclasses import replace
from pathlib import Path

import agentr
from agentr.evaluate.metrics import evaluate
from agentr.evaluate.statistics import Estimate
from agentr.observe.summary import RunSummary, summarise
from agentr.observe.tables import VALUES, Cells, tables
from agentr.store.layout import CONTROL
from agentr.store.summaries import DatasetSummary, TrainSummary
from agentr.types import CallStatus, Outcome
from tests.runs import TINY, round_of
from tests.trees import door, episode


def summary(folder: Path, **changes: object) -> RunSummary:
    """A run of one round, with what a test says of it."""
    round_of(folder / "run", TINY, collect=[door()]).experiment.store.close()
    found = summarise(agentr.open(folder / "run"))
    return replace(found, arms=[replace(found.arms[-1], **changes)])  # type: ignore[arg-type]


def lines(found: RunSummary, title: str) -> dict[str, Cells]:
    return next((table.lines for table in tables(found) if table.title == title), {})


def test_scores_of_answers_and_how_calls_came_out(tmp_path: Path) -> None:
    tree = episode("a", ["search", "answer"], 0.0, Outcome.FAILURE, 1)
    tree.nodes[1].status, tree.nodes[2].scores = CallStatus.timeout, {"em": 0.0, "f1": 0.5}
    found = summary(tmp_path, evaluation=evaluate([tree]))
    assert lines(found, "Scores of answers") == {
        "round 1": {"em": Estimate(0.0, 0.0, 0.0, 1), "f1": Estimate(0.5, 0.5, 0.5, 1)}
    }
    assert {name: share for name, share in lines(found, "How calls came out")["round 1"].items() if share} == {
        "ok": 0.5,
        "timeout": 0.5,
    }
    assert {table.title: table.share for table in tables(found)}["How calls came out"], "shown as percentages"


def test_when_policies_reflect_and_what_they_did_not_learn(tmp_path: Path) -> None:
    tree = episode("a", ["hm", "No. look", "No. end"], 1.0, Outcome.SUCCESS, 1, invalid=(0,))
    context = {"unlikely turn": 2, "sentence said twice": 1}
    found = summary(tmp_path, evaluation=evaluate([tree], reflections=["No."]), context=context)
    silent = replace(
        found.arms[0],
        arm=CONTROL,
        evaluation=evaluate([episode("a", ["x"], 1.0, Outcome.SUCCESS, 1)], reflections=["No."]),
    )
    found = replace(found, arms=[*found.arms, replace(silent, context={})])
    shown = lines(found, "Reflections")
    assert shown["round 1"] == {
        "after a move that worked": Estimate(0.5, 0.5, 0.5, 2),
        "refused moves without a reflection": Estimate(0, 0, 0, 1),
    }
    assert set(shown["control"].values()) == {None}, "of no reflection there is no share"
    assert lines(found, "Turns that were not learnt") == {"round 1": context}


def test_what_holds_nothing_is_left_out(tmp_path: Path) -> None:
    found = summary(tmp_path)
    assert tables(replace(found, arms=[replace(found.arms[0], training=None)])) == []
    trained = replace(found.arms[0], training=TrainSummary(steps=3, rows=8, last_loss=0.5))
    assert lines(replace(found, arms=[trained]), "Trainings") == {
        "round 1": {"optimiser steps": 3, "rows": 8, "loss, last": 0.5}
    }
    assert lines(replace(found, arms=[trained]), "Training on preferences") == {}


def test_success_by_label_of_the_values_that_most_tasks_have(tmp_path: Path) -> None:
    evaluation = evaluate([episode("a", ["x"], 1.0, Outcome.SUCCESS, 1)])
    cells = {str(value): (0.25, value) for value in range(VALUES + 3)}
    found = summary(tmp_path, evaluation=replace(evaluation, by_label={"depth": cells}))
    (table,) = [table for table in tables(found) if table.title == "Success by depth"]
    columns = list(table.lines["round 1"])
    assert columns[0] == f"{VALUES + 2} (n = {VALUES + 2})" and len(columns) == VALUES and "0 (n = 0)" not in columns
    assert (
        table.notes == [f"The {VALUES} values of {VALUES + 3} that most tasks have."]
        and table.lines["round 1"][columns[0]] == 0.25
    )


def test_what_came_of_a_flywheel(tmp_path: Path) -> None:
    told = DatasetSummary(
        operators={"rollout": {"tried": 4, "made": 3, "right_after": 2, "calls_after": 1.5, "reasons": {"no end": 1}}},
        agreement={"flawed": {"both": 5, "whether": 4, "which": 3}},
        verdicts={"right": {"good": 2, "bad": 2}, "wrong": {"good": 3, "bad": 3}},
    )
    (table,) = [table for table in tables(summary(tmp_path, flywheel=told)) if table.title == "Flywheel, round 1"]
    assert (
        table.lines["rollout"]["right after"] == 2
        and table.lines["rollout"]["calls after"] == 1.5
        and "reasons" not in table.lines["rollout"]
    )
    said = " ".join(table.notes)
    assert (
        "agree in 4 on whether" in said
        and "Of 4 right episodes the judge finds 2 good and 2 bad." in said
        and "its verdicts carry little information" in said
    )
