"""The micro-batches of a step of rollouts: which rows go together, and as which tensors.

All workers cut a step in the same way and each takes its own part. Rows of a group stay together, so that what they share is computed once.
Rows that say nothing (every advantage is 0) count where the loss takes means, but do not go through the model, unless something besides
advantages is trained on.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

from agentr.errors import DataError
from agentr.store.rows import Rollout
from agentr.train.data import IGNORE, padded_length
from agentr.train.prefixes import Pack, pack

#: A pack is at most so many times as long as its longest row: attention grows with the square of the length.
LIMIT = 4


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

    Groups are drawn in a seeded order, those that say something apart from those that do not, so that micro-batches take equally long.

    Raises:
        DataError: There are more rows than fit in.
    """
    if len(rows) > how.rows:
        hint = "Raise train.batch_size, or let a step have fewer tasks or episodes."
        raise DataError(f"a step has {len(rows)} rollouts, and {how.rows} fit in", hint=hint)
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


@dataclass
class Forward:
    """P sequences that go through the model, and where the rows' targets are predicted in them.

    Attributes:
        ids_PL: Token ids.
        positions_PL: Their positions.
        labels_PL: What each place predicts, ``IGNORE`` where that does not count.
        sees_PLL: Whether a token attends to another; None where each attends to all before it, up to its sequence's length.
        lengths_P: Lengths of the sequences without padding.
        places_RT: Place of the prediction of each target of the live rows, in the flattened sequences; 0 where there is none.
    """

    ids_PL: torch.Tensor
    positions_PL: torch.Tensor
    labels_PL: torch.Tensor
    sees_PLL: torch.Tensor | None
    lengths_P: torch.Tensor
    places_RT: torch.Tensor


def micro_batch(rows: Sequence[Rollout], size: int, pad: int, *, everything: bool, share: bool) -> MicroBatch:
    """Makes the tensors of a micro-batch.

    Args:
        size: Rows of a micro-batch; missing ones are empty.
        everything: Whether rows that say nothing go through the model, too.
        share: Whether what rows have in common goes through it once.
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
    forward = _forward([rows[i] for i in alive], [targets[i] for i in alive], shape[1], pad, share) if alive else None
    return MicroBatch(mask, advantages, drawn, live_R, forward)


def _forward(rows: list[Rollout], targets: list[list[int]], longest: int, pad: int, share: bool) -> Forward:
    packs = _packs(rows, share)
    length = padded_length(max(map(len, packs)))
    shape = (len(packs), length)
    ids, positions, labels = torch.full(shape, pad), torch.zeros(shape, dtype=torch.long), torch.full(shape, IGNORE)
    sees = torch.zeros((*shape, length), dtype=torch.bool) if share else None
    places = torch.zeros((len(rows), longest), dtype=torch.long)
    for number, found in enumerate(packs):
        size = len(found)
        ids[number, :size] = torch.from_numpy(found.ids_L)
        positions[number, :size] = torch.from_numpy(found.positions_L)
        if sees is not None:
            sees[number, :size, :size] = torch.from_numpy(found.sees_LL)
            sees[number].fill_diagonal_(True)  # padding attends to itself: a token that attends to nothing has no finite gradient
        for row, predictors in zip(found.rows, found.predictors, strict=True):
            here = torch.from_numpy(predictors[[t - 1 for t in targets[row]]])
            labels[number, here] = torch.tensor([rows[row].input_ids[t] for t in targets[row]])
            places[row, : len(here)] = number * length + here
    return Forward(ids, positions, labels, sees, torch.tensor([len(found) for found in packs]), places)


def _packs(rows: list[Rollout], share: bool) -> list[Pack]:
    """Packs the rows of each group; without sharing, each row is a pack of its own."""
    groups: dict[object, list[int]] = {}
    for number, row in enumerate(rows):
        groups.setdefault(row.group if share else number, []).append(number)
    packs = []
    for numbers in groups.values():
        longest = max(len(rows[number].input_ids) for number in numbers)
        for found in pack([rows[number].input_ids for number in numbers], LIMIT * longest):
            packs.append(Pack(tuple(numbers[i] for i in found.rows), found.ids_L, found.positions_L, found.sees_LL, found.predictors))
    return packs
