"""Structured logs: whole lines that say what they are about, and that stop nothing."""

import asyncio
import json
import logging
import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from typer.testing import CliRunner

from agentr.cli import app
from agentr.collect.units import Limits, StageProgress, run_units
from agentr.commands.run import logging_to, opened
from agentr.errors import ConfigError, InfraError, RunError
from agentr.logs import JsonLines, about, current, own_file, recording
from agentr.methods import load, plan_of
from agentr.observe.logs import read_logs, shown
from agentr.observe.progress import Reporter
from agentr.search import Tree
from agentr.store.growing import GrowingForest
from agentr.store.summaries import TreeSummary
from agentr.types import Task

log = logging.getLogger("agentr.tested")


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_tasks_that_work_at_the_same_time_log_for_themselves(tmp_path: Path) -> None:
    async def unit(name: str) -> None:
        with about(task=name):
            await asyncio.sleep(0)
            log.info("in %s\nand further", name)

    async def work() -> None:
        await asyncio.gather(*(unit(f"t{i}") for i in range(20)))

    with recording(tmp_path / "log.jsonl", "coordinator", run="demo"), about(stage="rounds/01/collect", round=1):
        asyncio.run(work())
        log.info("behind them")
    log.warning("not recorded")
    found = lines(tmp_path / "log.jsonl")
    assert [line["message"] for line in found[:-1]] == [
        f"in {line['task']}\nand further" for line in found[:-1]
    ] and len(found) == 21
    assert all(
        line["run"] == "demo" and line["role"] == "coordinator" and line["stage"] == "rounds/01/collect"
        for line in found
    )
    assert "task" not in found[-1] and not current()


def test_an_exception_is_in_its_line(tmp_path: Path) -> None:
    with recording(tmp_path / "log.jsonl", "driver"):
        try:
            raise ValueError("broken")
        except ValueError:
            log.exception("it failed")
        logging.getLogger("a.library").info("left out")
        logging.getLogger("a.library").warning("taken")
    failed, taken = lines(tmp_path / "log.jsonl")
    assert (
        failed["level"] == "error"
        and "ValueError: broken" in failed["exception"]
        and "Traceback" in failed["exception"]
    )
    assert taken["logger"] == "a.library"


