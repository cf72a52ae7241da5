"""The main function of a worker: prepares the process once, then runs one chain of jobs after another, which the
driver posts in the cluster's key-value store.

Errors that a repetition would not cure (``AgentrError``) end the chain without killing the worker, because Ray Train
restarts a failed worker group whatever the reason, and each restart costs half a minute of imports. Such errors are
left in ``failure.json`` for the driver.
"""

import contextlib
import logging
import os
import pickle
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from agentr.cluster.draining import leave_in_time
from agentr.cluster.ray_private import post, posted, take_down
from agentr.cpu import give_back_memory, keep_freed_memory
from agentr.errors import AgentrError
from agentr.store.files import make_folder, write_json
from agentr.store.working import PREFIX
from agentr.train.job import TrainJob

log = logging.getLogger(__name__)

#: Environment of a worker: no network, and no progress bars.
_ENVIRONMENT = {
    "HF_HUB_OFFLINE": "1",
    "HF_DATASETS_OFFLINE": "1",
    "HF_DATASETS_DISABLE_PROGRESS_BARS": "1",
    "TOKENIZERS_PARALLELISM": "false",
    "TRL_EXPERIMENTAL_SILENCE": "1",
    "ACCELERATE_USE_DEEPSPEED": "true",
}

#: Seconds between two looks for the next order.
_LOOK_S = 0.1

#: What says that a checkpoint is whole, below the folder of a job.
SAVED = f"{PREFIX}*/checkpoints/*/complete.json"


@dataclass(frozen=True)
class Order:
    """A chain of jobs; none tells the workers to end.

    Attributes:
        number: Counted from 1.
        asked: When it was posted, in seconds since 1970.
    """

    number: int = 0
    jobs: tuple[TrainJob, ...] = ()
    asked: float = field(default_factory=time.time)


class Orders:
    """What the workers of a group are to do: one order, which the next one replaces once all its jobs are finished.

    Workers that Ray Train starts again find the order that their predecessors were at.
    """

    def __init__(self, key: str) -> None:
        self.key, self._starts = key, f"{key}/starts"

    def post(self, order: Order) -> None:
        post(self.key, pickle.dumps(order))

    def after(self, number: int) -> Order:
        """Waits for an order with a higher number."""
        while True:
            found = posted(self.key)
            order = pickle.loads(found) if found is not None else Order()
            if order.number > number:
                return order
            time.sleep(_LOOK_S)

    def started(self) -> None:
        """Notes that the workers were started, or started again."""
        post(self._starts, str(self.starts() + 1).encode())

    def starts(self) -> int:
        """How often the workers were started."""
        return int(posted(self._starts) or 0)

    def remove(self) -> None:
        take_down(self.key)
        take_down(self._starts)


@contextlib.contextmanager
def logged_to(path: Path) -> Iterator[None]:
    """Appends all output of this process, also of native libraries, to a file."""
    make_folder(path.parent)
    sys.stdout.flush()
    sys.stderr.flush()
    saved = os.dup(1), os.dup(2)
    try:
        with path.open("a", encoding="utf-8") as file:
            os.dup2(file.fileno(), 1)
            os.dup2(file.fileno(), 2)
        with (
            os.fdopen(1, "w", buffering=1, encoding="utf-8", closefd=False) as out,
            os.fdopen(2, "w", buffering=1, encoding="utf-8", closefd=False) as err,
            contextlib.redirect_stdout(out),
            contextlib.redirect_stderr(err),
        ):
            handler = logging.StreamHandler(err)
            handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
            logger = logging.getLogger("agentr")
            logger.addHandler(handler)
            logger.propagate = False  # Ray Train's handlers on the root logger would write every line again
            try:
                yield
            finally:
                logger.propagate = True
                logger.removeHandler(handler)
    # also after an error: else whoever reports it would write into this file, and the terminal would stay silent
    finally:
        for target, source in zip((1, 2), saved, strict=True):
            os.dup2(source, target)
            os.close(source)


def prepare_process(use_gpu: bool, threads: int) -> None:
    """Sets up threads, environment and process group.

    To be called before each job: for the first time before transformers or DeepSpeed is imported.
    """
    os.environ.update(_ENVIRONMENT)
    if not use_gpu:
        os.environ["DS_ACCELERATOR"] = "cpu"
        keep_freed_memory()
    import torch

    if not use_gpu:
        torch.set_num_threads(threads)
    import deepspeed.ops

    # DeepSpeed would compile its shared-memory collectives here: half a minute and a C++ compiler, to speed up what
    # gloo does well.
    deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False
    register_deepspeed(use_gpu)


def register_deepspeed(use_gpu: bool) -> None:
    """Registers the process group with accelerate as DeepSpeed's.

    Without it, several workers on a CPU fail, and so does bf16 there. Accelerate keeps the DeepSpeed configuration of
    the first trainer for the life of the process, so each job registers afresh.
    """
    from accelerate.state import AcceleratorState, PartialState

    AcceleratorState._reset_state(reset_partial_state=True)
    PartialState(backend="nccl" if use_gpu else "gloo")


def serve(config: dict[str, Any]) -> None:
    """Runs one chain of jobs after another, until it is told that there are no more, or one fails. Ray Train's train
    loop.

    Args:
        config: The ``key`` of the `Orders`, and the ``nodes`` and ``use_gpu`` that all jobs have.
    """
    import ray.train

    rank, orders, jobs = ray.train.get_context().get_world_rank(), Orders(config["key"]), list[TrainJob]()
    if rank == 0:
        orders.started()
    # TRL would import it for reports that are not made here; it leaves two folders in /tmp when its process is ended by
    # Ray.
    sys.modules["wandb"] = None  # type: ignore[assignment]
    leave_in_time(config["nodes"], config["use_gpu"], lambda: [sorted(job.out.glob(SAVED)) for job in jobs])
    order = Order()
    while (order := orders.after(order.number)).jobs:
        jobs[:] = order.jobs
        if not all(_done(job, rank, order.asked) for job in jobs):
            return
        jobs.clear()


def _done(job: TrainJob, rank: int, asked: float) -> bool:
    """Runs a job, unless it is finished; returns whether it is now."""
    suffix = "" if rank == 0 else f".{rank}"
    with logged_to(job.out / f"worker{suffix}.log"):
        if job.done():
            return True
        began = time.time()
        try:
            prepare_process(job.trainer.use_gpu, job.trainer.threads)
            from agentr.train.run import run_job

            now = time.time()
            log.info("pid %d ready after %.1f s; the driver asked %.1f s ago.", os.getpid(), now - began, now - asked)
            result = run_job(job)
            log.info("Done after %.1f s: %s", time.time() - began, result)
        except AgentrError as error:
            log.exception("The job %s failed.", job.name)
            if rank == 0:
                write_json(job.failure, {"error": type(error).__name__, "message": error.message, "hint": error.hint})
            return False
        finally:
            give_back_memory()
    return True
