"""Supervised fine-tuning of one job in one worker: TRL's SFTTrainer on a DeepSpeed ZeRO-2 engine.

What TRL is kept from doing: tokenise, template, truncate, pack or shuffle. Rows arrive as ids and masks and leave as batches.

The loss is the cross-entropy summed over all targets of the global batch and divided by their number, over micro-batches and workers:
transformers counts the targets of all micro-batches of a step and gathers the count over the workers (``average_tokens_across_devices``),
TRL divides each micro-batch's sum by that count and multiplies by the number of workers, and DeepSpeed averages gradients over workers.
A micro-batch with few targets therefore weighs little, and cutting the batch differently changes nothing but rounding. The count is
compared with the dataset's masks at every step.

Precision: weights are always loaded as float32. With ``bf16`` DeepSpeed keeps float32 masters (bf16 alone has 8 bits: updates below
1/256 of a weight would vanish) and computes in bf16. The model is saved from the masters, in the dtype that it was given in.
"""

from __future__ import annotations

import faulthandler
import logging
import math
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import torch
import torch.distributed as dist
from transformers import AutoModelForCausalLM, AutoTokenizer, PreTrainedModel
from trl.trainer.sft_config import SFTConfig
from trl.trainer.sft_trainer import SFTTrainer

from agentr.errors import ModelError, RunError
from agentr.train.checkpoints import latest, publish, require_model, seal
from agentr.train.data import Collator, Plan, as_dataset, make_plan
from agentr.train.job import TrainJob, TrainResult
from agentr.train.progress import Progress

if TYPE_CHECKING:
    from deepspeed import DeepSpeedEngine

log = logging.getLogger(__name__)


def learning_rate_factor(job: TrainJob, step: int, steps: int) -> float:
    """Share of the peak learning rate at optimiser step ``step`` of ``steps``: a linear warm-up, then the schedule."""
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
    """ZeRO stage 2: optimiser states and gradients are partitioned over the workers. "auto" is filled in by transformers.

    The buckets are allocated up front; DeepSpeed's 5e8 elements would cost 2 GB for a model of a million parameters.
    """
    bucket = min(parameters, 200_000_000)
    return {
        "zero_optimization": {
            "stage": 2,
            "overlap_comm": job.trainer.use_gpu,
            "reduce_bucket_size": bucket,
            "allgather_bucket_size": bucket,
        },
        "zero_allow_untested_optimizer": True,  # torch's AdamW: DeepSpeed's own needs a compiler, and was not faster on a CPU
        "bf16": {"enabled": "auto"},
        "gradient_clipping": "auto",
        "gradient_accumulation_steps": "auto",
        "train_batch_size": "auto",
        "train_micro_batch_size_per_gpu": "auto",
    }


def trainer_arguments(job: TrainJob, plan: Plan, parameters: int) -> SFTConfig:
    """The job in the trainer's words."""
    config, micro = job.config, job.micro_batch()
    return SFTConfig(
        output_dir=str(job.checkpoints),
        deepspeed=deepspeed_config(job, parameters),
        accelerator_config={"use_configured_state": True},
        use_cpu=not job.trainer.use_gpu,
        bf16=config.bf16,
        max_steps=plan.steps,
        per_device_train_batch_size=micro,
        gradient_accumulation_steps=config.batch_size // (job.trainer.workers * micro),
        learning_rate=config.learning_rate,
        weight_decay=config.weight_decay,
        adam_beta2=config.adam_beta2,
        max_grad_norm=config.max_grad_norm,
        optim="adamw_torch_fused",
        gradient_checkpointing=config.gradient_checkpointing,
        max_length=None,
        packing=False,
        dataset_kwargs={"skip_prepare_dataset": True},
        remove_unused_columns=False,
        train_sampling_strategy="sequential",
        average_tokens_across_devices=True,
        dataloader_pin_memory=job.trainer.use_gpu,
        save_strategy="steps",
        save_steps=config.checkpoint_every,
        save_total_limit=2,  # a new one is sealed only after an old one was removed
        logging_steps=config.log_every,
        logging_first_step=True,
        logging_nan_inf_filter=False,
        report_to="none",
        disable_tqdm=True,
        seed=config.seed,
    )


class AgentSFTTrainer(SFTTrainer):
    """TRL's trainer with our schedule, sealed checkpoints, and a check of the loss masks at every step."""

    def __init__(self, job: TrainJob, plan: Plan, **arguments: Any) -> None:
        super().__init__(**arguments)
        self.job, self.plan = job, plan

    def create_scheduler(self, num_training_steps: int, optimizer: torch.optim.Optimizer | None = None):
        if self.lr_scheduler is None:
            target: Any = optimizer or self.optimizer
            self.lr_scheduler = torch.optim.lr_scheduler.LambdaLR(
                target, lambda step: learning_rate_factor(self.job, step, num_training_steps)
            )
            self._created_lr_scheduler = True
        return self.lr_scheduler

    def create_model_card(self, *_args: Any, **_kwargs: Any) -> None:
        """No card: it would describe the start checkpoint's folder as a model of the Hub."""

    def engine(self) -> DeepSpeedEngine:
        """The engine that runs the steps; there is one only after training has begun."""
        from deepspeed import DeepSpeedEngine

        assert isinstance(self.model_wrapped, DeepSpeedEngine), "training must run on DeepSpeed"
        assert self.model_wrapped.zero_optimization_stage() == 2
        return self.model_wrapped

    def training_step(self, model: torch.nn.Module, inputs: dict[str, Any], num_items_in_batch: Any = None) -> torch.Tensor:
        expect_progress(self.job)
        expected = int(self.plan.targets_S[self.state.global_step])
        if int(num_items_in_batch) != expected:
            raise RunError(f"step {self.state.global_step} would train on {int(num_items_in_batch)} tokens, its loss masks say {expected}")
        return super().training_step(model, inputs, num_items_in_batch)

    def _save_checkpoint(self, model: torch.nn.Module, trial: Any) -> None:
        super()._save_checkpoint(model, trial)
        dist.barrier()
        if self.args.should_save:
            seal(job_checkpoint(self.job, self.state.global_step))


