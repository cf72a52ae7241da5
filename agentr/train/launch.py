"""Runs training jobs in a Ray Train worker group, from a driver that is connected to Ray.

Jobs resume without Ray Train's help: a job continues from the last sealed checkpoint in its folder, whoever starts
it again. Ray Train would resume by run name, so each attempt gets a name of its own, and Ray Train's bookkeeping is
thrown away afterwards.
"""

import contextlib
import json
import logging
import os
import shutil
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from agentr.cluster.failures import hint_of
from agentr.cluster.ray_private import trainer_without_idle_actors
from agentr.config.identity import at_default, changed_keys, plain
from agentr.cpu import OPENMP
from agentr.errors import ConfigError, RunError
from agentr.store.files import make_folder, read_json, write_json
from agentr.store.model_folder import require_model
from agentr.train.checkpoints import fingerprint
from agentr.train.job import TrainJob, TrainResult
from agentr.train.worker import run_chain

log = logging.getLogger(__name__)

Report = Callable[[dict[str, Any]], None]

#: CPUs that Ray books for a worker on a CPU. Training time-shares the machine with idle actors; if these had booked all
#: cores, a worker that needs a whole core would wait for ever.
_BOOKED_CPUS = 0.1

#: Attempts at starting a worker group before the stage fails (Ray's default is unlimited).
_START_ATTEMPTS = 2

#: Settings of Ray Train in the driver's environment, besides the start deadline (the default of 60 s is too short for
#: a busy machine).
_RAY_TRAIN = {
    # Ray Train replaces print() in workers, and so would log the pages of bytecode that dill prints into a buffer.
    "RAY_TRAIN_ENABLE_PRINT_PATCH": "0",
    # The watcher of preempted nodes is another process to start, and sealed checkpoints make it unnecessary.
    "RAY_TRAIN_ENABLE_PREEMPTION_WATCHER": "0",
}


def train(job: TrainJob, progress: Report | None = None) -> TrainResult:
    """Runs one job. See `train_many`."""
    return train_many([job], progress)[0]


def train_many(jobs: Sequence[TrainJob], progress: Report | None = None) -> list[TrainResult]:
    """Runs a chain of jobs in one worker group, to start it only once.

    A job may start from an earlier job's ``model``.

    Args:
        jobs: Jobs with equal ``trainer``. Finished ones are not repeated.
        progress: Called in another thread with each new line of ``metrics.jsonl`` and the job's name under ``job``.

    Returns:
        The results, in order. `TrainResult.checkpoint` is the folder of the trained model.

    Raises:
        ConfigError, DataError, ModelError: A job cannot work; nothing was started.
        RunError: A job failed; the message gives the reason, and the folder keeps the last good checkpoint.
    """
    if not jobs:
        return []
    todo = [job for job in jobs if not (job.finished() and job.model.exists())]
    promised = {job.model for job in jobs}
    _check(todo, promised)
    for job in jobs:
        _claim(job, promised)
    if todo:
        with _followed(todo, progress):
            _fit(todo)
    results = []
    for job in jobs:
        result = job.finished()
        if result is None:
            raise _failure(job)
        results.append(result)
    return results


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


def _fit(jobs: Sequence[TrainJob]) -> None:
    """Runs jobs in one Ray Train run, and in another one if its controller dies.
    Returns when the workers have ended, with results or with ``failure.json``."""
    from ray.exceptions import ActorDiedError, ActorUnavailableError

    for left in reversed(range(jobs[0].trainer.max_failures + 1)):
        try:
            _fit_once(jobs)
            return
        # its workers die with it; the next ones take their work over
        except (ActorDiedError, ActorUnavailableError) as error:
            if not left:
                hint = "Start the same run again: it continues from its last checkpoint. See trainer.max_failures."
                raise RunError(f"{jobs[0].title}: Ray Train's controller died", hint=hint) from error
            log.warning(
                "%s: Ray Train's controller died; the training starts again from its last checkpoint.", jobs[0].name
            )


def _fit_once(jobs: Sequence[TrainJob]) -> None:
    import ray
    from ray.train import FailureConfig, RunConfig, ScalingConfig
    from ray.train.torch import TorchConfig, TorchTrainer
    from ray.train.v2.api.exceptions import TrainingFailedError

    first = jobs[0]
    trainer = first.trainer
    resources: dict[str, float] = {"CPU": 1, "GPU": first.gpus} if trainer.use_gpu else {"CPU": _BOOKED_CPUS}
    there = ray.cluster_resources()
    if not there:
        hint = "Start the same run again: it continues from its last checkpoint."
        raise RunError(f"{first.title}: no node of the Ray cluster is alive", hint=hint)
    for kind, amount in resources.items():
        if there.get(kind, 0) < amount * trainer.workers:
            hint = "Lower trainer.workers, or add nodes."
            raise RunError(
                f"{first.title} needs {amount * trainer.workers:g} {kind}, the cluster has {there.get(kind, 0):g}.",
                hint=hint,
            )
    storage = first.out / f".ray-{first.epoch}"
    make_folder(storage)  # Ray Train would make all folders above it anew
    fit = (TorchTrainer if trainer.use_gpu else trainer_without_idle_actors())(
        run_chain,
        train_loop_config={"jobs": list(jobs), "asked": time.time()},
        torch_config=TorchConfig(backend="nccl" if trainer.use_gpu else "gloo"),
        scaling_config=ScalingConfig(
            num_workers=trainer.workers,
            use_gpu=trainer.use_gpu,
            resources_per_worker=resources,
            label_selector=dict(first.nodes) or None,
        ),
        run_config=RunConfig(
            name=f"{first.name}-{uuid.uuid4().hex[:8]}",
            storage_path=str(storage),
            worker_runtime_env={"env_vars": {} if trainer.use_gpu else OPENMP},
            failure_config=FailureConfig(
                max_failures=trainer.max_failures, controller_failure_limit=_START_ATTEMPTS - 1
            ),
        ),
    )
    os.environ.update(_RAY_TRAIN, RAY_TRAIN_WORKER_GROUP_START_TIMEOUT_S=str(trainer.start_timeout_s))
    try:
        fit.fit()
    except TrainingFailedError as error:
        unfinished = next((job for job in jobs if job.finished() is None), first)
        if unfinished.failure.exists():
            raise _failure(unfinished) from error
        cause = _cause(error)
        hint = f"{hint_of(cause)} See {unfinished.out / 'worker.log'}.".strip()
        raise RunError(f"{unfinished.title} failed: {cause.rstrip('.')}.", hint=hint) from error
    finally:
        for older in first.out.glob(".ray-*"):
            if older <= storage:
                shutil.rmtree(older, ignore_errors=True)


def _cause(error: BaseException) -> str:
    """Returns the last line of the error that ended the group, not of one that followed from another worker's death."""
    failures = list(getattr(error, "worker_failures", {}).values()) or [getattr(error, "controller_failure", error)]
    texts = [str(failure).strip() for failure in failures]
    # When one worker dies, the others fail in the collective that they were waiting in.
    own = [text for text in texts if "gloo" not in text and "Connection" not in text] or texts
    lines = [line.strip() for line in own[0].splitlines() if line.strip()]
    return lines[-1] if lines else type(error).__name__


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
