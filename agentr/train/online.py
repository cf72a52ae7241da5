"""One online job in one worker: waits for the rollouts of each step, trains on them, publishes the weights."""

import contextlib
import shutil
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, cast

import torch
import torch.distributed as dist
from transformers import PreTrainedModel

from agentr.errors import DataError, RunError
from agentr.store.dataset import read_manifest, read_rows
from agentr.store.files import disk, remove
from agentr.store.rows import Rollout
from agentr.train.checkpoints import latest
from agentr.train.grpo import METRICS, AgentGRPOTrainer, make_trainer
from agentr.train.job import TrainResult
from agentr.train.model import load_start, require_vocabulary, save_model
from agentr.train.online_job import OnlineJob
from agentr.train.progress import JobProgress
from agentr.train.stall import expect_progress

#: Seconds between two looks for the next step's rows.
POLL_S = 0.02


class EndOfSteps(Exception):
    """There is no further step."""


class StepRollouts(Iterator[list[Rollout]]):
    """The rollouts of one step after another. Waits for those that are not there yet.

    Attributes:
        done: The last step that was handed out.
    """

    def __init__(self, job: OnlineJob, after: int, model: PreTrainedModel) -> None:
        self.job, self.done, self._model = job, after, model

    def __next__(self) -> list[Rollout]:
        if self.done >= (self.job.last or self.job.steps):
            raise EndOfSteps
        number = self.done + 1
        while not self.job.fed(number):
            expect_progress(self.job)
            stopped = self.job.stopped()
            if stopped is not None and stopped < number:
                raise EndOfSteps
            if self.job.abandoned.exists():
                raise RunError(f"the collection of online step {number} was given up")
            time.sleep(POLL_S)
        rows = cast("list[Rollout]", read_rows(self.job.rows_of(number)))
        self._check(rows, number)
        self.done = number
        return rows

    def _check(self, rows: list[Rollout], number: int) -> None:
        wrong = next((row for row in rows if not isinstance(row, Rollout)), None)
        if wrong is not None:
            raise DataError(f"{self.job.rows_of(number)} holds {type(wrong).__name__}, and rollouts are wanted")
        too_long = sum(row.longest > self.job.config.max_length for row in rows)
        if too_long:
            hint = "Raise train.max_length, or lower build.max_length."
            raise DataError(
                f"{too_long} rollouts of online step {number} exceed train.max_length {self.job.config.max_length}.",
                hint=hint,
            )
        require_vocabulary(self._model, max((max(row.input_ids) for row in rows), default=0), self.job.start)


def run_online(job: OnlineJob) -> TrainResult:
    """Runs or resumes an online job in this process; see ``agentr.train.run.run_job``."""
    model, tokenizer, _ = load_start(job)
    dtype: torch.dtype = getattr(torch, job.dtype)
    updates = job.config.grpo.updates
    found: list[Path | None] = [_last(job) if dist.get_rank() == 0 else None]
    dist.broadcast_object_list(found, src=0)
    resume = found[0]
    trained = int(resume.name.rpartition("-")[2]) // updates if resume else 0
    with contextlib.closing(make_trainer(job, StepRollouts(job, trained, model), model, tokenizer)) as trainer:
        progress = StepProgress(job, trained, trainer, dtype)
        trainer.add_callback(progress)
        with contextlib.suppress(EndOfSteps):
            trainer.train(resume_from_checkpoint=str(resume) if resume else None)
        save_model(trainer, dtype, job.work / job.model.name)
    result = _result(job, progress.seconds)
    if trainer.args.should_save:
        job.finish(result)
    dist.barrier()
    return result


def _last(job: OnlineJob) -> Path | None:
    """Returns the checkpoint to go on from: one from which weights that are waited for, and are gone, are made
    again."""
    missing = job.missing()
    return latest(job.checkpoints, None if missing is None else missing * job.config.grpo.updates)


def _agreed(found: bool) -> bool:
    """Returns what the first worker found: another one looks at the files a moment later, and all have to publish or
    none."""
    said = [found]
    dist.broadcast_object_list(said, src=0)
    return said[0]


class StepProgress(JobProgress):
    """The progress of an online job, which publishes the weights after each step."""

    job: OnlineJob

    def __init__(self, job: OnlineJob, resumed_at: int, trainer: AgentGRPOTrainer, dtype: torch.dtype) -> None:
        super().__init__(job, resumed_at, trainer, METRICS)
        self.dtype = dtype

    def line(self, state: Any, logs: Mapping[str, float]) -> dict[str, Any]:
        return {"step": state.global_step // self.job.config.grpo.updates, "steps": self.job.steps}

    def on_train_begin(self, args: Any, state: Any, control: Any, **more: Any) -> None:
        super().on_train_begin(args, state, control, **more)
        number = state.global_step // self.job.config.grpo.updates
        if _agreed(number > 0 and self.job.missing() == number):
            self._publish(number)

    def on_step_end(self, args: Any, state: Any, control: Any, **more: Any) -> None:
        super().on_step_end(args, state, control, **more)
        updates = self.job.config.grpo.updates
        control.should_log = state.global_step % updates == 0
        control.should_save = False
        if state.global_step % updates:
            return
        number = state.global_step // updates
        if _agreed(not self.job.fed(number + 1 + self.job.staleness)):  # else this is a repetition, and nobody will ask
            self._publish(number)
        control.should_save = number % self.job.config.checkpoint_every == 0 and number < self.job.steps

    def _publish(self, number: int) -> None:
        folder = self.job.published(number)
        if dist.get_rank() == 0:
            self.job.require_current()
            folder.parent.mkdir(parents=True, exist_ok=True)
            # before the new ones are there: whoever sees them sees no more than are kept
            for old in folder.parent.glob("[0-9]*"):
                if int(old.name) < number - 1 - self.job.staleness:
                    shutil.rmtree(old, ignore_errors=True)
        if not folder.is_relative_to(self.job.out):  # in memory, which is this machine's alone
            save_model(self.trainer, self.dtype, folder, whole_model=False)
            return
        aside = self.job.work / f"published-{folder.name}"
        save_model(self.trainer, self.dtype, aside, whole_model=False)
        if dist.get_rank() == 0:
            remove(folder)
            disk.rename(aside, folder)


def _result(job: OnlineJob, seconds: float) -> TrainResult:
    lines = job.read_metrics()
    steps = lines[-1]["step"] if lines else 0
    fed = [read_manifest(job.rows_of(number)) for number in range(1, steps + 1)]
    tokens = sum(manifest["tokens"] for manifest in fed) * job.config.grpo.iterations
    return TrainResult(
        checkpoint=str(job.model),
        steps=steps * job.config.grpo.updates,
        epochs=float(job.config.grpo.iterations),
        rows=sum(manifest["rows"] for manifest in fed),
        tokens=tokens,
        trained_tokens=sum(manifest["trained_tokens"] for manifest in fed) * job.config.grpo.iterations,
        first_loss=lines[0]["loss"] if lines else 0.0,
        last_loss=lines[-1]["loss"] if lines else 0.0,
        seconds=round(seconds, 3),
        tokens_per_second=round(tokens / max(seconds, 1e-9), 1),
        bf16=job.config.bf16,
    )
