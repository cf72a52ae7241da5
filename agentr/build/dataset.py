"""Writes a round's dataset: the rows of its method, with a manifest that counts every candidate that was dropped."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from agentr.build.sequences import Dropped
from agentr.errors import DataError
from agentr.store.rows import Preference, Row, write_rows

AnyRow = Row | Preference
Candidate = Row | Preference | Dropped

#: Mixes own rows with others, and says how many of the others were left out, by reason.
Mix = Callable[[Sequence[Any]], tuple[Sequence[AnyRow], Counter[str]]]


def write_dataset(folder: Path, candidates: Iterable[Candidate], max_length: int, mix: Mix | None = None, **about: Any) -> dict[str, Any]:
    """Writes a dataset and returns its manifest.

    Args:
        candidates: Rows of one type that a method made of its trees, and its dropped candidates.
        max_length: Rows with more tokens are dropped and counted.
        mix: Puts other rows beside the method's own and orders them; without it the rows stay as they come.
        about: Further entries of the manifest.

    Raises:
        DataError: There is no row at all; the error counts the reasons.
    """
    own: list[AnyRow] = []
    dropped: Counter[str] = Counter()
    for candidate in candidates:
        if isinstance(candidate, Dropped):
            dropped[candidate.reason] += 1
        elif candidate.longest > max_length:
            dropped["longer than build.max_length"] += 1
        else:
            own.append(candidate)
    if not own:
        reasons = ", ".join(f"{n} x {why}" for why, n in dropped.items()) or "no success"
        hint = "Give the search more width or iterations, choose easier tasks, or lower the thresholds of the method."
        raise DataError(f"the trees of this round gave no row to train on: {reasons}", hint=hint)
    rows: Sequence[AnyRow] = own
    if mix is not None:
        rows, refused = mix(own)
        dropped.update(refused)
    return write_rows(folder, rows, dropped=dict(dropped), tasks=len({row.provenance.tree for row in own}), **about)


def is_own(row: AnyRow) -> bool:
    """Returns whether a row came from the agent's own trees, not from demonstrations, general data or files."""
    return row.provenance.kind not in ("demonstration", "general", "imported")
