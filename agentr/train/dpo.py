"""Direct preference optimisation, for datasets of preferences: TRL's DPOTrainer (arXiv 2305.18290, Eq. 7).

The loss of a pair is -log sigmoid(beta * ((c - c_ref) - (r - r_ref))), where c and r are the log-probabilities of the
chosen and rejected side: sums over the tokens of the agent's turns. The reference is the start checkpoint, so the
first loss is log 2. Variants:

- ``length_normalized``: c, r and the reference's are divided by the number of their tokens (SimPO's remedy, with a
  reference).
- ``label_smoothing`` e: (1 - e) times the loss minus e times the loss of the swapped pair, divided by 1 - 2 e, which
  is unbiased if a share e of the pairs is swapped (arXiv 2403.00409, Eq. 8).
- ``sft``: plus this weight times the cross-entropy of the chosen sides, over the tokens of the whole step.

TRL, DeepSpeed and accumulation average the means of micro-batches with equal numbers of pairs, so the result does not
depend on how a batch is cut. TRL averages the ``sft`` term over the tokens of each micro-batch; its weight is
corrected for that.
"""

import logging
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
import torch
import torch.distributed as dist
from datasets import Dataset
from transformers import PreTrainedModel, TrainerCallback
from trl.trainer.dpo_config import DPOConfig
from trl.trainer.dpo_trainer import DPOTrainer

from agentr.errors import RunError
from agentr.store.dataset import rows_hash
from agentr.store.rows import Preference
from agentr.train.data import BatchPlan, padded_length
from agentr.train.job import TrainJob
from agentr.train.model import disable_dropout, lora_config, trained_numbers
from agentr.train.reference import read_reference, write_reference
from agentr.train.stall import expect_progress
from agentr.train.trainer import PlannedTrainer, common_arguments

log = logging.getLogger(__name__)

#: Names in ``metrics.jsonl`` of what TRL's DPOTrainer logs, averaged over the pairs since the last line.
METRICS = {
    "reward_margin": "rewards/margins",
    "reward_accuracy": "rewards/accuracies",
    "chosen_reward": "rewards/chosen",
    "rejected_reward": "rewards/rejected",
    "chosen_logprob": "logps/chosen",
    "rejected_logprob": "logps/rejected",
}

#: Fields of `TrainResult` that hold the last line's value of a metric.
RESULTS = {
    "margin": "reward_margin",
    "accuracy": "reward_accuracy",
    "chosen_reward": "chosen_reward",
    "rejected_reward": "rejected_reward",
}


def as_pair_dataset(plan: BatchPlan) -> Dataset:
    """Returns the numbers of the pairs in training order, in the column ``pair``; the collator holds the pairs."""
    return Dataset.from_dict({"pair": plan.order.ravel().tolist()})


@dataclass(frozen=True)
class PairCollator:
    """Turns a micro-batch of pairs into a batch of TRL's DPOTrainer, padded on the right.

    Attributes:
        rows: The pairs of the dataset; the entries of the trainer's dataset are indices into them.
    """

    rows: Sequence[Preference]
    pad_token_id: int

    def __call__(self, examples: list[dict[str, int]]) -> dict[str, torch.Tensor]:
        """Returns the tensors of a micro-batch.

        ``input_ids``, ``attention_mask`` and ``completion_mask`` have shape [2 * pairs, length], chosen sides first;
        ``pair``, the numbers of the pairs, has shape [pairs]. TRL's own collator counts all tokens after the prompt;
        here ``completion_mask`` is that of the pair: the agent's turns only.
        """
        numbers = [example["pair"] for example in examples]
        pairs = [self.rows[number] for number in numbers]
        sides = [(pair.prompt_ids, pair.chosen_ids, pair.chosen_mask) for pair in pairs]
        sides += [(pair.prompt_ids, pair.rejected_ids, pair.rejected_mask) for pair in pairs]
        shape = (len(sides), padded_length(max(pair.longest for pair in pairs)))
        batch = {
            "input_ids": torch.full(shape, self.pad_token_id),
            "attention_mask": torch.zeros(shape, dtype=torch.long),
            "completion_mask": torch.zeros(shape, dtype=torch.long),
            "pair": torch.tensor(numbers),
        }
        for index, (prompt, ids, mask) in enumerate(sides):
            begin, end = len(prompt), len(prompt) + len(ids)
            batch["input_ids"][index, :end] = torch.tensor(prompt + ids)
            batch["attention_mask"][index, :end] = 1
            batch["completion_mask"][index, begin:end] = torch.tensor(mask)
        assert (batch["completion_mask"] <= batch["attention_mask"]).all()
        assert int(batch["completion_mask"].sum()) == sum(pair.targets for pair in pairs)
        return batch


