"""The micro-batches of a step of rollouts: which rows go together, and as which tensors.

All workers cut a step in the same way and each takes its own part. Rows of a group stay together, because they share
most, and what rows of a micro-batch share is computed once. Rows without information (every advantage is 0) count where
the loss takes means, but do not go through the model, unless something besides advantages is trained on.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch

from agentr.errors import DataError
from agentr.store.rows import Rollout
from agentr.train.forward import Forward, forward_of


@dataclass(frozen=True)
class Cut:
    """How a step is gone through.

    Attributes:
        minibatches: Optimiser steps of a pass.
        micro_batches: Micro-batches of one worker in an optimiser step.
        size: Rows of a micro-batch.
        workers: Workers that share an optimiser step.
    """

    minibatches: int
    micro_batches: int
    size: int
    workers: int

    @property
    def rows(self) -> int:
        """Most rows of a step."""
        return self.minibatches * self.micro_batches * self.size * self.workers


def cut(rows: Sequence[Rollout], how: Cut, rank: int, seed: int) -> list[list[list[int]]]:
    """Returns one worker's rows: for each optimiser step its micro-batches, for each of them the numbers of its rows.

    Groups are drawn in a seeded order, those with information apart from those without, so that micro-batches
    take equally long.

    Raises:
        DataError: There are more rows than fit in.
    """
    if len(rows) > how.rows:
        hint = "Raise train.batch_size, or let an online step have fewer tasks or episodes."
        raise DataError(f"an online step has {len(rows)} rollouts, and {how.rows} fit in", hint=hint)
    generator = np.random.default_rng(seed)
    groups: dict[str, list[int]] = {}
    for number, row in enumerate(rows):
        groups.setdefault(row.group, []).append(number)
    names = [list(groups)[index] for index in generator.permutation(len(groups))]
    order = [number for name in names for number in groups[name]]
    loud = [number for number in order if not rows[number].silent]
    quiet = [number for number in order if rows[number].silent]
    parts = how.minibatches * how.micro_batches * how.workers
    dealt = [one + other for one, other in zip(_split(loud, parts), _split(quiet, parts, from_end=True), strict=True)]
    mine = range(rank, parts, how.workers)
    each = [dealt[part] for part in mine]
    return [each[first : first + how.micro_batches] for first in range(0, len(each), how.micro_batches)]


def _split(numbers: list[int], parts: int, *, from_end: bool = False) -> list[list[int]]:
    """Splits a list into parts whose sizes differ by one at most; the longer ones come first, or last."""
    size, over = divmod(len(numbers), parts)
    found, first = [], 0
    for part in range(parts):
        here = size + (part >= parts - over if from_end else part < over)
        found.append(numbers[first : first + here])
        first += here
    return found


@dataclass
class MicroBatch:
    """A micro-batch of R rows with at most T targets each.

    Attributes:
        mask_RT: Which entries are targets.
        advantages_RT: Their advantages.
        drawn_RT: Their log-probabilities under the engine that drew them.
        live_R: Rows that go through the model.
        forward: What goes through the model, or None if no row does.
    """

    mask_RT: torch.Tensor
    advantages_RT: torch.Tensor
    drawn_RT: torch.Tensor
    live_R: torch.Tensor
    forward: Forward | None


def micro_batch(rows: Sequence[Rollout], size: int, pad: int, *, everything: bool, behind: bool) -> MicroBatch:
    """Makes the tensors of a micro-batch.

    Args:
        size: Rows of a micro-batch; missing ones are empty.
        everything: Whether rows without information go through the model, too.
        behind: Whether rows stand behind one another in one sequence.
    """
    targets = [[t for t in range(1, len(row.input_ids)) if row.loss_mask[t]] for row in rows]
    shape = (size, max(1, *map(len, targets)) if rows else 1)
    mask, advantages, drawn = torch.zeros(shape, dtype=torch.long), torch.zeros(shape), torch.zeros(shape)
    for index, (row, places) in enumerate(zip(rows, targets, strict=True)):
        mask[index, : len(places)] = 1
        advantages[index, : len(places)] = torch.tensor([row.advantages[t] for t in places])
        drawn[index, : len(places)] = torch.tensor([row.logprobs[t] or 0.0 for t in places])
    live = [everything or not row.silent for row in rows]
    alive = [index for index in range(len(rows)) if live[index] and targets[index]]
    live_R = torch.zeros(size, dtype=torch.bool)
    live_R[alive] = True
    forward = _forward([rows[i] for i in alive], [targets[i] for i in alive], pad, behind, shape[1]) if alive else None
    return MicroBatch(mask, advantages, drawn, live_R, forward)


def _forward(rows: Sequence[Rollout], targets: Sequence[Sequence[int]], pad: int, behind: bool, width: int) -> Forward:
    """Lays out rows for the model, each of their conversations as a sequence. Places stay those of a row's targets."""
    of = [row for row, one in enumerate(rows) for _ in one.spans]
    within = [
        [place - begin for place in places if begin <= place < end]
        for row, places in zip(rows, targets, strict=True)
        for begin, end in row.spans
    ]
    sequences = [ids for row in rows for ids in row.sequences()]
    laid = forward_of(sequences, within, pad, behind=behind)
    places_RT = torch.zeros((len(rows), width), dtype=torch.long)
    for row, places in enumerate(targets):
        parts = [laid.places_RT[i, : len(within[i])] for i, other in enumerate(of) if other == row]
        places_RT[row, : len(places)] = torch.cat(parts)
    return replace(laid, places_RT=places_RT)
