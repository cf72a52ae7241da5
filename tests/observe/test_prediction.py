"""What was predicted of a run, beside what it took: in its page, in ``status``, and of what is left."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner

from agentr.cli import app
from agentr.observe.prediction import left, note, predicted
from agentr.read.run import Run
from agentr.ui.views.run import run_page
from tests.runs import written

STAGES = {
    "rounds/00/eval": (5.0, 10.0, 20.0),
    "rounds/01/collect": (50.0, 100.0, 200.0),
    "rounds/01/eval": (5.0, 10.0, 20.0),
}


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """A run whose warm start is measured, in four times what was predicted."""
    store = written(tmp_path, "one", 0, [{"a"}], 5)
    store.event("planned", stages=list(STAGES))
    note(store.event, "two cores", STAGES)
    records = Run.records
    monkeypatch.setattr(Run, "records", lambda run: {k: replace(v, seconds=40.0) for k, v in records(run).items()})
    return Run(store.root)


def test_what_is_left_follows_what_was_taken(run: Run) -> None:
    assert {name: tuple(span) for name, span in predicted(run).items()} == STAGES
    assert left(run) == pytest.approx((4 * 55, 4 * 110, 4 * 220))


def test_nothing_is_left_of_what_nobody_predicted(tmp_path: Path) -> None:
    run = Run(written(tmp_path, "one", 0, [{"a"}], 5).root)
    assert predicted(run) == {} and left(run) is None


def test_status_and_page_say_it(run: Run) -> None:
    said = CliRunner().invoke(app, ["status", str(run.path)])
    assert "about 7 min left (4 min to 15 min), by what was predicted" in said.output
    found = json.loads(CliRunner().invoke(app, ["status", str(run.path), "--json"]).output)
    assert found["left"] == pytest.approx([220, 440, 880])
    stages = {stage["name"]: stage for arm in run_page("one", run)["arms"] for stage in arm["stages"]}
    assert stages["rounds/00/eval"]["predicted"] == [5, 10, 20]
