"""Mixes a round's own rows with others: demonstrations, earlier rounds, general conversations (Agent-R Eq. 6), pairs
from files."""

import itertools
import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from pydantic import NonNegativeInt

from agentr.config.checks import Proportion, Section
from agentr.errors import DataError
from agentr.policy.chat import ChatCodec
from agentr.rows.dataset import Keep
from agentr.rows.imports import import_file
from agentr.store.rows import Preference
from agentr.store.spool import Kept

T = TypeVar("T")


@dataclass
class MixtureConfig(Section):
    """Rows that a round trains on beside its own, for methods that imitate."""

    demonstrations: Proportion = 0.0
    """Share of rows taken from the demonstrations."""
    earlier_rounds: NonNegativeInt = 0
    """Number of rounds before this one whose own rows are trained on again."""
    general_path: str = ""
    """General conversations in ShareGPT format."""
    eta: Proportion = 1.0
    """Share of agent rows when general_path is set (Eq. 6; 0.2 in the paper)."""


@dataclass
class ExtraPairs(Section):
    """Preference pairs from a file, trained on beside the agent's own; in DensePolicy they keep the model from
    drifting."""

    path: str = ""
    """JSON with prompt/chosen/rejected or conversations/chosen/rejected; see 'agentr import --help'."""
    limit: NonNegativeInt = 0
    """Pairs to draw; 0 means all."""


def mix_rows(
    own: Sequence[Kept],
    mixture: MixtureConfig,
    *,
    demonstrations: Sequence[Kept],
    earlier: Sequence[Kept],
    keep: Keep,
    codec: ChatCodec,
    max_length: int,
    seed: int,
) -> tuple[list[Kept], Counter[str]]:
    """Returns a round's rows in a seeded order: its own, those of earlier rounds, demonstrations and general
    conversations; and the entries of the file of these that were left out, by reason.

    Args:
        demonstrations: Rows that ``mixture.demonstrations`` draws from.
        earlier: The agent's own rows of earlier rounds.
        keep: Keeps the rows of a file.
        max_length: Longest general conversation, in tokens.
    """
    rows = mix([*earlier, *own], demonstrations, mixture.demonstrations, seed)
    dropped = Counter[str]()
    if mixture.general_path:
        general, dropped = import_file(
            Path(mixture.general_path), "sharegpt", codec, max_length, kind="general", dialect=None
        )
        rows = mix(rows, [keep(row) for row in general], 1 - mixture.eta, seed)
    random.Random(f"order/{seed}").shuffle(rows)
    return rows, dropped


def mix_pairs_from_files(
    own: Sequence[Kept], extra: Sequence[ExtraPairs], *, keep: Keep, codec: ChatCodec, max_length: int, seed: int
) -> tuple[list[Kept], Counter[str]]:
    """Returns a round's pairs in a seeded order, its own and those of files, and the entries of files left out by
    reason.

    Args:
        keep: Keeps the pairs of a file.

    Raises:
        DataError: A file is missing, is not in a known format, or holds sequences.
    """
    rows, dropped = list(own), Counter[str]()
    for number_, file in enumerate(extra):
        imported, refused = import_file(Path(file.path), "auto", codec, max_length, dialect=None)
        dropped.update(refused)
        pairs = [pair for pair in imported if isinstance(pair, Preference)]
        if len(pairs) < len(imported):
            raise DataError(f"{file.path} in method.extra_pairs holds sequences, and pairs are wanted")
        random.Random(f"extra/{seed}/{number_}").shuffle(pairs)
        rows += map(keep, pairs[: file.limit or None])
    random.Random(f"order/{seed}").shuffle(rows)
    return rows, dropped


def mix(own: Sequence[T], other: Sequence[T], share_: float, seed: int) -> list[T]:
    """Returns ``own`` and as many of ``other`` as make up ``share_`` of the result, drawn in a seeded order without
    gaps.

    If ``other`` has too few rows they are repeated; if the share is 1 or ``own`` is empty the result is ``other``.
    """
    if not other or share_ <= 0:
        return list(own)
    if share_ >= 1 or not own:
        return list(other)
    wanted = round(len(own) * share_ / (1 - share_))
    shuffled = list(other)
    random.Random(f"mix/{seed}").shuffle(shuffled)
    return [*own, *itertools.islice(itertools.cycle(shuffled), wanted)]
