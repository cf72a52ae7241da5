"""When nothing moves, the cause is named: with what was seen, and what to set."""

from __future__ import annotations

import os
import re
import signal
import threading
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psutil
import pytest

from agentr.cluster.nodes import Node
from agentr.rounds import watchdog
from agentr.rounds.watchdog import Cause, Parts, Watchdog, diagnose
from agentr.store.files import read_lines
from tests.chaos.driver import DEMO, SMALL, _find, end, start, state, wait_for


def parts(tmp_path: Path, **changes: Any) -> Parts:
    progress = {"in_flight": 3, "done": 5, "total": 9, "last_error": "", "waiting": {}, "retried": 0}
    values = {"engines": {}, "servers": None, "progress": progress, "silent_s": 0.0, "training": "", "known": []}
    return Parts(**{"ray": None, "run_dir": tmp_path, **values, **changes})


@pytest.fixture(autouse=True)
def _one_node(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watchdog, "nodes", lambda: [Node("a", "10.0.0.1", {}, 1, 0)])


@pytest.mark.parametrize(
    "changes, wanted",
    [
        ({"known": [Node("b", "10.0.0.2", {"agentr-role": "env"}, 1, 0)]}, r"lost: the node 10\.0\.0\.2 \(env\)"),
        ({"silent_s": 40.0}, r"the coordinator's loop is blocked, or its node is cut off \(it has not answered for 40 s\)"),
        ({"training": "the last step was 3 of 9"}, r"the trainer does not step \(the last step was 3 of 9\)"),
        ({"progress": {"waiting": {"rollout-1": "no answer"}}}, r"rollout-1 is out of service \(no answer\)\. policy\.timeout_s"),
        ({"progress": {"retried": 4, "last_error": "429"}}, r"trees fail and are tried again \(4 times, at last: 429\)"),
        ({}, r"no part of the run is at fault that can be seen \(3 trees grow, 5 of 9 are done, last error: none\)"),
    ],
)
def test_causes(tmp_path: Path, changes: dict[str, Any], wanted: str) -> None:
    (cause,) = diagnose(parts(tmp_path, **changes), 60.0)
    assert re.match(wanted, str(cause)), cause


def test_a_full_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watchdog.shutil, "disk_usage", lambda path: SimpleNamespace(free=3 * 2**20))
    (cause,) = diagnose(parts(tmp_path), 60.0)
    assert str(cause).startswith(f"the disk of {tmp_path} is full (3 MiB are free)")


def test_a_check_that_fails_does_not_hide_the_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken() -> list[Node]:
        raise RuntimeError("GCS is gone")

    monkeypatch.setattr(watchdog, "nodes", broken)
    found = [str(cause) for cause in diagnose(parts(tmp_path, silent_s=40.0), 60.0)]
    assert len(found) == 2 and "nodes cannot be looked at (RuntimeError: GCS is gone)" in found[0] and "coordinator" in found[1]


def test_it_says_each_cause_once_and_again_after_progress(tmp_path: Path) -> None:
    said: list[tuple[str, list[Cause]]] = []
    dog = Watchdog(0.2, lambda: parts(tmp_path), lambda title, causes: said.append((title, causes)))
    with dog.armed("rounds/01/collect"):
        for number in range(6):
            dog.tell(number)
            time.sleep(0.1)
        assert said == [], "what moves is not talked of"
        time.sleep(0.8)
        assert len(said) == 1 and re.match(r"rounds/01/collect: no progress for \d+ s", said[0][0])
        dog.tell("on")
        time.sleep(0.8)
        assert len(said) == 2
    said.clear()
    time.sleep(0.6)
    assert said == [], "nothing is waited for"
    dog.close()


def test_it_is_armed_also_before_the_first_counter(tmp_path: Path) -> None:
    heard = threading.Event()
    dog = Watchdog(0.2, lambda: parts(tmp_path), lambda title, causes: heard.set())
    with dog.armed("x"):
        assert heard.wait(5.0)
    dog.close()


@pytest.mark.cluster
@pytest.mark.chaos
@pytest.mark.timeout(900)
def test_an_engine_that_is_stuck_and_a_server_that_is_dead_are_named(tmp_path: Path) -> None:
    root = tmp_path / "run"
    cold = ["warm_start.enabled=false", "method.mixture.demonstrations=0"]
    driver = start(tmp_path / "log", "run", DEMO, f"run.dir={root}", *SMALL, *cold, "watchdog.after_s=4")
    frozen: list[psutil.Process] = []

    def causes() -> str:
        return " ".join(
            cause["what"] for event in read_lines(root / "events.jsonl") if event["event"] == "stands_still" for cause in event["causes"]
        )

    def freeze(pattern: str) -> None:
        def found() -> bool:
            process = _find(driver, pattern)
            if process is not None:
                os.kill(process.pid, signal.SIGSTOP)
                frozen.append(process)
            return process is not None

        wait_for(found, driver, pattern)

    try:
        wait_for(
            lambda: state(root, "rounds/01/collect") == "running" and list(root.glob("rounds/01/collect/work-*/journal/*")), driver, "trees"
        )
        freeze(r"ray::.*EngineActor")
        wait_for(lambda: "rollout-0 is stuck" in causes(), driver, "the engine to be named", 120)
        assert "rollout-0 is stuck" in (tmp_path / "log").read_text(), "the terminal says it, too"
        os.kill(frozen[0].pid, signal.SIGCONT)
        freeze(r"ray::.*EnvServer")
        freeze(r"env_servers serve")
        wait_for(lambda: "environment server 0" in causes(), driver, "the server to be named", 120)
    finally:
        for process in frozen:
            process.send_signal(signal.SIGCONT)
        end(driver)
