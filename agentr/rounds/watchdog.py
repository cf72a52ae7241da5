"""Names what a run waits for when nothing moves.

Progress is counters, told by whoever waits for a stage; the watchdog is armed while it waits. It lives in a thread of the driver, and
asks the parts of the run with deadlines: neither the loop that it watches nor a part that hangs can keep it silent.
"""

from __future__ import annotations

import shutil
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from agentr.cluster.nodes import Node, nodes
from agentr.envs.fleet import CALL_TIMEOUT_S, EnvServers
from agentr.envs.server import ServerState

#: Seconds within which a part of the run must answer.
ANSWER_S = 10.0
#: Free space below which a disk counts as full.
FULL_BYTES = 50 * 2**20


@dataclass(frozen=True)
class Cause:
    """Why nothing moves.

    Attributes:
        what: In a sentence.
        evidence: What was seen.
        setting: What to do or to set.
    """

    what: str
    evidence: str
    setting: str

    def __str__(self) -> str:
        return f"{self.what} ({self.evidence}). {self.setting}"


@dataclass
class Parts:
    """What the watchdog may ask. Each is what it is now; None or empty where there is none.

    Attributes:
        engines: Handles of the engines' actors, by name.
        progress: The coordinator's last answer.
        silent_s: For how long the coordinator has not answered.
        training: What a training says of itself: the last step, where its log is.
        known: The nodes that were there when the run began.
    """

    ray: Any
    run_dir: Path
    engines: dict[str, Any]
    servers: EnvServers | None
    progress: dict[str, Any] | None
    silent_s: float
    training: str
    known: list[Node]


class Watchdog:
    """Watches one wait after another.

    Args:
        after_s: Seconds without progress after which the cause is looked for, and again after each as many.
        parts: Says what there is to ask.
        say: Is told each cause once.
    """

    def __init__(self, after_s: float, parts: Callable[[], Parts], say: Callable[[str, list[Cause]], None]) -> None:
        self.after_s = after_s
        self._parts = parts
        self._say = say
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
        finally:
            with self._lock:
                self._title = ""

    def tell(self, *counters: Any) -> None:
        """Says how far the work is. What counts is whether it is something else than before."""
        with self._lock:
            if counters != self._counters:
                self._counters, self._moved = counters, time.monotonic()
                self._said = set()

    def close(self) -> None:
        self._end.set()

    def _run(self) -> None:
        while not self._end.wait(min(self.after_s / 4, 5.0)):
            with self._lock:
                title, still = self._title, time.monotonic() - self._moved
            if not title or still < self.after_s:
                continue
            causes = diagnose(self._parts(), still)
            with self._lock:
                new = [cause for cause in causes if cause.what not in self._said]
                if title != self._title or not new or time.monotonic() - self._moved < still:
                    continue
                self._said |= {cause.what for cause in new}
            self._say(f"{title}: no progress for {still:.0f} s", new)


def diagnose(parts: Parts, still: float) -> list[Cause]:
    """Returns why nothing moves, the most likely cause first. Never nothing: what no check explains is said to be so."""
    found: list[Cause] = []
    for check in (_nodes, _disk, _engines, _servers, _coordinator, _policy, _training):
        try:
            found += check(parts)
        except Exception as error:  # noqa: BLE001 - a check that fails must not hide the others
            found.append(Cause(f"{check.__name__.strip('_')} cannot be looked at", f"{type(error).__name__}: {error}", "Is Ray alive?"))
    if not found:
        progress = parts.progress or {}
        trees = f"{progress.get('in_flight', 0)} trees grow, {progress.get('done', 0)} of {progress.get('total', 0)} are done"
        evidence = f"{trees}, last error: {progress.get('last_error') or 'none'}"
        found.append(
            Cause("no part of the run is at fault that can be seen", evidence, "Is one call just very slow? See watchdog.after_s.")
        )
    return found


def as_dict(causes: list[Cause]) -> list[dict[str, str]]:
    return [asdict(cause) for cause in causes]


# ----------------------------------------------------------------------------------------------------------------------


def _nodes(parts: Parts) -> Iterator[Cause]:
    there = {node.id for node in nodes()}
    lost = [node.name for node in parts.known if node.id not in there]
    if lost:
        yield Cause(
            f"lost: the node {', '.join(lost)}", f"{len(there)} of {len(parts.known)} nodes are alive", "Start it again, or a new one."
        )


