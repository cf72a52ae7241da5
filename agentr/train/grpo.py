"""Clipped policy gradients on rollouts: TRL's GRPOTrainer, with its losses, on rows that others drew and rewarded.

TRL's trainer generates, rewards and compares by itself. Here all of that came before: of TRL we run what turns
advantages into a loss (``_compute_loss``), with all its variants and metrics, and give it the tensors that its own
generation would. A test compares the two.

What we add: what rows begin with in common is computed once (``agentr.train.prefixes``), rows without an
advantage do not go through the model, and means over rows are over the rows that there are, although batches have a
fixed size.
"""

import math
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, cast

import torch
from datasets import Dataset
from torch.utils.data import DataLoader, IterableDataset
from transformers import PreTrainedModel
from trl.models.utils import disable_gradient_checkpointing
from trl.trainer.grpo_config import GRPOConfig
from trl.trainer.grpo_trainer import GRPOTrainer
from trl.trainer.utils import use_adapter

from agentr.config.training import Correction, PolicyLoss, RatioLevel
from agentr.errors import RunError
from agentr.store.rows import Rollout
from agentr.train.attention import NAME
from agentr.train.batches import Cut, MicroBatch, cut, micro_batch
from agentr.train.forward import forward_of, to_device
from agentr.train.model import disable_dropout, lora_config, trained_numbers
from agentr.train.online_job import OnlineJob
from agentr.train.trainer import JobTrainer, common_arguments

#: Names in ``metrics.jsonl`` of what is logged for each step, mapped to the names under which it is collected; the
#: first are TRL's.
METRICS = {
    "clipped": "clip_ratio/region_mean",
    "clipped_weights": "cispo_clip_ratio",
    "kl": "kl",
    "entropy": "live/entropy",
    "logprob_difference": "live/logprob_difference",
    "ratio_max": "live/ratio_max",
    "row_tokens": "live/row_tokens",
    "computed_tokens": "live/computed_tokens",
}

#: Losses that are means over rows.
_OVER_ROWS = (PolicyLoss.grpo, PolicyLoss.dr_grpo)


def how_to_cut(job: OnlineJob) -> Cut:
    """Returns how a job's steps are gone through."""
    config, workers = job.config, job.trainer.workers
    return Cut(
        config.grpo.minibatches,
        config.batch_size // (config.micro_batch_size * workers),
        config.micro_batch_size,
        workers,
    )


