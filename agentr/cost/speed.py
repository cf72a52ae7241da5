"""Seconds: of an optimiser step, of an engine's step, of reading a prompt.

Each has the three terms of docs/cost.md: arithmetic, bytes, and what a call costs besides its work, by which small
models are bound everywhere. The constants below are all that was set by measurements; docs/cost.md says by which.
"""

from __future__ import annotations

from agentr.cost.hardware import DeviceSpec
from agentr.cost.memory import TrainingSetup
from agentr.cost.number import Number, given, most
from agentr.cost.shape import Shape

#: Share of the peak that a model's matrix products reach: of a GPU's dense peak, and of what this machine's cores reach
#: with one large product.
ARITHMETIC, ARITHMETIC_CPU = 0.6, 0.65
#: How much longer attention on a CPU takes than its products alone: scores are made again, masked and added up by rows.
ATTENTION_CPU = 4.0
#: Share of the memory's bandwidth that is reached.
BANDWIDTH = 0.7
#: How often what a layer keeps goes over the memory: written and read forwards, read backwards, where its gradient is
#: written and read. On a CPU norms and activations are many operations each.
PASSES, PASSES_CPU = 5.0, 40.0
#: Calls of a layer, forwards and backwards.
LAYER_CALLS = 75.0
#: Calls of an optimiser step besides its micro-batches' layers: gradients, buckets, Adam, Python.
STEP_CALLS = 3000.0
#: How much longer a step takes in a run than by itself, on a CPU whose cores the workers fill: Ray's processes, servers
#: and engines wake up beside them. Threads of one worker wait for each other at each operation, so one that is stopped
#: stops the others.
BESIDE_CPU, BESIDE_CPU_THREADS = 1.4, 1.8
#: Calls of a layer in an engine on a CPU; on a GPU they are one CUDA graph.
ENGINE_LAYER_CALLS = 70.0
#: What a step of an engine costs besides the model, as so many calls: scheduler, detokeniser, Python.
ENGINE_CALLS, ENGINE_CALLS_CPU = 300.0, 600.0
#: What each sequence of it costs besides: its sampler.
SEQUENCE_CALLS, SEQUENCE_CALLS_CPU = 8.0, 50.0
#: Share of a CPU's arithmetic in float32 that vLLM's attention reaches where each sequence has one new token.
ENGINE_ATTENTION_CPU = 0.055
#: A turn's way to the engine and back, the environment's step and the coordinator's, as so many calls.
TURN_CALLS, TURN_CALLS_CPU = 150.0, 900.0


def optimiser_step(shape: Shape, training: TrainingSetup, device: DeviceSpec) -> Number:
    """Seconds of an optimiser step. On a CPU the workers share the cores."""
    device = device.part(1 / training.workers)
    rows = given("rows of a step", training.batch, "train.batch_size; of a pair both sides")
    k = given("workers", training.workers, "trainer.workers")
    tokens = (rows * given("tokens of a row", training.mean, "evidence") / k).named("tokens of a worker's step")
    parts = (rows / k / training.rows).named("micro-batches")
    again = 1 if training.checkpointing else 0
    back = 1 if training.rank else 2
    trained = given("share trained", training.trained, "evidence")
    matrices = tokens * 2 * (1 + back + again) * (shape.body + shape.table * trained * (3 / (3 + again)))
    half = given("half a row", training.mean / 2, "evidence")
    scores = tokens * 4 * (1 + 2 + again) * half * (given("layers x queries", shape.layers * shape.queries, "config"))
    if device.gpu:
        attending = scores / _reached(device, training.bf16)
    else:  # in float32 (agentr.train.attention)
        longer = given("times longer than its products", ATTENTION_CPU, "a constant")
        attending = (scores * longer / device.arithmetic(False)).named("attention", "s")
    work = matrices / _reached(device, training.bf16) + attending
    passes = given("passes over what is kept", PASSES if device.gpu else PASSES_CPU, "a constant") + again * 2
    moved = (tokens * given("layers", shape.layers, shape.source) * shape.saved(training.width) * passes).named(
        "bytes moved", "B"
    )
    computing = (work + moved / _bandwidth(device)).named("computing", "s")
    calls = (parts * given("layers", shape.layers, shape.source) * LAYER_CALLS * (1 + again / 3)).named("calls")
    called = (calls * device.call).named("calls' cost", "s")
    forwards = most(computing, called) if device.gpu else computing + called
    weights = shape.adapters(training.rank) if training.rank else shape.parameters
    adam = (weights / k * 28 / _bandwidth(device)).named("Adam", "s")
    fixed = (STEP_CALLS * device.call).named("a step's fixed cost", "s")
    seconds = forwards + adam + fixed
    if training.workers > 1:
        sent = weights * training.width * (1 - 1 / training.workers)
        seconds = seconds + ((parts + 1) * sent / device.link).named("reducing and gathering", "s")
        if training.zero == 3:
            gathered = shape.parameters * training.width * (1 - 1 / training.workers)
            seconds = seconds + (parts * 2 * gathered / device.link).named("gathering weights", "s")
    return seconds.named("optimiser step", "s")