def _disk(parts: Parts) -> Iterator[Cause]:
    free = shutil.disk_usage(parts.run_dir).free
    if free < FULL_BYTES:
        yield Cause(
            f"the disk of {parts.run_dir} is full", f"{free / 2**20:.0f} MiB are free", "Free some space; the run goes on by itself."
        )


def _engines(parts: Parts) -> Iterator[Cause]:
    from ray._private.state import actors

    for name, handle in parts.engines.items():
        entry = actors(handle._actor_id.hex()) or {}
        state = str(entry.get("State", "")) or "unknown"
        if state in ("PENDING_CREATION", "DEPENDENCIES_UNREADY"):
            setting = "Lower policy.engines or policy.tensor_parallel_size, add nodes, or see cluster.nodes.engine."
            yield Cause(f"{name} cannot be placed, or is still being started", f"its actor is {state}", setting)
        elif state == "RESTARTING":
            yield Cause(f"{name} died and is being started again", f"its actor is {state}", "See its log for why it died.")
        elif state == "DEAD":
            why = str(entry.get("DeathCause") or "")[:200] or "no cause is known"
            yield Cause(f"{name} is dead and stays so", why, "Mend the cause and start the same run again.")
        elif not _answers(parts.ray, handle.health):
            where = entry.get("Address", {}).get("IPAddress", "")
            evidence = f"its actor is alive on {where}, and does not say how it is within {ANSWER_S:g} s"
            yield Cause(f"{name} is stuck", evidence, "policy.timeout_s says when its calls are given to others.")


def _servers(parts: Parts) -> Iterator[Cause]:
    if parts.servers is None:
        return
    for number, actor in enumerate(parts.servers.actors):
        name = f"environment server {number}"
        try:
            status = parts.ray.get(actor.status.remote(), timeout=CALL_TIMEOUT_S)
        except parts.ray.exceptions.RayError as error:
            yield Cause(f"the supervisor of {name} does not answer", type(error).__name__, "Is its node alive?")
            continue
        if status.state is not ServerState.UP:
            what = "is being started again" if status.state is ServerState.STARTING else "was given up"
            yield Cause(f"{name} {what}", status.error or f"{status.restarts} restarts", "See its log in the run's logs/.")
        elif (seconds := _health(status.url)) is None:
            yield Cause(
                f"{name} hangs", f"{status.url}/health does not answer within {ANSWER_S:g} s", "It is ended and started again soon."
            )
        elif seconds > ANSWER_S / 3:
            yield Cause(
                f"{name} is overloaded", f"{status.url}/health took {seconds:.1f} s", "Raise env.servers, or lower collect.in_flight."
            )


def _coordinator(parts: Parts) -> Iterator[Cause]:
    if parts.silent_s > ANSWER_S:
        evidence = f"it has not answered for {parts.silent_s:.0f} s"
        yield Cause("the coordinator's loop is blocked, or its node is cut off", evidence, "Lower collect.in_flight if its CPU is full.")


def _policy(parts: Parts) -> Iterator[Cause]:
    progress = parts.progress or {}
    for name, problem in (progress.get("waiting") or {}).items():
        yield Cause(f"{name} is out of service", problem, "policy.timeout_s and policy.retries say how long it is waited for.")
    if progress.get("retried"):
        yield Cause(
            "trees fail and are tried again", f"{progress['retried']} times, at last: {progress.get('last_error')}", "Mend the cause."
        )


def _training(parts: Parts) -> Iterator[Cause]:
    if parts.training:
        yield Cause("the trainer does not step", parts.training, "Its log has the stacks of a step that takes too long.")


def _answers(ray: Any, method: Any) -> bool:
    try:
        ray.get(method.remote(), timeout=ANSWER_S)
        return True
    except ray.exceptions.GetTimeoutError:
        return False
    except ray.exceptions.RayError:
        return True  # it said something


def _health(url: str) -> float | None:
    """Seconds until a server said that it is well; None if it did not in time."""
    import httpx

    started = time.monotonic()
    try:
        httpx.get(f"{url}/health", timeout=ANSWER_S, trust_env=False)
    except httpx.HTTPError:
        return None
    return time.monotonic() - started
