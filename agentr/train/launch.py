"""Trainings on a Ray cluster, for a driver that is connected to it."""

import contextlib
import json
import logging
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from agentr.config.identity import at_default, changed_keys, plain
from agentr.config.training import Share
from agentr.errors import ConfigError, RunError
from agentr.store.files import make_folder, read_json, write_json
from agentr.store.model_folder import require_model
from agentr.train.checkpoints import fingerprint
from agentr.train.group import TrainGroup
from agentr.train.job import TrainJob, TrainResult

log = logging.getLogger(__name__)

Report = Callable[[dict[str, Any]], None]


class Workers:
    """Workers that run trainings, started by the first one.

    They stay up between trainings, where they hold no GPU that engines take meanwhile: a start is ten seconds of
    imports. Belongs to a process that is connected to Ray; one training at a time.

    Args:
        folder: For Ray Train's bookkeeping; all nodes of the workers see it.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._group: TrainGroup | None = None

    def train(self, jobs: Sequence[TrainJob], progress: Report | None = None) -> list[TrainResult]:
        """Runs a chain of jobs and returns their results, in order. `TrainResult.checkpoint` is the folder of the
        trained model.

        A job may start from an earlier job's ``model``.

        Args:
            jobs: Jobs with equal ``trainer``. Finished ones are not repeated.
            progress: Called in another thread with each new line of ``metrics.jsonl`` and the job's name under ``job``.

        Raises:
            ConfigError, DataError, ModelError: A job cannot work; nothing was started.
            RunError: A job failed; the message gives the reason, and the folder keeps the last good checkpoint.
        """
        todo = [job for job in jobs if not job.done()]
        promised = {job.model for job in jobs}
        _check(todo, promised)
        for job in jobs:
            _claim(job, promised)
        if todo:
            with _followed(todo, progress):
                self._fit(todo)
        results = []
        for job in jobs:
            result = job.finished()
            if result is None:
                raise _failure(job)
            results.append(result)
        return results

    def close(self) -> None:
        """Ends the workers that wait; those that train end with the process's connection to Ray."""
        if self._group is not None:
            self._group.close()
        self._group = None

    def _fit(self, jobs: Sequence[TrainJob]) -> None:
        """Has jobs run by the workers, or by others if Ray Train's controller dies.
        Returns when there are results or ``failure.json``."""
        from ray.exceptions import ActorDiedError, ActorUnavailableError

        first = jobs[0]
        for left in reversed(range(first.trainer.max_failures + 1)):
            if self._group is not None and not self._group.takes(first):
                self.close()
            self._group = self._group or TrainGroup(first, self._folder)
            try:
                self._group.run(jobs)
            # its workers die with it; the next ones take their work over
            except (ActorDiedError, ActorUnavailableError) as error:
                if not left:
                    hint = "Start the same run again: it continues from its last checkpoint. See trainer.max_failures."
                    raise RunError(f"{first.title}: Ray Train's controller died", hint=hint) from error
                log.warning(
                    "%s: Ray Train's controller died; the training starts again from its last checkpoint.", first.name
                )
            else:
                if first.trainer.use_gpu and first.trainer.share is not Share.together:
                    self.close()  # engines take the GPUs, or nodes that cost money are free until the next training
                return


def _check(jobs: Sequence[TrainJob], promised: set[Path]) -> None:
    """Checks everything that can be known before a worker group is started."""
    for job in jobs:
        job.validate()
        job.require_rows()
        if job.start not in promised:
            require_model(job.start, "the start checkpoint")
        if job.trainer != jobs[0].trainer:
            raise ConfigError(
                f"{job.title} and {jobs[0].title} need different workers.", hint="Train them one after the other."
            )


def _claim(job: TrainJob, promised: set[Path]) -> None:
    """Prepares the folder of a job for an attempt.

    Raises:
        RunError: The folder holds the work of another job, finished or not.
    """
    make_folder(job.out)
    job.failure.unlink(missing_ok=True)
    path = job.out / "job.json"
    # There is no fingerprint of a start checkpoint that an earlier job has yet to make, or that was deleted since.
    start = None if job.start in promised or not job.start.exists() else fingerprint(job.start)
    ours = {"start": start, **job.made_of()}
    theirs = read_json(path) if path.exists() else ours
    unknown = {"start"} if None in (start, theirs.get("start")) else set()
    changes = changed_keys(theirs, plain(ours), at_default(job.config))
    changed = sorted({change.partition(":")[0] for change in changes} - unknown)
    if changed:
        hint = "Delete the folder to train anew, or restore the values."
        raise RunError(f"{job.out} holds a job with another {', '.join(changed)}.", hint=hint)
    write_json(path, {**ours, "start": start or theirs.get("start")})


def _failure(job: TrainJob) -> RunError:
    """Reads the failure that the workers recorded for a job."""
    try:
        left = json.loads(job.failure.read_text(encoding="utf-8"))
    except (OSError, json.JSONDecodeError):
        return RunError(f"{job.title} ended without a result.", hint=f"See {job.out / 'worker.log'}.")
    return RunError(f"{job.title} failed: {left['message']}", hint=left["hint"])


@contextlib.contextmanager
def _followed(jobs: Sequence[TrainJob], progress: Report | None, every_s: float = 0.5) -> Iterator[None]:
    """Hands each new line of the jobs' metrics to ``progress`` while the body runs."""
    if progress is None:
        yield
        return
    stop = threading.Event()
    seen = {job.out: _last_step(job) for job in jobs}

    def follow() -> None:
        done = False
        while not done:
            done = stop.wait(every_s)
            for job in jobs:
                for line in job.read_metrics():
                    if line["step"] > seen[job.out]:
                        seen[job.out] = line["step"]
                        progress({"job": job.name, **line})

    thread = threading.Thread(target=follow, name="train-progress", daemon=True)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join(timeout=10)


def _last_step(job: TrainJob) -> int:
    return max((line["step"] for line in job.read_metrics()), default=0)
