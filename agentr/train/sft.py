"""Supervised fine-tuning, for datasets of sequences: TRL's SFTTrainer.

The loss is the cross-entropy summed over all targets of the global batch and divided by their number, over
micro-batches and workers: transformers counts the targets of all micro-batches of a step and gathers the count over the
workers (``average_tokens_across_devices``), TRL divides each micro-batch's sum by that count and multiplies by the
number of workers, and DeepSpeed averages gradients over workers. A micro-batch with few targets therefore weighs
little, and cutting the batch differently changes nothing but rounding. A target that several rows have in common is
computed once and counts as often as it stands in a row.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, cast

import torch
from datasets import Dataset
from transformers import PreTrainedModel
from trl.trainer.sft_config import SFTConfig
from trl.trainer.sft_trainer import SFTTrainer

from agentr.store.rows import Row
from agentr.train.data import IGNORE, BatchPlan, padded_length
from agentr.train.job import TrainJob
from agentr.train.model import lora_config, trained_numbers
from agentr.train.trainer import PlannedTrainer, common_arguments

#: This loss has no metrics of its own.
METRICS: dict[str, str] = {}
RESULTS: dict[str, str] = {}


def encode(row: Row) -> dict[str, list[int]]:
    """Encodes a row as ``input_ids`` and ``labels``, both of shape [L]. The labels alone decide what is trained on."""
    labels = [token if trained else IGNORE for token, trained in zip(row.input_ids, row.loss_mask, strict=True)]
    assert [label != IGNORE for label in labels] == [bool(trained) for trained in row.loss_mask]
    return {"input_ids": list(row.input_ids), "labels": labels}


def as_dataset(plan: BatchPlan) -> Dataset:
    """Returns the rows in training order: [steps * batch size] entries that share the storage of the rows."""
    encoded = [encode(row) for row in cast("Sequence[Row]", plan.rows)]
    columns = {name: [entry[name] for entry in encoded] for name in ("input_ids", "labels")}
    return Dataset.from_dict(columns).select(plan.order.ravel().tolist())


@dataclass(frozen=True)
class Collator:
    """Pads a micro-batch of rows on the right."""

    pad_token_id: int

    def __call__(self, examples: list[dict[str, list[int]]]) -> dict[str, torch.Tensor]:
        """Returns ``input_ids``, ``labels`` and ``attention_mask`` of shape [micro-batch, length]."""
        shape = (len(examples), padded_length(max(len(example["input_ids"]) for example in examples)))
        batch = {
            "input_ids": torch.full(shape, self.pad_token_id),
            "labels": torch.full(shape, IGNORE),
            "attention_mask": torch.zeros(shape, dtype=torch.long),
        }
        for index, example in enumerate(examples):
            size = len(example["input_ids"])
            batch["input_ids"][index, :size] = torch.tensor(example["input_ids"])
            batch["labels"][index, :size] = torch.tensor(example["labels"])
            batch["attention_mask"][index, :size] = 1
        return batch


class AgentSFTTrainer(PlannedTrainer, SFTTrainer):
    """TRL's trainer on tokenised rows."""

    def compute_loss(self, model: Any, inputs: dict[str, Any], *args: Any, **more: Any) -> Any:
        return super().compute_loss(self.unpadded(model), inputs, *args, **more)


def trl_arguments(job: TrainJob, steps: int, parameters: int) -> dict[str, Any]:
    """Returns the arguments of a job for TRL's SFTTrainer.

    Args:
        steps: Optimiser steps.
    """
    return {
        **common_arguments(job, steps, parameters),
        "max_length": None,
        "packing": False,
        "loss_type": "nll",
        "dataset_kwargs": {"skip_prepare_dataset": True},
    }


def make_trainer(job: TrainJob, plan: BatchPlan, model: PreTrainedModel, tokenizer: Any) -> AgentSFTTrainer:
    """Makes the trainer of a job on sequences."""
    arguments = trl_arguments(job, plan.steps, trained_numbers(job, model))
    return AgentSFTTrainer(
        job,
        plan,
        model=model,
        args=SFTConfig(**arguments),
        data_collator=Collator(tokenizer.pad_token_id or 0),
        train_dataset=as_dataset(plan),
        processing_class=tokenizer,
        peft_config=lora_config(job, model),
    )
