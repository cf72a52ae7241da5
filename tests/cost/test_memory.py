"""Bytes of a trainer, beside DeepSpeed's own estimate of what ZeRO-2 keeps."""

import json
from pathlib import Path

import pytest

from agentr.config.text import read_yaml
from agentr.cost import memory
from agentr.cost.hardware import GIB, hardware
from agentr.cost.memory import TrainingSetup
from agentr.cost.models import shape_of
from agentr.cost.shape import Shape
from agentr.methods import load

H100 = hardware("H100").device
LLAMA = shape_of(load(Path(__file__).parents[2] / "configs/agent_r_llama3_8b.yaml").model)


def training(**more: object) -> TrainingSetup:
    return TrainingSetup(**{"rows": 1, "batch": 8, "longest": 4096, "mean": 2000.0, **more})  # type: ignore[arg-type]


@pytest.mark.parametrize(("workers", "published"), [(1, 128.0), (2, 72.0), (4, 44.0), (8, 30.0)])
def test_weights_gradients_and_states_are_those_of_zero_2(workers: int, published: float) -> None:
    """2 bytes a weight on each worker, 2 + 12 split over them (arXiv 1910.02054, section 5), in 10^9 bytes."""
    parts = memory.trainer_memory(LLAMA, training(workers=workers), H100)["forward and backward"]
    states = sum(parts[name].value for name in ("weights", "gradients", "masters", "Adam's moments"))
    assert states / 1e9 == pytest.approx(published, rel=0.01)


@pytest.mark.slow
@pytest.mark.parametrize("workers", [1, 2, 8])
def test_the_optimisers_step_is_what_deepspeed_says_of_it(workers: int) -> None:
    from deepspeed.runtime.zero.stage_1_and_2 import estimate_zero2_model_states_mem_needs

    parts = memory.trainer_memory(LLAMA, training(workers=workers), H100)["optimiser step"]
    states = ("weights", "gradients", "gradients in float32", "masters", "Adam's moments")
    _, theirs = estimate_zero2_model_states_mem_needs(int(LLAMA.parameters.value), workers, cpu_offload=False)
    assert sum(parts[name].value for name in states) == pytest.approx(theirs, rel=1e-6)


def test_the_worst_phase_is_what_counts() -> None:
    """Long rows make it the backward pass, short ones the optimiser's step, which has the gradients in float32 too."""
    phases = [memory.worst(memory.trainer_memory(LLAMA, training(longest=n), H100))[0] for n in (64, 16384)]
    assert phases == ["optimiser step", "forward and backward"]


@pytest.mark.parametrize(
    ("less", "more"),
    [
        ({"checkpointing": True}, {}),
        ({"workers": 8}, {"workers": 4}),
        ({"longest": 8192}, {}),
        ({"rows": 1}, {"rows": 2}),
        ({"rank": 16}, {"rank": 64}),
        ({"rank": 64}, {}),
        ({}, {"bf16": False}),
        ({}, {"reference": True}),
        ({"zero": 3}, {}),
        ({"trained": 0.1}, {"trained": 1.0}),
    ],
)
def test_what_needs_less(less: dict[str, object], more: dict[str, object]) -> None:
    usual = {"longest": 16384, "workers": 8}
    small, large = (
        memory.worst(memory.trainer_memory(LLAMA, training(**{**usual, **each}), H100))[1] for each in (less, more)
    )
    assert small.value < large.value


def test_an_engine_has_for_its_cache_what_weights_leave() -> None:
    parts = memory.engine_memory(LLAMA, 2, 1, 0.85, H100)
    assert sum(part.value for part in parts.values()) == pytest.approx(0.85 * H100.memory.value)
    split = memory.engine_memory(LLAMA, 2, 4, 0.85, H100)
    assert split["weights"].value == parts["weights"].value / 4 and split["cache"].value > parts["cache"].value


def test_models_that_come_with_agentr_have_their_published_sizes() -> None:
    described = read_yaml(Path(memory.__file__).with_name("models.yaml"))
    sizes = {
        "Meta-Llama-3-8B": 8.03,
        "Llama-2-7b-chat-hf": 6.74,
        "Qwen2.5-0.5B-Instruct": 0.494,
        "Qwen2.5-1.5B-Instruct": 1.54,
        "Qwen2.5-3B-Instruct": 3.09,
        "Qwen2.5-7B-Instruct": 7.62,
        "Qwen3-4B-Instruct-2507": 4.02,
        "Qwen3-8B": 8.19,
        "Qwen3-14B": 14.8,
        "mpt-7b": 6.65,
        "SmolLM2-135M-Instruct": 0.1345,
    }
    for name, config in described.items():
        shape = Shape.of(json.loads(json.dumps(config)), name, "models.yaml")
        short = name.rpartition("/")[2]
        if short in sizes:
            assert shape.parameters.value / 1e9 == pytest.approx(sizes[short], rel=0.005), name
    assert GIB == 2**30