class AgentDPOTrainer(PlannedTrainer, DPOTrainer):
    """TRL's trainer on tokenised pairs, with reference log-probabilities that are computed once for a job."""

    reference: torch.Tensor
    """Log-probabilities under the reference, shape [pairs, 2] (chosen, rejected)."""

    @property
    def pairs(self) -> Sequence[Preference]:
        return cast("Sequence[Preference]", self.plan.rows)

    def _prepare_dataset(self, dataset: Any, *_args: Any, **_kwargs: Any) -> Any:
        return dataset

    def _precompute_ref_logps(self, dataset: Dataset, *_args: Any, **_kwargs: Any) -> Dataset:
        """Does nothing: TRL would use a second engine, and a cache that a restart on another node does not find."""
        return dataset

    def get_batch_samples(self, epoch_iterator: Any, num_batches: int, device: torch.device) -> Any:
        """Returns the micro-batches of a step, and the number of its targets on all workers."""
        batches, _ = super().get_batch_samples(epoch_iterator, num_batches, device)
        counted = torch.stack([batch["completion_mask"][:, 1:].sum() for batch in batches]).sum()
        return batches, self.accelerator.reduce(counted.to(device))

    def compute_loss(
        self, model: Any, inputs: dict[str, Any], return_outputs: bool = False, num_items_in_batch: Any = None
    ) -> Any:
        """Computes TRL's loss with the reference log-probabilities of the pairs in the batch.

        The reference joins the batch only here: transformers rounds the tensors of a batch to bf16 on their way to
        DeepSpeed, and bf16's spacing at 1000 (the magnitude of a long episode's log-probability) is 4.
        """
        inputs = dict(inputs)
        reference = self.reference[inputs.pop("pair")]
        inputs |= {"ref_chosen_logps": reference[:, 0], "ref_rejected_logps": reference[:, 1]}
        weight = self.job.config.dpo.sft
        if weight:
            step = self.plan.order[self.state.global_step]
            total = sum(sum(pair.chosen_mask) for pair in (self.pairs[number] for number in step))
            here = inputs["completion_mask"][: len(reference)].sum()
            parts = self.job.config.batch_size // self.job.config.micro_batch_size
            self.loss_weights = [1.0, weight * here * parts / total]
        return super().compute_loss(self.unpadded(model), inputs, return_outputs, num_items_in_batch)

    def prepare_reference(self) -> None:
        """Reads the job's reference log-probabilities from disk, or computes them before the first step.

        All workers take part.

        Raises:
            RunError: The job was resumed, and its reference is missing or belongs to another job.
        """
        job = self.job
        dataset, start = rows_hash(job.dataset), cast(str, self._precompute_model_hash)
        found = [read_reference(job.reference, dataset, start) if dist.get_rank() == 0 else None]
        dist.broadcast_object_list(found, src=0)
        reference: np.ndarray | None = found[0]
        if reference is None:
            if self.state.global_step:
                hint = f"Delete {job.out} to train anew."
                raise RunError(
                    f"{job.reference} is missing or belongs to another dataset or start checkpoint.", hint=hint
                )
            reference = self.compute_reference()
            if dist.get_rank() == 0:
                write_reference(job.reference, reference, dataset, start)
        self.reference = torch.from_numpy(reference).to(self.accelerator.device)

    def compute_reference(self) -> np.ndarray:
        """Computes the log-probabilities of the plan's pairs under the model without adapters, shape [pairs, 2].

        The workers share the pairs. Precision and function are those of the training, so the margins of the first
        step are 0 but for rounding.
        """
        began = time.perf_counter()
        engine = self.engine()
        engine.eval()
        model = self.unpadded(engine)
        used = np.unique(self.plan.order)
        by_length = used[np.argsort([self.pairs[number].longest for number in used], kind="stable")]
        mine = by_length[dist.get_rank() :: dist.get_world_size()]
        logprobs = torch.zeros((len(self.plan.rows), 2), device=self.accelerator.device)
        size = self.args.per_device_train_batch_size
        for first in range(0, len(mine), size):
            expect_progress(self.job)
            numbers = mine[first : first + size].tolist()
            batch = self._prepare_inputs(self.data_collator([{"pair": number} for number in numbers]))
            del batch["pair"]
            logprobs[numbers] = torch.stack(self.compute_ref_log_probs(model, batch), dim=1).float()
        dist.all_reduce(logprobs)
        found = np.full(logprobs.shape, np.nan, dtype=np.float32)
        found[used] = logprobs.cpu().numpy()[used]
        log.info("The reference of %d pairs took %.1f s.", len(used), time.perf_counter() - began)
        return found


