"""Measures all processes of a run over time: memory, open file handles, open sessions of environments."""

import threading
import time
from collections import defaultdict
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from agentr.cluster.nodes import nodes, own_address
from agentr.store.files import append_line
from tests.tools.chaos.driver import Driver
from tests.tools.chaos.faults import Part
from tests.tools.chaos.processes import Hands, actors, status_of


class Sampler:
    """Measures the processes of a driver's run every few seconds, in a thread of its own, and appends each to a file.

    A line has the seconds since the start, the run that is worked on, the part, the process as ``life``, its memory in
    MiB, its handles, and of an environment server the open sessions.

    Args:
        run: Says the name of the run that is worked on.
    """

    def __init__(self, driver: Driver, path: Path, every_s: float, run: Callable[[], str]) -> None:
        self._driver = driver
        self._run_now = run
        self._path = path
        self._every_s = every_s
        self._started = time.time()
        self._hands = Hands()
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._run, name="samples", daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._end.set()
        self._thread.join(30.0)

    def _run(self) -> None:
        from ray.exceptions import RayError

        while not self._end.wait(self._every_s):
            # a part died while it was asked, or the driver between two lives
            with suppress(RayError, OSError, ValueError):
                self._measure()

    def _measure(self) -> None:
        if not self._driver.job:
            return
        there: dict[str, dict[int, Part]] = defaultdict(dict)
        sessions: dict[int, int] = {}
        here = own_address()
        for node in nodes():
            if node.address == here:
                there[node.id][self._driver.pid] = Part.driver
        for process in actors(self._driver.job):
            if not process.alive:
                continue
            there[process.node][process.pid] = process.part
            status = status_of(process.name) if process.part is Part.supervisor else None
            if status is not None and status.state == "up":
                there[process.node][status.pid] = Part.environment
                sessions[status.pid] = _sessions(status.url)
        when: dict[str, Any] = {"t": round(time.time() - self._started, 1), "run": self._run_now()}
        for node, parts in there.items():
            for pid, (mib, handles) in self._hands.ask(node, "measure", list(parts)).items():
                line = when | {
                    "part": parts[pid],
                    "life": f"{node[:8]}/{pid}",
                    "mib": round(mib, 2),
                    "handles": handles,
                }
                append_line(self._path, line | ({"sessions": sessions[pid]} if pid in sessions else {}))


def _sessions(url: str) -> int:
    """Returns how many sessions an environment server has open."""
    import httpx

    try:
        return int(httpx.get(f"{url}/health", timeout=5.0, trust_env=False).json()["sessions"])
    except (httpx.HTTPError, KeyError) as error:
        raise OSError(f"{url} does not answer") from error
