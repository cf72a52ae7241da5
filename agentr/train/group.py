"""A Ray Train worker group that takes one chain of jobs after another.

Jobs resume without Ray Train's help: a job continues from the last sealed checkpoint in its folder, whoever starts
it again. Ray Train would resume by run name, so each group gets a name of its own, and Ray Train's bookkeeping is
thrown away afterwards.
"""

import os
import shutil
import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from agentr.background import Beside
from agentr.cluster.failures import hint_of
from agentr.cluster.ray_private import trainer_without_idle_actors
from agentr.cpu import OPENMP
from agentr.errors import RunError
from agentr.store.files import make_folder
from agentr.train.job import TrainJob
from agentr.train.worker import Order, Orders, serve

#: CPUs that Ray books for a worker on a CPU. Training time-shares the machine with idle actors; if these had booked all
#: cores, a worker that needs a whole core would wait for ever.
_BOOKED_CPUS = 0.1

#: Attempts at starting a worker group before the stage fails (Ray's default is unlimited).
_START_ATTEMPTS = 2

#: Seconds between two looks whether the jobs are finished.
_LOOK_S = 0.1

#: Seconds in which idle workers end.
_END_S = 30.0

#: Settings of Ray Train in the driver's environment, besides the start deadline (the default of 60 s is too short for
#: a busy machine).
_RAY_TRAIN = {
    # Ray Train replaces print() in workers, and so would log the pages of bytecode that dill prints into a buffer.
    "RAY_TRAIN_ENABLE_PRINT_PATCH": "0",
    # The watcher of preempted nodes is another process to start, and sealed checkpoints make it unnecessary.
    "RAY_TRAIN_ENABLE_PREEMPTION_WATCHER": "0",
}


class TrainGroup:
    """One Ray Train run. Its workers wait for orders between trainings.

    Args:
        first: A job whose workers, nodes and GPUs all its jobs have.
        folder: For Ray Train's bookkeeping, whose names begin with ``.ray-``; all nodes of the workers see it.

    Raises:
        RunError: The cluster is too small for it, or dead.
    """

    def __init__(self, first: TrainJob, folder: Path) -> None:
        _require_room(first)
        self._first = first
        self._name = f"{first.name}-{uuid.uuid4().hex[:8]}"
        self._storage = folder / f".ray-{self._name}"
        self._orders = Orders(f"agentr/{self._name}")
        self._number, self._idle = 0, True
        self._fit: Beside[None] | None = None

    def takes(self, job: TrainJob) -> bool:
        """Whether it lives and waits, and its workers are those of a job. One whose workers had to be started again
        takes no more: ``trainer.max_failures`` is counted for each training."""
        ours, wanted = ((each.trainer, each.nodes, each.gpus) for each in (self._first, job))
        waits = self._idle and self._fit is not None and not self._fit.wait(0.0)
        return waits and ours == wanted and self._orders.starts() == 1

    def run(self, jobs: Sequence[TrainJob]) -> None:
        """Has a chain of jobs run. Returns when they are finished, or when the workers have ended, of which one may
        have left ``failure.json``.

        Raises:
            RunError: Workers could not be started, or died too often.
            RayError: Ray Train's controller died.
        """
        from ray.train.v2.api.exceptions import TrainingFailedError

        self._number, self._idle = self._number + 1, False
        self._orders.post(Order(self._number, tuple(jobs)))
        # In a thread of its own: in the main one, Ray Train would end the process at a signal that is this process's to
        # handle.
        self._fit = self._fit or Beside(self._start)
        while not self._fit.wait(_LOOK_S):
            if all(job.done() for job in jobs):
                break
        self._idle = True
        try:
            self._fit.ended()
        except TrainingFailedError as error:
            unfinished = next((job for job in jobs if job.finished() is None), jobs[0])
            if unfinished.failure.exists():
                return
            cause = cause_in(error)
            hint = f"{hint_of(cause)} See {unfinished.out / 'worker.log'}.".strip()
            raise RunError(f"{unfinished.title} failed: {cause.rstrip('.')}.", hint=hint) from error

    def close(self) -> None:
        """Ends the workers, if they wait; those that train end with this process's connection to Ray."""
        if self._fit is not None and self._idle and not self._fit.wait(0.0):
            self._orders.post(Order(self._number + 1))
            self._fit.wait(_END_S)
        self._orders.remove()
        shutil.rmtree(self._storage, ignore_errors=True)

    def _start(self) -> None:
        from ray.train import FailureConfig, RunConfig, ScalingConfig
        from ray.train.torch import TorchConfig, TorchTrainer

        first, trainer = self._first, self._first.trainer
        for left in self._storage.parent.glob(".ray-*"):  # of a driver that was killed
            shutil.rmtree(left, ignore_errors=True)
        make_folder(self._storage)  # Ray Train would make all folders above it anew
        fit = (TorchTrainer if trainer.use_gpu else trainer_without_idle_actors())(
            serve,
            train_loop_config={"key": self._orders.key, "nodes": dict(first.nodes), "use_gpu": trainer.use_gpu},
            torch_config=TorchConfig(backend="nccl" if trainer.use_gpu else "gloo"),
            scaling_config=ScalingConfig(
                num_workers=trainer.workers,
                use_gpu=trainer.use_gpu,
                resources_per_worker=_resources(first),
                label_selector=dict(first.nodes) or None,
            ),
            run_config=RunConfig(
                name=self._name,
                storage_path=str(self._storage),
                worker_runtime_env={"env_vars": {} if trainer.use_gpu else OPENMP},
                failure_config=FailureConfig(
                    max_failures=trainer.max_failures, controller_failure_limit=_START_ATTEMPTS - 1
                ),
            ),
        )
        os.environ.update(_RAY_TRAIN, RAY_TRAIN_WORKER_GROUP_START_TIMEOUT_S=str(trainer.start_timeout_s))
        fit.fit()


def _resources(job: TrainJob) -> dict[str, float]:
    """What Ray books for a worker."""
    return {"CPU": 1, "GPU": job.gpus} if job.trainer.use_gpu else {"CPU": _BOOKED_CPUS}


def _require_room(job: TrainJob) -> None:
    import ray

    there = ray.cluster_resources()
    if not there:
        hint = "Start the same run again: it continues from its last checkpoint."
        raise RunError(f"{job.title}: no node of the Ray cluster is alive", hint=hint)
    for kind, amount in _resources(job).items():
        wanted = amount * job.trainer.workers
        if there.get(kind, 0) < wanted:
            hint = "Lower trainer.workers, or add nodes."
            raise RunError(f"{job.title} needs {wanted:g} {kind}, the cluster has {there.get(kind, 0):g}.", hint=hint)


def cause_in(error: BaseException) -> str:
    """Returns the last line of the error that ended the group, not of one that followed from another worker's death."""
    failures: list[Any] = list(getattr(error, "worker_failures", {}).values())
    texts = [str(failure).strip() for failure in failures or [getattr(error, "controller_failure", error)]]
    # When one worker dies, the others fail in the collective that they were waiting in.
    own = [text for text in texts if "gloo" not in text and "Connection" not in text] or texts
    lines = [line.strip() for line in own[0].splitlines() if line.strip()]
    return lines[-1] if lines else type(error).__name__
