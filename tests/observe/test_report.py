"""The report: what evaluations say of answers and calls, and its page."""

from __future__ import annotations

import re
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
import yaml

import agentr
from agentr.evaluate.metrics import evaluate
from agentr.launch.run import decoder
from agentr.observe.report import write_report
from agentr.observe.report_tables import UNKNOWN, context_rows, reflection_rows, score_rows, status_rows
from agentr.observe.summary import summarise
from agentr.store.files import write_json
from agentr.store.forest import Forest
from agentr.store.growing import GrowingForest
from agentr.store.layout import CONTROL, EVALUATION
from agentr.store.run import RunStore
from agentr.store.summaries import EvalSummary, TrainSummary
from agentr.types import CallStatus, Outcome
from tests.runs import AGENT_R, measured_trees, round_of, small, written
from tests.support import tiny_model
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


# the page -------------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("run")
    return small(folder / "run", tiny_model(folder / "model"))


def page_of(root: Path, out: Path) -> str:
    out.mkdir(exist_ok=True)
    run = agentr.open(root)
    write_report(run, decoder(run), out)
    return (out / "report.html").read_text(encoding="utf-8")


def headings(page: str) -> list[str]:
    return re.findall("<h2>(.*?)</h2>", page)


def test_a_report_is_one_file_that_asks_for_nothing(made: Path, tmp_path: Path) -> None:
    page = page_of(made, tmp_path)
    assert page == page_of(made, tmp_path), "the same run has the same page"
    assert not re.search(r"<script|<link|src=|href=|url\(", page) and "default-src 'none'" in page
    assert "prefers-color-scheme: dark" in page and "not finished yet" in page
    assert "round 1 against warm start: +0.0 points" in page


def test_what_holds_nothing_is_left_out(made: Path, tmp_path: Path) -> None:
    page = page_of(made, tmp_path)
    assert {"Policies", "Training", "Rows that were trained on", "Held-out tasks: what changed", "Three trajectories"} < set(headings(page))
    absent = {"Online training", "Training on preferences", "Scores of answers", "Reflections", "Tasks that were chosen"}
    assert not absent & set(headings(page))
    columns = re.findall('<th scope="col">(.*?)</th>', page)
    assert "Reward" in columns and not {"Recovery % [95 %]", "Best of several", "Calls", "Cached"} & set(columns)
    assert "None" not in re.sub("<style>.*?</style>", "", page, flags=re.DOTALL)


def test_tasks_that_changed_and_patterns_are_counted(made: Path, tmp_path: Path) -> None:
    page = page_of(made, tmp_path)
    assert '<th scope="row">warm start</th><td>round 1</td><td>1</td><td>1</td><td>0</td><td>1</td><td>3</td>' in page
    assert "<td>100 % (1 of 3)</td><td>100 % (1 of 3)</td>" in page, "a repeated action, by policy"


def test_every_policy_has_a_curve_of_training(made: Path, tmp_path: Path) -> None:
    (curves,) = re.findall(r'aria-label="(Loss: .*?)"', page_of(made, tmp_path))
    assert curves == "Loss: warm start from 2.50 to 0.500; round 1 from 2.50 to 0.500"


def test_fewer_trajectories_are_said_to_be_fewer(tmp_path: Path) -> None:
    root = written(tmp_path, "run", 0, ["a", "ab"], 1).root
    write_report(agentr.open(root))
    page = (root / "report.html").read_text(encoding="utf-8")
    assert "No trajectory" in headings(page) and "The run has none to show" in page
    assert "Patterns of held-out episodes" not in headings(page)


HOSTILE = "</script></pre><img src=x onerror=\"document.title='taken'\">\u202egnp\0"


def test_texts_of_models_and_worlds_stay_texts(made: Path, tmp_path: Path) -> None:
    page = page_of(hostile(made, tmp_path), tmp_path / "out")
    assert "\u202e" not in page and "\0" not in page and "<img" not in page and "</script" not in page
    assert page.count("&lt;img src=x onerror=&#34;document.title=&#39;taken&#39;&#34;&gt;[U+202E]gnp") >= 4, "name, turns"


def hostile(made: Path, folder: Path) -> Path:
    """A copy of the run whose name, turns and observations are hostile."""
    copy = Path(shutil.copytree(made, folder / "hostile"))
    config = yaml.safe_load((copy / "config.yaml").read_text())
    config["run"]["name"] = HOSTILE.replace("\0", "")
    (copy / "config.yaml").write_text(yaml.safe_dump(config))
    tree = episode("a", ["x", "y"], 1.0, Outcome.SUCCESS, 1)
    for node in tree.nodes[1:]:
        node.text = node.observation = node.action = HOSTILE
    store = RunStore(copy)
    store.set_aside("rounds/01/eval")
    store.take()
    measured_trees(store, "rounds/01/eval", [tree])
    store.close()
    return copy


@pytest.mark.slow
def test_a_large_run_has_a_page_of_at_most_two_megabytes(made: Path, tmp_path: Path) -> None:
    copy = Path(shutil.copytree(made, tmp_path / "large"))
    tree = episode("a", [f"step {number}" for number in range(300)], 1.0, Outcome.SUCCESS, 1)
    for node in tree.nodes[1:]:
        node.text = node.observation = "\"'<&>\u202e" * 20_000
    store = RunStore(copy)
    store.set_aside("rounds/01/eval")
    store.take()
    measured_trees(store, "rounds/01/eval", [tree])
    for number in range(2, 40):
        lines = "".join(f'{{"step": {step}, "loss": {1 / (step + 1)}, "entropy": 0.5}}\n' for step in range(5000))

        def train(folder: Path, lines: str = lines) -> TrainSummary:
            (folder / "metrics.jsonl").write_text(lines)
            return TrainSummary(steps=5000)

        store.stage(f"rounds/{number:02d}/train", TrainSummary, train)
    store.close()
    page = page_of(copy, tmp_path / "out")
    assert len(page.encode()) < 2_000_000 and "round 39 from" in page and "turns are left out" in page and "characters are left out" in page
