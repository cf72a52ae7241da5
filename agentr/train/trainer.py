"""The common base of all losses' trainers: TRL on a DeepSpeed ZeRO engine, in one worker.

TRL does not tokenise, template, truncate, pack or shuffle here: rows arrive as ids and masks and leave as batches.
The targets of every step are counted over all micro-batches and workers, and compared with the masks of the dataset.

Precision: with ``bf16``, decided by ``run_job``, DeepSpeed computes in bf16 and keeps float32 masters (bf16 alone has 8
bits: updates below 1/256 of a weight would vanish); else all is float32. The model is saved from the
masters, in the dtype of the start checkpoint.
"""

from __future__ import annotations

import json
import math
from collections import defaultdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist
import trl.trainer.utils
from transformers import PreTrainedModel, Trainer

from agentr.errors import RunError
from agentr.train.attention import NAME, takes_rows
from agentr.train.checkpoints import seal
from agentr.train.data import BatchPlan
from agentr.train.forward import Unpadded
from agentr.train.job import TrainJob
from agentr.train.stall import expect_progress

if TYPE_CHECKING:
    from deepspeed import DeepSpeedEngine


def learning_rate_factor(job: TrainJob, step: int, steps: int) -> float:
    """Returns the share of the peak learning rate at a step: a linear warm-up, then the schedule."""
    config = job.config
    warmup = math.ceil(config.warmup_ratio * steps)
    if step < warmup:
        return (step + 1) / warmup
    if config.schedule == "constant_with_warmup":
        return 1.0
    progress = min(1.0, (step - warmup) / max(1, steps - warmup))
    shape = 0.5 * (1.0 + math.cos(math.pi * progress)) if config.schedule == "cosine" else 1.0 - progress
    return config.min_lr_ratio + (1.0 - config.min_lr_ratio) * shape


def deepspeed_config(job: TrainJob, parameters: int) -> dict[str, Any]:
    """Returns DeepSpeed's configuration: ZeRO stage 2, with optimiser states and gradients split over the workers, or
    3, with the weights split, too.

    Transformers fills in "auto". The buckets are allocated up front; DeepSpeed's default of 5e8 elements would cost
    2 GB for a model of a million parameters.
    """
    bucket = min(parameters, 200_000_000)
    return {
        "zero_optimization": {
            "stage": job.trainer.zero,
            "overlap_comm": job.trainer.use_gpu,
            "reduce_bucket_size": bucket,
            "allgather_bucket_size": bucket,
        },
        # torch's AdamW: DeepSpeed's own needs a compiler, and was not faster on a CPU
        "zero_allow_untested_optimizer": True,
        "bf16": {"enabled": "auto"},
        "gradient_clipping": "auto",
        "gradient_accumulation_steps": "auto",
        "train_batch_size": "auto",
        "train_micro_batch_size_per_gpu": "auto",
    }


def common_arguments(job: TrainJob, steps: int, parameters: int) -> dict[str, Any]:
    """Returns the arguments of a job that TRL's configurations share.

    Args:
        steps: Optimiser steps.
    """
    config = job.config
    return {
        "output_dir": str(job.checkpoints),
        "deepspeed": deepspeed_config(job, parameters),
        "accelerator_config": {"use_configured_state": True},
        "use_cpu": not job.trainer.use_gpu,
        "bf16": bool(config.bf16),
        "max_steps": steps,
        "per_device_train_batch_size": config.micro_batch_size,
        "gradient_accumulation_steps": config.batch_size // (job.trainer.workers * config.micro_batch_size),
        "learning_rate": config.learning_rate,
        "weight_decay": config.weight_decay,
        "adam_beta2": config.adam_beta2,
        "max_grad_norm": config.max_grad_norm,
        "optim": "adamw_torch_fused",
        "gradient_checkpointing": config.gradient_checkpointing,
        "remove_unused_columns": False,
        "train_sampling_strategy": "sequential",
        "average_tokens_across_devices": True,
        "dataloader_pin_memory": job.trainer.use_gpu,
        "save_strategy": "steps",
        "save_steps": config.checkpoint_every,
        "save_total_limit": 2,  # a new one is sealed only after an old one was removed
        "logging_steps": config.log_every,
        "logging_first_step": True,
        "logging_nan_inf_filter": False,
        "report_to": "none",
        "disable_tqdm": True,
        "seed": config.seed,
    }


def score_targets_only() -> None:
    """Makes TRL project only targets through the output layer, on every device.

    Without Triton TRL projects every position and throws the rest away, to spare the compilers of some accelerators a
    change of shapes. On a CPU nothing is compiled, and with a vocabulary of 50,000 the rest was half of a step.
    """
    assert hasattr(trl.trainer.utils, "_use_triton"), (
        "TRL has changed: does add_fused_lm_head leave out what is no target?"
    )
    setattr(trl.trainer.utils, "_use_triton", lambda _device: True)  # noqa: B010 - private; the kernels have the name for themselves