class Reference(TrainerCallback):
    """A callback that prepares the reference between the engine's start and the first batch."""

    trainer: AgentDPOTrainer

    def on_train_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        self.trainer.prepare_reference()


def losses(job: TrainJob) -> tuple[list[str], list[float]]:
    """Returns TRL's names of the parts of the loss, and their weights."""
    dpo = job.config.dpo
    if dpo.length_normalized:
        main = "sigmoid_norm"
    elif dpo.label_smoothing:
        main = "robust"
    else:
        main = "sigmoid"
    return ([main, "sft"], [1.0, dpo.sft]) if dpo.sft else ([main], [1.0])


def trl_arguments(job: TrainJob, steps: int, parameters: int) -> dict[str, Any]:
    """Returns the arguments of a job for TRL's DPOTrainer.

    Args:
        steps: Optimiser steps.
    """
    loss_type, loss_weights = losses(job)
    return {
        **common_arguments(job, steps, parameters),
        "max_length": None,
        "beta": job.config.dpo.beta,
        "loss_type": loss_type,
        "loss_weights": loss_weights,
        "label_smoothing": job.config.dpo.label_smoothing,
        # What would change the formula is said here, whatever TRL's default for it becomes.
        "f_divergence_type": "reverse_kl",
        "use_weighting": False,
        "ld_alpha": None,
        "sync_ref_model": False,
        "precompute_ref_log_probs": True,
        "disable_dropout": False,  # the model's is off; the adapters' is an option
    }


def make_trainer(job: TrainJob, plan: BatchPlan, model: PreTrainedModel, tokenizer: Any) -> AgentDPOTrainer:
    """Makes the trainer of a job on preferences."""
    disable_dropout(model)
    arguments = DPOConfig(**trl_arguments(job, plan.steps, trained_numbers(job, model)))
    reference = Reference()
    trainer = AgentDPOTrainer(
        job,
        plan,
        model=model,
        args=arguments,
        data_collator=PairCollator(cast("Sequence[Preference]", plan.rows), tokenizer.pad_token_id or 0),
        train_dataset=as_pair_dataset(plan),
        processing_class=tokenizer,
        callbacks=[reference],
        peft_config=lora_config(job, model),
    )
    reference.trainer = trainer
    return trainer
