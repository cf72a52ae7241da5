"""How training is configured: schedule, loss, adapters, workers. Imports nothing heavy, as all of this package."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import Enum, StrEnum
from typing import Annotated

from pydantic import Field, NonNegativeFloat, NonNegativeInt, PositiveFloat, PositiveInt

from agentr.config.checks import Problem, Proportion, Section


class Schedule(StrEnum):
    cosine = "cosine"
    """Falls along half a cosine to ``min_lr_ratio`` of the peak."""
    linear = "linear"
    """Falls in a straight line to ``min_lr_ratio`` of the peak."""
    constant_with_warmup = "constant_with_warmup"
    """Stays at the peak after the warm-up."""


class PolicyLoss(StrEnum):
    grpo = "grpo"
    """Mean over rollouts of the mean over their tokens (arXiv 2402.03300, Eq. 3)."""
    dapo = "dapo"
    """Mean over all tokens of an online step: long rollouts weigh more (arXiv 2503.14476, Eq. 8)."""
    dr_grpo = "dr_grpo"
    """Sum over tokens by max_length, so that no length is preferred (arXiv 2503.20783, section 3.2)."""
    bnpo = "bnpo"
    """Mean over micro-batches of the mean over their tokens: with micro_batch_size 1 the mean over rollouts.
    For all tokens take dapo."""
    cispo = "cispo"
    """REINFORCE with clipped importance weights, whose tokens all have a gradient (arXiv 2506.13585, Eq. 4)."""


class RatioLevel(StrEnum):
    token = "token"
    """Each token by its own ratio."""
    sequence = "sequence"
    """All tokens of a rollout by the geometric mean of their ratios (GSPO, arXiv 2507.18071, Eq. 7); meant for loss:
    grpo."""
    none = "none"
    """Nothing is: -A log p, whoever drew the tokens and however often they are gone through (REINFORCE; R3L, arXiv
    2601.03715, Eq. 12)."""


class Correction(StrEnum):
    none = "none"
    """The engine's log-probabilities are those of the old policy."""
    token_truncate = "token_truncate"
    """The trainer computes the old policy's log-probabilities; a token weighs its ratio to the engine's, at most
    correction_max."""
    token_mask = "token_mask"
    """The same, and a token beyond correction_max does not count."""
    sequence_truncate = "sequence_truncate"
    """The same with the ratio of the whole rollout, at most correction_max."""
    sequence_mask = "sequence_mask"
    """The same, and a rollout beyond correction_max does not count."""


class ContinueFrom(StrEnum):
    previous = "previous"
    """Each round trains on from the last round's checkpoint."""
    warm_start = "warm_start"
    """Each round trains on from the warm start."""


@dataclass
class DPOConfig(Section):
    """Direct preference optimisation (arXiv 2305.18290, Eq. 7), for datasets of preferences.
    The reference is the start checkpoint."""

    beta: PositiveFloat = 0.1
    """Strength of the pull towards the reference: the factor of the log-ratio in the implicit reward.
    With 0 no pair would count."""
    sft: NonNegativeFloat = 0.0
    """Weight of the chosen side's mean token loss beside it."""
    length_normalized: bool = False
    """Compare mean log-probabilities of a side's tokens in place of sums."""
    label_smoothing: Annotated[float, Field(ge=0, lt=0.5)] = 0.0
    """Share of pairs that are assumed to be the wrong way round (needs the loss without length_normalized)."""

    def problems(self) -> Iterator[Problem]:
        if self.label_smoothing and self.length_normalized:
            hint = "Set one of them: the loss with wrong pairs is defined on sums."
            yield Problem("label_smoothing", "label_smoothing and length_normalized contradict each other", hint)


@dataclass
class GRPOConfig(Section):
    """A clipped policy gradient (PPO's, arXiv 1707.06347, Eq. 7, without a critic), for datasets of rollouts.
    The losses are TRL's."""

    loss: PolicyLoss = PolicyLoss.dapo
    """How tokens add up."""
    ratio: RatioLevel = RatioLevel.token
    """What is clipped: the new policy's probability by the old one's, of a token or of a rollout."""
    clip: PositiveFloat = 0.2
    """A ratio below 1 - clip earns nothing more; nor does one above 1 + clip_high."""
    clip_high: NonNegativeFloat = 0.0
    """Upper bound of the clip; 0 means as clip. 0.28 in DAPO. For cispo the largest weight, such as 5."""
    dual_clip: NonNegativeFloat = 0.0
    """Largest ratio that counts where the advantage is negative (arXiv 1912.09729, Eq. 5; c = 3 there); 0 means no
    bound."""
    kl: NonNegativeFloat = 0.0
    """Weight of the divergence from the start checkpoint (arXiv 2402.03300, Eq. 4); with 0 there is no reference
    model."""
    kl_ratio: bool = False
    """Multiply the divergence by the ratio, so that its gradient is that of the reverse KL divergence (arXiv
    2512.02556)."""
    entropy: NonNegativeFloat = 0.0
    """Weight of the mean entropy, which is added."""
    minibatches: PositiveInt = 1
    """Optimiser steps in which an online step's rollouts are gone through; each takes the groups of some of the
    tasks."""
    iterations: PositiveInt = 1
    """How often they are gone through."""
    correction: Correction = Correction.none
    """What is done about engine and trainer computing other log-probabilities."""
    correction_max: PositiveFloat = 3.0
    """Largest ratio of the trainer's to the engine's probability; see correction."""

    def problems(self) -> Iterator[Problem]:
        if self.loss is PolicyLoss.cispo and self.clip_high < 1:
            message = f"clip_high = {self.clip_high:g} would cut every weight of cispo, which is about 1"
            yield Problem("clip_high", message, "Give the largest weight, such as 5.")
        if self.dual_clip and self.dual_clip <= 1 + (self.clip_high or self.clip):
            message = f"dual_clip = {self.dual_clip:g} is within the clip of 1 + {self.clip_high or self.clip:g}"
            yield Problem("dual_clip", message, "Give a larger one, such as 3, or 0 for none.")

    @property
    def updates(self) -> int:
        """Optimiser steps of a step."""
        return self.minibatches * self.iterations