@pytest.mark.parametrize("path", ["missing/log.jsonl", "/dev/full"])
def test_a_log_that_cannot_be_written_stops_nothing(
    path: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    with recording(tmp_path / path, "driver"):
        log.info("nowhere")
    assert not (tmp_path / "missing").exists() and "Traceback" not in capfd.readouterr().err


@pytest.mark.parametrize("path", ["missing/driver.log", "/dev/full"])
def test_a_full_disk_does_not_bury_what_a_person_is_told(
    path: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """The one sentence of the error stands alone: neither the driver's log nor the terminal's copy speaks of itself."""
    reporter = Reporter()
    with reporter.logged(tmp_path / path), logging_to(tmp_path / path):
        for number in range(20):
            reporter.message(f"message {number}")
            log.error("failure %d", number, exc_info=ValueError("cause"))
        reporter.log("the run ended")
    shown = capfd.readouterr()
    assert "message 19" in shown.out and "Traceback" not in shown.err and "Logging error" not in shown.err


def test_a_line_behind_a_torn_one_is_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "logs").mkdir()
    handler, write = JsonLines(tmp_path / "logs/log.jsonl", role="driver"), os.write
    record = log.makeRecord(log.name, logging.INFO, __file__, 1, "said", (), None)
    with monkeypatch.context() as disk:
        disk.setattr("agentr.logs.os.write", lambda descriptor, data: write(descriptor, data[:7]))
        handler.emit(record)
    handler.emit(record)
    assert [line["message"] for line in read_logs(tmp_path)] == ["said"]


def test_units_that_fail_are_logged_with_their_task_and_cause(tmp_path: Path) -> None:
    tasks = [Task("env", name, "train", {}) for name in ("fine", "weak", "lost")]
    tries: list[str] = []

    async def make(task: Task) -> Tree | None:
        tries.append(task.id)
        if task.id == "lost" or (task.id == "weak" and tries.count("weak") == 1):
            raise InfraError(f"no answer for {task.id}")
        return None

    with recording(tmp_path / "log.jsonl", "coordinator"):
        limits = Limits(infra_retries=1, max_failed=0.5)
        asyncio.run(run_units(tasks, make, GrowingForest(tmp_path / "trees"), StageProgress(), limits))
    found = [(line["level"], line["task"], line["message"]) for line in lines(tmp_path / "log.jsonl")]
    weak, lost = tasks[1].key, tasks[2].key
    assert sorted(found) == [
        ("error", lost, "given up after 2 attempts: no answer for lost"),
        ("warning", lost, "attempt 1 failed, and is followed by another one: no answer for lost"),
        ("warning", weak, "attempt 1 failed, and is followed by another one: no answer for weak"),
    ]


def test_the_driver_logs_beside_what_people_read(tmp_path: Path) -> None:
    root = tmp_path / "run"
    services: Any = SimpleNamespace(take_over=lambda *_: None)
    config = load(None, [f"run.dir={root}", "run.name=small"])

    def fail(folder: Path) -> TreeSummary:
        raise RunError("the well is dry")

    with pytest.raises(RunError), opened(plan_of(config), Reporter(), services=services) as experiment:

        def work(folder: Path) -> TreeSummary:
            with experiment.reporter.task("fetching water"):
                experiment.reporter.message("the rope is short", "yellow")
                log.warning("a creaking sound")
            return TreeSummary()

        experiment.store.stages.run("rounds/01/collect", TreeSummary, work)
        experiment.store.stages.run("control/train", TreeSummary, fail)
    people = (root / "logs/driver.log").read_text()
    assert people.count("the rope is short") == 1 and people.count("a creaking sound") == 1 and "{" not in people
    found = {line["message"]: line for line in read_logs(root)}
    rope, creaking, dry = found["the rope is short"], found["a creaking sound"], found["stopped: the well is dry"]
    assert all(line["run"] == "small" and line["role"] == "driver" for line in found.values())
    assert (
        rope["level"] == "warning" and rope["stage"] == creaking["stage"] == "rounds/01/collect" and rope["round"] == 1
    )
    assert dry["arm"] == "control" and "RunError: the well is dry" in dry["exception"]
    assert "fetching water ..." in found

    said = CliRunner().invoke(app, ["logs", str(root), "--stage", "collect", "--level", "warning"])
    assert said.exit_code == 0, said.output
    assert [line.partition("] ")[2] for line in said.output.splitlines()] == ["the rope is short", "a creaking sound"]


def test_logs_of_several_processes_are_read_in_order(tmp_path: Path) -> None:
    folder = tmp_path / "logs"
    folder.mkdir()
    path = own_file(folder, "coordinator")
    assert path is not None and own_file(None, "coordinator") is None
    for file, seconds, task in ((path, 2, "b"), (folder / "driver.jsonl", 1, "a"), (path, 3, "ab")):
        line = {
            "time": f"2026-01-01T00:00:0{seconds}+00:00",
            "level": "info",
            "message": f"m{seconds}",
            "role": "r",
            "task": task,
        }
        with file.open("a") as out:
            out.write(json.dumps(line) + '\n{"torn\n')
    assert [line["message"] for line in read_logs(tmp_path)] == ["m1", "m2", "m3"]
    assert [shown(line)[20:] for line in read_logs(tmp_path, task="a")] == ["info    r [a] m1", "info    r [ab] m3"]
    assert [line["message"] for line in read_logs(tmp_path, task="a")] == ["m1", "m3"]
    with pytest.raises(ConfigError, match="no level 'loud'"):
        read_logs(tmp_path, level="loud")
