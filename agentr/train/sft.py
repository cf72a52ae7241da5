"""Supervised fine-tuning, for datasets of sequences: TRL's SFTTrainer.

The loss is the cross-entropy summed over all targets of the global batch and divided by their number, over micro-batches and workers:
transformers counts the targets of all micro-batches of a step and gathers the count over the workers (``average_tokens_across_devices``),
TRL divides each micro-batch's sum by that count and multiplies by the number of workers, and DeepSpeed averages gradients over workers.
A micro-batch with few targets therefore weighs little, and cutting the batch differently changes nothing but rounding.
"""

from __future__ import annotations

from typing import Any

from transformers import PreTrainedModel
from trl.trainer.sft_config import SFTConfig
from trl.trainer.sft_trainer import SFTTrainer

from agentr.train.data import Collator, Plan, as_dataset
from agentr.train.job import TrainJob
from agentr.train.model import lora_config
from agentr.train.trainer import JobTrainer, common_arguments


class AgentSFTTrainer(JobTrainer, SFTTrainer):
    """TRL's trainer on rows that are ready."""


def sft_trainer(job: TrainJob, plan: Plan, model: PreTrainedModel, tokenizer: Any) -> AgentSFTTrainer:
    """The trainer of a job on sequences."""
    arguments = common_arguments(job, plan, model.num_parameters())
    return AgentSFTTrainer(
        job,
        plan,
        model=model,
        args=SFTConfig(**arguments, packing=False, dataset_kwargs={"skip_prepare_dataset": True}),
        data_collator=Collator(tokenizer.pad_token_id or 0),
        train_dataset=as_dataset(plan),
        processing_class=tokenizer,
        peft_config=lora_config(job, model),
    )