class AgentGRPOTrainer(JobTrainer, GRPOTrainer):
    """TRL's trainer on rollouts that are there already.

    Args:
        steps: Yields the rollouts of one step after another, the first of them the one after the last checkpoint.
    """

    job: OnlineJob

    def __init__(self, job: OnlineJob, steps: Iterator[list[Rollout]], **arguments: Any) -> None:
        super().__init__(job, **arguments)
        if self.behind and self.ref_model is not None:
            cast(PreTrainedModel, self.accelerator.unwrap_model(cast(Any, self.ref_model))).set_attn_implementation(
                NAME
            )
        self.steps = steps
        self._batch: MicroBatch | None = None
        # TRL looks at these where it weighs tokens by the ratio of trainer and engine; it must not start an engine of
        # its own for that.
        self.use_vllm = job.config.grpo.correction is not Correction.none
        self.vllm_importance_sampling_correction = True

    # batches ----------------------------------------------------------------------------------------------------------

    def get_train_dataloader(self) -> DataLoader:
        """Returns the micro-batches of all steps to come.
        It does not look ahead: the next step's rows may depend on this one's weights."""
        return DataLoader(_Stream(self), batch_size=None)

    def micro_batches(self) -> Iterator[dict[str, Any]]:
        """Yields this worker's micro-batches, those of an optimiser step after another."""
        job, grpo = self.job, self.job.config.grpo
        everything = bool(grpo.kl or grpo.entropy)
        for rows in self.steps:
            number = self.state.global_step // grpo.updates + 1
            dealt = cut(rows, how_to_cut(job), self.args.process_index, job.config.seed + number)
            size, pad = job.config.micro_batch_size, self._tokenizer.pad_token_id or 0
            updates = []
            for parts in dealt:
                batches = [
                    micro_batch([rows[i] for i in part], size, pad, everything=everything, behind=self.behind)
                    for part in parts
                ]
                updates.append([{"rollouts": self._judged(batch)} for batch in batches])
            here = self.accelerator.reduce(
                torch.tensor([sum(map(len, parts)) for parts in dealt], device=self.accelerator.device)
            )
            targets = torch.tensor(float(sum(row.targets for row in rows)), device=self.accelerator.device)
            for _ in range(grpo.iterations):
                for batches, count in zip(updates, cast(torch.Tensor, here).tolist(), strict=True):
                    for batch in batches:
                        yield {**batch, "rows": count, "targets": targets}

    def _judged(self, batch: MicroBatch) -> dict[str, Any]:
        """Adds what is computed with the weights before the first of a step's updates: old and reference
        log-probabilities, corrections."""
        batch, grpo = _on(batch, self.accelerator.device), self.job.config.grpo
        found: dict[str, Any] = {"batch": batch}
        with (
            torch.no_grad(),
            disable_gradient_checkpointing(cast(Any, self.model), cast(Any, self.args.gradient_checkpointing_kwargs)),
        ):
            if self.use_vllm:
                old, _ = self.score(self.model_wrapped, batch)
                found |= {"old_per_token_logps": old, "importance_sampling_ratio": self._correction(old, batch)}
            else:
                found["old_per_token_logps"] = batch.drawn_RT
            if grpo.ratio is RatioLevel.none:
                del found["old_per_token_logps"]  # then TRL takes the new ones, without a gradient
            if self.beta:
                found["ref_per_token_logps"] = self._reference(batch)
        return found

    def _reference(self, batch: MicroBatch) -> torch.Tensor:
        if self.ref_model is not None:
            return self.score(self.ref_model, batch)[0]
        with use_adapter(cast(Any, self.accelerator.unwrap_model(cast(Any, self.model))), adapter_name=None):
            return self.score(self.model_wrapped, batch)[0]

    def _correction(self, old: torch.Tensor, batch: MicroBatch) -> torch.Tensor:
        """Returns how much each token weighs because the engine's probability of it was another one; TRL's rule."""
        grpo = self.job.config.grpo
        difference = (old - batch.drawn_RT) * batch.mask_RT
        if grpo.correction in (Correction.sequence_truncate, Correction.sequence_mask):
            difference = difference.sum(-1, keepdim=True)
        ratio = difference.exp()
        if grpo.correction in (Correction.token_truncate, Correction.sequence_truncate):
            return ratio.clamp(max=grpo.correction_max)
        return ratio.masked_fill(ratio > grpo.correction_max, 0.0)

    def _prepare_inputs(self, generation_batch: dict[str, Any]) -> dict[str, Any]:
        """Returns what TRL's own generation would have."""
        found = dict(generation_batch["rollouts"])
        batch: MicroBatch = found.pop("batch")
        empty = batch.mask_RT[:, :0]
        return {
            **found,
            "batch": batch,
            "rows": generation_batch["rows"],
            "prompt_ids": empty,
            "prompt_mask": empty,
            "completion_ids": torch.zeros_like(batch.mask_RT),
            "completion_mask": batch.mask_RT,
            "advantages": batch.advantages_RT,
            "num_items_in_batch": generation_batch["targets"],
        }

    # loss -------------------------------------------------------------------------------------------------------------

    def _compute_loss(self, model: Any, inputs: dict[str, Any]) -> torch.Tensor:
        self._batch = inputs["batch"]
        loss = super()._compute_loss(model, inputs)
        if self.job.config.grpo.loss in _OVER_ROWS:
            # TRL takes the mean over the places for rows in a batch, of which some may be empty.
            loss = loss * (self.job.config.batch_size / max(1, inputs["rows"]))
        return loss

    def _get_per_token_logps_and_entropies(
        self, model: Any, *_args: Any, compute_entropy: bool = False, **_kwargs: Any
    ) -> Any:
        """Returns log-probabilities and entropies of the batch in hand, both of shape [R, T], and no loss of
        experts."""
        assert self._batch is not None
        logps, entropies = self.score(model, self._batch)
        self._measure(self._batch, logps.detach(), entropies)
        return logps, entropies, None

    def score(self, model: Any, batch: MicroBatch) -> tuple[torch.Tensor, torch.Tensor]:
        """Returns log-probabilities and entropies of a batch's targets, both of shape [R, T].

        Targets of rows that do not go through the model have the engine's log-probabilities, and entropy 0.
        """
        # One token that predicts nothing: all workers must go through the model together, also those without a row.
        forward = batch.forward or to_device(forward_of([[0]], [[]], 0, behind=self.behind), batch.mask_RT.device)
        with self.accelerator.autocast():
            scored = model(**forward.arguments(), fused_lm_head=True)
        found = []
        for values, fill in ((scored.log_probs, batch.drawn_RT), (scored.entropy, torch.zeros_like(batch.drawn_RT))):
            if values is None:  # the reference has none
                found.append(fill)
                continue
            if batch.forward is None:
                found.append(fill + values.sum())  # 0: so that there is a gradient, of 0
                continue
            live = values.flatten()[forward.places_RT].float()
            whole = fill.index_put((batch.live_R.nonzero()[:, 0],), live)
            found.append(torch.where(batch.mask_RT.bool(), whole, fill))
        return found[0], found[1]

    def _measure(self, batch: MicroBatch, logps: torch.Tensor, entropies: torch.Tensor) -> None:
        """Collects what is only true of the rows that went through the model."""
        mask = batch.mask_RT * batch.live_R[:, None]
        difference = ((logps - batch.drawn_RT) * mask).abs()
        tokens = (batch.forward.row_tokens, int(batch.forward.lengths_P.sum())) if batch.forward else (0, 0)
        counts = difference.new_tensor(tokens)
        sums = torch.stack(
            [mask.sum(), (entropies.detach() * mask).sum(), difference.sum(), difference.max().neg(), *counts]
        )
        every = cast(torch.Tensor, self.accelerator.gather(sums[None]))
        count = every[:, 0].sum().item()
        if not count:
            return
        metrics = self._metrics["train"]
        metrics["live/entropy"].append(every[:, 1].sum().item() / count)
        metrics["live/row_tokens"].append(every[:, 4].sum().item())
        metrics["live/computed_tokens"].append(every[:, 5].sum().item())
        metrics["live/ratio_max"].append(math.exp(min(20.0, -every[:, 3].min().item())))
        if self.state.global_step % self.job.config.grpo.updates == 0:
            metrics["live/logprob_difference"].append(every[:, 2].sum().item() / count)


