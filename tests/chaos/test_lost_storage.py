"""The run directory is lost in the middle of a run: what was sealed comes back from the mirror, and the run is
finished."""

import shutil
from pathlib import Path

import pytest

from agentr.store.files import read_lines
from agentr.store.records import read_records
from tests.chaos.driver import DEMO, SMALL, end, start, state, wait_for
from tests.s3 import s3_server

pytestmark = [pytest.mark.cluster, pytest.mark.chaos, pytest.mark.by_hand, pytest.mark.timeout(1200)]


def test_a_run_directory_that_is_deleted_in_round_2_is_restored_from_s3(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root, log = tmp_path / "run", tmp_path / "log"
    with s3_server() as s3:
        for name, value in s3.environment.items():
            monkeypatch.setenv(name, value)
        command = ["run", DEMO, *SMALL, "run.rounds=2", f"run.dir={root}", f"run.mirror={s3.new()}"]
        driver = start(log, *command)
        try:
            wait_for(lambda: state(root, "rounds/02/collect") == "running", driver, "round 2", 900)
            before = {name: record for name, record in read_records(root).items() if record.sealed}
        finally:
            driver.kill()
            driver.wait()
        shutil.rmtree(root, ignore_errors=True)
        shutil.rmtree(root, ignore_errors=True)  # what a process that died a little later had written
        driver = start(log, *command)
        try:
            assert driver.wait(900) == 0, log.read_text()[-3000:]
        finally:
            end(driver)
    records = read_records(root)
    last = "rounds/01/eval"  # the one that may have been on its way
    assert last in before and {name: records[name].content for name in before if name != last} == {
        name: record.content for name, record in before.items() if name != last
    }
    events = read_lines(root / "events.jsonl")
    again = [
        event["stage"]
        for event in events[_restored(events) :]
        if event["event"] == "stage_started" and event["stage"] in before
    ]
    assert again in ([], [last]), "what the mirror had is not done again"
    assert (root / "report.html").exists() and all(record.sealed for record in records.values())


def _restored(events: list[dict[str, object]]) -> int:
    """Place of the last time that the run was opened."""
    return max(place for place, event in enumerate(events) if event["event"] == "opened")
