"""Starts probes (``agentr.ui.probing``) on demand and keeps their results outside the run."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from blake3 import blake3

from agentr.errors import AgentrError, DataError
from agentr.read.run import Run
from agentr.store.files import read_json
from agentr.ui.views.forest import trees_of


@dataclass
class _Started:
    process: subprocess.Popen[bytes]
    at: float


class Prober:
    """Probes of nodes, one process at a time.

    Args:
        folder: Where results are kept; by default in the user's cache.
    """

    def __init__(self, folder: Path | None = None) -> None:
        self._folder = folder or _cache()
        self._running: dict[Path, _Started] = {}
        self._lock = threading.Lock()

    def ask(self, run: Run, stage: str, key: str, node: int) -> dict[str, Any]:
        """Returns what is known of a node so far, and starts to find it out if nobody does.

        Raises:
            DataError: There is no such node.
        """
        tree = trees_of(run, stage)[key]
        if not 0 < node < len(tree.nodes):
            raise DataError(f"the tree {key!r} of {stage} has no turn {node}", hint=f"Its turns: 1 to {len(tree.nodes) - 1}.")
        policies = ",".join(policy.name for policy in run.policies())
        identity = "\n".join(map(str, (run.path, stage, key, tree.nodes[node].parent, len(tree.nodes), policies)))
        out = self._folder / f"{blake3(identity.encode()).hexdigest(length=16)}.json"
        with self._lock:
            found = self._known(out)
            if found["state"] == "none":
                found = self._start(out, [str(run.path), stage, key, str(node)])
        return found

    def _known(self, out: Path) -> dict[str, Any]:
        started = self._running.get(out)
        seconds = time.monotonic() - started.at if started else 0.0
        found = _empty("none")
        if out.exists():
            try:
                found |= read_json(out)
            except AgentrError:  # half a file of a process that was killed
                found = _empty("none")
        found["seconds"] = seconds
        if found["state"] in ("done", "failed"):
            self._running.pop(out, None)
            return found
        if started is None:
            return {**found, "state": "none"}
        if started.process.poll() is None:
            return {**found, "state": "running"}
        del self._running[out]
        ended = f"the process that computes it ended with {started.process.returncode}: is there enough memory for the model?"
        return {**found, "state": "failed", "problem": ended}

    def _start(self, out: Path, arguments: list[str]) -> dict[str, Any]:
        busy = [started for started in self._running.values() if started.process.poll() is None]
        if busy:  # models are large: one after the other
            return {**_empty("running"), "problem": "waiting for another probe"}
        self._folder.mkdir(parents=True, exist_ok=True)
        environment = {**os.environ, "HF_HUB_OFFLINE": "1", "CUDA_VISIBLE_DEVICES": ""}
        command = [sys.executable, "-m", "agentr.ui.probing", *arguments, str(out)]
        process = subprocess.Popen(command, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        self._running[out] = _Started(process, time.monotonic())
        return _empty("running")


def _empty(state: str) -> dict[str, Any]:
    return {"state": state, "problem": "", "seconds": 0.0, "siblings": [], "policies": []}


def _cache() -> Path:
    try:
        home = Path.home()
    except RuntimeError:  # nobody's home
        return Path(tempfile.gettempdir()) / "agentr-probes"
    return Path(os.environ.get("XDG_CACHE_HOME") or home / ".cache") / "agentr" / "probes"
