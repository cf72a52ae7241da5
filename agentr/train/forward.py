"""What goes through the model in a micro-batch: rows one by one, or packed so that common beginnings are computed
once."""

from collections.abc import Hashable, Sequence
from dataclasses import dataclass

import numpy as np
import torch

from agentr.train.data import IGNORE, padded_length
from agentr.train.prefixes import Pack, pack

#: A pack is at most so many times as long as its longest row: attention grows with the square of the length.
LIMIT = 4


@dataclass
class Forward:
    """P sequences of at most L tokens that go through the model, and where the targets of R rows are predicted in them.

    Attributes:
        ids_PL: Token ids.
        positions_PL: Their positions.
        labels_PL: What each place predicts, ``IGNORE`` where that does not count.
        sees_PLL: Whether a token attends to another; None where each attends to all before it, up to its sequence's
            length.
        lengths_P: Lengths of the sequences without padding.
        places_RT: Place of the prediction of each target, in the flattened sequences; 0 where there is none.
        row_tokens: Tokens of the rows, each counted whole; those of the sequences are as many or fewer.
    """

    ids_PL: torch.Tensor
    positions_PL: torch.Tensor
    labels_PL: torch.Tensor
    sees_PLL: torch.Tensor | None
    lengths_P: torch.Tensor
    places_RT: torch.Tensor
    row_tokens: int

    def arguments(self) -> dict[str, torch.Tensor]:
        """Returns the arguments of a model with TRL's fused head."""
        if self.sees_PLL is not None:
            attention = self.sees_PLL[:, None]
        else:
            attention = (torch.arange(self.ids_PL.shape[1], device=self.ids_PL.device) < self.lengths_P[:, None]).long()
        return {
            "input_ids": self.ids_PL,
            "attention_mask": attention,
            "position_ids": self.positions_PL,
            "shift_labels": self.labels_PL,
        }


def forward_of(
    rows: Sequence[Sequence[int]],
    targets: Sequence[Sequence[int]],
    groups: Sequence[Hashable],
    pad: int,
    *,
    share: bool,
) -> Forward:
    """Lays out rows for the model.

    Args:
        rows: Token ids, at least one row.
        targets: Of each row, the places of the tokens that are predicted; never the first.
        groups: Rows of equal values may share a sequence.
        share: Whether what rows of a group have in common goes through the model once; else each row is a sequence.
    """
    packs = _packs(rows, groups if share else range(len(rows)))
    length = padded_length(max(map(len, packs)))
    shape = (len(packs), length)
    ids, positions, labels = torch.full(shape, pad), torch.zeros(shape, dtype=torch.long), torch.full(shape, IGNORE)
    sees = torch.zeros((*shape, length), dtype=torch.bool) if share else None
    places = torch.zeros((len(rows), max(1, *map(len, targets))), dtype=torch.long)
    for number, found in enumerate(packs):
        size = len(found)
        ids[number, :size] = torch.from_numpy(found.ids_L)
        positions[number, :size] = torch.from_numpy(found.positions_L)
        if sees is not None:
            sees[number, :size, :size] = torch.from_numpy(found.sees_LL)
            # padding attends to itself: a token that attends to nothing has no finite gradient
            sees[number].fill_diagonal_(True)
        for row, predictors in zip(found.rows, found.predictors, strict=True):
            here = torch.from_numpy(predictors[np.asarray(targets[row], dtype=int) - 1])
            labels[number, here] = torch.tensor([rows[row][place] for place in targets[row]], dtype=torch.long)
            places[row, : len(here)] = number * length + here
    lengths = torch.tensor([len(found) for found in packs])
    return Forward(ids, positions, labels, sees, lengths, places, sum(map(len, rows)))


def _packs(rows: Sequence[Sequence[int]], groups: Sequence[Hashable]) -> list[Pack]:
    together: dict[Hashable, list[int]] = {}
    for number, group in enumerate(groups):
        together.setdefault(group, []).append(number)
    packs = []
    for numbers in together.values():
        longest = max(len(rows[number]) for number in numbers)
        for found in pack([rows[number] for number in numbers], LIMIT * longest):
            packs.append(
                Pack(
                    tuple(numbers[i] for i in found.rows),
                    found.ids_L,
                    found.positions_L,
                    found.sees_LL,
                    found.predictors,
                )
            )
    return packs
