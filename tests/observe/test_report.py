"""The report shows what evaluations say of answers and calls."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import agentr
from agentr.evaluate.metrics import evaluate
from agentr.observe.report import write_report
from agentr.observe.report_tables import UNKNOWN, context_rows, reflection_rows, score_rows, status_rows
from agentr.observe.summary import summarise
from agentr.store.files import write_json
from agentr.store.forest import Forest
from agentr.store.growing import GrowingForest
from agentr.store.layout import CONTROL, EVALUATION
from agentr.store.summaries import EvalSummary
from agentr.types import CallStatus, Outcome
from tests.runs import AGENT_R, round_of
from tests.trees import door, episode


def test_scores_of_answers_and_how_calls_came_out_are_shown(tmp_path: Path) -> None:
    tree = episode("a", ["search", "answer"], 0.0, Outcome.FAILURE, 1)
    tree.nodes[1].status, tree.nodes[2].scores = CallStatus.timeout, {"em": 0.0, "f1": 0.5}
    round_ = round_of(tmp_path / "run", AGENT_R, collect=[door()])

    def measure(folder: Path) -> EvalSummary:
        GrowingForest(folder).write(tree)
        Forest(folder).seal()
        write_json(folder / EVALUATION, evaluate([tree]).as_dict())
        return EvalSummary(trees=1)

    round_.experiment.store.stage("rounds/01/eval", EvalSummary, measure)
    round_.experiment.store.close()
    run = agentr.open(tmp_path / "run")
    scores = [["Policy", "em", "f1"], ["round 1", "0.0 [0.0, 0.0]", "50.0 [50.0, 50.0]"]]
    statuses = [["Policy", *CallStatus], ["round 1", "50.0 %", "0.0 %", "0.0 %", "50.0 %", "0.0 %"]]
    summary = summarise(run)
    assert (score_rows(summary), status_rows(summary)) == (scores, statuses)
    write_report(run)
    page = (tmp_path / "run/report.html").read_text(encoding="utf-8")
    assert page.startswith("<!doctype html>")
    assert all(f">{cell}</t" in page for cell in ("f1", "50.0 [50.0, 50.0]", "timeout", "50.0 %"))


def test_when_policies_reflect_and_what_they_did_not_learn_is_shown(tmp_path: Path) -> None:
    round_of(tmp_path / "run", AGENT_R, collect=[door()]).experiment.store.close()
    summary = summarise(agentr.open(tmp_path / "run"))
    assert reflection_rows(summary) == context_rows(summary) == []
    (arm, *_) = summary.arms
    tree = episode("a", ["hm", "No. look", "No. end"], 1.0, Outcome.SUCCESS, 1, invalid=(0,))
    reflecting = replace(
        arm, evaluation=evaluate([tree], reflections=["No."]), rows=3, context={"unlikely turn": 2, "sentence said twice": 1}
    )
    silent = replace(arm, arm=CONTROL, evaluation=evaluate([episode("a", ["x"], 1.0, Outcome.SUCCESS, 1)], reflections=["No."]))
    summary = replace(summary, arms=[reflecting, silent])
    title = arm.title
    assert reflection_rows(summary)[1:] == [
        [title, "2", "50.0 [50.0, 50.0] %", "1", "0.0 [0.0, 0.0] %"],
        [CONTROL.title, "0", UNKNOWN, "0", UNKNOWN],
    ]
    assert context_rows(summary) == [["Policy", "sentence said twice", "unlikely turn"], [title, "1", "2"]]


def test_evaluations_without_them_have_no_such_tables(tmp_path: Path) -> None:
    round_of(tmp_path / "run", AGENT_R, collect=[door()]).experiment.store.close()
    summary = summarise(agentr.open(tmp_path / "run"))
    assert score_rows(summary) == status_rows(summary) == []
    (arm, *_) = summary.arms
    before = replace(evaluate([episode("a", ["x"], 1.0, Outcome.SUCCESS, 1)]), statuses={})
    with_one = replace(summary, arms=[replace(arm, evaluation=before)])
    assert score_rows(with_one) == status_rows(with_one) == []
