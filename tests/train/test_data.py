"""What is trained on, in which order, in which tensors; no model involved."""

# pyright: reportCallIssue=false
# What torch and datasets take is not what they say.

import pickle
from dataclasses import fields, replace
from pathlib import Path

import numpy as np
import pytest

from agentr.config.training import DPOConfig, LoRAConfig, TrainConfig, TrainerConfig
from agentr.errors import ConfigError, DataError
from agentr.store.dataset import DATASET_TYPES, write_rows
from agentr.store.rows import Provenance, Row
from agentr.train.data import highest_token, make_plan, padded_length, steps_of_epochs
from agentr.train.job import TrainJob, TrainResult
from agentr.train.losses import LOSSES, load_loss
from agentr.types import Loss
from tests.support import tiny_tokenizer
from tests.train.conftest import random_pairs, random_rows


def make_job(dataset: Path, out: Path, **config) -> TrainJob:
    return TrainJob(dataset, out / "start", out, TrainConfig(**{"batch_size": 8, **config}))


def test_every_loss_has_a_dataset_type_and_a_module() -> None:
    assert {described.loss for described in DATASET_TYPES.values()} == set(Loss) == {*LOSSES, Loss.REINFORCE}
    with pytest.raises(DataError, match="not as a dataset"):
        load_loss(Loss.REINFORCE)
    for loss in LOSSES:
        module = load_loss(loss)
        assert callable(module.make_trainer)
        assert set(module.RESULTS) <= {field.name for field in fields(TrainResult)}
        assert set(module.RESULTS.values()) <= set(module.METRICS)


def test_labels_decode_to_exactly_the_trained_text() -> None:
    from agentr.train.sft import IGNORE, encode

    tokenizer = tiny_tokenizer()
    parts = [
        ("<|im_start|>user\nWhat do you do?<|im_end|>\n<|im_start|>assistant\n", 0),
        ("Action: open the door<|im_end|>", 1),
        ("\n", 0),
    ]
    ids, mask = [], []
    for text, trained in parts:
        piece = tokenizer(text, add_special_tokens=False)["input_ids"]
        ids += piece
        mask += [trained] * len(piece)
    labels = encode(Row(tuple(ids), tuple(mask), Provenance("t", (0,), "good")))["labels"]
    assert tokenizer.decode([label for label in labels if label != IGNORE]) == "Action: open the door<|im_end|>"


def test_dataset_holds_the_rows_in_planned_order(dataset: Path, tmp_path: Path) -> None:
    from agentr.train.sft import IGNORE, as_dataset

    plan = make_plan(make_job(dataset, tmp_path, steps=4))
    assert plan.loss is Loss.IMITATE
    entries = as_dataset(plan)
    assert len(entries) == 32
    for entry, number in zip(entries, plan.order.ravel(), strict=True):
        assert tuple(entry["input_ids"]) == plan.rows[number].input_ids
        assert tuple(int(label != IGNORE) for label in entry["labels"]) == plan.rows[number].loss_mask


def test_each_epoch_sees_each_row_once(dataset: Path, tmp_path: Path) -> None:
    plan = make_plan(make_job(dataset, tmp_path, batch_size=10, steps=6))
    for epoch in range(3):
        seen = plan.order[2 * epoch : 2 * epoch + 2].ravel()
        assert sorted(seen) == list(range(20))
    assert plan.targets_S[:2].sum() == sum(sum(row.loss_mask) for row in plan.rows)


def test_order_depends_on_the_seed_and_not_on_how_the_batch_is_cut(dataset: Path, tmp_path: Path) -> None:
    job = make_job(dataset, tmp_path, steps=5)
    cut = replace(job, config=replace(job.config, micro_batch_size=2), trainer=TrainerConfig(workers=4))
    assert np.array_equal(make_plan(job).order, make_plan(cut).order)
    other = replace(job, config=replace(job.config, seed=1))
    assert not np.array_equal(make_plan(job).order, make_plan(other).order)