class _Stream(IterableDataset):
    """A trainer's micro-batches, as a data set of torch."""

    def __init__(self, trainer: AgentGRPOTrainer) -> None:
        self._trainer = trainer

    def __iter__(self) -> Iterator[dict[str, Any]]:
        return self._trainer.micro_batches()


def _on(batch: MicroBatch, device: torch.device) -> MicroBatch:
    moved = {name: value.to(device) for name, value in vars(batch).items() if isinstance(value, torch.Tensor)}
    forward = to_device(batch.forward, device) if batch.forward is not None else None
    return replace(batch, **moved, forward=forward)


def trl_arguments(job: OnlineJob, parameters: int) -> dict[str, Any]:
    """Returns the arguments of a job for TRL's GRPOTrainer.

    Raises:
        RunError: A batch would have a single row, which TRL does not take.
    """
    config, grpo, how = job.config, job.config.grpo, how_to_cut(job)
    if how.rows < 2:
        raise RunError("a step of one rollout has nothing to compare it with", hint="Raise train.batch_size.")
    return {
        **common_arguments(job, steps=job.updates, parameters=parameters),
        "ignore_data_skip": True,  # the steps begin where the checkpoint ends
        "loss_type": grpo.loss.value,
        "importance_sampling_level": "token" if grpo.ratio is RatioLevel.none else grpo.ratio.value,
        "epsilon": grpo.clip,
        "epsilon_high": grpo.clip_high or None,
        "delta": grpo.dual_clip or None,
        "beta": grpo.kl,
        "use_bias_correction_kl": grpo.kl_ratio,
        "entropy_coef": grpo.entropy,
        # What would change a formula is said here, whatever TRL's default for it becomes.
        "use_adaptive_entropy": False,
        "top_entropy_quantile": 1.0,
        "off_policy_mask_threshold": None,
        "sync_ref_model": False,
        "num_iterations": grpo.iterations,
        "max_completion_length": config.max_length,
        # To TRL all rollouts of a step are drawn at a time, as one group.
        "steps_per_generation": how.minibatches * how.micro_batches,
        "num_generations": how.rows,
        "temperature": 1.0,
        "disable_dropout": False,  # it is off; the adapters' is an option
    }


def make_trainer(
    job: OnlineJob, steps: Iterator[list[Rollout]], model: PreTrainedModel, tokenizer: Any
) -> AgentGRPOTrainer:
    """Makes the trainer of an online job.

    Raises:
        RunError: A batch would have a single row, which TRL does not take.
    """
    disable_dropout(model)
    arguments = GRPOConfig(**trl_arguments(job, trained_numbers(job, model)))
    return AgentGRPOTrainer(
        job,
        steps,
        model=model,
        reward_funcs=_no_reward,
        args=arguments,
        train_dataset=Dataset.from_dict({"prompt": [""]}),
        processing_class=tokenizer,
        peft_config=lora_config(job, model),
    )


def _no_reward(**_: Any) -> list[float]:
    """Takes the place of a reward: TRL wants one, and never asks it here."""
    raise AssertionError("rollouts have their rewards before they are trained on")
