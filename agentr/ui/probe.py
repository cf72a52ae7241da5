"""Starts probes (``agentr.ui.probing``) on demand and keeps their results outside the run."""

import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

from blake3 import blake3

from agentr.errors import AgentrError
from agentr.read.run import Run
from agentr.store.files import read_json
from agentr.ui.probing import Asked, parts_of


class Prober:
    """Probes of turns and rows, one after the other in one process, which ends when nobody asks for some minutes.

    Args:
        folder: Where results are kept; by default in the user's cache.
    """

    def __init__(self, folder: Path | None = None) -> None:
        self._folder = folder or _cache()
        self._process: subprocess.Popen[bytes] | None = None
        #: When each answer that is not there yet was asked for, in order; the first one is being computed.
        self._asked: dict[Path, float] = {}
        self._lock = threading.Lock()

    def ask(self, run: Run, stage: str, key: str, at: int) -> dict[str, Any]:
        """Returns what is known of a turn of a tree, or without a key of a row, so far, and starts to find it out if
        nobody does.

        Raises:
            DataError: There is no such turn or row.
        """
        policies = ",".join(policy.name for policy in run.policies())
        identity = "\n".join(map(str, (run.path, stage, key, policies, parts_of(run, stage, key, at))))
        out = self._folder / f"{blake3(identity.encode()).hexdigest(length=16)}.json"
        with self._lock:
            found = self._known(out)
            if found["state"] == "none":
                self._start(Asked(str(run.path), stage, key, at, str(out)))
                found = self._known(out)
        return found

    def _known(self, out: Path) -> dict[str, Any]:
        found = _empty("none")
        with suppress(AgentrError):  # half a file of a process that was killed
            found |= read_json(out)
        found["seconds"] = time.monotonic() - self._asked.get(out, time.monotonic())
        if found["state"] == "done" or (found["state"] == "failed" and out in self._asked):
            self._asked.pop(out, None)
            return found
        ended = self._process.poll() if self._process else None
        if out not in self._asked or ended == 0:  # it had waited long enough for a question, as this one came
            return _empty("none")
        if ended is None:
            waits = next(iter(self._asked)) != out
            return {**found, "state": "running", "problem": "waiting for another probe" if waits else ""}
        self._asked.clear()
        problem = f"the process that computes it ended with {ended}: is there enough memory for the model?"
        return {**found, "state": "failed", "problem": problem}

    def _start(self, asked: Asked) -> None:
        self._folder.mkdir(parents=True, exist_ok=True)
        Path(asked.out).unlink(missing_ok=True)  # what failed once is tried again
        line = json.dumps(asdict(asked)).encode() + b"\n"
        try:
            self._notify(line)
        except OSError:  # it has just ended, since nobody asked for so long
            self._process = None
            self._notify(line)
        self._asked[Path(asked.out)] = time.monotonic()

    def _notify(self, line: bytes) -> None:
        if self._process is None or self._process.poll() is not None:
            environment = {**os.environ, "HF_HUB_OFFLINE": "1", "CUDA_VISIBLE_DEVICES": ""}
            command = [sys.executable, "-m", "agentr.ui.probing"]
            self._process = subprocess.Popen(
                command,
                env=environment,
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                bufsize=0,
            )
        assert self._process.stdin is not None
        self._process.stdin.write(line)


def _empty(state: str) -> dict[str, Any]:
    return {"state": state, "problem": "", "seconds": 0.0, "siblings": [], "policies": []}


def _cache() -> Path:
    try:
        home = Path.home()
    except RuntimeError:  # nobody's home
        return Path(tempfile.gettempdir()) / "agentr-probes"
    return Path(os.environ.get("XDG_CACHE_HOME") or home / ".cache") / "agentr" / "probes"