@pytest.mark.parametrize(("epochs", "steps"), [(1.0, 3), (0.1, 1), (2.0, 5)])
def test_epochs_round_up_to_whole_batches(dataset: Path, tmp_path: Path, epochs: float, steps: int) -> None:
    assert make_plan(make_job(dataset, tmp_path, epochs=epochs)).steps == steps


def test_sizes_round_up() -> None:
    assert [steps_of_epochs(20, epochs, 8) for epochs in (0.01, 0.4, 0.41, 1.0, 2.0)] == [1, 1, 1, 3, 5]
    assert [padded_length(longest) for longest in (1, 32, 33, 1000, 1025, 4097)] == [32, 32, 64, 1024, 1088, 4352]
    assert all(longest <= padded_length(longest) < longest * 1.07 for longest in range(512, 9000))


def test_collator_pads_to_a_multiple_and_trains_on_no_padding() -> None:
    from agentr.train.sft import IGNORE, Collator, encode

    rows = random_rows(3, longest=40)
    batch = Collator(pad_token_id=7)([encode(row) for row in rows])
    assert batch["input_ids"].shape == batch["labels"].shape == batch["attention_mask"].shape
    assert batch["input_ids"].shape[1] % 32 == 0
    for index, row in enumerate(rows):
        size = len(row.input_ids)
        assert batch["attention_mask"][index].sum() == size
        assert batch["input_ids"][index, :size].tolist() == list(row.input_ids)
        assert (batch["input_ids"][index, size:] == 7).all()
        assert (batch["labels"][index] != IGNORE).sum() == sum(row.loss_mask)


def test_a_plan_of_pairs_counts_both_sides(pairs: Path, tmp_path: Path) -> None:
    from agentr.train.dpo import as_pair_dataset

    plan = make_plan(make_job(pairs, tmp_path, batch_size=4, steps=3))
    assert plan.loss is Loss.PREFER
    assert sorted(plan.order.ravel()) == list(range(12))
    step = [plan.rows[number] for number in plan.order[0]]
    assert plan.tokens_S[0] == sum(2 * len(p.prompt_ids) + len(p.chosen_ids) + len(p.rejected_ids) for p in step)
    assert plan.targets_S[0] == sum(sum(p.chosen_mask) + sum(p.rejected_mask) for p in step)
    assert [p.prompt_ids for p in step] == sorted(p.prompt_ids for p in step)
    assert [entry["pair"] for entry in as_pair_dataset(plan)] == plan.order.ravel().tolist()
    assert highest_token(plan) == max(max(*p.prompt_ids, *p.chosen_ids, *p.rejected_ids) for p in plan.rows)


def test_pairs_are_laid_out_chosen_first_with_the_masks_of_the_agent() -> None:
    from agentr.train.dpo import PairCollator

    pairs = random_pairs(3)
    batch = PairCollator(pairs, pad_token_id=7)([{"pair": 2}, {"pair": 0}])
    assert batch.pop("pair").tolist() == [2, 0]
    assert batch["input_ids"].shape[1] % 32 == 0
    two, zero = pairs[2], pairs[0]
    sides = [
        (two.prompt_ids, two.chosen_ids, two.chosen_mask),
        (zero.prompt_ids, zero.chosen_ids, zero.chosen_mask),
        (two.prompt_ids, two.rejected_ids, two.rejected_mask),
        (zero.prompt_ids, zero.rejected_ids, zero.rejected_mask),
    ]
    assert len(batch["input_ids"]) == len(sides)
    for (prompt, ids, mask), tokens, attention, counts in zip(
        sides, batch["input_ids"], batch["attention_mask"], batch["completion_mask"], strict=True
    ):
        size = len(prompt) + len(ids)
        assert tokens[:size].tolist() == [*prompt, *ids]
        assert (tokens[size:] == 7).all()
        assert attention.tolist() == [1] * size + [0] * (len(attention) - size)
        assert counts.tolist() == [0] * len(prompt) + list(mask) + [0] * (len(counts) - size)


