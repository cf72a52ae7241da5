"""Means with intervals. Percentile bootstrap (Efron 1979), seeded, so that the same episodes give the same interval.

Tasks that pose the same problem (the same goal with other distractors) are not independent: what is resampled are
problems, with all their tasks, and, where there are several, training runs.
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
    values: Sequence[float],
    resamples: int = 10_000,
    seed: int = 0,
    problems: Sequence[str] | None = None,
    runs: Sequence[object] | None = None,
) -> Estimate:
    """The mean of one value for each task, with its 95 % bootstrap interval. No values give a mean of 0 over n = 0.

    Args:
        problems: Which problem each task poses; without it each task is its own.
        runs: Of which training run each value is; without it all are of one.
    """
    return share_interval(values, [1] * len(values), resamples, seed, problems, runs)


def share_interval(
    sums: Sequence[float],
    counts: Sequence[int],
    resamples: int = 10_000,
    seed: int = 0,
    problems: Sequence[str] | None = None,
    runs: Sequence[object] | None = None,
) -> Estimate:
    """What is summed over all tasks, divided by what is counted over all of them, with its 95 % bootstrap interval.

    Runs and problems are crossed, since all runs are measured on the same problems: they are drawn independently, and
    a drawn run has its values of the drawn problems. Problems drawn anew within each run would be taken for more than
    there are.

    Args:
        sums: Of each task.
        counts: Of each task; tasks with none do not count. ``n`` of the estimate is their sum.
        problems: Which problem each task poses; without it each task is its own.
        runs: Of which training run each value is; without it all are of one.
    """
    weights = np.asarray(counts, dtype=int)
    there = weights > 0
    if not there.any():
        return Estimate(0.0, 0.0, 0.0, 0)
    data, weights = np.asarray(sums, dtype=float)[there], weights[there]
    group, run = (
        np.unique(np.asarray(names)[there], return_inverse=True)[1]
        for names in (
            range(there.size) if problems is None else list(problems),
            [str(each) for each in runs or [0] * there.size],
        )
    )
    shape = int(run.max()) + 1, int(group.max()) + 1
    cells, size = run * shape[1] + group, shape[0] * shape[1]
    table = np.stack([np.bincount(cells, each, size).reshape(shape) for each in (data, weights)])
    means = _resampled_means(table, resamples, seed)
    low, high = np.quantile(means, [0.025, 0.975])
    return Estimate(float(data.sum() / weights.sum()), float(low), float(high), int(weights.sum()))


def paired_difference(
    after: Mapping[str, float],
    before: Mapping[str, float],
    problems: Mapping[str, str] | None = None,
    runs: Mapping[str, object] | None = None,
) -> Estimate:
    """Mean of ``after - before`` over the tasks that both have: the same tasks stand on both sides, so what they share
    cancels.

    Args:
        problems: Which problem a task poses, by task.
        runs: Of which pair of training runs it is, by task.
    """
    common = sorted(after.keys() & before.keys())
    differences = [after[key] - before[key] for key in common]
    return mean_interval(
        differences,
        problems=[problems.get(key, key) for key in common] if problems else None,
        runs=[runs[key] for key in common] if runs else None,
    )


def _resampled_means(table: np.ndarray, resamples: int, seed: int) -> np.ndarray:
    """Means over runs and groups drawn with replacement.

    Args:
        table: Sums and counts of each group in each run, shape [2, runs, G].
    """
    rng, (_, runs, size) = np.random.default_rng(seed), table.shape
    chunks = []
    # In chunks, so that many tasks times many resamples do not fill the memory.
    for start in range(0, resamples, 1000):
        many = min(1000, resamples - start)
        picks = rng.integers(0, size, (many, size))
        times = rng.multinomial(runs, np.full(runs, 1 / runs), many)  # how often each run is drawn
        sums, counts = (np.einsum("rs,srg->r", times, each[:, picks]) for each in table)
        there = counts > 0  # a drawn run that was not finished may have none of the drawn problems
        chunks.append(sums[there] / counts[there])
    return np.concatenate(chunks)
