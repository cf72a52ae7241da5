"""What a coordinator is asked to do: one stage of trees, as plain data that can cross processes."""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar

from agentr import logs
from agentr.collect.agent import Agent
from agentr.collect.units import Limits, StageProgress, run_units
from agentr.config.policy import SamplingConfig
from agentr.search import Tree
from agentr.seeds import derived_seed
from agentr.store.forest import Forest
from agentr.store.growing import GrowingForest
from agentr.store.working import ALONE
from agentr.types import Cost, Task

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Unit:
    """One task of a stage, and what is at hand to make its tree.

    Attributes:
        seed: Seed of the tree.
        forest: Where the stage's trees and journals are.
        source: The trees that the stage starts from, if any.
        helper: What ``Work.helper`` gave for the whole stage.
    """

    task: Task
    seed: int
    agent: Agent
    forest: GrowingForest
    source: Forest | None
    helper: Any = None

    def begun(self) -> Tree:
        """Returns the task's tree in ``source``."""
        assert self.source is not None, "the work starts from no trees"
        return self.source.read(self.task.key)

    def without_costs(self) -> Tree:
        """Returns the task's tree in ``source`` without what it cost, for a work whose own costs alone are to be
        counted."""
        return replace(self.begun(), cost=Cost(), events={}, spent=[])


class Work(ABC):
    """What a stage does with each task, as frozen, picklable data: grow a tree, play a demonstration, revise.

    Two works that are equal make equal trees of equal tasks, with the same policy and seed.
    """

    #: Stage whose trees the work starts from: of the same round (``collect``), or of another (``rounds/00/eval``);
    #: empty for none.
    source: ClassVar[str] = ""
    #: Names the work in seeds and manifests.
    kind: ClassVar[str]
    #: Whether its trees are those of ``source`` with more in them, so that what those cost is counted in them, too.
    extends: ClassVar[bool] = False

    @abstractmethod
    async def make(self, unit: Unit) -> Tree | None:
        """Makes one tree, or None if there is nothing to make for this task.

        Raises:
            InfraError: The policy or the environment did not answer. What was done is in the journal.
        """

    @asynccontextmanager
    async def helper(self, agent: Agent, forest: GrowingForest) -> AsyncIterator[Any]:
        """Gives what all trees of a stage share besides the agent; by default nothing."""
        yield None

    def tasks(self, tasks: Sequence[Task], source: Forest | None) -> list[Task]:
        """Returns those of a round's tasks that the work applies to; by default all, or those of the trees that it
        starts from."""
        return list(tasks) if source is None else source.tasks()

    @property
    def at_once(self) -> int:
        """As `agentr.search.strategy.Strategy.at_once` says."""
        return 1

    def max_completions(self, step_limit: int) -> int:
        """Returns the most completions that one tree can request; 0 if it draws none that count.

        Args:
            step_limit: The environment's own limit on the actions of an episode.
        """
        return 0


@dataclass(frozen=True, kw_only=True)
class TreeJob:
    """One stage of trees.

    Attributes:
        folder: Where its forest is.
        policy: Name of the policy, stored in each tree.
        source: Folder of the forest that the work starts from, if it needs one.
        epoch: Of the coordinators that run it (``agentr.store.lease``).
        part: Which part of the stage this is, if several coordinators share it.
        parts: How many there are.
        about: What the driver was at when it asked, for logs (``agentr.logs``).
        logs: Folder of the run's logs, if there is a run.
    """

    folder: Path
    tasks: tuple[Task, ...]
    seed: int
    policy: str
    work: Work
    sampling: SamplingConfig = field(default_factory=SamplingConfig)
    limits: Limits = field(default_factory=Limits)
    source: Path | None = None
    epoch: str = ALONE
    part: int = 0
    parts: int = 1
    about: Mapping[str, Any] = field(default_factory=dict)
    logs: Path | None = None

    def divided(self, number: int) -> list[TreeJob]:
        """Returns the job in at most ``number`` parts, which together make the same trees with as many in flight.

        A budget of completions is divided, too. Each part may fail as often as the whole may.
        """
        number = max(1, min(number, len(self.tasks), self.limits.in_flight, self.limits.max_completions or number))
        parts = []
        for part in range(number):
            tasks = self.tasks[part::number]
            limits = replace(
                self.limits,
                in_flight=_share(self.limits.in_flight, part, number),
                max_completions=_share(self.limits.max_completions, part, number),
                max_failed=self.limits.max_failed * len(self.tasks) / max(1, len(tasks)),
            )
            parts.append(replace(self, tasks=tasks, limits=limits, part=part, parts=number))
        return parts


def _share(amount: int, part: int, number: int) -> int:
    return amount * (part + 1) // number - amount * part // number


async def run_job(
    job: TreeJob, agent: Agent, progress: StageProgress, forest: GrowingForest | None = None
) -> StageProgress:
    """Runs a job to its end; trees that are already there are not made again.

    Args:
        forest: Where the trees grow, if that was taken over for this job already.

    Raises:
        RunError: Too many units failed for infrastructure reasons.
    """
    if forest is None:
        forest = GrowingForest(job.folder, epoch=job.epoch)
        progress.regrown = forest.damaged
    source = None if job.source is None else Forest(job.source)
    agent = replace(agent, sampling=job.sampling, policy_name=job.policy, on_start=progress.track)

    recording, about = logs.recording(logs.own_file(job.logs, "coordinator"), "coordinator"), logs.about(**job.about)
    with recording, about:
        log.info("%d tasks", len(job.tasks))
        async with job.work.helper(agent, forest) as helper:

            async def make(task: Task) -> Tree | None:
                return await job.work.make(
                    Unit(task, derived_seed(job.seed, job.work.kind, task.key), agent, forest, source, helper)
                )

            most = job.work.max_completions(agent.spec.step_limit) * agent.turns.draws
            return await run_units(job.tasks, make, forest, progress, job.limits, most)
