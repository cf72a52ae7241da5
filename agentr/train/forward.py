"""What goes through the model in a micro-batch: its rows behind one another in one sequence, or each by itself."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from trl.trainer.utils import FusedCausalLMOutput

from agentr.train.attention import Segment
from agentr.train.data import IGNORE, padded_length
from agentr.train.prefixes import behind_one_another


@dataclass
class Forward:
    """P sequences of at most L tokens that go through the model, and where the targets of R rows are predicted in them.

    Attributes:
        ids_PL: Token ids.
        positions_PL: Their positions.
        labels_PL: What each place predicts, ``IGNORE`` where that does not count.
        lengths_P: Lengths of the sequences without padding.
        places_RT: Place of the prediction of each target, in the flattened sequences; 0 where there is none.
        row_tokens: Tokens of the rows, each counted whole; those of the sequences are as many or fewer.
        behind: Of rows behind one another, what attends to what; else each place attends to all before it.
    """

    ids_PL: torch.Tensor
    positions_PL: torch.Tensor
    labels_PL: torch.Tensor
    lengths_P: torch.Tensor
    places_RT: torch.Tensor
    row_tokens: int
    behind: tuple[Segment, ...] = ()

    def arguments(self) -> dict[str, Any]:
        """Returns the arguments of a model with TRL's fused head."""
        found = {"input_ids": self.ids_PL, "position_ids": self.positions_PL, "shift_labels": self.labels_PL}
        if self.behind:
            return {**found, "behind": self.behind}
        places = torch.arange(self.ids_PL.shape[1], device=self.ids_PL.device)
        return {**found, "attention_mask": (places < self.lengths_P[:, None]).long()}


def forward_of(rows: Sequence[Sequence[int]], targets: Sequence[Sequence[int]], pad: int, *, behind: bool) -> Forward:
    """Lays out rows for the model.

    Args:
        rows: Token ids, at least one row.
        targets: Of each row, the places of the tokens that are predicted; never the first.
        behind: Whether they stand behind one another, what several begin with once; else each row is a sequence.
    """
    layout = behind_one_another(rows) if behind else None
    sizes = [len(layout)] if layout else list(map(len, rows))
    length = padded_length(max(sizes))
    shape = (len(sizes), length)
    ids, positions, labels = torch.full(shape, pad), torch.zeros(shape, dtype=torch.long), torch.full(shape, IGNORE)
    places = torch.zeros((len(rows), max(1, *map(len, targets))), dtype=torch.long)
    if layout:
        ids[0, : sizes[0]] = torch.from_numpy(np.concatenate(layout.ids))
        positions[0, : sizes[0]] = torch.from_numpy(np.concatenate(layout.positions))
    for number, (row, wanted) in enumerate(zip(rows, targets, strict=True)):
        if layout:
            here = torch.from_numpy(layout.predictors[number][np.asarray(wanted, dtype=int) - 1])
        else:
            ids[number, : len(row)] = torch.tensor(row)
            positions[number, : len(row)] = torch.arange(len(row))
            here = number * length + torch.tensor(wanted, dtype=torch.long) - 1
        labels.view(-1)[here] = torch.tensor([row[place] for place in wanted], dtype=torch.long)
        places[number, : len(here)] = here
    return Forward(
        ids,
        positions,
        labels,
        torch.tensor(sizes),
        places,
        sum(map(len, rows)),
        tuple(Segment(start, end, torch.from_numpy(before)) for start, end, before in layout.segments)
        if layout
        else (),
    )


@dataclass(frozen=True)
class Unpadded:
    """A model with TRL's fused head that takes rows padded on the right, and lets them go through behind one another.

    Attributes:
        model: Called with the arguments of `Forward`, and with others that it is given.
    """

    model: Callable[..., FusedCausalLMOutput]
    pad: int

    def __call__(
        self, input_ids: torch.Tensor, attention_mask: torch.Tensor, labels: torch.Tensor, **more: Any
    ) -> FusedCausalLMOutput:
        """Returns what the model says of each row's tokens but the first, shape [rows, length - 1]; 0 of those that are
        no target."""
        sizes = attention_mask.sum(1).tolist()
        rows = [ids[:size] for ids, size in zip(input_ids.tolist(), sizes, strict=True)]
        wanted = labels[:, 1:] != IGNORE
        targets = [[place + 1 for place in found.nonzero()[:, 0].tolist()] for found in wanted.cpu()]
        laid = to_device(forward_of(rows, targets, self.pad, behind=True), input_ids.device)
        scored = self.model(**laid.arguments(), **more)
        counts = torch.tensor([len(found) for found in targets], device=input_ids.device)
        real = torch.arange(laid.places_RT.shape[1], device=input_ids.device) < counts[:, None]
        at = laid.places_RT[real]
        for name, values in list(scored.items()):
            if name not in ("loss", "aux_loss"):
                scored[name] = values.new_zeros(wanted.shape).masked_scatter(wanted, values.flatten()[at])
        return scored


def to_device(forward: Forward, device: torch.device) -> Forward:
    """Returns the same on a device."""
    moved = {name: value.to(device) for name, value in vars(forward).items() if isinstance(value, torch.Tensor)}
    return Forward(**{**vars(forward), **moved, "behind": tuple(segment.to(device) for segment in forward.behind)})
