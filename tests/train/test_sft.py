"""Real training steps in this process: TRL and DeepSpeed, without Ray."""

import json
import random
from dataclasses import replace
from pathlib import Path

import pytest

from agentr.config.training import TrainConfig
from agentr.errors import DataError, ModelError, RunError
from agentr.store.dataset import write_rows
from agentr.store.rows import Provenance, Row
from agentr.train.data import make_plan
from agentr.train.job import TrainJob, TrainResult
from tests.train.conftest import random_rows

pytestmark = [pytest.mark.cluster, pytest.mark.usefixtures("one_process")]


def make_job(dataset: Path, start: Path, out: Path, **config) -> TrainJob:
    defaults = {"batch_size": 8, "steps": 3, "learning_rate": 1e-2, "warmup_ratio": 0.0, "log_every": 1, "bf16": False}
    values = {**defaults, **config}
    return TrainJob(dataset, start, out, TrainConfig(**{"micro_batch_size": values["batch_size"], **values}))


def run(job: TrainJob) -> TrainResult:
    from agentr.train.run import run_job
    from agentr.train.worker import register_deepspeed

    register_deepspeed(use_gpu=False)
    job.out.mkdir(parents=True, exist_ok=True)
    return run_job(job)


def weights(folder: Path) -> dict:
    from safetensors.torch import load_file

    return load_file(folder / "model.safetensors")


def distance(one: Path, other: Path) -> float:
    first, second = weights(one), weights(other)
    assert first.keys() == second.keys()
    return max((first[name].float() - second[name].float()).abs().max().item() for name in first)


def test_first_loss_is_the_cross_entropy_over_all_targets_of_the_batch(
    dataset: Path, start: Path, tmp_path: Path
) -> None:
    import torch
    from transformers import AutoModelForCausalLM

    job = make_job(dataset, start, tmp_path, micro_batch_size=2)
    result = run(job)
    plan, model = make_plan(job), AutoModelForCausalLM.from_pretrained(start)
    total, targets = 0.0, 0
    with torch.no_grad():
        for number in plan.order[0]:
            row = plan.rows[number]
            logprobs = model(torch.tensor([row.input_ids])).logits[0].log_softmax(-1)
            for position in range(1, len(row.input_ids)):
                if row.loss_mask[position]:
                    total -= logprobs[position - 1, row.input_ids[position]].item()
                    targets += 1
    assert result.first_loss == pytest.approx(total / targets, rel=1e-4)
    assert result.trained_tokens == sum(sum(plan.rows[number].loss_mask[1:]) for number in plan.order.ravel())


