"""Rows behind one another as one sequence in which what some of them begin with stands once.

Rollouts of one task share the opening, branches of a tree all that came before the branch, chosen and rejected sides
the prompt. A token attends to the tokens before it in its own row and to no others, and has the position that it has
there: so it gets the very activations that it would get in the row by itself, and what rows share is computed once,
forwards and backwards. (The gradients of a shared token's copies add up in it; for a clipped policy gradient that is
one token with two weights, the sum of the positive and the sum of the negative advantages.)

Where rows part, the last common token stands once for each of them: a place in a sequence predicts one token only.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np


@dataclass
class RowLayout:
    """Where rows stand in one sequence. Rows are added in lexicographic order, so that each has most in common with the
    one before it.

    Attributes:
        ids: Token ids, a piece for each row.
        positions: Position of each token in its rows, in the same pieces.
        segments: Of each piece its start, its end, and the places before it that it attends to, shape [B].
        predictors: Of each row in the order of the rows that were given, the places that predict its tokens, from its
            second token on, shape [tokens - 1].
    """

    ids: list[np.ndarray] = field(default_factory=list)
    positions: list[np.ndarray] = field(default_factory=list)
    segments: list[tuple[int, int, np.ndarray]] = field(default_factory=list)
    predictors: dict[int, np.ndarray] = field(default_factory=dict)
    _row: np.ndarray = field(default_factory=lambda: np.zeros(0, int))
    _path: np.ndarray = field(default_factory=lambda: np.zeros(0, int))  # the place of each token of the last row

    def __len__(self) -> int:
        return self.segments[-1][1] if self.segments else 0

    def add(self, number: int, row: np.ndarray) -> None:
        kept, start = self._kept(row), len(self)
        before, end = self._path[:kept], start + len(row) - kept
        if end > start:
            self.ids.append(row[kept:])
            self.positions.append(np.arange(kept, len(row)))
            self.segments.append((start, end, before))
        self._row, self._path = row, np.concatenate([before, np.arange(start, end)])
        self.predictors[number] = self._path[:-1]

    def _kept(self, row: np.ndarray) -> int:
        """Number of tokens of the row that stand there already.
        Where it parts from the row before it, the last common one does not."""
        size = min(len(row), len(self._row))
        differ = np.flatnonzero(row[:size] != self._row[:size])
        common = int(differ[0]) if len(differ) else size
        parts = 0 < common < size
        return common - 1 if parts else common


def behind_one_another(rows: Sequence[Sequence[int]]) -> RowLayout:
    """Lays rows of at least one token each behind one another."""
    layout = RowLayout()
    for number in sorted(range(len(rows)), key=lambda number: tuple(rows[number])):
        layout.add(number, np.asarray(rows[number]))
    return layout
