"""Sequences that begin alike as one sequence in which each common beginning occurs once.

Rollouts of one task share the opening, branches of a tree all that came before the branch. Packed, a token attends to
the tokens before it in its own row and to no others, and has the position that it has there: so it gets the very
activations that it would get in the row by itself, and what rows share is computed once, forwards and backwards. (The
gradients of a shared token's copies add up in it; for a clipped policy gradient that is one token with two weights, the
sum of the positive and the sum of the negative advantages.)

Where rows part, the last common token stands once for each of them: a place in a sequence predicts one token only.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Pack:
    """Rows as one sequence.

    Attributes:
        rows: Numbers of the rows, in the order of ``predictors``.
        ids_L: Token ids.
        positions_L: Position of each token in its rows.
        sees_LL: Whether a token (first axis) attends to another.
        predictors: Of each row, the places that predict its tokens, from its second token on, shape [tokens - 1].
    """

    rows: tuple[int, ...]
    ids_L: np.ndarray
    positions_L: np.ndarray
    sees_LL: np.ndarray
    predictors: tuple[np.ndarray, ...]

    def __len__(self) -> int:
        return len(self.ids_L)


def pack(rows: Sequence[Sequence[int]], longest: int) -> list[Pack]:
    """Packs rows so that each beginning that some of them have in common occurs once in a pack.

    Args:
        rows: Token ids, at least one each.
        longest: Most tokens of a pack, if it is not a single row.
    """
    order = sorted(range(len(rows)), key=lambda number: tuple(rows[number]))
    packs: list[Pack] = []
    growing = _Growing()
    for number in order:
        row = np.asarray(rows[number])
        if growing.rows and len(growing) + growing.added(row) > longest:
            packs.append(growing.done())
            growing = _Growing()
        growing.add(number, row)
    return [*packs, growing.done()] if growing.rows else packs


class _Growing:
    """A pack to which rows are added in lexicographic order, so that a row has most in common with the one before
    it."""

    def __init__(self) -> None:
        self.rows: list[int] = []
        self._ids: list[np.ndarray] = []
        self._positions: list[np.ndarray] = []
        # start, end, and the places before it that it attends to
        self._segments: list[tuple[int, int, np.ndarray]] = []
        self._predictors: list[np.ndarray] = []
        self._length = 0
        self._row = np.zeros(0, int)
        self._path = np.zeros(0, int)  # the place of each token of the last row

    def __len__(self) -> int:
        return self._length

    def added(self, row: np.ndarray) -> int:
        """Returns how many tokens the pack would grow by."""
        return len(row) - self._kept(row)

    def add(self, number: int, row: np.ndarray) -> None:
        kept = self._kept(row)
        before, start = self._path[:kept], self._length
        self._length += len(row) - kept
        self.rows.append(number)
        self._ids.append(row[kept:])
        self._positions.append(np.arange(kept, len(row)))
        self._segments.append((start, self._length, before))
        self._row, self._path = row, np.concatenate([before, np.arange(start, self._length)])
        self._predictors.append(self._path[:-1])

    def done(self) -> Pack:
        sees = np.zeros((self._length, self._length), dtype=bool)
        for start, end, before in self._segments:
            sees[start:end, before] = True
            sees[start:end, start:end] = np.tri(end - start, dtype=bool)
        return Pack(
            tuple(self.rows), np.concatenate(self._ids), np.concatenate(self._positions), sees, tuple(self._predictors)
        )

    def _common(self, row: np.ndarray) -> int:
        """Number of tokens that the row has in common with the one before it."""
        size = min(len(row), len(self._row))
        differ = np.flatnonzero(row[:size] != self._row[:size])
        return int(differ[0]) if len(differ) else size

    def _kept(self, row: np.ndarray) -> int:
        """Number of tokens of the row that are in the pack already.
        Where it parts from the row before it, the last common one is not."""
        common = self._common(row)
        parts = 0 < common < min(len(row), len(self._row))
        return common - 1 if parts else common
