"""Hands the metrics of a process to Ray, which offers them to Prometheus on every node.

Whoever reports is a function that says what its numbers are now. A thread asks it once a second: counting costs the
work itself next to nothing, and a loop that is blocked does not silence its own lag. In a process that is not part of a
Ray cluster nothing happens.
"""

import asyncio
import logging
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable
from typing import Any

from agentr.cluster.metrics import COMMON, CPU, Metric, MetricKind, MetricSample

log = logging.getLogger(__name__)

#: Seconds between two looks.
EVERY_S = 1.0
#: What a counter begins with, so that its first event is a step that Prometheus sees. Ray takes no 0, and no sum shows
#: this.
_NOTHING = 1e-300

Read = Callable[[], Iterable[MetricSample]]


class Pusher:
    """Pushes samples to Ray, from a thread of its own.

    Args:
        run: The run's name.
        part: Who reports.
        read: Says the samples; called in the thread.
    """

    def __init__(self, run: str, part: str, read: Read, every_s: float = EVERY_S) -> None:
        self._common = {"run": run, "part": part}
        self._read = read
        self._every_s = every_s
        self._made: dict[str, Any] = {}
        self._before: dict[tuple[str, ...], float] = {}
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._run, name="metrics", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Ends the thread after a last push."""
        self._end.set()
        self._thread.join(10.0)

    def push(self) -> None:
        """Hands over what the samples are now."""
        for sample in (*self._read(), MetricSample(CPU, time.process_time())):
            labels = self._common | dict(sample.labels)
            if sample.metric.kind is MetricKind.GAUGE:
                self._of_ray(sample.metric).set(sample.value, labels)
                continue
            key = (sample.metric.name, *labels.values())
            before = self._before.get(key)
            self._before[key] = sample.value
            # Less than before: who counts has begun anew.
            grown = sample.value - before if before is not None and sample.value >= before else sample.value
            if grown or before is None:
                self._of_ray(sample.metric).inc(grown or _NOTHING, labels)

    def _of_ray(self, metric: Metric) -> Any:
        if metric.name not in self._made:
            from ray.util import metrics

            kind = metrics.Gauge if metric.kind is MetricKind.GAUGE else metrics.Counter
            self._made[metric.name] = kind(metric.name, metric.help, (*COMMON, *metric.labels))
        return self._made[metric.name]

    def _run(self) -> None:
        said = False
        while True:
            ended = self._end.wait(self._every_s)
            try:
                self.push()
            # whatever Ray raises: not being seen is no reason to end a run, and once is enough to know
            except Exception:
                if not said:
                    log.exception("The metrics of %s cannot be sent.", self._common["part"])
                said = True
            if ended:
                return


def start(run: str, part: str, read: Read, every_s: float = EVERY_S) -> Pusher | None:
    """Starts to push; None in a process that belongs to no Ray cluster."""
    ray = sys.modules.get("ray")
    return Pusher(run, part, read, every_s) if ray is not None and ray.is_initialized() else None


class Lag:
    """By how much an event loop is late, seen from another thread. Made in the loop.

    Args:
        looks: How many looks the longest delay is of: Ray exports every tenth.
    """

    def __init__(self, looks: int = 10) -> None:
        self._loop = asyncio.get_running_loop()
        self._seen: deque[float] = deque([0.0], maxlen=looks)
        self._asked: float | None = None

    def look(self) -> float:
        """Returns the longest delay of the last looks in seconds; while the loop is blocked, for how long it has not
        answered."""
        now = time.monotonic()
        if self._asked is not None:
            return max(*self._seen, now - self._asked)
        longest = max(self._seen)
        self._asked = now
        self._loop.call_soon_threadsafe(self._answer, now)
        return longest

    def _answer(self, asked: float) -> None:
        self._seen.append(time.monotonic() - asked)
        self._asked = None