def test_a_pair_with_one_side_too_long_is_refused(tmp_path: Path) -> None:
    pairs = random_pairs(6)
    write_rows(tmp_path / "pairs", pairs)
    limit = sorted(pair.longest for pair in pairs)[-2]
    with pytest.raises(DataError, match=rf"1 of 6 rows .* exceed train.max_length {limit}"):
        make_plan(make_job(tmp_path / "pairs", tmp_path, max_length=limit))


def test_bad_datasets_are_refused(tmp_path: Path) -> None:
    write_rows(tmp_path / "empty", [])
    with pytest.raises(DataError, match="is empty"):
        make_plan(make_job(tmp_path / "empty", tmp_path))
    write_rows(tmp_path / "long", random_rows(4, longest=60))
    with pytest.raises(DataError, match=r"4 of 4 rows .* exceed train.max_length 7"):
        make_plan(make_job(tmp_path / "long", tmp_path, max_length=7))
    (tmp_path / "long" / "rows.parquet").write_bytes(b"torn")
    with pytest.raises(DataError, match=r"rows\.parquet is damaged or missing"):
        make_plan(make_job(tmp_path / "long", tmp_path))


@pytest.mark.parametrize(
    ("config", "workers", "message"),
    [
        ({"batch_size": 9, "micro_batch_size": 1}, 2, r"train\.batch_size: 9 is no multiple of .* = 1 x 2"),
        ({"batch_size": 24, "micro_batch_size": 16}, 1, r"train\.batch_size: 24 is no multiple of .* = 16 x 1"),
        ({"batch_size": 16, "micro_batch_size": 16}, 2, r"train\.batch_size: 16 is no multiple of .* = 16 x 2"),
        ({"micro_batch_size": 0}, 1, r"train\.micro_batch_size: 0 is refused"),
        ({"epochs": 0.0}, 1, "neither steps nor epochs is positive"),
        ({"checkpoint_every": 0}, 1, r"train\.checkpoint_every: 0 is refused"),
        ({"warmup_ratio": 2.0}, 1, r"train\.warmup_ratio: 2 is refused"),
        ({"dpo": DPOConfig(beta=0.0)}, 1, r"train\.dpo\.beta: 0 is refused"),
        ({"dpo": DPOConfig(beta=float("nan"))}, 1, r"train\.dpo\.beta: nan is refused"),
        ({"dpo": DPOConfig(sft=-1.0)}, 1, r"train\.dpo\.sft: -1 is refused"),
        ({"dpo": DPOConfig(label_smoothing=0.5)}, 1, r"train\.dpo\.label_smoothing: 0\.5 is refused"),
        ({"dpo": DPOConfig(label_smoothing=0.1, length_normalized=True)}, 1, "contradict each other"),
        ({"lora": LoRAConfig(rank=-1)}, 1, r"train\.lora\.rank: -1 is refused"),
        ({"lora": LoRAConfig(rank=2, alpha=0.0)}, 1, r"train\.lora\.alpha: 0 is refused"),
        ({"lora": LoRAConfig(rank=2, dropout=1.0)}, 1, r"train\.lora\.dropout: 1 is refused"),
        ({"lora": LoRAConfig(rank=2, targets=[])}, 1, r"train\.lora\.targets: the list is empty"),
    ],
)
def test_contradictions_are_named(config: dict, workers: int, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        TrainJob(Path("d"), Path("s"), Path("o"), TrainConfig(**config), TrainerConfig(workers=workers)).validate()


def test_sizes_that_divide_are_taken_as_they_are() -> None:
    job = TrainJob(
        Path("d"), Path("s"), Path("o"), TrainConfig(batch_size=24, micro_batch_size=4), TrainerConfig(workers=3)
    )
    job.validate()


def test_a_job_survives_pickling() -> None:
    job = TrainJob(Path("d"), Path("s"), Path("o"), TrainConfig(steps=3), TrainerConfig(workers=2), "name")
    assert pickle.loads(pickle.dumps(job)) == job
