"""Many trees in flight in one event loop.

Invariant: every unit of a stage ends either as a finished tree in the forest, exactly once, or as a recorded failure;
nothing else. A unit that fails for infrastructure reasons is tried again from its journal, ``infra_retries`` times,
with growing pauses.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any

from agentr.backoff import Backoff
from agentr.config.schema import CollectConfig
from agentr.errors import InfraError, RunError
from agentr.logs import about
from agentr.search.stored import stored_counts
from agentr.search.tree import Tree
from agentr.store.growing import GrowingForest
from agentr.types import Cost, Task
from env_servers.observation import NOT_AGAIN, Again

log = logging.getLogger(__name__)

#: Makes one tree; None means that there is nothing to make for this task.
MakeTree = Callable[[Task], Awaitable[Tree | None]]

_BACKOFF = Backoff(0.5, 30.0)


@dataclass(frozen=True, kw_only=True)
class Limits:
    """How much of a stage is done at a time, and when it is given up.

    Attributes:
        in_flight: Trees that grow at the same time.
        infra_retries: Attempts at a unit after an infrastructure failure.
        max_failed: Share of the tasks that may be given up.
        max_completions: No tree is started that might not fit in (`Progress.has_budget`); 0 means no limit.
    """

    in_flight: int = 32
    infra_retries: int = 3
    max_failed: float = 0.05
    max_completions: int = 0

    @classmethod
    def of(cls, collect: CollectConfig, max_completions: int = 0) -> Limits:
        """Returns the limits of a configuration; that on completions is for who draws some."""
        retries, failed = collect.infra_retries, collect.max_failed
        return cls(
            in_flight=collect.in_flight, infra_retries=retries, max_failed=failed, max_completions=max_completions
        )

    def within(self, room: int, each: int) -> Limits:
        """Returns limits with no more trees in flight than there is room for.

        Args:
            room: Sessions that the environment has at the same time; 0 for any number.
            each: Of these, those that each tree needs.
        """
        return replace(self, in_flight=max(1, min(self.in_flight, room // each))) if room else self

    def check(self, failed: int, tasks: int, last_error: str) -> None:
        """Checks that not too many units were given up.

        Raises:
            RunError: They were.
        """
        if failed > self.max_failed * tasks:
            raise RunError(
                f"{failed} of {tasks} units failed for infrastructure reasons; the last: {last_error}",
                hint="Mend the cause and start the same run again; finished units are kept.",
            )


@dataclass
class StageProgress:
    """Progress of a running stage.

    Attributes:
        cost: Cost of the finished trees.
        events: Their counts of events.
        env_steps_executed: Actions that environments carried out in all, replays included; known at the end.
        regrown: Keys of finished trees that were damaged: they were set aside, to be grown anew.
        identical: Finished trees whose episodes are all the same.
        growing: The trees that are not finished, by their task's key.
        again: What it took to bring programs back to their calls, for the finished trees.
    """

    total: int = 0
    done: int = 0
    failed: int = 0
    skipped: int = 0
    in_flight: int = 0
    retried: int = 0
    successes: int = 0
    identical: int = 0
    cost: Cost = field(default_factory=Cost)
    events: Counter[str] = field(default_factory=Counter)
    env_steps_executed: int = 0
    started: float = field(default_factory=time.time)
    last_error: str = ""
    regrown: list[str] = field(default_factory=list)
    growing: dict[str, Tree] = field(default_factory=dict)
    again: Again = NOT_AGAIN

    def track(self, tree: Tree) -> None:
        """Follows a tree from its start."""
        self.growing[tree.task.key] = tree

    def add(self, tree: Tree) -> None:
        """Counts a finished tree."""
        self.done += 1
        self.successes += bool(tree.successes())
        self.identical += tree.identical()
        self.cost = self.cost + tree.cost
        self.events.update(tree.events)
        again = (Again(spent.starts, spent.replayed, spent.replay_s) for spent in tree.spent)
        self.again = Again.sum([self.again, *again])

    def spent(self) -> Cost:
        """Returns the cost of all trees, those that still grow included."""
        return Cost.sum([self.cost, *(tree.cost for tree in self.growing.values())])

    def has_budget(self, limit: int, per_tree: int) -> bool:
        """Whether one more tree may start: all together draw at most ``limit`` completions (0: no limit), or less than
        one tree more.

        Args:
            per_tree: Upper bound on the completions of one tree. What finished trees took would show too little of the
                others: cheap trees end first.
        """
        if not limit:
            return True
        drawn = self.spent().completions
        if not self.in_flight:
            return drawn < limit
        to_come = self.in_flight * per_tree - sum(tree.cost.completions for tree in self.growing.values())
        return drawn + to_come + per_tree <= limit


async def run_units(
    tasks: Sequence[Task],
    make: MakeTree,
    forest: GrowingForest,
    progress: StageProgress,
    limits: Limits,
    per_tree: int = 0,
) -> StageProgress:
    """Makes the trees of ``tasks`` that the forest does not have yet.

    Args:
        per_tree: Upper bound on the completions of one tree, for ``limits.max_completions``.

    Raises:
        RunError: More units were given up than allowed. The finished ones are kept.
    """
    finished, ended = forest.finished(), asyncio.Event()
    progress.total = len(tasks)
    for task in tasks:
        if task.key in finished:
            progress.add(forest.read(task.key))

    async def unit(task: Task) -> None:
        for attempt in range(limits.infra_retries + 1):
            try:
                tree = await make(task)
            except InfraError as error:
                progress.last_error = str(error)
                if attempt == limits.infra_retries:
                    log.error("given up after %d attempts: %s", attempt + 1, error)
                    progress.failed += 1
                    forest.fail(task.key, str(error))
                    return
                log.warning("attempt %d failed, and is followed by another one: %s", attempt + 1, error)
                progress.retried += 1
                await asyncio.sleep(_BACKOFF.pause_s(attempt))
                continue
            if tree is None:
                progress.skipped += 1
                return
            forest.write(tree)
            progress.add(tree)
            return

    async def work(task: Task) -> None:
        try:
            with about(task=task.key):
                await unit(task)
        finally:
            progress.in_flight -= 1
            progress.growing.pop(task.key, None)
            ended.set()
        limits.check(progress.failed, len(tasks), progress.last_error)

    try:
        async with asyncio.TaskGroup() as group:
            for task in tasks:
                if task.key in finished:
                    continue
                while progress.in_flight and (
                    progress.in_flight >= limits.in_flight or not progress.has_budget(limits.max_completions, per_tree)
                ):
                    ended.clear()
                    await ended.wait()
                if not progress.has_budget(limits.max_completions, per_tree):
                    progress.skipped += 1
                    continue
                progress.in_flight += 1
                group.create_task(work(task))
    except ExceptionGroup as failed:
        raise failed.exceptions[0] from failed
    return progress


def as_dict(progress: StageProgress) -> dict[str, Any]:
    """Returns progress as plain data: with seconds since its start, and the cost of the growing trees so far."""
    left_out = ("growing", "cost", "events", "env_steps_executed")
    plain = {f.name: getattr(progress, f.name) for f in fields(progress) if f.name not in left_out}
    events = {**progress.events, "env_steps_executed": progress.env_steps_executed}
    return {**plain, "counts": stored_counts(progress.spent(), events), "seconds": time.time() - progress.started}


def merged(parts: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Returns the progress of a stage from that of its parts, each as `as_dict` has it."""
    sums = ("total", "done", "failed", "skipped", "in_flight", "retried", "successes", "identical")
    return {
        **{name: sum(part[name] for part in parts) for name in sums},
        "started": min(part["started"] for part in parts),
        "last_error": next((part["last_error"] for part in parts if part["last_error"]), ""),
        "regrown": [key for part in parts for key in part["regrown"]],
        "again": Again.sum(Again(*part["again"]) for part in parts),
        "counts": dict(sum((Counter(part["counts"]) for part in parts), Counter())),
        "seconds": max(part["seconds"] for part in parts),
        "waiting": {name: why for part in parts for name, why in part.get("waiting", {}).items()},
    }