def expect_progress(job: TrainJob) -> None:
    """Ends this process, with every thread's stack in its log, unless it is called again within the job's ``stall_s``."""
    faulthandler.dump_traceback_later(job.stall_s, exit=True, file=sys.__stderr__ or sys.stderr)


def job_checkpoint(job: TrainJob, step: int) -> Path:
    return job.checkpoints / f"checkpoint-{step}"


def load_start(job: TrainJob, plan: Plan) -> tuple[PreTrainedModel, Any, torch.dtype]:
    """The model in float32, its tokenizer, and the dtype it is stored in.

    Raises:
        ModelError: The checkpoint cannot be loaded, or the dataset was made with another tokenizer.
    """
    require_model(job.start)
    try:
        tokenizer = AutoTokenizer.from_pretrained(job.start)
        model = AutoModelForCausalLM.from_pretrained(job.start, dtype="auto")
    except (OSError, ValueError, KeyError) as error:
        reason = str(error).splitlines()[0]
        raise ModelError(f"the start checkpoint {job.start} does not load: {reason}.", hint="Is its copy complete?") from error
    vocabulary = cast(torch.nn.Embedding, model.get_input_embeddings()).num_embeddings
    highest = max(max(row.input_ids) for row in plan.rows)
    if highest >= vocabulary:
        hint = "Build the dataset with the tokenizer of this model."
        raise ModelError(f"the dataset has token {highest}, but the model in {job.start} knows {vocabulary}.", hint=hint)
    dtype = model.dtype
    return model.float(), tokenizer, dtype


def save_model(trainer: AgentSFTTrainer, dtype: torch.dtype) -> None:
    """Publishes the model from the float32 masters. All workers take part; the first one writes.

    The engine is unusable afterwards: its parameters are replaced one by one, which keeps tied weights tied.
    """
    from deepspeed.utils import safe_get_full_fp32_param

    job, model = trainer.job, cast(PreTrainedModel, trainer.engine().module)
    for parameter in model.parameters():
        master = safe_get_full_fp32_param(parameter) if job.config.bf16 else parameter.data
        assert master is not None
        parameter.data = master.detach().to(dtype)
    if trainer.args.should_save:
        publish(model.save_pretrained, job.model, job.start)


def run_job(job: TrainJob) -> TrainResult:
    """Trains a job in this process, which is one of ``job.trainer.workers`` that call it together, and continues where it stopped.

    The default process group must exist, with DeepSpeed registered in accelerate (``agentr.train.worker`` does both).

    Raises:
        AgentrError: The job cannot be done; repeating it would not help.
    """
    expect_progress(job)
    try:
        return _train(job)
    finally:
        faulthandler.cancel_dump_traceback_later()


def _train(job: TrainJob) -> TrainResult:
    plan = make_plan(job)
    model, tokenizer, dtype = load_start(job, plan)
    found: list[Path | None] = [latest(job.checkpoints) if dist.get_rank() == 0 else None]
    dist.broadcast_object_list(found, src=0)
    resume = found[0]
    progress = Progress(job, plan, int(resume.name.rpartition("-")[2]) if resume else 0)
    trainer = AgentSFTTrainer(
        job,
        plan,
        model=model,
        args=trainer_arguments(job, plan, sum(parameter.numel() for parameter in model.parameters())),
        data_collator=Collator(tokenizer.pad_token_id or 0),
        train_dataset=as_dataset(plan),
        processing_class=tokenizer,
        callbacks=[progress],
    )
    progress.trainer = trainer
    trainer.train(resume_from_checkpoint=str(resume) if resume else None)
    assert trainer.state.global_step == plan.steps
    save_model(trainer, dtype)
    lines = job.read_metrics()
    tokens = int(plan.tokens_S.sum())
    result = TrainResult(
        checkpoint=str(job.model),
        steps=plan.steps,
        epochs=round(plan.steps * job.config.batch_size / len(plan.rows), 4),
        rows=len(plan.rows),
        tokens=tokens,
        trained_tokens=int(plan.targets_S.sum()),
        first_loss=lines[0]["loss"],
        last_loss=lines[-1]["loss"],
        seconds=round(progress.seconds, 3),
        tokens_per_second=round(tokens / max(progress.seconds, 1e-9), 1),
    )
    if trainer.args.should_save:
        job.finish(result)
        shutil.rmtree(job.checkpoints, ignore_errors=True)
    dist.barrier()
    return result
