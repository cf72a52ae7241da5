"""The driver's side of tracking: keeps a process for each tracker, which logs to it what comes in the run directory."""

import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

from agentr.backoff import Backoff
from agentr.errors import AgentrError
from agentr.store.files import make_folder
from agentr.store.layout import Layout
from agentr.track.feed import END

_PAUSES = Backoff(first_s=2.0, longest_s=300.0, jitter=0.2)
#: Of a tracker's process: its libraries send nothing home.
_ENVIRONMENT = {
    "DO_NOT_TRACK": "1",
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "WANDB_ERROR_REPORTING": "false",
    "HF_HUB_DISABLE_TELEMETRY": "1",
}


class Tracking:
    """Tells trackers of a run, from `start` to `finish`. Nothing that goes wrong here stops the run.

    Args:
        notify: Called with what a person should know, once for each cause.
    """

    def __init__(self, layout: Layout, names: Sequence[str], notify: Callable[[str], None]) -> None:
        self._notify = notify
        self._said: set[str] = set()
        self._feeds = [Feeding(name, layout, self._once) for name in dict.fromkeys(names)]

    def start(self) -> None:
        for feeding in self._feeds:
            feeding.start()

    def finish(self, wait_s: float) -> list[str]:
        """Tells what is left, ends what was started here after as many seconds at most, and returns the trackers that
        lack something."""
        deadline = time.monotonic() + wait_s
        for feeding in self._feeds:
            feeding.end()
        return [feeding.name for feeding in self._feeds if not feeding.ended(max(0.0, deadline - time.monotonic()))]

    def _once(self, text: str) -> None:
        if text not in self._said:
            self._said.add(text)
            self._notify(text)


class Feeding:
    """The process that logs to one tracker. If it dies, or cannot log, another one starts after a pause."""

    def __init__(self, name: str, layout: Layout, notify: Callable[[str], None]) -> None:
        self.name = name
        self.layout = layout
        self._notify = notify
        self._ending = threading.Event()
        self._lock = threading.Lock()
        self._process: subprocess.Popen[str] | None = None
        self._done = False
        self._thread = threading.Thread(target=self._run, name=f"tracking {name}", daemon=True)

    @property
    def log(self) -> Path:
        return self.layout.logs / f"tracking-{self.name}.log"

    def start(self) -> None:
        self._thread.start()

    def end(self) -> None:
        """Says that there is nothing more to come."""
        with self._lock:
            self._ending.set()
            self._tell_end()

    def ended(self, wait_s: float) -> bool:
        """Waits, ends the process if it takes longer, and returns whether all was logged."""
        self._thread.join(wait_s)
        if (process := self._process) is not None and process.poll() is None:
            process.kill()
            process.wait()
        return self._done

    def _tell_end(self) -> None:
        if self._process is not None and self._process.stdin is not None:
            with suppress(OSError, ValueError):  # it has ended
                print(END, file=self._process.stdin, flush=True)

    def _run(self) -> None:
        failures = 0
        while not self._done:
            problem, logged = self._once()
            if self._done or self._ending.is_set():
                return
            failures = 0 if logged else failures + 1
            self._notify(
                f"{self.name} cannot be reached: {problem}. The run goes on, and is logged there once that is mended. "
                f"See {self.log}."
            )
            self._ending.wait(_PAUSES.pause_s(max(0, failures - 1)))

    def _once(self) -> tuple[str, bool]:
        """Runs one process to its end; returns what was wrong, and whether it logged something before."""
        note = self.layout.tracking / f"{self.name}.json"
        before = _stamp(note)
        try:
            make_folder(self.layout.logs)
            with self.log.open("ab") as log:
                self._start(log)
            assert self._process is not None and self._process.stdout is not None
            said = self._process.stdout.read().strip()
            code = self._process.wait()
        except (AgentrError, OSError) as error:
            return str(error), False
        self._done = code == 0
        return said or f"its process ended with {code}", _stamp(note) != before

    def _start(self, log: object) -> None:
        with self._lock:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "agentr.track.feed", self.name, str(self.layout.root)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,  # type: ignore[arg-type]
                text=True,
                env={**os.environ, **_ENVIRONMENT},
                start_new_session=True,  # Ctrl-C is the driver's to handle
            )
            if self._ending.is_set():
                self._tell_end()


def _stamp(path: Path) -> int:
    return path.stat().st_mtime_ns if path.exists() else 0
