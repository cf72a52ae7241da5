"""Means with intervals. Percentile bootstrap (Efron 1979), seeded, so that the same episodes give the same interval.

Tasks that pose the same problem (the same goal with other distractors) are not independent: what is resampled are
problems, with all their tasks.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Estimate:
    """A mean with its 95 % interval over ``n`` tasks."""

    mean: float
    low: float
    high: float
    n: int

    def __str__(self) -> str:
        return f"{self.mean:.3f} [{self.low:.3f}, {self.high:.3f}]"

    def as_percent(self) -> str:
        return f"{100 * self.mean:.1f} [{100 * self.low:.1f}, {100 * self.high:.1f}]"


def mean_interval(
    values: Sequence[float], resamples: int = 10_000, seed: int = 0, problems: Sequence[str] | None = None
) -> Estimate:
    """The mean of one value for each task, with its 95 % bootstrap interval. No values give a mean of 0 over n = 0.

    Args:
        problems: Which problem each task poses; without it each task is its own.
    """
    return share_interval(values, [1] * len(values), resamples, seed, problems)


def share_interval(
    sums: Sequence[float],
    counts: Sequence[int],
    resamples: int = 10_000,
    seed: int = 0,
    problems: Sequence[str] | None = None,
) -> Estimate:
    """What is summed over all tasks, divided by what is counted over all of them, with its 95 % bootstrap interval.

    Args:
        sums: Of each task.
        counts: Of each task; tasks with none do not count. ``n`` of the estimate is their sum.
        problems: Which problem each task poses; without it each task is its own.
    """
    weights = np.asarray(counts, dtype=int)
    there = weights > 0
    if not there.any():
        return Estimate(0.0, 0.0, 0.0, 0)
    data, weights = np.asarray(sums, dtype=float)[there], weights[there]
    names = np.asarray(list(problems) if problems is not None else range(there.size))[there]
    _, group = np.unique(names, return_inverse=True)
    means = _resampled_means(np.bincount(group, data), np.bincount(group, weights), resamples, seed)
    low, high = np.quantile(means, [0.025, 0.975])
    return Estimate(float(data.sum() / weights.sum()), float(low), float(high), int(weights.sum()))


def paired_difference(
    after: Mapping[str, float],
    before: Mapping[str, float],
    problems: Mapping[str, str] | None = None,
) -> Estimate:
    """Mean of ``after - before`` over the tasks that both have: the same tasks stand on both sides, so what they share
    cancels.

    Args:
        problems: Which problem a task poses, by task.
    """
    common = sorted(after.keys() & before.keys())
    differences = [after[key] - before[key] for key in common]
    return mean_interval(differences, problems=[problems.get(key, key) for key in common] if problems else None)


def _resampled_means(sums: np.ndarray, counts: np.ndarray, resamples: int, seed: int) -> np.ndarray:
    """Means over groups drawn with replacement; ``sums`` and ``counts`` of each group, shape [G]."""
    rng = np.random.default_rng(seed)
    chunks = []
    # In chunks, so that many tasks times many resamples do not fill the memory.
    for start in range(0, resamples, 1000):
        picks = rng.integers(0, sums.size, (min(1000, resamples - start), sums.size))
        chunks.append(sums[picks].sum(axis=1) / counts[picks].sum(axis=1))
    return np.concatenate(chunks)
