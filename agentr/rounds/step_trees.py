"""The trees of an online step, and what their rollouts are worth."""

import itertools
from collections.abc import Callable, Iterator, Sequence
from functools import cached_property

from agentr.rewards import Rewards
from agentr.rewards.apart import NO_REWARD, RewardLost
from agentr.rewards.group import Group, Reward, group_of
from agentr.rounds.online_config import OnlineConfig
from agentr.rounds.round import Round
from agentr.rows.advantages import differ
from agentr.rows.dataset import Candidate
from agentr.rows.sequences import dropped
from agentr.search.tree import Tree
from agentr.store.forest import Forest
from agentr.store.rows import Dropped, Rollout
from agentr.types import Task

#: Makes the rows of a task of its rollouts and what they are worth.
MakeRows = Callable[[Group, Sequence[Reward]], Iterator[Rollout | Dropped]]

#: Groups of a step without a reward that are named.
SAID = 3


class StepTrees:
    """The trees of one step. Each is read and scored once, when it is first asked for.

    Args:
        tasks: Those that the step may draw, in this order.
        rows: Makes the rows of a task.
        progress: How much of the round is over, from 0 to 1.
    """

    def __init__(
        self,
        step: int,
        forest: Forest,
        tasks: Sequence[Task],
        config: OnlineConfig,
        rows: MakeRows,
        rewards: Rewards,
        round_: Round,
        progress: float,
    ) -> None:
        self.step, self.forest, self.tasks = step, forest, tasks
        self._config, self._make_rows, self._rewards = config, rows, rewards
        self._round, self._progress = round_, progress
        self._lost = 0
        self._trees: dict[str, Tree] = {}
        self._scores: dict[str, list[Reward]] = {}
        self._groups: dict[str, Group] = {}

    @cached_property
    def _prefix(self) -> str:
        return self._round.answer_prefix

    def group(self, key: str) -> Group:
        """Returns the rollouts of a task."""
        if key not in self._groups:
            self._trees[key] = self.forest.read(key)
            self._groups[key] = group_of(self._trees[key], self._prefix, self._progress, self._round.number)
        return self._groups[key]

    def groups(self) -> list[Group]:
        """Returns the rollouts of all tasks of a sealed step, in the order in which they are stored."""
        keys = self.forest.keys()
        return [self.group(key) for key in keys]

    def telling(self) -> list[str]:
        """Returns the keys of the tasks whose rollouts are not all worth the same, in the order drawn; at most as many
        as a step has."""
        grown = self._grown()
        self._prepare(grown)
        found = (key for key in grown if differ([reward.total for reward in self._scored(key)]))
        return list(itertools.islice(found, self._config.tasks))

    def rows(self) -> Iterator[Candidate]:
        """Yields the rows of a sealed step, and what is dropped. Of a step without any answer of a judge, all rows are
        there, with advantages of 0: the run goes on."""
        keys, grown = self.forest.keys(), self._grown()[: self._config.tasks]
        self._prepare(keys)
        chosen = (self.telling() or grown) if self._config.max_tasks else grown
        silent = bool(self._rewards.judges) and not any(map(self._scored, keys))
        for key in keys:
            group = self.group(key)
            rewards = [Reward(0.0, {"lost": 1.0})] * len(group) if silent else self._scored(key)
            if len(group) and not rewards:
                yield dropped(self._trees[key], NO_REWARD)
            elif key in chosen:
                yield from self._make_rows(group, rewards)
            else:
                equal = not differ([reward.total for reward in rewards])
                reason = (
                    "all rollouts of the task are worth the same" if equal else "more tasks than an online step has"
                )
                yield dropped(self._trees[key], reason)

    def _grown(self) -> list[str]:
        there = self.forest.finished()
        return [task.key for task in self.tasks if task.key in there]

    def _prepare(self, keys: Sequence[str]) -> None:
        self._rewards.prepare([self.group(key) for key in keys if key not in self._scores])

    def _scored(self, key: str) -> list[Reward]:
        if key not in self._scores:
            try:
                self._scores[key] = self._rewards(self.group(key))
            except RewardLost as error:
                self._lost += 1
                if self._lost <= SAID:
                    said = f"        online step {self.step}: {error}; its rollouts are left out"
                    self._round.experiment.reporter.message(said, "yellow")
                self._scores[key] = []
        return self._scores[key]
