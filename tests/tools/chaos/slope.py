"""Judges whether a quantity stays flat: by a fitted slope with its confidence interval.

Processes come and go, so each has a level of its own, and what is fitted is the slope that they have in common: least
squares with an intercept for each process (the within estimator). A run is not alike in its stages, so what is fitted
is one value for each run that a process lived through from its start to its end: the least, which is what it holds when
the run needs nothing more. The first third of them is its warming up, in which caches fill, and left out.
"""

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

import numpy as np

#: Seconds over which a process must have been measured for a slope to say anything.
LEAST_S = 600.0
#: What part of a process's whole runs is its warming up: one in so many.
WARMING = 3
#: Share of the mean level by which something may grow in an hour.
TOLERANCE = 0.05


@dataclass(frozen=True)
class Sample:
    """A measurement of a process.

    Attributes:
        life: Name of the process.
        run: Name of the run that it worked on; names of later runs come later in the alphabet.
        seconds: Since the start of all.
    """

    life: str
    run: str
    seconds: float
    value: float


class Verdict(StrEnum):
    """What is known about a slope."""

    flat = "flat"
    """The whole interval is within the tolerance."""
    grows = "grows"
    """The whole interval is above the tolerance."""
    unknown = "cannot be told"
    """The interval is too wide, or no process lived through enough runs: soak longer, or with fewer faults."""


@dataclass(frozen=True)
class Slope:
    """A slope with its 95 % interval, in units an hour.

    Attributes:
        mean: Level over all samples.
        allowed: Units an hour that count as flat.
        lives: Processes that were fitted.
        runs: Values that were fitted: one for each run of each process.
        span_s: Seconds between the first and the last value of the process that lived longest.
    """

    slope: float
    low: float
    high: float
    mean: float
    allowed: float
    lives: int
    runs: int = 0
    span_s: float = 0.0

    @property
    def verdict(self) -> Verdict:
        if self.span_s < LEAST_S:
            return Verdict.unknown
        if self.low > self.allowed:
            return Verdict.grows
        return Verdict.flat if self.high <= self.allowed else Verdict.unknown

    def __str__(self) -> str:
        return f"{self.slope:+.2f} [{self.low:+.2f}, {self.high:+.2f}] an hour"


def fit(samples: Iterable[Sample], *, least: float) -> Slope:
    """Fits the common slope of several processes.

    Args:
        least: Units an hour that are always allowed, for what is small.
    """
    lives: dict[str, list[Sample]] = defaultdict(list)
    for sample in samples:
        lives[sample.life].append(sample)
    values = [sample.value for life in lives.values() for sample in life]
    mean = float(np.mean(values)) if values else 0.0
    allowed = max(least, TOLERANCE * mean)
    x: list[float] = []
    y: list[float] = []
    counted, span = 0, 0.0
    for life in lives.values():
        whole = _whole_runs(life)
        whole = whole[max(1, len(whole) // WARMING) :]
        if len(whole) < 2:
            continue
        counted, span = counted + 1, max(span, whole[-1][0] - whole[0][0])
        hours, levels = (np.array(column) for column in zip(*whole, strict=True))
        x += list(hours / 3600 - np.mean(hours / 3600))
        y += list(levels - np.mean(levels))
    free = len(x) - counted - 1
    spread = float(np.dot(x, x))
    if free < 1 or not spread:
        return Slope(0.0, -np.inf, np.inf, mean, allowed, counted, len(x), span)
    slope = float(np.dot(x, y)) / spread
    error = float(np.sqrt(np.sum((np.array(y) - slope * np.array(x)) ** 2) / free / spread))
    wide = _t(free) * error
    return Slope(slope, slope - wide, slope + wide, mean, allowed, counted, len(x), span)


def _whole_runs(life: list[Sample]) -> list[tuple[float, float]]:
    """Returns the mean time and the least value of each run that is neither the first nor the last that a process was
    seen in."""
    runs: dict[str, list[Sample]] = defaultdict(list)
    for sample in life:
        runs[sample.run].append(sample)
    whole = sorted(runs)[1:-1]
    return [(float(np.mean([s.seconds for s in runs[name]])), min(s.value for s in runs[name])) for name in whole]


def _t(free: int) -> float:
    """Returns the 97.5 % quantile of Student's t (Cornish and Fisher's expansion; within 1 % from 4 degrees of freedom
    on)."""
    if free <= 3:
        return (12.71, 4.30, 3.18)[free - 1]
    z = 1.959964
    return z + (z**3 + z) / (4 * free) + (5 * z**5 + 16 * z**3 + 3 * z) / (96 * free**2)
