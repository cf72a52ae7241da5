"""Why a training does not step: its workers have no place, or one of them hangs."""

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from agentr.cluster.causes import Cause, CauseKind
from agentr.cluster.checks import check_places
from agentr.cluster.places import Places
from agentr.cluster.roles import Role
from agentr.errors import DataError
from agentr.store.files import read_json
from agentr.train.job import TrainJob


@dataclass(frozen=True)
class AwaitedTraining:
    """A training that is waited for.

    Attributes:
        said: How far it is.
    """

    job: TrainJob
    said: str


def check_training(training: AwaitedTraining, places: Places) -> Iterator[Cause]:
    """Yields why a training does not step; always something."""
    job = training.job
    log = job.out / "worker.log"
    said = {found["rank"]: found for path in sorted(job.work.glob("stalled-*.json")) if (found := _read(path))}
    hint = f"Of several, look at the one whose stack is another one: the others wait for it. All stacks are in {log}. "
    hint += (
        f"After {job.stall_s:g} s a worker ends, and the training goes on from its last checkpoint "
        "(trainer.max_failures)."
    )
    for rank, found in said.items():
        evidence = (
            f"{training.said}; process {found['pid']} on {found['host']}, for {found['seconds']:.0f} s in "
            f"{' < '.join(found['stack'])}"
        )
        yield Cause(CauseKind.rank_stuck, f"rank {rank} does not step", evidence, hint)
    if said:
        for rank in range(job.trainer.workers):
            if rank not in said:
                evidence = (
                    f"{training.said}; it does not even report where it is, while the others do: it was stopped, or "
                    "its node is cut off"
                )
                yield Cause(CauseKind.rank_stuck, f"rank {rank} does not step", evidence, hint)
        return
    pending = _pending(job.trainer.workers)
    if pending:
        yield check_places(
            places, Role.trainer, "the trainer's group of workers", f"its placement group is PENDING ({pending})"
        )
        return
    evidence = f"{training.said}; no worker says that a step takes longer than {job.watch_s:g} s"
    hint = (
        f"Its workers may still be starting, or steps be slow: see {log}, trainer.start_timeout_s and train.log_every."
    )
    yield Cause(CauseKind.rank_stuck, "the trainer does not step", evidence, hint)


def _read(path: Any) -> dict[str, Any] | None:
    with suppress(OSError, DataError):
        return read_json(path)
    return None


def _pending(workers: int) -> str:
    """What Ray says of a placement group of so many workers that it has no place for; empty if there is none."""
    import ray

    if not ray.is_initialized():
        return ""
    table: dict[str, dict[str, Any]] = ray.util.placement_group_table()
    waiting = (
        group
        for group in table.values()
        if group["state"] in ("PENDING", "RESCHEDULING") and len(group["bundles"]) == workers
    )
    return next((str(group["stats"]["scheduling_state"]) for group in waiting), "")
