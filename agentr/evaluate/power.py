"""How many seeds and held-out problems it takes to tell a difference of some size.

A difference of two methods under one seed and on one problem is taken for a mean, a part of the seed, a part of the
problem and a rest, independent of each other (two-way random effects without repetition; their variances by the
analysis of variance, Searle, Casella and McCulloch 1992, section 4.5). The mean over S seeds and P problems then has
the variance seeds / S + problems / P + rest / (S P).
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np

from agentr.evaluate.statistics import LEVEL

#: Probability with which a difference that is there is to be found.
POWER = 0.8
#: A difference of so many standard errors is found with that probability.
ERRORS = NormalDist().inv_cdf(1 - LEVEL / 2) + NormalDist().inv_cdf(POWER)


@dataclass(frozen=True)
class Spread:
    """How the differences of two methods vary.

    Attributes:
        between_seeds: Variance of the part of a seed.
        between_problems: Variance of the part of a problem.
        rest: Variance of what is left of one seed's mean on one problem.
        seeds: How many there were.
        problems: How many problems of equal numbers of tasks those that there were are worth.
        tasks: How many tasks they have.
    """

    between_seeds: float
    between_problems: float
    rest: float
    seeds: int
    problems: float
    tasks: int

    @classmethod
    def of(
        cls, differences: Mapping[str, float], problems: Mapping[str, str], seeds: Mapping[str, object]
    ) -> "Spread | None":
        """Returns the spread of differences by task and seed, or None of fewer than two seeds or problems. Problems
        that not all seeds have do not count.

        Args:
            problems: Which problem it is, by the same keys.
            seeds: Of which seed it is, by the same keys.
        """
        cells: dict[str, dict[object, list[float]]] = {}
        for key, difference in differences.items():
            cells.setdefault(problems[key], {}).setdefault(seeds[key], []).append(difference)
        every = {seeds[key] for key in differences}
        whole = [by_seed for by_seed in cells.values() if by_seed.keys() == every]
        if len(every) < 2 or len(whole) < 2:
            return None
        table = np.array([[np.mean(by_seed[seed]) for by_seed in whole] for seed in sorted(every, key=str)])
        of_seeds, of_problems = (table.mean(axis=axis, keepdims=True) for axis in (1, 0))
        s, p = table.shape
        rest = float(((table - of_seeds - of_problems + table.mean()) ** 2).sum() / ((s - 1) * (p - 1)))
        sizes = np.array([len(next(iter(by_seed.values()))) for by_seed in whole])
        return cls(
            between_seeds=max(0.0, float(of_seeds.var(ddof=1)) - rest / p),
            between_problems=max(0.0, float(of_problems.var(ddof=1)) - rest / s),
            rest=rest,
            seeds=s,
            problems=float(sizes.sum() ** 2 / (sizes**2).sum()),
            tasks=int(sizes.sum()),
        )

    def told(self) -> float:
        """Returns the smallest difference that these seeds and problems tell."""
        variance = self.between_seeds / self.seeds + (self.between_problems + self.rest / self.seeds) / self.problems
        return ERRORS * math.sqrt(variance)

    def seeds_for(self, difference: float) -> int | None:
        """Returns how many seeds tell a difference on these problems, at least two; None if no number does."""
        room = (difference / ERRORS) ** 2 - self.between_problems / self.problems
        return None if room <= 0 else max(2, math.ceil((self.between_seeds + self.rest / self.problems) / room))

    def tasks_for(self, difference: float, seeds: int) -> int | None:
        """Returns how many tasks, spread over problems as these are, tell a difference with so many seeds; None if no
        number does."""
        room = (difference / ERRORS) ** 2 - self.between_seeds / seeds
        if room <= 0:
            return None
        problems = max(2.0, (self.between_problems + self.rest / seeds) / room)
        return math.ceil(problems * self.tasks / self.problems)
