"""Kill everything, in turn, and lose nothing: the sealed units are those of an undisturbed run, none twice."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from agentr.store.files import read_lines
from agentr.store.forest import Forest
from agentr.store.run import RunStore
from tests.chaos.driver import DEMO, SMALL, STAGES, end, kill, start, state, wait_for

pytestmark = [pytest.mark.cluster, pytest.mark.chaos, pytest.mark.timeout(2400)]


def units(root: Path) -> dict[str, list[str]]:
    """What every forest of a run holds."""
    return {stage: sorted(Forest(root / stage).finished()) for stage in STAGES if (root / stage / "trees.parquet").exists()}


def test_kill_engine_server_coordinator_trainer_and_driver(undisturbed: Path, tmp_path: Path) -> None:
    root, log = tmp_path / "run", tmp_path / "log"
    driver = start(DEMO, root, log, SMALL)
    finished = Forest(root / "rounds/01/collect")

    def grown(count: int) -> Callable[[], bool]:
        return lambda: len(finished.finished()) >= count or finished.sealed

    try:
        # The trainer, once it has a checkpoint to go on from.
        wait_for(lambda: list((root / "rounds/00/train/checkpoints").glob("*")), driver, "a checkpoint of the warm start")
        kill(driver, r"ray::.*RayTrainWorker|ray::.*TrainWorker")
        # The engine, the environment server and the coordinator, while trees grow.
        wait_for(grown(4), driver, "4 trees")
        kill(driver, r"ray::.*EngineActor")
        wait_for(grown(12), driver, "12 trees")
        kill(driver, r"-m env_servers serve")
        wait_for(grown(20), driver, "20 trees")
        kill(driver, r"ray::.*Coordinator(?!Actor)")
        # The driver, in the last training; the same command continues.
        wait_for(lambda: state(root, "rounds/01/train") == "running", driver, "the last training")
        driver.kill()
        driver.wait(60)
        driver = start(DEMO, root, log, SMALL)
        assert driver.wait(1200) == 0, log.read_text()[-3000:]
    finally:
        end(driver)

    assert units(root) == units(undisturbed)
    events = read_lines(root / "events.jsonl")
    sealed = Counter(e["stage"] for e in events if e["event"] == "stage_sealed")
    assert sealed == dict.fromkeys(STAGES, 1), "a stage was sealed twice, or not at all"
    steps = [RunStore(r).record("rounds/01/train").summary["steps"] for r in (root, undisturbed)]  # type: ignore[union-attr]
    assert steps == [12, 12]
    report = json.loads((root / "report.json").read_text())
    assert report["complete"]
    assert all(not Forest(root / stage).failures() for stage in units(root))
