"""Means with intervals. Percentile bootstrap (Efron 1979), seeded, so that the same episodes give the same interval.

Tasks that pose the same problem (the same goal with other distractors) are not independent: what is resampled are
problems, with all their tasks, and, where there are several, training runs.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

#: Resamples of a bootstrap.
RESAMPLES = 10_000
#: Probability with which a difference is found where there is none.
LEVEL = 0.05


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


@dataclass(frozen=True)
class Contrast(Estimate):
    """A mean difference.

    Attributes:
        p: Two-sided p-value of no difference: twice the smaller share of resampled differences on one side of 0, which
            is 0.05 where the interval ends at 0; no less than one resample's share.
    """

    p: float

    @property
    def stands(self) -> bool:
        """Whether there is a difference, at the level of the intervals."""
        return self.p < LEVEL

    @classmethod
    def of(cls, found: Estimate, resampled: np.ndarray) -> "Contrast":
        sides = [float(np.mean(side)) for side in (resampled <= 0, resampled >= 0)] if resampled.size else [1.0]
        p = min(1.0, max(2 * min(sides), 1 / max(1, resampled.size)))
        return cls(found.mean, found.low, found.high, found.n, p)


def holm(p: Sequence[float]) -> list[float]:
    """p-values of several comparisons, each adjusted for how many there are: the probability that one below
    0.05 is none is 0.05 at most (Holm 1979, A simple sequentially rejective multiple test procedure)."""
    order = np.argsort(p)
    adjusted = np.empty(len(order))
    adjusted[order] = np.maximum.accumulate(np.asarray(p)[order] * np.arange(len(order), 0, -1))
    return [float(each) for each in np.minimum(1.0, adjusted)]


def mean_interval(
    values: Sequence[float],
    resamples: int = RESAMPLES,
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
    resamples: int = RESAMPLES,
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
    kept = [place for place, count in enumerate(counts) if count > 0]
    return _resampled(
        [sums[place] for place in kept],
        [counts[place] for place in kept],
        [problems[place] for place in kept] if problems else None,
        [runs[place] for place in kept] if runs else None,
        resamples,
        seed,
    )[0]


def _resampled(
    sums: Sequence[float],
    weights: Sequence[float],
    problems: Sequence[str] | None,
    runs: Sequence[object] | None,
    resamples: int = RESAMPLES,
    seed: int = 0,
) -> tuple[Estimate, np.ndarray]:
    """Returns the ratio of two sums with its interval, and the resampled ratios that this is of, shape [resamples] at
    most."""
    if not len(sums):
        return Estimate(0.0, 0.0, 0.0, 0), np.empty(0)
    group, run = (
        np.unique(np.asarray(names), return_inverse=True)[1]
        for names in (
            range(len(sums)) if problems is None else problems,
            [str(each) for each in runs or [0] * len(sums)],
        )
    )
    shape = int(run.max()) + 1, int(group.max()) + 1
    cells, size = run * shape[1] + group, shape[0] * shape[1]
    table = np.stack([np.bincount(cells, each, size).reshape(shape) for each in (sums, weights)])
    ratios = _resampled_ratios(table, resamples, seed)
    low, high = np.quantile(ratios, [LEVEL / 2, 1 - LEVEL / 2])
    whole, part = sum(weights), sum(sums)
    return Estimate(float(part / whole), float(low), float(high), round(whole)), ratios


def paired_difference(
    after: Mapping[str, float],
    before: Mapping[str, float],
    problems: Mapping[str, str] | None = None,
    runs: Mapping[str, object] | None = None,
) -> Contrast:
    """Mean of ``after - before`` over the tasks that both have: the same tasks stand on both sides, so what they share
    cancels.

    Args:
        problems: Which problem a task poses, by task.
        runs: Of which pair of training runs it is, by task.
    """
    common = sorted(after.keys() & before.keys())
    differences = [after[key] - before[key] for key in common]
    return Contrast.of(*_resampled(differences, [1] * len(common), *_named(common, problems, runs)))


def share_of_way(
    after: Mapping[str, float],
    start: Mapping[str, float],
    end: Mapping[str, float],
    problems: Mapping[str, str] | None = None,
    runs: Mapping[str, object] | None = None,
) -> Estimate | None:
    """How much of the way from ``start`` to ``end`` has been gone: the mean of ``after - start`` over that of
    ``end - start``, over the tasks that all three have; above 1 beyond the end. None where the end is not better than
    the start, by the interval of their difference.

    Both means are drawn together, for the same tasks and runs are in both.

    Args:
        problems: Which problem a task poses, by task.
        runs: Of which training run it is, by task.
    """
    common = sorted(after.keys() & start.keys() & end.keys())
    if paired_difference({key: end[key] for key in common}, start, problems, runs).low <= 0:
        return None
    gone, whole = ([to[key] - start[key] for key in common] for to in (after, end))
    return replace(_resampled(gone, whole, *_named(common, problems, runs))[0], n=len(common))


def _named(
    keys: Sequence[str], problems: Mapping[str, str] | None, runs: Mapping[str, object] | None
) -> tuple[list[str] | None, list[object] | None]:
    return [problems.get(key, key) for key in keys] if problems else None, [runs[key] for key in keys] if runs else None


def _resampled_ratios(table: np.ndarray, resamples: int, seed: int) -> np.ndarray:
    """Ratios of sums over runs and groups drawn with replacement.

    Args:
        table: Sums and weights of each group in each run, shape [2, runs, G].
    """
    rng, (_, runs, size) = np.random.default_rng(seed), table.shape
    chunks = []
    # In chunks, so that many tasks times many resamples do not fill the memory.
    for start in range(0, resamples, 1000):
        many = min(1000, resamples - start)
        picks = rng.integers(0, size, (many, size))
        times = rng.multinomial(runs, np.full(runs, 1 / runs), many)  # how often each run is drawn
        sums, weights = (np.einsum("rs,srg->r", times, each[:, picks]) for each in table)
        there = weights > 0  # a drawn run that was not finished may have none of the drawn problems
        chunks.append(sums[there] / weights[there])
    return np.concatenate(chunks)
