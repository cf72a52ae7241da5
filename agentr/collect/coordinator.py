"""The coordinator: many trees in flight in one event loop.

Invariant: every unit of a stage ends either as a finished tree in the forest, exactly once, or as a recorded failure; nothing else. A
unit that fails for infrastructure reasons is tried again from its journal, ``infra_retries`` times, with growing pauses.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field, fields
from typing import Any

from agentr.errors import InfraError, RunError
from agentr.search.tree import Tree
from agentr.store.forest import Forest
from agentr.types import Task

Make = Callable[[Task], Awaitable[Tree | None]]


@dataclass
class Progress:
    """What one would like to see of a running stage.

    Attributes:
        counts: What the finished trees cost (:attr:`Tree.counts`, summed).
        growing: The trees that are not finished, by their task's key.
    """

    total: int = 0
    done: int = 0
    failed: int = 0
    skipped: int = 0
    in_flight: int = 0
    retried: int = 0
    successes: int = 0
    counts: dict[str, int] = field(default_factory=dict)
    started: float = field(default_factory=time.time)
    last_error: str = ""
    growing: dict[str, Tree] = field(default_factory=dict)

    def begin(self, tree: Tree) -> None:
        self.growing[tree.task.key] = tree

    def add(self, tree: Tree) -> None:
        self.done += 1
        self.successes += bool(tree.successes())
        for name, amount in tree.counts.items():
            self.counts[name] = self.counts.get(name, 0) + amount

    def spent(self) -> dict[str, int]:
        """``counts`` with those of the growing trees so far."""
        total = Counter(self.counts)
        for tree in self.growing.values():
            total.update(tree.counts)
        return dict(total)

    def fits(self, limit: int, most: int) -> bool:
        """Whether one more tree can be begun: all together draw at most ``limit`` completions (0: no limit), or less than one tree more.

        Args:
            most: Completions that no tree exceeds. What finished trees took would say too little of the others: cheap trees end first.
        """
        drawn = self.spent().get("completions", 0)
        if not limit or not self.in_flight:
            return not limit or drawn < limit
        to_come = self.in_flight * most - sum(tree.counts.get("completions", 0) for tree in self.growing.values())
        return drawn + to_come + most <= limit


async def run_units(
    tasks: Sequence[Task],
    make: Make,
    forest: Forest,
    progress: Progress,
    *,
    in_flight: int,
    infra_retries: int,
    max_failed: float,
    max_completions: int = 0,
    most: int = 0,
) -> Progress:
    """Makes the trees of ``tasks`` that the forest does not have yet.

    Args:
        make: Makes one tree; None means that there is nothing to make for this task.
        in_flight: Trees that grow at the same time.
        infra_retries: Attempts at a unit after an infrastructure failure.
        max_failed: Share of the tasks that may be given up.
        max_completions: No tree is begun that might not fit in (:meth:`Progress.fits`); 0 means no limit.
        most: Completions that no tree exceeds.

    Raises:
        RunError: More units were given up than allowed. The finished ones are kept.
    """
    finished = forest.finished()
    progress.total = len(tasks)
    for task in tasks:
        if task.key in finished:
            progress.add(forest.read(task.key))

    async def unit(task: Task) -> None:
        for attempt in range(infra_retries + 1):
            try:
                tree = await make(task)
            except InfraError as error:
                progress.last_error = str(error)
                if attempt == infra_retries:
                    progress.failed += 1
                    forest.fail(task.key, str(error))
                    return
                progress.retried += 1
                await asyncio.sleep(min(30.0, 0.5 * 2**attempt))
                continue
            if tree is None:
                progress.skipped += 1
                return
            forest.write(tree)
            progress.add(tree)
            return

    async def work(task: Task) -> None:
        try:
            await unit(task)
        finally:
            progress.in_flight -= 1
            progress.growing.pop(task.key, None)
        if progress.failed > max_failed * len(tasks):
            raise RunError(
                f"{progress.failed} of {len(tasks)} units failed for infrastructure reasons; the last: {progress.last_error}",
                hint="Mend the cause and start the same run again; finished units are kept.",
            )

    try:
        async with asyncio.TaskGroup() as group:
            working: set[asyncio.Task[None]] = set()
            for task in tasks:
                if task.key in finished:
                    continue
                while working and (len(working) >= in_flight or not progress.fits(max_completions, most)):
                    working = (await asyncio.wait(working, return_when=asyncio.FIRST_COMPLETED))[1]
                if not progress.fits(max_completions, most):
                    progress.skipped += 1
                    continue
                progress.in_flight += 1
                working.add(group.create_task(work(task)))
    except ExceptionGroup as failed:
        raise failed.exceptions[0] from failed
    return progress


def as_dict(progress: Progress) -> dict[str, Any]:
    """Progress as plain data: with seconds since its start, and what the growing trees cost so far."""
    plain = {f.name: getattr(progress, f.name) for f in fields(progress) if f.name != "growing"}
    return {**plain, "counts": progress.spent(), "seconds": time.time() - progress.started}