@dataclass
class LoRAConfig(Section):
    """Low-rank adapters (arXiv 2106.09685). They are merged at the end: the checkpoint is a whole model."""

    rank: NonNegativeInt = 0
    """0 trains all weights."""
    alpha: PositiveFloat = 16.0
    """Adapters are scaled by alpha / rank."""
    dropout: Annotated[float, Field(ge=0, lt=1)] = 0.0
    """Share of the adapters' inputs that is dropped in training."""
    targets: list[str] = field(default_factory=lambda: ["all-linear"])
    """Names of linear layers, or all-linear."""

    def problems(self) -> Iterator[Problem]:
        if not self.targets:
            yield Problem("targets", "the list is empty", "Name linear layers, or all-linear.")


@dataclass
class TrainConfig(Section):
    """One training: how long, how fast, in which batches."""

    steps: NonNegativeInt = 0
    """Optimiser steps; 0 means by epochs."""
    epochs: NonNegativeFloat = 1.0
    """Passes over the dataset, rounded up to whole batches; not used if steps is given."""
    learning_rate: PositiveFloat = 2e-5
    """Peak learning rate of AdamW."""
    min_lr_ratio: Proportion = 0.0
    """Learning rate at the end of the schedule, as a share of the peak."""
    batch_size: PositiveInt = 16
    """Rows in an optimiser step, over all workers; a multiple of micro_batch_size x trainer.workers."""
    micro_batch_size: PositiveInt = 16
    """Rows in a forward pass of one worker; a pair is one row."""
    schedule: Schedule = Schedule.cosine
    """Shape of the learning rate after the warm-up."""
    warmup_ratio: Proportion = 0.03
    """Share of the optimiser steps in which the learning rate rises to its peak."""
    weight_decay: NonNegativeFloat = 0.0
    """AdamW's decoupled weight decay."""
    max_grad_norm: PositiveFloat = 1.0
    """Gradients are scaled down to this norm."""
    adam_beta2: Annotated[float, Field(gt=0, lt=1)] = 0.999
    """AdamW's decay of the squared gradients."""
    max_length: PositiveInt = 1024
    """Longest row that is accepted, in tokens."""
    bf16: bool | None = None
    """Compute in bfloat16, with masters in float32.
    Unset: where the hardware multiplies in it; processors without AVX-512 take fifty times longer than for float32."""
    gradient_checkpointing: bool = False
    """Compute activations again in the backward pass: less memory, more time."""
    checkpoint_every: PositiveInt = 100
    """Steps between resumable checkpoints."""
    log_every: PositiveInt = 10
    """Steps between two lines of metrics."""
    seed: NonNegativeInt = 0
    """Of the order of rows; run.seed is added."""
    dpo: DPOConfig = field(default_factory=DPOConfig)
    """For datasets of preferences."""
    grpo: GRPOConfig = field(default_factory=GRPOConfig)
    """For datasets of rollouts."""
    lora: LoRAConfig = field(default_factory=LoRAConfig)
    """Low-rank adapters in place of all weights."""

    def problems(self) -> Iterator[Problem]:
        if not self.steps and not self.epochs:
            yield Problem("steps", "neither steps nor epochs is positive", "Set one of them.")

    def batch_problems(self, workers: int) -> Iterator[Problem]:
        """Yields a problem if a batch cannot be cut into equal micro-batches on all workers.
        One rule for every training."""
        together = self.micro_batch_size * workers
        if together > 0 and self.batch_size % together:
            message = (
                f"{self.batch_size} is no multiple of micro_batch_size x trainer.workers = {self.micro_batch_size} x "
                f"{workers}"
            )
            yield Problem("batch_size", message, "Choose sizes that divide.")


class Share(Enum):  # a text has a method that is called split
    """Who has the GPUs."""

    time = "time"
    """Engines and trainer take turns: engines on the trainer's nodes make room, as many as it needs.
    In an online method they sleep while the trainer trains and load its weights when they wake, by vLLM's sleep mode;
    the trainer keeps its memory while they draw, so it needs what policy.gpu_memory_utilization leaves. The order of
    these calls is tested; on a GPU it was not run."""
    together = "together"
    """An engine and a trainer worker are on one GPU all the time: the engine takes policy.gpu_memory_utilization of its
    memory, the trainer has the rest."""
    split = "split"
    """Each has its own, all the time."""


@dataclass
class TrainerConfig(Section):
    """Where and how training runs."""

    workers: PositiveInt = 1
    """Processes that share a batch; with use_gpu one GPU each."""
    use_gpu: bool = False
    """Train on GPUs."""
    zero: Annotated[int, Field(ge=2, le=3)] = 2
    """Stage of DeepSpeed's ZeRO: 2 splits gradients and optimiser states over the workers, 3 the weights too.
    3 is slower, and for models whose weights do not fit otherwise."""
    share: Share = Share.time
    """How trainer and engines share the GPUs."""
    threads: PositiveInt = 2
    """OpenMP threads of a worker on a CPU."""
    start_timeout_s: PositiveFloat = 600.0
    """Deadline for the workers to come up."""
    max_failures: NonNegativeInt = 2
    """Restarts from the last checkpoint after a worker died."""
    continue_from: ContinueFrom = ContinueFrom.previous
    """Checkpoint that a round's training starts from."""
