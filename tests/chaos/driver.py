"""Runs of the real command line in a process of their own, to be killed: what the chaos tests share."""

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import psutil

from agentr.store.run import RunStore

DEMO = "configs/demo.yaml"

#: A run of a minute or two with the small model that ships; with alpha 0 every path is good enough to train on.
SMALL = [
    "cluster.dashboard=false",
    "run.rounds=1",
    "run.control=false",
    "method.revise.alpha=[0.0]",
    "build.train_on_invalid=true",
    "warm_start.tasks=[{split: train, where: {depth: 1}, limit: 64}]",
    "warm_start.train.steps=50",
    "train=[{steps: 24, batch_size: 4, micro_batch_size: 2, bf16: false, max_length: 768, checkpoint_every: 4}]",
    "collect.tasks={split: train, where: {depth: [1, 2], plan_length: {max: 6}}, limit: 40}",
    "method.search.enough_good=0",
    "collect.in_flight=4",
    "collect.infra_retries=8",
    "env.retries=8",
    "eval.tasks={split: test, where: {depth: 1}, limit: 12}",
]

ROUND_STAGES = [f"rounds/01/{stage}" for stage in ("collect", "revise", "dataset", "train", "eval")]

#: The stages of that run.
STAGES = ["model", *(f"rounds/00/{stage}" for stage in ("demonstrations", "dataset", "train", "eval")), *ROUND_STAGES]

Driver = subprocess.Popen[bytes]


def start(log: Path, *arguments: str, module: str = "agentr.cli") -> Driver:
    """``agentr``, or another program, with these arguments, with a Ray of its own."""
    environment = {k: v for k, v in os.environ.items() if not k.startswith("RAY_")}
    with log.open("ab") as file:
        return subprocess.Popen([sys.executable, "-m", module, *arguments], stdout=file, stderr=file, env=environment)


def same_whoever_dies(
    folder: Path,
    arguments: Sequence[str],
    contents: Callable[[Path], dict[str, Any]],
    begun: Callable[[Path], object],
    later: Callable[[Path], object],
) -> dict[str, Any]:
    """Does a run undisturbed, and once more with its coordinator killed when it has begun and its driver later; returns
    what it came to, both times the same.

    Args:
        arguments: Of ``agentr run``.
        contents: All that a run directory decides, by name.
        begun: Returns whether the run in a directory is so far.
    """

    def started(name: str) -> Driver:
        return start(folder / f"{name}.log", "run", *arguments, f"run.dir={folder / name}")

    def finished(name: str) -> dict[str, Any]:
        driver = started(name)
        try:
            assert driver.wait(400) == 0, (folder / f"{name}.log").read_text()[-3000:]
        finally:
            end(driver)
        return contents(folder / name)

    whole = finished("whole")
    driver, root = started("killed"), folder / "killed"
    try:
        wait_for(lambda: begun(root), driver, "what is to be disturbed")
        kill(driver, r"ray::.*Coordinator(?!Actor)")
        wait_for(lambda: later(root), driver, "more of it")
        driver.kill()
        driver.wait()
    finally:
        end(driver)
    killed = finished("killed")
    assert killed.keys() == whole.keys()
    assert [name for name in whole if whole[name] != killed[name]] == []
    return whole


def chaos(config: Path, parent: Path, *arguments: str) -> tuple[int, str]:
    """``python -m tests.tools.chaos`` with its runs in that folder; its exit status, and what it said."""
    log = parent.parent / "log"
    command = start(log, str(config), f"run.dir={parent}", *arguments, module="tests.tools.chaos")
    try:
        return command.wait(1100), log.read_text()
    finally:
        end(command)


def wait_for(condition: Callable[[], object], driver: Driver, what: str, timeout_s: float = 600.0) -> None:
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert driver.poll() is None, f"the run ended while waiting for {what}"
        assert time.monotonic() < deadline, f"waited {timeout_s:.0f} s for {what}"
        time.sleep(0.05)


def kill(driver: Driver, pattern: str) -> None:
    """Kills a process below the driver whose title or command line matches, as soon as there is one."""
    victim: list[psutil.Process] = []

    def found() -> bool:
        process = _find(driver, pattern)
        victim.extend([process] if process else [])
        return bool(victim)

    wait_for(found, driver, f"a process like {pattern}")
    os.kill(victim[0].pid, signal.SIGKILL)


def state(root: Path, stage: str) -> str:
    """``running``, ``sealed``, or nothing if the stage was not started."""
    if not (root / "manifest.json").exists():
        return ""
    record = RunStore(root).record(stage)
    return record.state if record else ""


def end(driver: Driver) -> None:
    """Ends a driver that still runs."""
    if driver.poll() is None:
        driver.terminate()
        driver.wait(60)


def _find(driver: Driver, pattern: str) -> psutil.Process | None:
    for process in psutil.Process(driver.pid).children(recursive=True):
        try:
            if re.search(pattern, " ".join(process.cmdline())) and process.status() != psutil.STATUS_ZOMBIE:
                return process
        except (psutil.NoSuchProcess, psutil.AccessDenied):
            continue
    return None
