"""Which tasks an online step draws, and in which order."""

import random
from collections.abc import Sequence

from agentr.rounds.online_config import OnlineConfig
from agentr.seeds import derived_seed
from agentr.types import Task


class StepTasks:
    """The tasks of each step: seeded permutations of the round's tasks, cut into equal parts, so that all have their
    turn.

    Args:
        steps: How many there are.
        seed: Of the round.
    """

    def __init__(self, tasks: Sequence[Task], config: OnlineConfig, steps: int, seed: int) -> None:
        self._tasks, self._max_tasks, self._seed = tasks, config.max_tasks, seed
        size = min(config.tasks, len(tasks))
        self._own: list[list[Task]] = []
        for turn in range(steps):
            shuffled = list(tasks)
            random.Random(derived_seed(seed, "tasks", turn)).shuffle(shuffled)
            self._own += [shuffled[first : first + size] for first in range(0, len(shuffled) - size + 1, size)]
            if len(self._own) >= steps:
                break

    def of(self, step: int) -> list[Task]:
        """Returns the tasks that a step may draw, in the order in which it does: its own, then those that may take
        their place."""
        own = self._own[step - 1]
        others = [task for task in self._tasks if task not in set(own)]
        random.Random(derived_seed(self._seed, "more", step)).shuffle(others)
        return [*own, *others][: max(self._max_tasks, len(own))]
