"""The order of a training: the rows of each step.

The order is fixed once, for all workers: step ``s`` trains on rows ``order[s]``, whatever the number of workers and
however the batch is cut into micro-batches. Each epoch is a seeded permutation, and epochs follow each other without
a gap, so every batch is full.

Rows are not grouped by length across steps: long rows are the long (hard, failed) episodes, and batches of one kind
bias each step. Within a step the order is free, because the loss is normalised over the step: there, rows are sorted
by their tokens, so that those that begin alike are in one micro-batch, where what they begin with is computed once.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from agentr.errors import DataError
from agentr.store.dataset import dataset_loss, read_rows
from agentr.store.rows import TrainingRow
from agentr.train.job import TrainJob
from agentr.types import Loss

#: Label of a token that is no target (the convention of PyTorch and transformers).
IGNORE = -100

#: Lengths of micro-batches are multiples of this, or of a sixteenth of the power of two below them. On a CPU oneDNN
#: prepares new primitives for every new length, so few lengths are faster than many; tensor cores prefer multiples
#: of 32, too.
MULTIPLE = 32


@dataclass(frozen=True, kw_only=True)
class BatchPlan:
    """The rows of a job, step by step.

    Attributes:
        loss: The loss of the dataset.
        rows: The rows of the dataset, of the type that the loss takes.
        order: Row numbers, shape [steps, batch size].
        tokens_S: Tokens of each step, without padding, shape [steps]; of both sides of a pair.
        targets_S: Targets of the loss in each step, shape [steps]. The first token of a row has no prediction, so it
            never counts.
    """

    loss: Loss
    rows: Sequence[TrainingRow]
    order: np.ndarray
    tokens_S: np.ndarray
    targets_S: np.ndarray

    @property
    def steps(self) -> int:
        return len(self.order)


def make_plan(job: TrainJob) -> BatchPlan:
    """Reads the dataset and fixes the order.

    ``epochs`` rounds up to whole batches, so every row is seen at least that often.

    Raises:
        DataError: The dataset is missing, damaged or empty, or has rows longer than ``max_length``.
    """
    job.require_rows()
    loss, rows = dataset_loss(job.dataset), read_rows(job.dataset)
    too_long = sum(row.longest > job.config.max_length for row in rows)
    if too_long:
        hint = "Raise train.max_length, or lower build.max_length."
        raise DataError(
            f"{too_long} of {len(rows)} rows in {job.dataset} exceed train.max_length {job.config.max_length}.",
            hint=hint,
        )
    tokens = np.array([row.tokens for row in rows])
    targets = np.array([row.targets for row in rows])
    batch = job.config.batch_size
    steps = job.config.steps or steps_of_epochs(len(rows), job.config.epochs, batch)
    passes = math.ceil(steps * batch / len(rows))
    generator = np.random.default_rng(job.config.seed)
    stream = np.concatenate([generator.permutation(len(rows)) for _ in range(passes)])
    stream = stream[: steps * batch].reshape(steps, batch)
    place = np.empty(len(rows), dtype=int)
    place[sorted(range(len(rows)), key=lambda number: rows[number].sequences()[0])] = np.arange(len(rows))
    order = np.take_along_axis(stream, np.argsort(place[stream], axis=1, kind="stable"), axis=1)
    return BatchPlan(
        loss=loss,
        rows=rows,
        order=order,
        tokens_S=tokens[order].sum(axis=1),
        targets_S=targets[order].sum(axis=1),
    )


def steps_of_epochs(rows: int, epochs: float, batch: int) -> int:
    """Returns the number of optimiser steps of ``epochs`` passes: whole batches, at least one."""
    return max(1, math.ceil(round(rows * epochs) / batch))


def highest_token(plan: BatchPlan) -> int:
    """Returns the largest token id of the dataset."""
    return max(max(ids) for row in plan.rows for ids in row.sequences())


def padded_length(longest: int) -> int:
    """Returns the length of a micro-batch whose longest sequence has ``longest`` tokens: at most a sixteenth more, if
    that is more than ``MULTIPLE``."""
    multiple = max(MULTIPLE, 2 ** (longest.bit_length() - 5))
    return math.ceil(longest / multiple) * multiple
