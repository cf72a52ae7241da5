"""Progress reports of a running training job."""

from __future__ import annotations

import json
import math
import shutil
import time
from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import torch.distributed as dist
from transformers import TrainerCallback

from agentr.errors import RunError
from agentr.store.files import append_line, write_bytes
from agentr.train.checkpoints import latest
from agentr.train.data import BatchPlan
from agentr.train.job import TrainJob

if TYPE_CHECKING:
    from agentr.train.trainer import JobTrainer


class JobProgress(ABC, TrainerCallback):
    """A callback that writes ``metrics.jsonl``, and stops the training when the loss is no longer a number.

    A resumed job drops the lines after its checkpoint, so each step is reported once.

    Args:
        resumed_at: The last step, as ``metrics.jsonl`` counts them, before the checkpoint that the job goes on from.
        metrics: Names in ``metrics.jsonl`` of the loss's own metrics, mapped to TRL's names (`LossModule.METRICS`).
    """

    def __init__(self, job: TrainJob, resumed_at: int, trainer: JobTrainer, metrics: Mapping[str, str]) -> None:
        self.job, self.trainer, self.metrics = job, trainer, metrics
        kept = [line for line in job.read_metrics() if line["step"] <= resumed_at]
        self.seconds: float = kept[-1]["seconds"] if kept else 0.0
        if dist.get_rank() == 0:
            write_bytes(job.metrics, "".join(json.dumps(line) + "\n" for line in kept).encode())

    @abstractmethod
    def line(self, state: Any, logs: Mapping[str, float]) -> dict[str, Any]:
        """Returns what a line says besides loss, rate, norm, seconds and the loss's own metrics: the step, at least."""

    def on_train_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        self.trainer.continue_window()

    def on_step_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        self.started = time.perf_counter()

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        self.seconds += time.perf_counter() - self.started
        require_finite(self.job, 0.0, self.trainer.grad_norm(), state.global_step)

    def on_log(self, args: Any, state: Any, control: Any, logs: dict[str, float] | None = None, **_: Any) -> None:
        if not logs or "loss" not in logs:
            return
        require_finite(self.job, logs["loss"], 0.0, state.global_step)
        if dist.get_rank() != 0:
            return
        line = {
            **self.line(state, logs),
            "loss": logs["loss"],
            "learning_rate": logs["learning_rate"],
            "grad_norm": logs.get("grad_norm"),
            "seconds": round(self.seconds, 3),
            **{name: logs[theirs] for name, theirs in self.metrics.items() if theirs in logs},
        }
        append_line(self.job.metrics, line)


class Progress(JobProgress):
    """The progress of a job whose rows are all there from the start."""

    def __init__(
        self, job: TrainJob, plan: BatchPlan, resumed_at: int, trainer: JobTrainer, metrics: Mapping[str, str]
    ) -> None:
        super().__init__(job, resumed_at, trainer, metrics)
        self.plan = plan
        self.logged = (self.seconds, int(plan.tokens_S[:resumed_at].sum()))

    def on_step_end(self, args: Any, state: Any, control: Any, **more: Any) -> None:
        super().on_step_end(args, state, control, **more)
        if state.global_step >= state.max_steps:
            # The last window is reported even if it is short; the state after the last step is the model itself.
            control.should_log, control.should_save = True, False

    def line(self, state: Any, logs: Mapping[str, float]) -> dict[str, Any]:
        tokens = int(self.plan.tokens_S[: state.global_step].sum())
        seconds, before = self.logged
        self.logged = (self.seconds, tokens)
        return {
            "step": state.global_step,
            "steps": state.max_steps,
            "token_accuracy": logs.get("mean_token_accuracy"),
            "entropy": logs.get("entropy"),
            "tokens": tokens,
            "tokens_per_second": round((tokens - before) / max(self.seconds - seconds, 1e-9), 1),
        }


def require_finite(job: TrainJob, loss: float, norm: float, step: int) -> None:
    """Stops the training if its loss or the norm of its gradients is no number, and drops the checkpoint whose weights
    gave them.

    Args:
        norm: DeepSpeed reports -1 or infinity where it is not a number, on all workers alike.

    Raises:
        RunError: It is not; the error names the last good checkpoint.
    """
    if not math.isfinite(loss) or not 0.0 <= norm < math.inf:
        shutil.rmtree(job.checkpoints / f"checkpoint-{step - 1}", ignore_errors=True)
        good = latest(job.checkpoints) or job.start
        hint = f"Lower train.learning_rate, or set train.bf16=false. The last good checkpoint is {good}."
        raise RunError(f"the loss is no longer a number at optimiser step {step}.", hint=hint)
