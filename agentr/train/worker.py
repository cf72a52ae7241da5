"""The main function of a worker: prepares the process once, then runs one job after another.

Errors that a repetition would not cure (``AgentrError``) end the chain without killing the worker, because Ray Train
restarts a failed worker group whatever the reason, and each restart costs half a minute of imports. Such errors are
left in ``failure.json`` for the driver.
"""

import contextlib
import logging
import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from agentr.cluster.draining import leave_in_time
from agentr.cpu import keep_freed_memory
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

#: What says that a checkpoint is whole, below the folder of a job.
SAVED = f"{PREFIX}*/checkpoints/*/complete.json"


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

    To be called once per process, before transformers or DeepSpeed is imported.
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


def run_chain(config: dict[str, Any]) -> None:
    """Runs the jobs in ``config["jobs"]`` in order, skipping finished ones. Ray Train's train loop."""
    import ray.train

    started = time.time()
    jobs: list[TrainJob] = config["jobs"]
    rank = ray.train.get_context().get_world_rank()
    suffix = "" if rank == 0 else f".{rank}"
    ready = False
    # TRL would import it for reports that are not made here; it leaves two folders in /tmp when its process is ended by
    # Ray.
    sys.modules["wandb"] = None  # type: ignore[assignment]
    leave_in_time(jobs[0].nodes, jobs[0].trainer.use_gpu, lambda: [sorted(job.out.glob(SAVED)) for job in jobs])
    for job in jobs:
        with logged_to(job.out / f"worker{suffix}.log"):
            try:
                if job.finished() and job.model.exists():
                    continue
                if not ready:
                    prepare_process(job.trainer.use_gpu, job.trainer.threads)
                    ready = True
                else:
                    register_deepspeed(job.trainer.use_gpu)
                from agentr.train.run import run_job

                now = time.time()
                log.info(
                    "pid %d ready after %.1f s; the driver asked %.1f s ago.",
                    os.getpid(),
                    now - started,
                    now - config["asked"],
                )
                result = run_job(job)
                log.info("Done after %.1f s: %s", time.time() - started, result)
            except AgentrError as error:
                log.exception("The job %s failed.", job.name)
                if rank == 0:
                    write_json(
                        job.failure, {"error": type(error).__name__, "message": error.message, "hint": error.hint}
                    )
                return
