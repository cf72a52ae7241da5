"""Judges whether a quantity stays flat: by a fitted slope with its confidence interval.

Processes come and go, so each has a level of its own, and what is fitted is the slope that they have in common: least squares with an
intercept for each process (the within estimator). Samples that follow each other closely are alike, so not they are fitted but the means
of stretches of time. What a process takes while it warms up is left out.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

import numpy as np

#: Seconds of a process's life that count as its warming up, and those after it that one must have lived for a slope to say anything.
WARM_UP_S, LEAST_S = 120.0, 600.0
#: Share of the mean level by which something may grow in an hour.
TOLERANCE = 0.05
#: Into how many stretches the time is cut, at most, and how long each is at least, in seconds.
STRETCHES, SHORTEST_S = 60, 10.0


class Verdict(StrEnum):
    """What is known about a slope."""

    flat = "flat"
    """The whole interval is within the tolerance."""
    grows = "grows"
    """The whole interval is above the tolerance."""
    unknown = "cannot be told"
    """The interval is too wide, or no process lived long enough: run longer."""


@dataclass(frozen=True)
class Slope:
    """A slope with its 95 % interval, in units an hour.

    Attributes:
        mean: Level over all samples.
        allowed: Units an hour that count as flat.
        lives: Processes that were fitted.
        span_s: Seconds of the longest life, without its warming up.
    """

    slope: float
    low: float
    high: float
    mean: float
    allowed: float
    lives: int
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


def fit(samples: Iterable[tuple[str, float, float]], *, least: float, warm_up_s: float = WARM_UP_S) -> Slope:
    """Fits the common slope of several processes' samples.

    Args:
        samples: Name of the process, seconds, value.
        least: Units an hour that are always allowed, for what is small.
    """
    lives: dict[str, list[tuple[float, float]]] = defaultdict(list)
    for name, seconds, value in samples:
        lives[name].append((seconds, value))
    values = [value for points in lives.values() for _, value in points]
    mean = float(np.mean(values)) if values else 0.0
    allowed = max(least, TOLERANCE * mean)
    seconds = [seconds for points in lives.values() for seconds, _ in points]
    stretch = max(SHORTEST_S, (max(seconds, default=0.0) - min(seconds, default=0.0)) / STRETCHES)
    x: list[float] = []
    y: list[float] = []
    counted, span = 0, 0.0
    for points in lives.values():
        born = min(at for at, _ in points)
        means = _stretches([(at, value) for at, value in points if at - born >= warm_up_s], stretch)
        if len(means) < 2:
            continue
        counted, span = counted + 1, max(span, means[-1][0] - means[0][0])
        hours, levels = (np.array(column) for column in zip(*means, strict=True))
        x += list(hours / 3600 - np.mean(hours / 3600))
        y += list(levels - np.mean(levels))
    free = len(x) - counted - 1
    spread = float(np.dot(x, x))
    if free < 1 or not spread:
        return Slope(0.0, -np.inf, np.inf, mean, allowed, counted, span)
    slope = float(np.dot(x, y)) / spread
    error = float(np.sqrt(np.sum((np.array(y) - slope * np.array(x)) ** 2) / free / spread))
    wide = _t(free) * error
    return Slope(slope, slope - wide, slope + wide, mean, allowed, counted, span)


def _stretches(points: list[tuple[float, float]], length: float) -> list[tuple[float, float]]:
    """Returns mean time and mean value of each stretch of time."""
    cut: dict[int, list[tuple[float, float]]] = defaultdict(list)
    for at, value in points:
        cut[int(at // length)].append((at, value))
    return [(float(np.mean([at for at, _ in part])), float(np.mean([value for _, value in part]))) for _, part in sorted(cut.items())]


def _t(free: int) -> float:
    """Returns the 97.5 % quantile of Student's t (Cornish and Fisher's expansion; within 1 % from 4 degrees of freedom on)."""
    if free <= 3:
        return (12.71, 4.30, 3.18)[free - 1]
    z = 1.959964
    return z + (z**3 + z) / (4 * free) + (5 * z**5 + 16 * z**3 + 3 * z) / (96 * free**2)