def test_only_targets_go_through_the_output_layer(
    dataset: Path, start: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import trl.trainer.utils

    original, projected = trl.trainer.utils._ChunkedLogProbFunction, []

    class Spy:
        @staticmethod
        def apply(hidden, *rest):
            projected.append(len(hidden))
            return original.apply(hidden, *rest)

    monkeypatch.setattr(trl.trainer.utils, "_ChunkedLogProbFunction", Spy)
    result = run(make_job(dataset, start, tmp_path))
    assert sum(projected) == result.trained_tokens < result.tokens


def test_cutting_the_batch_into_micro_batches_changes_nothing(dataset: Path, start: Path, tmp_path: Path) -> None:
    whole, cut = (
        make_job(dataset, start, tmp_path / "whole"),
        make_job(dataset, start, tmp_path / "cut", micro_batch_size=2),
    )
    run(whole)
    run(cut)
    assert distance(whole.model, start) > 1e-3
    # Adam divides by the gradient's own size, which amplifies rounding of the smallest gradients.
    assert distance(whole.model, cut.model) < 2e-3
    for one, other in zip(whole.read_metrics(), cut.read_metrics(), strict=True):
        assert one["loss"] == pytest.approx(other["loss"], rel=1e-3)
        assert one["grad_norm"] == pytest.approx(other["grad_norm"], rel=1e-3)


def branching_rows() -> list[Row]:
    """Eight rows of two trees: rows of a tree have the opening in common and, two by two, a turn that is trained on."""
    generator = random.Random(3)

    def ids(count: int) -> tuple[int, ...]:
        return tuple(generator.randrange(3, 300) for _ in range(count))

    rows = []
    for tree in range(2):
        opening = ids(9)
        for turn in (ids(5), ids(5)):
            for branch in range(2):
                end = ids(4 + 3 * branch)
                mask = (0,) * 9 + (1,) * 5 + (0, 0) + (1,) * (len(end) - 2)
                rows.append(Row((*opening, *turn, *end), mask, Provenance(f"tree{tree}", (0, 1), "good")))
    return rows


def test_rows_behind_one_another_change_nothing_but_rounding(
    start: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from agentr.train import forward, trainer

    made, original = [], forward.forward_of
    monkeypatch.setattr(forward, "forward_of", lambda *args, **how: made.append(original(*args, **how)) or made[-1])
    rows = branching_rows()
    write_rows(tmp_path / "rows", rows)
    behind, cut, padded = jobs = [
        make_job(tmp_path / "rows", start, tmp_path / "behind", steps=2),
        make_job(tmp_path / "rows", start, tmp_path / "cut", steps=2, micro_batch_size=4),
        make_job(tmp_path / "rows", start, tmp_path / "padded", steps=2),
    ]
    results = [run(job) for job in (behind, cut)]
    whole = made[0]
    distinct = len({row.input_ids[: t + 1] for row in rows for t in range(len(row.input_ids))})
    assert (
        distinct <= int(whole.lengths_P.sum()) < 0.7 * whole.row_tokens == 0.7 * sum(len(row.input_ids) for row in rows)
    )
    made.clear()
    monkeypatch.setattr(trainer, "takes_rows", lambda *_: False)
    results.append(run(padded))
    assert not made and len({result.trained_tokens for result in results}) == 1
    for job in jobs[1:]:
        for one, other in zip(behind.read_metrics(), job.read_metrics(), strict=True):
            assert one["loss"] == pytest.approx(other["loss"], rel=1e-5)
            assert one["grad_norm"] == pytest.approx(other["grad_norm"], rel=1e-5)
        assert distance(behind.model, job.model) < 1e-4


def test_tokens_that_are_neither_target_nor_context_of_one_do_not_matter(start: Path, tmp_path: Path) -> None:
    rows = random_rows(8)
    # The last two tokens of a row are masked, and nothing comes after them.
    changed = [Row((*row.input_ids[:-2], 5, 6), row.loss_mask, row.provenance) for row in rows]
    write_rows(tmp_path / "rows", rows)
    write_rows(tmp_path / "changed", changed)
    jobs = [make_job(tmp_path / name, start, tmp_path / f"{name}-out", steps=2) for name in ("rows", "changed")]
    for job in jobs:
        run(job)
    assert distance(jobs[0].model, jobs[1].model) < 1e-6


def test_a_mask_that_is_not_the_datasets_stops_the_training(
    dataset: Path, start: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from agentr.train import sft

    original = sft.as_dataset
    monkeypatch.setattr(sft, "as_dataset", lambda plan: original(plan).map(lambda row: {"labels": row["input_ids"]}))
    with pytest.raises(RunError, match=r"step 0 would train on \d+ tokens, its loss masks have"):
        run(make_job(dataset, start, tmp_path))


def test_engine_is_deepspeed_zero_2(
    dataset: Path, start: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from deepspeed import DeepSpeedEngine
    from deepspeed.runtime.zero.stage_1_and_2 import DeepSpeedZeroOptimizer

    from agentr.train import run as running

    trainers, original = [], running.save_model
    monkeypatch.setattr(
        running, "save_model", lambda trainer, *more: (trainers.append(trainer), original(trainer, *more))
    )
    run(make_job(dataset, start, tmp_path, steps=1))
    engine = trainers[0].model_wrapped
    assert isinstance(engine, DeepSpeedEngine)
    assert isinstance(engine.optimizer, DeepSpeedZeroOptimizer)
    assert engine.optimizer.partition_gradients


def test_steps_metrics_and_schedule_are_exact(dataset: Path, start: Path, tmp_path: Path) -> None:
    job = make_job(
        dataset, start, tmp_path, steps=5, warmup_ratio=0.4, min_lr_ratio=0.1, schedule="linear", log_every=2
    )
    result = run(job)
    lines = job.read_metrics()
    assert [line["step"] for line in lines] == [1, 2, 4, 5]
    assert [line["learning_rate"] for line in lines] == pytest.approx([0.005, 0.01, 0.007, 0.004])
    assert (result.steps, result.epochs, result.rows) == (5, 2.0, 20)
    assert (result.first_loss, result.last_loss) == (lines[0]["loss"], lines[-1]["loss"])
    assert job.finished() == result
    assert not job.checkpoints.exists()


def test_checkpoint_loads_and_says_something_else_with_the_same_tokenizer(
    dataset: Path, start: Path, tmp_path: Path
) -> None:
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    job = make_job(dataset, start, tmp_path)
    run(job)
    ids = torch.tensor([[5, 6, 7, 8]])
    with torch.no_grad():
        before, after = (AutoModelForCausalLM.from_pretrained(folder)(ids).logits for folder in (start, job.model))
    assert (before - after).abs().max() > 1e-2
    messages = [{"role": "user", "content": "hello"}]
    texts = [
        AutoTokenizer.from_pretrained(folder).apply_chat_template(messages, tokenize=False)
        for folder in (start, job.model)
    ]
    assert texts[0] == texts[1]
    assert json.loads((start / "config.json").read_text()) == json.loads((job.model / "config.json").read_text())


def test_bf16_keeps_updates_that_bf16_weights_would_lose(dataset: Path, start: Path, tmp_path: Path) -> None:
    import torch

    job = make_job(dataset, start, tmp_path, bf16=True, learning_rate=1e-6, steps=2, schedule="constant_with_warmup")
    run(job)
    before, after = weights(start), weights(job.model)
    name = max(before, key=lambda key: before[key].abs().mean())
    assert after[name].dtype == before[name].dtype == torch.float32
    moved = (after[name] - before[name].bfloat16().float()).abs()
    assert 0 < moved.max() < 1e-5


@pytest.mark.parametrize(
    ("has", "able"),
    [
        ({"avx512_f": True, "avx512_vnni": True, "avx512_bf16": False, "amx_bf16": False}, False),
        ({"avx512_f": True, "avx512_bf16": True}, True),
        ({"amx_tile": True, "amx_bf16": True}, True),
        ({"avx2": True}, False),
        ({"neon": True, "bf16": False}, False),
        ({"neon": True, "bf16": True}, True),
    ],
)
def test_a_processor_multiplies_in_bfloat16_if_it_has_instructions_for_it(
    has: dict[str, bool], able: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    import torch

    from agentr.cpu import multiplies_bf16

    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: has)
    assert multiplies_bf16() is able


@pytest.mark.parametrize("able", [False, True])
def test_the_first_attempt_decides_in_what_to_compute(
    able: bool, dataset: Path, start: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = make_job(dataset, start, tmp_path, bf16=None, steps=2, checkpoint_every=1)
    monkeypatch.setattr("agentr.train.run.multiplies_bf16", lambda: able)
    with monkeypatch.context() as dying:
        dying.setattr("agentr.train.run.save_model", lambda *_: (_ for _ in ()).throw(OSError("no space")))
        with pytest.raises(OSError, match="no space"):
            run(job)
    monkeypatch.setattr("agentr.train.run.multiplies_bf16", lambda: not able)  # it goes on elsewhere
    assert run(job).bf16 is able


def test_the_model_is_saved_in_the_dtype_it_came_in(dataset: Path, start: Path, tmp_path: Path) -> None:
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    half = tmp_path / "half"
    AutoModelForCausalLM.from_pretrained(start).to(torch.bfloat16).save_pretrained(half)
    AutoTokenizer.from_pretrained(start).save_pretrained(half)
    job = make_job(dataset, half, tmp_path / "out", steps=1)
    run(job)
    assert {tensor.dtype for tensor in weights(job.model).values()} == {torch.bfloat16}
    assert distance(job.model, half) > 0


def test_nan_stops_the_training_and_names_the_last_good_checkpoint(dataset: Path, start: Path, tmp_path: Path) -> None:
    job = make_job(dataset, start, tmp_path, steps=8, checkpoint_every=1)
    from agentr.train import trainer

    good = trainer.learning_rate_factor
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            trainer,
            "learning_rate_factor",
            lambda job, step, steps: good(job, step, steps) if step < 2 else float("nan"),
        )
        with pytest.raises(RunError, match=r"no longer a number at optimiser step 4.*checkpoint-2\.$"):
            run(job)
    assert not job.model.exists()
    assert job.finished() is None


def test_a_start_or_dataset_that_does_not_fit_is_named(dataset: Path, start: Path, tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"the start checkpoint .*nowhere has no config.json"):
        run(make_job(dataset, tmp_path / "nowhere", tmp_path / "a"))
    with pytest.raises(DataError, match="holds no readable dataset"):
        run(make_job(tmp_path / "nothing", start, tmp_path / "b"))
    rows = random_rows(2)
    write_rows(tmp_path / "foreign", [replace(row, input_ids=(*row.input_ids[:-1], 70_000)) for row in rows])
    with pytest.raises(ModelError, match="has token 70000, but the model"):
        run(make_job(tmp_path / "foreign", start, tmp_path / "c"))
