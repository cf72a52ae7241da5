"""When nothing moves, the cause is named: with what was seen, and what to set."""

import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from agentr.cluster.causes import Cause, CauseKind
from agentr.rounds.watchdog import Watchdog
from agentr.store.files import read_lines
from tests.chaos.driver import DEMO, SMALL, _find, end, start, state, wait_for


def wait(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + 30
    while not condition() and time.monotonic() < deadline:
        time.sleep(0.02)


STILL = [Cause(CauseKind.unknown, "nothing can be seen", "silence", "Wait.")]


def test_it_says_each_cause_once_and_that_it_is_over() -> None:
    said: list[tuple[str, list[Cause], str]] = []
    dog = Watchdog(0.2, lambda: STILL, lambda *what: said.append(what))
    with dog.armed("rounds/01/collect"):
        for number in range(6):
            dog.feed(number)
            time.sleep(0.02)
        assert said == [], "what moves is not talked of"
        wait(lambda: said)
        time.sleep(0.6)
        ((title, causes, since),) = said
        assert title == "rounds/01/collect" and causes == STILL and re.match(r"no progress for \d+ s", since)
        dog.feed("on")
        assert said[1:] == [("rounds/01/collect", [], "")], "it moves again"
        wait(lambda: said[2:])
        assert said[2:] == [(title, STILL, said[2][2])], "and stands still again"
    assert said[3:] == [("rounds/01/collect", [], "")], "it came to its end"
    said.clear()
    time.sleep(0.6)
    assert said == [], "nothing is waited for"
    dog.close()


def test_a_run_that_never_moves_again_is_given_up_once() -> None:
    told: list[tuple[str, float]] = []
    dog = Watchdog(0.1, lambda: STILL, lambda *what: None, 2.0, lambda *what: told.append(what))
    with dog.armed("rounds/01/collect"):
        for number in range(30):
            dog.feed(number)
            time.sleep(0.02)
        assert told == [], "what moves is not given up"
        wait(lambda: told)
    dog.close()
    ((title, seconds),) = told
    assert title == "rounds/01/collect" and seconds > 2.0


def test_code_that_holds_the_interpreter_ends_the_process_and_says_where() -> None:
    script = """
import re
from agentr.rounds.watchdog import Watchdog
dog = Watchdog(0.1, list, print, 1.0)
with dog.armed("x"):
    for number in range(20):
        dog.feed(number)
        __import__("time").sleep(0.1)  # moves, and may take longer than the limit in all
    print("moved", flush=True)
    re.match(r"(a+)+$", "a" * 40 + "b")
"""
    ended = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=False)
    assert (ended.returncode, ended.stdout) == (1, "moved\n"), ended.stderr
    assert "Timeout (0:00:01)!" in ended.stderr and 'File "<string>", line 10' in ended.stderr


def test_what_ends_in_an_error_stays_a_trouble() -> None:
    said: list[tuple[str, list[Cause], str]] = []
    dog = Watchdog(0.2, lambda: STILL, lambda *what: said.append(what))
    with pytest.raises(ValueError), dog.armed("x"):
        wait(lambda: said)
        raise ValueError
    assert [causes for _, causes, _ in said] == [STILL]
    dog.close()


def test_it_is_armed_also_before_the_first_counter() -> None:
    heard = threading.Event()
    dog = Watchdog(0.2, lambda: STILL, lambda *_: heard.set())
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
            cause["what"]
            for event in read_lines(root / "events.jsonl")
            if event["event"] == "stands_still"
            for cause in event["causes"]
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
            lambda: (
                state(root, "rounds/01/collect") == "running" and list(root.glob("rounds/01/collect/work-*/journal/*"))
            ),
            driver,
            "trees",
        )
        freeze(r"ray::.*EngineActor")
        stuck = re.compile(r"rollout-\d is stuck")  # either of the two may have been frozen
        wait_for(lambda: stuck.search(causes()), driver, "the engine to be named", 120)
        assert stuck.search((tmp_path / "log").read_text()), "the terminal says it, too"
        os.kill(frozen[0].pid, signal.SIGCONT)
        freeze(r"ray::.*EnvServer")
        freeze(r"env_servers serve")
        wait_for(lambda: "environment server 0" in causes(), driver, "the server to be named", 120)
    finally:
        for process in frozen:
            process.send_signal(signal.SIGCONT)
        end(driver)
