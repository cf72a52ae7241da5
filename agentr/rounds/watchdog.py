"""Says what a run waits for when nothing moves.

Progress is counters, fed by whoever waits for a stage; the watchdog is armed while it waits. It lives in a thread of
the driver, and what it asks has deadlines: neither the loop that it watches nor a part that hangs can keep it silent.
Code that never lets go of the interpreter could: then a timer without Python writes where each thread is, and ends the
process.
"""

import faulthandler
import math
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from agentr.cluster.causes import Cause

Notify = Callable[[str, list[Cause], str], None]
"""``notify(title, causes, since)``: what stands still and since when; no causes mean that it moves again."""


class Watchdog:
    """Watches one wait after another.

    Args:
        after_s: Seconds without progress after which the cause is looked for, and again after each as many.
        diagnose: Finds the causes; at least one.
        notify: Called with each cause once until there is progress, and then that there is.
        end_s: Seconds without progress after which it gives up.
        give_up: Called with the seconds in which nothing has moved, and ends the run.
    """

    def __init__(
        self,
        after_s: float,
        diagnose: Callable[[], list[Cause]],
        notify: Notify,
        end_s: float = math.inf,
        give_up: Callable[[str, float], None] = lambda title, seconds: None,
    ) -> None:
        self.after_s, self.end_s = after_s, end_s
        self._give_up = give_up
        self._diagnose = diagnose
        self._notify = notify
        self._lock = threading.Lock()
        self._title = ""
        self._counters: Any = None
        self._moved = time.monotonic()
        self._said: set[str] = set()
        self._thread: threading.Thread | None = None
        self._end = threading.Event()

    @contextmanager
    def armed(self, title: str) -> Iterator[None]:
        """Watches while the block runs."""
        with self._lock:
            self._title, self._counters, self._moved = title, None, time.monotonic()
            self._said = set()
        if self._thread is None or not self._thread.is_alive():
            self._end.clear()
            self._thread = threading.Thread(target=self._run, name="watchdog", daemon=True)
            self._thread.start()
        try:
            yield
            self.feed(object())  # it came to its end
        finally:
            with self._lock:
                self._title = ""

    def feed(self, *counters: Any) -> None:
        """Notes how far the work is. What counts is whether it is something else than before."""
        with self._lock:
            if counters == self._counters:
                return
            over = self._title if self._said else ""
            self._counters, self._moved, self._said = counters, time.monotonic(), set()
        if over:
            self._notify(over, [], "")

    def close(self) -> None:
        self._end.set()
        faulthandler.cancel_dump_traceback_later()

    def _run(self) -> None:
        looked = 0.0
        while not self._end.wait(min(self.after_s / 4, 5.0)):
            if self.end_s < math.inf:
                faulthandler.dump_traceback_later(self.end_s, exit=True, file=2)
            with self._lock:
                title, moved = self._title, self._moved
            if title and time.monotonic() - moved > self.end_s:
                self._give_up(title, time.monotonic() - moved)
                return
            if not title or time.monotonic() - max(moved, looked) < self.after_s:
                continue
            causes, looked = self._diagnose(), time.monotonic()
            with self._lock:
                if title != self._title or moved != self._moved:
                    continue
                new = [cause for cause in causes if cause.what not in self._said]
                self._said |= {cause.what for cause in new}
            if new:
                self._notify(title, new, f"no progress for {time.monotonic() - moved:.0f} s")
