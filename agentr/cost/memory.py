"""Bytes on a device, by role and phase: what a role needs is what its worst phase needs.

The trainer is DeepSpeed's ZeRO-2 (arXiv 1910.02054, section 5): every worker has all weights; masters in float32,
Adam's two moments and gradients are split over the workers. With ZeRO-3 the weights are, too.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import reduce
from operator import add

from agentr.cost.hardware import GIB, DeviceSpec
from agentr.cost.number import Number, given, least
from agentr.cost.shape import Shape

#: Parts of memory by what they are called.
Parts = dict[str, Number]

#: TRL's fused output layer: tokens and words of the piece of logits that is there at a time.
_TILE_TOKENS, _TILE_WORDS = 4096, 32768
#: Copies of that piece in float32 where there is no Triton: logits, their logarithms, probabilities, gradients.
_TILES_WITHOUT_TRITON = 7
#: Most numbers of a bucket in which ZeRO-2 reduces gradients (``agentr.train.trainer.deepspeed_config``).
_BUCKET = 200_000_000
#: Most weights that ZeRO-3 keeps whole on a worker at a time.
_LIVE = 1_000_000_000
#: A process on a GPU before it loads a model: CUDA's context, libraries' work spaces, NCCL's buffers.
_CONTEXT = 1.5 * GIB
#: The same without a GPU, above what a process that has imported everything holds.
_LIBRARIES = 0.15 * GIB
#: What PyTorch's allocator holds and cannot use.
_FRAGMENTS = 0.06
#: What an engine needs of its share besides weights and cache: activations of its largest batch, CUDA graphs.
_ENGINE_WORK = 2.5 * GIB


@dataclass(frozen=True, kw_only=True)
class TrainingSetup:
    """What decides the memory and the time of an optimiser step.

    Attributes:
        workers: Processes that share a batch.
        rows: Rows of a micro-batch that go through the model; of a pair both sides.
        batch: Rows of an optimiser step, over all workers, counted alike.
        longest: Longest row in tokens.
        mean: Mean tokens of a row.
        trained: Share of tokens that are targets.
        bf16: Whether it computes in bfloat16, with masters in float32.
        checkpointing: Whether activations are computed again.
        rank: Of low-rank adapters; 0 means that all weights are trained.
        zero: Stage of ZeRO: 3 splits the weights, too.
        reference: Whether a second model stands beside it.
    """

    workers: int = 1
    rows: int
    batch: int
    longest: int
    mean: float
    trained: float = 1.0
    bf16: bool = True
    checkpointing: bool = False
    rank: int = 0
    zero: int = 2
    reference: bool = False

    @property
    def width(self) -> int:
        """Bytes of a number in forward and backward."""
        return 2 if self.bf16 else 4


def trainer_memory(shape: Shape, training: TrainingSetup, device: DeviceSpec) -> dict[str, Parts]:
    """Returns what a worker's device holds, by phase and part. On a machine without a GPU: what a process holds above
    one that has imported everything."""
    width, k = given("bytes of a number", training.width, "bfloat16 2, float32 4"), _workers(training)
    trained = shape.adapters(training.rank) if training.rank else shape.parameters
    weights = shape.parameters * width / (k if training.zero == 3 else 1)
    fixed: Parts = {"weights": weights.named("weights", "B")}
    if training.zero == 3:
        gathered = given("weights gathered at a time", min(shape.parameters.value, _LIVE), "DeepSpeed's default")
        fixed["gathered weights"] = (gathered * width).named("gathered weights", "B")
    if training.rank:
        fixed["adapters"] = (trained * width).named("adapters", "B")
    if training.reference and not training.rank:
        fixed["reference"] = (shape.parameters * width).named("reference", "B")
    fixed["masters"] = (4 * trained / k).named("masters", "B")
    fixed["Adam's moments"] = (8 * trained / k).named("Adam's moments", "B")
    copies = given("buckets", 2 if device.gpu else 1, "two where reducing overlaps with computing")
    numbers = given("numbers of a bucket", min(trained.value, _BUCKET), "trainer.deepspeed_config")
    fixed["bucket"] = (copies * numbers * width).named("bucket", "B")
    fixed["gradients"] = (trained * width / k).named("gradients", "B")
    forwards = {
        "activations": activations(shape, training),
        "output layer": output_layer(shape, training, device),
    }
    update = {"gradients in float32": (4 * trained / k).named("gradients in float32", "B")}
    if training.bf16:  # flat, before they are cast
        update["flat gradients"] = (trained * width / k).named("flat gradients", "B")
    if not device.gpu:
        fixed["process"] = given("process", _LIBRARIES, "a constant: libraries, threads, rows", "B")
        if training.workers > 1:
            fixed["reducing"] = (numbers * width).named("reducing", "B")  # gloo's own copy
        # freed memory is kept, and seldom has the size that the other phase asks for
        return {"forward and backward, optimiser step": {**fixed, **forwards, **update}}
    fixed["process"] = given("process", _CONTEXT, "a constant: CUDA's context, work spaces, NCCL", "B")
    phases = {"forward and backward": {**fixed, **forwards}, "optimiser step": {**fixed, **update}}
    for parts in phases.values():
        share = given("share lost to fragments", _FRAGMENTS, "a constant: what PyTorch's allocator cannot use")
        parts["fragments"] = (total(parts) * share).named("fragments", "B")
    return phases


def activations(shape: Shape, training: TrainingSetup) -> Number:
    """What the layers keep of a micro-batch for the backward pass (arXiv 2205.05198, section 4, counted for these
    layers and this attention, which keeps no scores)."""
    tokens = given("tokens of a micro-batch", training.rows * training.longest, "rows x longest row")
    layers, kept = given("layers", shape.layers, shape.source), shape.saved(training.width)
    if training.checkpointing:
        edge = given("width of the model", shape.hidden, shape.source) * training.width
        return (tokens * (layers * edge + 2 * kept)).named("activations", "B")
    return (tokens * (layers + 1) * kept).named("activations", "B")


def output_layer(shape: Shape, training: TrainingSetup, device: DeviceSpec) -> Number:
    """The logits are never there as a whole: TRL's fused output layer goes through pieces of them, and adds the
    gradient of its weights up in float32."""
    targets = given(
        "targets of a micro-batch", training.rows * training.longest * training.trained, "rows x longest x share"
    )
    piece = least(targets, _TILE_TOKENS) * min(shape.words, _TILE_WORDS)
    copies = training.width if device.gpu else 4 * _TILES_WITHOUT_TRITON
    sums = shape.table * (0 if training.rank else 4)
    return (piece * copies + sums).named("output layer", "B")


def engine_memory(shape: Shape, width: int, tensor_parallel: int, share: float, device: DeviceSpec) -> Parts:
    """Returns what a GPU of an engine holds: vLLM takes a share of the memory, and what weights leave is cache.

    Args:
        width: Bytes of a weight.
        share: ``policy.gpu_memory_utilization``.
    """
    taken = device.memory * given("share of the memory", share, "policy.gpu_memory_utilization")
    weights = (shape.parameters * width / tensor_parallel).named("weights", "B")
    work = given("work space", _ENGINE_WORK, "a constant: activations, CUDA graphs", "B")
    return {"weights": weights, "work space": work, "cache": (taken - weights - work).named("cache", "B")}


def total(parts: Mapping[str, Number]) -> Number:
    """Returns the sum of the parts."""
    return reduce(add, parts.values())


def worst(phases: Mapping[str, Parts]) -> tuple[str, Number]:
    """Returns the phase that needs most, and how much."""
    needs = {phase: total(parts).named(phase, "B") for phase, parts in phases.items()}
    name = max(needs, key=lambda phase: needs[phase].value)
    return name, needs[name]


def _workers(training: TrainingSetup) -> Number:
    return given("workers", training.workers, "trainer.workers")
