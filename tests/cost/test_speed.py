"""Predicted beside published speeds of GPUs. The constants were set on two of the rows; the others are predictions."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from agentr.config.text import read_yaml
from agentr.cost import memory, speed
from agentr.cost.hardware import DeviceSpec, hardware
from agentr.cost.memory import TrainingSetup
from agentr.cost.number import given
from agentr.cost.shape import Shape

MODELS = read_yaml(Path(memory.__file__).with_name("models.yaml"))
ROWS = {row["name"]: row for row in read_yaml(Path(__file__).with_name("published.yaml"))}
#: Rows whose batch or prompt nobody published.
UNKNOWN = [name for name, row in ROWS.items() if row["kind"] == "decode" and row["batch"] is None]
#: Rows on which ``speed.ARITHMETIC`` and ``speed.BANDWIDTH`` were set.
SET = ("llm-foundry-mpt-7b-8xh100-2k", "qwen25-7b-1xa100-80-batch1")


def tokens_per_s(row: dict[str, Any]) -> float:
    shape = Shape.of(MODELS[row["model"]], row["model"], "models.yaml")
    on = hardware(f"{row['gpus']}x{row['gpu']}")
    if row["kind"] == "train":
        length = row["sequence_length"]
        step = TrainingSetup(
            workers=on.count, rows=1, batch=8 * on.count, longest=length, mean=length, rank=row.get("rank") or 0,
            checkpointing=row["checkpointing"] == "full",
        )  # fmt: skip
        return step.batch * length / speed.optimiser_step(shape, step, on.device).value
    read = given("prompts", row["input_tokens"] * row["batch"], "the row")
    reading = speed.prefill(shape, read, row["input_tokens"] / 2, on.device).value
    if row["kind"] == "prefill":
        return read.value / reading
    context = row["input_tokens"] + row["output_tokens"] / 2
    step_s = speed.engine_step(shape, row["batch"], context, on.device).value
    return row["batch"] * row["output_tokens"] / (row["output_tokens"] * step_s + reading)


@pytest.mark.parametrize("name", [name for name in ROWS if name not in UNKNOWN])
def test_published_speeds_are_within_a_factor_of_two(name: str) -> None:
    ratio = tokens_per_s(ROWS[name]) / ROWS[name]["tokens_per_s"]
    assert (0.9 < ratio < 1.1) if name in SET else (0.5 < ratio < 2.0), f"{ratio:.2f}"


def test_few_rows_are_left_out() -> None:
    assert len(ROWS) - len(UNKNOWN) >= 16


@pytest.mark.parametrize(
    ("less", "more"),
    [
        ({"rank": 16}, {}),
        ({}, {"checkpointing": True}),
        ({"workers": 8}, {"workers": 4}),
        ({"batch": 32}, {"batch": 64}),
        ({"trained": 0.2}, {"trained": 1.0}),
        ({"rows": 8}, {"rows": 1}),
        ({"workers": 4}, {"workers": 4, "zero": 3}),
    ],
)
@pytest.mark.parametrize("model", ["meta-llama/Llama-3.1-8B", "Qwen/Qwen2.5-0.5B-Instruct"])
def test_what_is_faster(less: dict[str, Any], more: dict[str, Any], model: str) -> None:
    shape, device = Shape.of(MODELS[model], model, ""), hardware("H100").device
    usual = {"rows": 1, "batch": 64, "longest": 512, "mean": 64.0}
    fast, slow = (
        speed.optimiser_step(shape, TrainingSetup(**{**usual, **each}), device).value for each in (less, more)
    )
    assert fast <= slow


def test_tensor_parallelism_spares_bytes_and_costs_all_reduces() -> None:
    device = hardware("H100").device
    large, small = (Shape.of(MODELS[name], name, "") for name in ("Qwen/Qwen3-14B", "Qwen/Qwen2.5-0.5B-Instruct"))
    steps = {
        (name, split): speed.engine_step(shape, 16, 1000, device, tensor_parallel=split).value
        for name, shape in (("large", large), ("small", small))
        for split in (1, 4)
    }
    assert steps["large", 4] < 0.5 * steps["large", 1] and steps["small", 4] > 0.8 * steps["small", 1]


#: A machine without a GPU, and what is trained on it.
CORES = DeviceSpec(
    title="cores", memory_gib=24, bandwidth_gb_s=60, bfloat16_tflops=0.4, float32_tflops=0.2, cores=2, source="here"
)
SMALL = Shape.of(MODELS["Qwen/Qwen2.5-0.5B-Instruct"], "small", "")


def job_of(workers: int) -> TrainingSetup:
    return TrainingSetup(workers=workers, rows=1, batch=8, longest=512, mean=512.0)


def test_workers_on_a_machine_without_gpus_share_its_cores() -> None:
    def seconds(device: DeviceSpec, workers: int) -> float:
        return speed.optimiser_step(SMALL, job_of(workers), device).value

    assert seconds(CORES, 2) > 0.95 * seconds(CORES, 1)
    gpu = hardware("H100").device
    assert seconds(gpu, 2) < 0.7 * seconds(gpu, 1)


def test_a_step_takes_longer_in_a_run_that_fills_the_cores() -> None:
    def longer(device: DeviceSpec, workers: int, threads: int) -> float:
        job = job_of(workers)
        alone = speed.optimiser_step(SMALL, job, device).value
        return speed.step_in_a_run(SMALL, job, device, threads).value / alone

    assert longer(CORES, 1, 1) == longer(hardware("H100").device, 1, 2) == longer(replace(CORES, cores=16), 1, 2) == 1
    assert 1 < longer(CORES, 2, 1) < longer(CORES, 1, 2)
