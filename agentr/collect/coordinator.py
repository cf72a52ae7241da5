"""The coordinator: many trees in flight in one event loop.

Invariant: every unit of a stage ends either as a finished tree in the forest, exactly once, or as a recorded failure; nothing else. A
unit that fails for infrastructure reasons is tried again from its journal, ``infra_retries`` times, with growing pauses.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import asdict, dataclass, field

from agentr.errors import InfraError, RunError
from agentr.search.tree import Tree
from agentr.store.forest import Forest
from agentr.types import Task

Make = Callable[[Task], Awaitable[Tree | None]]


@dataclass
class Progress:
    """What one would like to see of a running stage."""

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

    def add(self, tree: Tree) -> None:
        self.done += 1
        self.successes += bool(tree.successes())
        for name, amount in tree.counts.items():
            self.counts[name] = self.counts.get(name, 0) + amount

    @property
    def expected_completions(self) -> float:
        """What the finished trees have drawn, and those that grow will have drawn if they are like them."""
        drawn = self.counts.get("completions", 0)
        return drawn + self.in_flight * drawn / max(1, self.done)


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
) -> Progress:
    """Makes the trees of ``tasks`` that the forest does not have yet.

    Args:
        make: Makes one tree; None means that there is nothing to make for this task.
        in_flight: Trees that grow at the same time.
        infra_retries: Attempts at a unit after an infrastructure failure.
        max_failed: Share of the tasks that may be given up.
        max_completions: No tree is begun once the finished ones have drawn so many completions, together with what those that grow will
            draw if they are like them; 0 means no limit.

    Raises:
        RunError: More units were given up than allowed. The finished ones are kept.
    """
    finished = forest.finished()
    progress.total = len(tasks)
    for task in tasks:
        if task.key in finished:
            progress.add(forest.read(task.key))
    queue = iter([t for t in tasks if t.key not in finished])

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

    async def worker() -> None:
        for task in queue:
            if 0 < max_completions <= progress.expected_completions:
                progress.skipped += 1
                continue
            progress.in_flight += 1
            try:
                await unit(task)
            finally:
                progress.in_flight -= 1
            if progress.failed > max_failed * len(tasks):
                raise RunError(
                    f"{progress.failed} of {len(tasks)} units failed for infrastructure reasons; the last: {progress.last_error}",
                    hint="Mend the cause and start the same run again; finished units are kept.",
                )

    try:
        async with asyncio.TaskGroup() as group:
            for _ in range(max(1, min(in_flight, len(tasks)))):
                group.create_task(worker())
    except ExceptionGroup as failed:
        raise failed.exceptions[0] from failed
    return progress


def as_dict(progress: Progress) -> dict:
    """Progress as plain data, with seconds since its start."""
    return {**asdict(progress), "seconds": time.time() - progress.started}