def step_in_a_run(shape: Shape, training: TrainingSetup, device: DeviceSpec, threads: int) -> Number:
    """Seconds of an optimiser step with the rest of a run beside it.

    Args:
        threads: Of a worker on a CPU.
    """
    step = optimiser_step(shape, training, device)
    if training.workers * threads < device.cores or device.gpu:
        return step
    longer = BESIDE_CPU if threads == 1 else BESIDE_CPU_THREADS
    return (step * given("times longer beside a run", longer, "a constant")).named("optimiser step in a run", "s")


def engine_step(
    shape: Shape, sequences: float, context: float, device: DeviceSpec, *, width: int = 2, tensor_parallel: int = 1
) -> Number:
    """Seconds in which an engine draws one token for each of its sequences.

    Args:
        sequences: Decoded together.
        context: Mean tokens before the one that is drawn.
        width: Bytes of a number.
    """
    count, split = (
        given("sequences", sequences, "decoded together"),
        given("GPUs of an engine", tensor_parallel, "policy.tensor_parallel_size"),
    )
    seen = given("context", context, "evidence")
    read = (shape.used * width + count * seen * shape.kv_token(width)).named("bytes read", "B")
    bytes_ = read / split / _bandwidth(device)
    work = 2 * shape.used * count / split / _reached(device, width == 2)
    each = given("calls of a sequence", SEQUENCE_CALLS if device.gpu else SEQUENCE_CALLS_CPU, "a constant")
    calls = given("engine's calls", ENGINE_CALLS if device.gpu else ENGINE_CALLS_CPU, "a constant") + count * each
    computing = most(bytes_, work)
    if not device.gpu:
        layers = given("layers", shape.layers, shape.source)
        calls = calls + layers * ENGINE_LAYER_CALLS
        scores = (count * seen * 4 * layers * shape.queries).named("arithmetic of attention", "FLOP")
        reached = device.arithmetic(False) * given("share of the peak", ENGINE_ATTENTION_CPU, "a constant")
        computing = computing + (scores / reached).named("attention", "s")
    return (computing + calls * device.call + _together(shape, device, tensor_parallel)).named("engine step", "s")


def turn(device: DeviceSpec) -> Number:
    """Seconds of a turn's way to the engine and back, and of the environment's step."""
    calls = TURN_CALLS if device.gpu else TURN_CALLS_CPU
    return (given("calls of a turn", calls, "a constant") * device.call).named("a turn's way", "s")


def prefill(
    shape: Shape, tokens: Number, context: float, device: DeviceSpec, *, width: int = 2, tensor_parallel: int = 1
) -> Number:
    """Seconds in which an engine reads prompts.

    Args:
        tokens: Those that are not in its cache.
        context: Mean tokens before one.
    """
    scores = 4 * given("layers x queries", shape.layers * shape.queries, shape.source) * context
    work = (tokens * (2 * shape.body + scores)).named("arithmetic of prompts", "FLOP")
    return (work / tensor_parallel / _reached(device, width == 2)).named("reading prompts", "s")


def _together(shape: Shape, device: DeviceSpec, tensor_parallel: int) -> Number | float:
    if tensor_parallel == 1:
        return 0
    each = given("an all-reduce", 1.5e-5 if device.nvlink else 6e-5, "a constant: its latency", "s")
    return (2 * given("layers", shape.layers, shape.source) * each).named("all-reduces", "s")


def _reached(device: DeviceSpec, bf16: bool) -> Number:
    share = given("share of the peak", ARITHMETIC if device.gpu else ARITHMETIC_CPU, "a constant")
    return (device.arithmetic(bf16) * share).named("arithmetic that is reached", "FLOP/s")


def _bandwidth(device: DeviceSpec) -> Number:
    share = given("share of the bandwidth", BANDWIDTH if device.gpu else 1.0, "a constant; a measured one is reached")
    return (device.bandwidth * share).named("bandwidth that is reached", "B/s")
