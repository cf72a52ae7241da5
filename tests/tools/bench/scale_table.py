"""What `python -m tests.tools.bench scale` found: the figures, what limits, and a table of them."""

import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from tests.tools.bench.simulated import SHARED, Load

#: A process that computes for more than this share of a core has no room left: one event loop has one core.
BUSY = 0.85
#: Share of the ideal from which on the engines are what limits.
NEAR_IDEAL = 0.9
#: Median lag of the event loop, as a share of the mean latency, from which on the coordinator is late wherever its time
#: goes: on a full machine it may wait for a core without taking one.
LATE = 0.05


@dataclass(frozen=True, kw_only=True)
class Point:
    """The figures of one number of engines, over the measured window.

    Attributes:
        processes: Processes that the engines are in; 0 if they are in the coordinator's.
        trees, growing: Trees that were to be in flight, and that were when the window began.
        prompt_tokens: Mean length of a prompt.
        per_s, ideal, share: Expansions a second, those that the engines alone would allow, and the one over the other.
        coordinator_ms, environment_ms, engines_ms: Milliseconds of CPU for an expansion, over all processes of that
            kind.
        loop_ms: Those of the coordinator that its event loop's thread took; the rest are Ray's threads.
        coordinator_core, environment_core, engines_core: Share of a core that the busiest process of that kind took.
        machine: Share of all cores of this machine that was busy, other work included.
        lag_p50_ms, lag_p99_ms: By how much the coordinator's event loop woke too late.
        coordinator_mb: Resident memory of the coordinator at the end.
        journaled: Expansions on disk when the coordinator was ended, in journals and in finished trees.
        finished: Finished trees among them.
        total: Expansions that the coordinator had counted at the end of the window, those before it included.
        retried: Calls to engines and servers that failed and were tried again since the start, by cause.
        limit: What limits, in words.
    """

    engines: int
    processes: int
    servers: int
    trees: int
    growing: int
    seconds: float
    expansions: int
    prompt_tokens: float
    per_s: float
    ideal: float
    share: float
    coordinator_ms: float
    loop_ms: float
    environment_ms: float
    engines_ms: float
    coordinator_core: float
    environment_core: float
    engines_core: float
    machine: float
    lag_p50_ms: float
    lag_p99_ms: float
    coordinator_mb: float
    journaled: int
    finished: int
    total: int
    retried: dict[str, int]
    limit: str


def limit(
    share: float, *, coordinator: float, late: float, environment: float, engines: float, machine: float, growing: float
) -> str:
    """Says what saturates first.

    Args:
        share: Of the ideal.
        coordinator, environment, engines: Share of a core that the busiest process of each kind takes.
        late: Median lag of the coordinator's event loop, as a share of the mean latency.
        machine: Share of all cores that is busy.
        growing: Share of the trees that were in flight when the window began.
    """
    if share >= NEAR_IDEAL:
        return "the engines: they are busy all the time"
    if coordinator > BUSY or late > LATE:
        full = f", on a machine whose cores are {machine:.0%} busy" if machine > BUSY else ""
        return f"the coordinator: it takes {coordinator:.0%} of a core{full}"
    if environment > BUSY:
        return f"an environment server: it takes {environment:.0%} of a core"
    if engines > BUSY:
        return f"the simulation: a process of engines takes {engines:.0%} of a core"
    if machine > BUSY:
        return f"the machine: {machine:.0%} of its cores are busy"
    if growing < NEAR_IDEAL:
        return f"the start: {growing:.0%} of the trees were in flight when the window began"
    return "no process by itself: time between an answer and the next call"


def as_dict(load: Load, points: Sequence[Point]) -> dict[str, Any]:
    """Returns a measurement as plain data."""
    return {
        "load": {**asdict(load), "calls": load.calls, "mean_s": load.mean_s},
        "cores": os.cpu_count(),
        "points": [asdict(point) for point in points],
    }


def table(load: Load, points: Sequence[Point]) -> Any:
    """Returns a measurement as a table for people."""
    from rich.table import Table

    where = "in the coordinator's process" if load.in_process else f"up to {SHARED} in a process"
    who = f"{load.coordinators} coordinators" if load.coordinators > 1 else "One coordinator"
    title = (
        f"{who}, simulated engines, {where}: latency {load.latency_s:g} s (sigma {load.sigma:g}), turns of "
        f"{load.tokens} tokens"
    )
    caption = (
        f"ideal = min(trees, engines x {load.slots} slots / {load.width} sequences a call) / mean latency of "
        f"{load.mean_s:.3g} s. {os.cpu_count()} cores; 'machine' is how busy they were, other work included."
    )
    shown = Table(title=title, caption=caption, caption_justify="left")
    columns = (
        "engines",
        "env servers",
        "trees",
        "exp/s",
        "ideal",
        "share",
        "coord. ms/exp",
        "of it loop",
        "env",
        "engines",
    )
    for name in (*columns, "coord. core", "env core", "machine", "lag p50 ms", "p99", "MB", "retried"):
        shown.add_column(name, justify="right")
    shown.add_column("limit")
    for p in points:
        trees = f"{p.trees:,}" if p.growing >= p.trees else f"{p.growing:,} of {p.trees:,}"
        cells = [f"{p.engines}", f"{p.servers}", trees, f"{p.per_s:.1f}", f"{p.ideal:.1f}", f"{p.share:.2f}"]
        cells += [f"{v:.2f}" for v in (p.coordinator_ms, p.loop_ms, p.environment_ms, p.engines_ms)]
        cells += [f"{v:.2f}" for v in (p.coordinator_core, p.environment_core, p.machine)]
        cells += [f"{p.lag_p50_ms:.1f}", f"{p.lag_p99_ms:.1f}", f"{p.coordinator_mb:.0f}", f"{sum(p.retried.values())}"]
        shown.add_row(*cells, p.limit)
    return shown
