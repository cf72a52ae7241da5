"""From rows to batches: which rows make up which step, and the tensors of a micro-batch.

The order is decided here, once, for all workers: step ``s`` trains on rows ``order[s]``, whatever the number of workers and however the
batch is cut into micro-batches. Each epoch is a seeded permutation, and epochs follow each other without a gap, so every batch is full.

Rows are not grouped by length across steps: long rows are the long (hard, failed) episodes, and batches of one kind bias each step.
Within a step the order is free, because the loss is normalised over the step, so there rows are sorted by length and micro-batches waste
little padding.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

import numpy as np

from agentr.errors import DataError
from agentr.store.rows import Preference, Row, read_manifest, read_preferences, read_rows
from agentr.train.job import TrainJob, empty_dataset

if TYPE_CHECKING:
    import torch
    from datasets import Dataset

#: Label of a token that is not a target (the convention of PyTorch and transformers).
IGNORE = -100

#: Every new length is a new set of primitives for oneDNN to prepare on a CPU, so few lengths are faster than many; multiples of 32 are
#: also what tensor cores like.
MULTIPLE = 32


@dataclass(frozen=True)
class Plan:
    """What a job trains on, step by step.

    Attributes:
        rows: The rows of the dataset, all of one type, which decides the trainer.
        order: Row numbers, shape [steps, batch size].
        tokens_S: Tokens of each step, without padding, shape [steps]; of both sides of a pair.
        targets_S: Targets of the loss in each step, shape [steps]. The first token of a row has no prediction, so it never counts.
    """

    rows: Sequence[Row] | Sequence[Preference]
    order: np.ndarray
    tokens_S: np.ndarray
    targets_S: np.ndarray

    @property
    def steps(self) -> int:
        return len(self.order)


def make_plan(job: TrainJob) -> Plan:
    """Reads the dataset and fixes the order.

    ``epochs`` rounds up to whole batches, so every row is seen at least that often.

    Raises:
        DataError: The dataset is missing, damaged or empty, or has rows longer than ``max_length``.
    """
    manifest = read_manifest(job.dataset)
    if not manifest["rows"]:
        raise empty_dataset(job)
    rows = read_preferences(job.dataset) if manifest["type"] == "preferences" else read_rows(job.dataset)
    too_long = sum(row.longest > job.config.max_length for row in rows)
    if too_long:
        hint = "Raise train.max_length, or lower build.max_length."
        raise DataError(f"{too_long} of {len(rows)} rows in {job.dataset} exceed train.max_length {job.config.max_length}.", hint=hint)
    batch = job.config.batch_size
    steps = job.config.steps or -(-round(len(rows) * job.config.epochs) // batch) or 1
    longest = np.array([row.longest for row in rows])
    tokens = np.array([row.tokens for row in rows])
    targets = np.array([row.targets for row in rows])
    epochs = -(-steps * batch // len(rows))
    generator = np.random.default_rng(job.config.seed)
    stream = np.concatenate([generator.permutation(len(rows)) for _ in range(epochs)])[: steps * batch].reshape(steps, batch)
    order = np.take_along_axis(stream, np.argsort(longest[stream], axis=1, kind="stable"), axis=1)
    return Plan(rows, order, tokens[order].sum(axis=1), targets[order].sum(axis=1))


def highest_token(plan: Plan) -> int:
    """The largest token id of the dataset."""
    return max(max(ids) for row in plan.rows for ids in _sequences(row))


def _sequences(row: Row | Preference) -> tuple[tuple[int, ...], ...]:
    return (row.input_ids,) if isinstance(row, Row) else (row.prompt_ids, row.chosen_ids, row.rejected_ids)


def encode(row: Row) -> dict[str, list[int]]:
    """A row as the trainer takes it: ``input_ids`` and ``labels``, both of shape [L]; nothing else decides what is trained on."""
    labels = [token if trained else IGNORE for token, trained in zip(row.input_ids, row.loss_mask, strict=True)]
    assert [label != IGNORE for label in labels] == [bool(trained) for trained in row.loss_mask]
    return {"input_ids": list(row.input_ids), "labels": labels}


def as_dataset(plan: Plan) -> Dataset:
    """The rows in training order, step after step: [steps * batch size] entries that share the storage of the rows."""
    from datasets import Dataset

    encoded = [encode(row) for row in cast("Sequence[Row]", plan.rows)]
    columns = {name: [entry[name] for entry in encoded] for name in ("input_ids", "labels")}
    return Dataset.from_dict(columns).select(plan.order.ravel().tolist())


def as_pair_dataset(plan: Plan) -> Dataset:
    """Numbers of pairs in training order, in the column ``pair``; the collator holds the pairs."""
    from datasets import Dataset

    return Dataset.from_dict({"pair": plan.order.ravel().tolist()})


def _padded(longest: int) -> int:
    return -(-longest // MULTIPLE) * MULTIPLE


@dataclass(frozen=True)
class Collator:
    """Pads a micro-batch of rows on the right."""

    pad_token_id: int

    def __call__(self, examples: list[dict[str, list[int]]]) -> dict[str, torch.Tensor]:
        """Returns ``input_ids``, ``labels`` and ``attention_mask`` of shape [micro-batch, length]."""
        import torch

        shape = (len(examples), _padded(max(len(example["input_ids"]) for example in examples)))
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


@dataclass(frozen=True)
class PairCollator:
    """Makes the batch that TRL's DPOTrainer takes of a micro-batch of pairs, padded on the right.

    Attributes:
        rows: The pairs of the dataset, to which the entries of the trainer's dataset are numbers.
    """

    rows: Sequence[Preference]
    pad_token_id: int

    def __call__(self, examples: list[dict[str, int]]) -> dict[str, torch.Tensor]:
        """Returns ``input_ids``, ``attention_mask`` and ``completion_mask`` of shape [2 * pairs, length], chosen sides first, and the
        numbers of the pairs, ``pair``, of shape [pairs].

        TRL's own collator lets all tokens after the prompt count. Here ``completion_mask`` is the pair's: the agent's turns only.
        """
        import torch

        numbers = [example["pair"] for example in examples]
        pairs = [self.rows[number] for number in numbers]
        sides = [(pair.prompt_ids, pair.chosen_ids, pair.chosen_mask) for pair in pairs]
        sides += [(pair.prompt_ids, pair.rejected_ids, pair.rejected_mask) for pair in pairs]
        shape = (len(sides), _padded(max(pair.longest for pair in pairs)))
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
