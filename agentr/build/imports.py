"""Imports trajectories and preference pairs from files of other tools as rows. `agentr.build.entries` describes the formats.

An entry that cannot be read is an error; an entry that can be read and not trained on is left out and counted.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from agentr.build.conversations import answers
from agentr.build.entries import FORMATS, ImportedPair, ImportedTurn, detect_format, parse_entry, read_entries
from agentr.errors import DataError
from agentr.policy.chat import ChatCodec
from agentr.store.rows import Preference, Provenance, Row
from agentr.types import Message

#: What an error calls an entry, and its form.
_NAMES = {
    "eto-sft": ("conversation", "ETO's form for demonstrations"),
    "eto-dpo": ("pair", "ETO's form for pairs"),
    "sharegpt": ("conversation", "ShareGPT form"),
    "llamafactory": ("entry", "LLaMA-Factory's form"),
}


class _LeftOut(Exception):
    """An entry that can be read but not trained on; the text says why."""


def import_file(
    path: Path, format: str, codec: ChatCodec, max_length: int, *, train_opening: bool = False, kind: str = "imported"
) -> tuple[list[Row] | list[Preference], Counter[str]]:
    """Reads the rows of a file (a JSON list or JSON lines), and counts the entries that were left out, by reason.

    Args:
        format: One of ``agentr.build.entries.FORMATS``, or ``auto`` to recognise it by the first entries.
        max_length: Entries with more tokens are left out; of a pair, those whose longer side has more.
        train_opening: Also train on the acknowledgement that follows the instruction in ``eto-sft``, as the original does.
        kind: The rows' kind in their provenance.

    Raises:
        DataError: The file is missing or not in the format, or holds both conversations and pairs; the error names the entry.
    """
    rows: list[Any] = []
    dropped: Counter[str] = Counter()
    for number, (entry, found) in enumerate(_read_all(path, format, train_opening), 1):
        try:
            origin = Provenance(f"{path.name}#{number}", (), kind, _detail(entry))
            row = _preference(found, codec, origin) if isinstance(found, ImportedPair) else _sequence(found, codec, origin)
            if row.longest > max_length:
                raise _LeftOut(f"longer than {max_length} tokens")
        except _LeftOut as reason:
            dropped[str(reason)] += 1
        else:
            rows.append(row)
    return rows, dropped


def demonstrated_turns(paths: Sequence[Path]) -> dict[str, tuple[str, ...]]:
    """Reads the agent's turns in files of expert trajectories, by the id of the task; of several with one id the first counts.

    Turns that the file marks as not trained on are included, unless they come before the first trained turn: those belong to the opening.

    Raises:
        DataError: As `import_file`, or a file holds pairs, or an entry has no id.
    """
    turns: dict[str, tuple[str, ...]] = {}
    for path in paths:
        for number, (entry, found) in enumerate(_read_all(path, "auto", False), 1):
            if isinstance(found, ImportedPair):
                raise DataError(f"{path} holds pairs, and expert trajectories are wanted", hint="Import pairs with 'agentr import'.")
            if not isinstance(entry.get("id"), str | int):
                raise DataError(f"{path}, entry {number} has no id", hint="Give each trajectory the id of its task.")
            own = [turn for turn in found if turn.message.role == "assistant"]
            played = itertools.dropwhile(lambda turn: turn.loss is False, own)
            turns.setdefault(str(entry["id"]), tuple(turn.message.content for turn in played))
    return turns


def _read_all(path: Path, format: str, train_opening: bool) -> Iterator[tuple[dict[str, Any], list[ImportedTurn] | ImportedPair]]:
    """Yields the entries of a file, all of one kind, each with its parsed form."""
    entries = read_entries(path)
    if format == "auto":
        format = detect_format(path, entries)
    if format not in FORMATS:
        raise DataError(f"unknown import format {format!r}", hint=f"Formats: auto, {', '.join(FORMATS)}.")
    kind: type | None = None
    for number, entry in enumerate(entries, 1):
        name, form = _NAMES[format]
        try:
            found = parse_entry(entry, format, train_opening)
        except (KeyError, TypeError, ValueError) as error:
            raise DataError(
                f"{path}, {name} {number} is not in {form} ({type(error).__name__}: {error})",
                hint="docs/your_own_trajectories.md shows an entry of each format.",
            ) from error
        kind = kind or type(found)
        if not isinstance(found, kind):
            raise DataError(
                f"{path}: {name} {number} differs in kind from those before it; a dataset holds conversations or pairs",
                hint="Put the conversations and the pairs into files of their own.",
            )
        yield entry, found


def _detail(entry: dict[str, Any]) -> dict[str, float | int | str]:
    return {key: entry[key] for key in ("id", "reward") if isinstance(entry.get(key), str | int | float)}


# rows -----------------------------------------------------------------------------------------------------------------


def _sequence(said: list[ImportedTurn], codec: ChatCodec, origin: Provenance) -> Row:
    messages = [turn.message for turn in said]
    first = next((i for i, m in enumerate(messages) if m.role == "assistant"), None)
    if first is None or all(m.role != "user" for m in messages):
        raise _LeftOut("only one side speaks")
    _check_prompt(messages[:first])
    _check_answers(messages[first:])
    prompt = codec.prompt(messages[:first])
    ids, mask = answers(codec, messages[first:], [turn.loss is not False for turn in said[first:]])
    if not any(mask):
        raise _LeftOut("no turn to train on")
    return Row((*prompt, *ids), (*(0 for _ in prompt), *mask), origin)


def _preference(pair: ImportedPair, codec: ChatCodec, origin: Provenance) -> Preference:
    _check_prompt(pair.prompt)
    if not pair.chosen or not pair.rejected:
        raise _LeftOut("only one side speaks")
    if pair.chosen == pair.rejected:
        raise _LeftOut("both sides are the same")
    _check_answers(pair.chosen)
    _check_answers(pair.rejected)
    chosen, rejected = (answers(codec, side, [True] * len(side)) for side in (pair.chosen, pair.rejected))
    return Preference(tuple(codec.prompt(pair.prompt)), *chosen, *rejected, origin)


def _check_prompt(messages: Sequence[Message]) -> None:
    """Checks a prompt: a system message or none, then turns that alternate and begin and end with the user's."""
    turns = messages[1:] if messages and messages[0].role == "system" else messages
    if not turns or turns[-1].role != "user":
        raise _LeftOut("nobody speaks to the agent before its first turn")
    if any(turn.role != ("user", "assistant")[i % 2] for i, turn in enumerate(turns)):
        raise _LeftOut("the turns do not alternate")


def _check_answers(turns: Sequence[Message]) -> None:
    """Checks answers: turns that alternate and begin and end with the agent's."""
    if turns[-1].role != "assistant":
        raise _LeftOut("the last turn is not the agent's")
    if any(turn.role != ("assistant", "user")[i % 2] for i, turn in enumerate(turns)):
        raise _LeftOut("the turns do not alternate")
