"""What stands beside the agent's own rows: demonstrations, and general conversations (Agent-R Eq. 6)."""

from __future__ import annotations

import itertools
import random
from collections.abc import Sequence
from pathlib import Path

from agentr.build.imports import import_file
from agentr.policy.chat import ChatCodec
from agentr.store.rows import Row


def general_rows(path: Path, codec: ChatCodec, max_length: int) -> list[Row]:
    """Conversations of a ShareGPT file (JSON list or JSON lines); those that are longer or cannot be trained on are left out.

    Raises:
        DataError: The file is missing or not in ShareGPT form; the error names the entry.
    """
    rows, _ = import_file(path, "sharegpt", codec, max_length, kind="general")
    return [row for row in rows if isinstance(row, Row)]


def mix(own: Sequence[Row], other: Sequence[Row], share: float, seed: int) -> list[Row]:
    """``own`` together with so many of ``other`` that they make up ``share`` of the result, drawn in a seeded order without gaps.

    If ``other`` has too few rows they are repeated; if ``share`` is 1 or ``own`` is empty the result is ``other``.
    """
    if not other or share <= 0:
        return list(own)
    if share >= 1 or not own:
        return list(other)
    wanted = round(len(own) * share / (1 - share))
    shuffled = list(other)
    random.Random(f"mix/{seed}").shuffle(shuffled)
    return [*own, *itertools.islice(itertools.cycle(shuffled), wanted)]