class JobTrainer(Trainer):
    """A mixin for TRL's trainers: schedule, and sealed checkpoints. Comes before TRL's trainer among the bases.

    Attributes:
        behind: Whether rows go through the model behind one another; models whose attention does not allow that get
            them padded.
    """

    #: TRL's: values of each metric since the last line, for "train" and "eval".
    _metrics: dict[str, defaultdict[str, list[float]]]
    #: TRL's
    _tokenizer: Any

    def __init__(self, job: TrainJob, *, model: PreTrainedModel, **arguments: Any) -> None:
        score_targets_only()
        self.behind = takes_rows(model, job.config.max_length)
        if self.behind:
            model.set_attn_implementation(NAME)
        super().__init__(model=model, **arguments)
        self.job = job

    def create_scheduler(self, num_training_steps: int, optimizer: torch.optim.Optimizer | None = None):
        if self.lr_scheduler is None:
            target: Any = optimizer or self.optimizer
            self.lr_scheduler = torch.optim.lr_scheduler.LambdaLR(
                target, lambda step: learning_rate_factor(self.job, step, num_training_steps)
            )
            self._created_lr_scheduler = True
        return self.lr_scheduler

    def create_model_card(self, *_args: Any, **_kwargs: Any) -> None:
        """Writes no card, which would describe the start checkpoint's folder as a model of the Hub."""

    def engine(self) -> DeepSpeedEngine:
        """Returns the engine that runs the steps. Available once training has begun."""
        from deepspeed import DeepSpeedEngine

        assert isinstance(self.model_wrapped, DeepSpeedEngine), "training must run on DeepSpeed"
        assert self.model_wrapped.zero_optimization_stage() == self.job.trainer.zero
        return self.model_wrapped

    def close(self) -> None:
        """Lets go of the engine: its hooks on the gradients would keep weights and optimiser state as long as this
        process lives, which trains again."""
        if self.model_wrapped is not self.model:  # training has begun
            self.engine().destroy()

    def grad_norm(self) -> float:
        """Returns the norm of the last step's gradients over all workers; 0 if there was none."""
        norm = self.engine().get_global_grad_norm()
        return 0.0 if norm is None else float(norm)

    def training_step(
        self, model: torch.nn.Module, inputs: dict[str, Any], num_items_in_batch: Any = None
    ) -> torch.Tensor:
        expect_progress(self.job)
        return super().training_step(model, inputs, num_items_in_batch)

    def _save_checkpoint(self, model: torch.nn.Module, trial: Any) -> None:
        super()._save_checkpoint(model, trial)
        self._window(self.state.global_step).write_text(json.dumps(self._open_window()), encoding="utf-8")
        dist.barrier()
        if self.args.should_save:
            seal(self.job.checkpoints / f"checkpoint-{self.state.global_step}")

    def _window(self, step: int) -> Path:
        return self.job.checkpoints / f"checkpoint-{step}" / f"window-{dist.get_rank()}.json"

    def _open_window(self) -> dict[str, Any]:
        """Returns what was added up since the last line of ``metrics.jsonl``, of which transformers keeps nothing."""
        metrics = {name: list(map(float, values)) for name, values in self._metrics["train"].items()}
        return {"since": self._globalstep_last_logged, "loss": float(self._tr_loss), "metrics": metrics}

    def continue_window(self) -> None:
        """Goes on adding up from the checkpoint that the training was resumed from, so that its next line is about all
        its steps."""
        file = self._window(self.state.global_step)
        if not file.exists():  # not resumed, or from a checkpoint of a version that kept none
            return
        window = json.loads(file.read_text(encoding="utf-8"))
        self._globalstep_last_logged = window["since"]
        self._tr_loss += window["loss"]
        for name, values in window["metrics"].items():
            self._metrics["train"][name] += values


class PlannedTrainer(JobTrainer):
    """A trainer whose rows are all there from the start, with a check of their loss masks at every step."""

    def __init__(self, job: TrainJob, plan: BatchPlan, **arguments: Any) -> None:
        super().__init__(job, **arguments)
        self.plan = plan

    def unpadded(self, model: Any) -> Any:
        """Returns the model, or one that lets the padded rows it is given go through behind one another."""
        return Unpadded(model, self._tokenizer.pad_token_id or 0) if self.behind else model

    def training_step(
        self, model: torch.nn.Module, inputs: dict[str, Any], num_items_in_batch: Any = None
    ) -> torch.Tensor:
        expected = int(self.plan.targets_S[self.state.global_step])
        if int(num_items_in_batch) != expected:
            raise RunError(
                f"step {self.state.global_step} would train on {int(num_items_in_batch)} tokens, its loss masks have "
                f"{expected}"
            )
        return super().training_step(model, inputs, num_items_in_batch)
