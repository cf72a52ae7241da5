"""One round of an experiment: what a method is written in."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property

from agentr.collect.job import Work
from agentr.config.schema import Config
from agentr.config.turns import TurnFormat
from agentr.policy.chat import ChatCodec
from agentr.rounds.experiment import Experiment
from agentr.rounds.warm_start import demonstration_dataset, demonstrations
from agentr.store.dataset import iter_rows
from agentr.store.forest import Forest
from agentr.store.layout import DATASET, DEMONSTRATIONS, MODEL, ROLLOUTS, WARM_START, Arm, Checkpoint, arm_of
from agentr.store.rows import Preference, Row
from agentr.tasks.formats import ActionFormat, action_format
from agentr.tasks.tools import tools_of
from agentr.types import Task


@dataclass(frozen=True)
class Round:
    """A round: number, policy, seed, tasks and places of its stages.

    Attributes:
        number: Counted from 1.
        policy: The policy that explores.
    """

    experiment: Experiment
    number: int
    policy: Checkpoint

    @property
    def config(self) -> Config:
        return self.experiment.plan.at(self.number)

    @property
    def arm(self) -> Arm:
        return arm_of(self.number)

    @property
    def seed(self) -> int:
        """Seed of everything that the round draws."""
        return self.experiment.plan.seed(self.number)

    @property
    def codec(self) -> ChatCodec:
        self.experiment.store.stages.use(MODEL)
        return self._speaking

    @cached_property
    def _speaking(self) -> ChatCodec:
        codec = self.experiment.codec
        if self.config.turns.format is TurnFormat.environment:  # then nobody asks the environment
            return codec
        return codec.offering(tools_of(self.experiment.services.collecting.spec()), self.config.turns)

    @property
    def action_format(self) -> ActionFormat:
        return self.codec.calls or action_format(self.experiment.services.collecting.spec().action_format)

    @property
    def answer_prefix(self) -> str:
        """How an action begins that is an answer and no call; empty if all actions are calls."""
        return self.experiment.services.collecting.spec().answer_prefix

    @cached_property
    def tasks(self) -> list[Task]:
        """This round's share of the training tasks: the next ones in the selection's order, or the same ones each
        round."""
        selection = self.config.collect.tasks
        tasks = self.experiment.services.collecting.tasks
        if selection.limit is None or not self.config.collect.fresh_tasks:
            return tasks(selection, training=True)
        everything = tasks(replace(selection, limit=None), training=True)
        count = min(selection.limit, len(everything))
        first = (self.number - 1) * count
        return [everything[i % len(everything)] for i in range(first, first + count)]

    # trees ------------------------------------------------------------------------------------------------------------

    def run(self, stage: str, work: Work) -> Forest:
        """Runs a stage of trees of this round's tasks, unless it is sealed, and returns them.

        Args:
            stage: Name of the stage in the round's folder.
        """
        source = self._source(work.source) if work.source else None
        collect = self.config.collect
        return self.experiment.trees(
            self.arm.stage(stage), work, self.policy, self.seed, lambda: self.tasks, source, collect
        )

    def trees(self, stage: str) -> Forest:
        """Returns the trees that a stage of this round left.

        Raises:
            RunError: It was not run yet.
        """
        return self.experiment.forest(self.arm.stage(stage))

    def demonstrations(self) -> Forest:
        """Returns the expert's episodes of the warm start's tasks; they are played if that was not done yet."""
        return demonstrations(self.experiment)

    def _source(self, stage: str) -> Forest:
        if "/" not in stage:
            return self.trees(stage)
        if stage == WARM_START.stage(DEMONSTRATIONS):
            return self.demonstrations()
        return self.experiment.forest(stage)

    # rows -------------------------------------------------------------------------------------------------------------

    def demonstration_rows(self) -> Iterator[Row]:
        """Yields the rows of the demonstrations; they are played and built if that was not done yet."""
        return iter_rows(demonstration_dataset(self.experiment))

    def earlier_rows(self, rounds: int) -> Iterator[Row | Preference]:
        """Yields the rows of as many rounds before this one."""
        for number in range(max(1, self.number - rounds), self.number):
            stage = arm_of(number).stage(DATASET)
            if self.experiment.store.sealed(arm_of(number).stage(ROLLOUTS)):
                continue  # a round of online training has no dataset of its own
            self.experiment.store.stages.use(stage)
            yield from iter_rows(self.experiment.store.layout.stage(stage))
