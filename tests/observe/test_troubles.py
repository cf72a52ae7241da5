"""Troubles are told in every place where somebody may look, and last as long as they do."""

import json
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console
from typer.testing import CliRunner

from agentr.cli import app
from agentr.cluster.causes import Cause, CauseKind
from agentr.commands.run import opened
from agentr.errors import NoRows
from agentr.methods import load, plan_of
from agentr.observe.progress import Reporter
from agentr.observe.troubles import MIRROR, announce, describe, note, troubles
from agentr.store.files import read_lines
from agentr.store.summaries import ModelSummary
from tests.tiny import IMITATE

STUCK = Cause(CauseKind.engine_stuck, "rollout-0 is stuck", "silent", "Wait.")
MIRROR_DOWN = Cause(CauseKind.mirror_failing, "nothing is mirrored to s3://b", "no such bucket", "Mend it.")


def still(cause: Cause, title: str = "rounds/01/collect") -> dict[str, Any]:
    return {"event": "stands_still", "title": title, "causes": [cause.as_dict()]}


STOPPED = {"event": "stage_stopped", "stage": "rounds/01/train", "error": "RunError: no space"}
SEALED = {"event": "stage_sealed", "stage": "x"}
AGAIN = {"event": "moves_again", "title": "rounds/01/collect"}
OLD = {"event": "stands_still", "title": "x", "causes": [{"what": "w", "evidence": "e", "setting": ""}]}


@pytest.mark.parametrize(
    "events, wanted",
    [
        ([], []),
        ([still(STUCK), {"event": "opened"}], ["round 1: collect: rollout-0 is stuck (silent). Wait."]),
        ([still(STUCK), AGAIN], []),
        ([still(STUCK), SEALED], []),
        ([OLD], ["x: w (e)."]),
        ([STOPPED], ["round 1: train was stopped: RunError: no space"]),
        ([still(MIRROR_DOWN, MIRROR), SEALED], ["mirror: nothing is mirrored to s3://b (no such bucket). Mend it."]),
        ([still(MIRROR_DOWN, MIRROR), {"event": "moves_again", "title": MIRROR}], []),
        (
            [still(STUCK), {**STOPPED, "stage": "rounds/01/collect"}],
            [
                "round 1: collect was stopped: RunError: no space",
                "round 1: collect: rollout-0 is stuck (silent). Wait.",
            ],
        ),
    ],
)
def test_troubles_last_as_long_as_they_do(events: list[dict[str, Any]], wanted: list[str]) -> None:
    assert [line for trouble in troubles(events) for line in describe(trouble)] == wanted


@pytest.mark.parametrize("alive", [True, False])
def test_a_cause_reaches_terminal_log_events_and_status_of_a_run_that_lives_and_of_one_that_is_dead(
    tmp_path: Path, alive: bool
) -> None:
    root = tmp_path / "run"
    terminal = StringIO()
    reporter = Reporter(Console(file=terminal, soft_wrap=True, width=140))
    with opened(plan_of(load(None, [IMITATE, f"run.dir={root}"])), reporter) as experiment:
        for kind in CauseKind:
            announce(
                reporter,
                experiment.store.event,
                f"title of {kind}",
                [Cause(kind, f"what of {kind}", "seen", "Set it.")],
                "no progress",
            )
        note(experiment.store.event, MIRROR, [MIRROR_DOWN])
        if alive:
            looked = (
                CliRunner().invoke(app, ["status", str(root)]),
                CliRunner().invoke(app, ["status", str(root), "--json"]),
            )
    if not alive:
        looked = (
            CliRunner().invoke(app, ["status", str(root)]),
            CliRunner().invoke(app, ["status", str(root), "--json"]),
        )
    text, found = looked[0].output, json.loads(looked[1].output)
    assert bool(found["owner"]) is alive
    assert {cause["kind"] for trouble in found["troubles"] for cause in trouble["causes"]} == set(CauseKind)
    log = (root / "logs" / "driver.log").read_text()
    for kind in CauseKind:
        words = f"what of {kind} (seen). Set it."
        assert all(words in place for place in (terminal.getvalue(), log, text)), kind
    assert "mirror: nothing is mirrored to s3://b (no such bucket)" in text


def test_a_stage_that_comes_to_no_rows_says_so_in_its_log_and_status(tmp_path: Path) -> None:
    root = tmp_path / "run"

    def work(folder: Path) -> ModelSummary:
        raise NoRows("the trees gave no row to train on: 3 x too short", hint="Raise build.max_length.")

    with pytest.raises(NoRows), opened(plan_of(load(None, [IMITATE, f"run.dir={root}"])), Reporter()) as experiment:
        experiment.store.stages.run("rounds/01/dataset", ModelSummary, work)
    words = "NoRows: the trees gave no row to train on: 3 x too short. Raise build.max_length."
    assert f"the run ended: {words}" in (root / "logs" / "driver.log").read_text()
    (trouble,) = troubles(read_lines(root / "events.jsonl"))
    assert trouble["kind"] == CauseKind.no_rows and trouble["stopped"] == words
