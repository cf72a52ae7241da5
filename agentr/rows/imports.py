"""Imports trajectories and preference pairs from files of other tools as rows.
`agentr.rows.entries` describes the formats.

An entry that cannot be read is an error; an entry that can be read and not trained on is left out and counted.
"""

import itertools
import json
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from agentr.config.turns import Dialect, TurnFormat, TurnsConfig
from agentr.errors import DataError
from agentr.policy.chat import ChatCodec
from agentr.rows.conversations import answers
from agentr.rows.entries import (
    FORMATS,
    ImportedPair,
    ImportedTokens,
    ImportedTurn,
    LeftOut,
    acknowledged,
    offered,
    parse_entry,
    read_entries,
)
from agentr.store.rows import Preference, Provenance, Row
from agentr.tasks.tool_calls import Call
from agentr.tasks.tools import schema
from agentr.types import Message
from env_servers.protocol import Tool


def import_file(
    path: Path,
    format: str,
    codec: ChatCodec,
    max_length: int,
    *,
    kind: str = "imported",
    dialect: Dialect | None = Dialect.auto,
    notes: Counter[str] | None = None,
) -> tuple[list[Row] | list[Preference], Counter[str]]:
    """Reads the rows of a file (a JSON list, JSON lines or Parquet), and counts the entries that were left out, by
    reason.

    Args:
        format: One of ``agentr.rows.entries.FORMATS``, or ``auto`` for whatever form an entry has.
        max_length: Entries with more tokens are left out; of a pair, those whose longer side has more.
        kind: The rows' kind in their provenance.
        dialect: How the model writes calls of the tools that an entry offers; None leaves out entries that offer others
            than ``codec``.
        notes: Counts what of entries is not read.

    Raises:
        DataError: The file is missing or not in the format, or holds both conversations and pairs; the error names the
            entry.
        ModelError: An entry offers tools, and the model's chat template has no place for them.
    """
    rows: list[Any] = []
    dropped: Counter[str] = Counter()
    offering: dict[str, ChatCodec] = {"": codec}
    for number, (entry, found, tools) in enumerate(_read_all(path, format, Counter() if notes is None else notes), 1):
        try:
            origin = Provenance(f"{path.name}#{number}", (), kind, _detail(entry))
            if isinstance(found, LeftOut):
                raise found
            key = json.dumps([schema(tool) for tool in tools]) if tools else ""
            if key not in offering:
                offering[key] = _offering(codec, tools, key, dialect)
            row = _MAKE[type(found)](found, offering[key], origin)
            if row.longest > max_length:
                raise LeftOut(f"longer than {max_length} tokens")
        except LeftOut as reason:
            dropped[str(reason)] += 1
        else:
            rows.append(row)
    return rows, dropped


def demonstrated_turns(paths: Sequence[Path]) -> dict[str, tuple[str, ...]]:
    """Reads the agent's turns in files of expert trajectories, by the id of the task; of several with one id the first
    counts.

    Turns that the file marks as not trained on are included, unless they come before the first trained turn: those
    belong to the opening.

    Raises:
        DataError: As `import_file`, or a file holds pairs, or an entry has no id.
    """
    turns: dict[str, tuple[str, ...]] = {}
    for path in paths:
        for number, (entry, found, _) in enumerate(_read_all(path, "auto", Counter()), 1):
            if isinstance(found, LeftOut):
                continue
            if not isinstance(found, list):
                raise DataError(
                    f"{path} holds no conversations, and expert trajectories are wanted", hint="See 'agentr import'."
                )
            if not isinstance(entry.get("id"), str | int):
                raise DataError(f"{path}, entry {number} has no id", hint="Give each trajectory the id of its task.")
            own = [turn for turn in found if turn.message.role == "assistant"]
            if any(turn.calls for turn in own):
                hint = "Write each turn as the environment's own format has it: calls are made of the actions."
                raise DataError(f"{path}, entry {number} has tool_calls, and the turns of experts are texts", hint=hint)
            played = itertools.dropwhile(lambda turn: turn.loss is False, own)
            turns.setdefault(str(entry["id"]), tuple(turn.message.content for turn in played))
    return turns


def _read_all(path: Path, format: str, notes: Counter[str]) -> Iterator[tuple[dict[str, Any], Any, tuple[Tool, ...]]]:
    """Yields the entries of a file, all of one kind, each with its parsed form, or why it is left out, and the tools
    that it offers."""
    if format != "auto" and format not in FORMATS:
        raise DataError(f"unknown import format {format!r}", hint=f"Formats: auto, {', '.join(FORMATS)}.")
    entries = read_entries(path)
    opened = format == "eto-sft" or (format == "auto" and acknowledged([entry for _, entry in entries]))
    kind: type | None = None
    for where, entry in entries:
        try:
            found = parse_entry(entry, opened, notes)
            if format != "auto" and not isinstance(found, (LeftOut, *FORMATS[format])):
                raise ValueError(f"it is no entry of {format}")
            tools = offered(entry)
        except ValueError as error:
            raise DataError(
                f"{where}: {error}", hint="docs/your_own_trajectories.md shows an entry of each format."
            ) from error
        kind = type(found) if kind in (None, LeftOut) else kind
        if not isinstance(found, (LeftOut, kind)):
            raise DataError(
                f"{where} differs in kind from those before it; a dataset holds conversations or pairs",
                hint="Put the conversations and the pairs into files of their own.",
            )
        yield entry, found, tools


def _detail(entry: dict[str, Any]) -> dict[str, float | int | str]:
    return {key: entry[key] for key in ("id", "reward") if isinstance(entry.get(key), str | int | float)}


# rows -----------------------------------------------------------------------------------------------------------------


def _offering(codec: ChatCodec, tools: tuple[Tool, ...], key: str, dialect: Dialect | None) -> ChatCodec:
    """Returns the codec for agents that are offered an entry's tools; ``key`` is what `import_file` knows them by."""
    if codec.calls is not None and json.dumps(codec.calls.schemas) == key:
        return codec
    if dialect is None:
        raise LeftOut("it offers other tools than the run's agents have")
    return codec.plain.offering(tools, TurnsConfig(format=TurnFormat.tool_calls, dialect=dialect))


def _tokens(found: ImportedTokens, codec: ChatCodec, origin: Provenance) -> Row:
    if not any(found.mask):
        raise LeftOut("no turn to train on")
    if unknown := next((i for i in found.ids if not 0 <= i < len(codec.tokenizer)), None):
        raise DataError(
            f"{origin.tree}: the token {unknown} is none of the model's", hint="Token ids belong to one tokenizer."
        )
    return Row(found.ids, found.mask, origin)


def _sequence(said: list[ImportedTurn], codec: ChatCodec, origin: Provenance) -> Row:
    messages = _written(said, codec)
    first = next((i for i, m in enumerate(messages) if m.role == "assistant"), None)
    if first is None or all(m.role != "user" for m in messages):
        raise LeftOut("only one side speaks")
    _check_prompt(messages[:first])
    _check_answers(messages[first:])
    prompt = codec.prompt(messages[:first])
    ids, mask = answers(codec, messages[first:], _trained(said[first:], messages[first:]))
    if not any(mask):
        raise LeftOut("no turn to train on")
    return Row((*prompt, *ids), (*(0 for _ in prompt), *mask), origin)


def _preference(pair: ImportedPair, codec: ChatCodec, origin: Provenance) -> Preference:
    prompt, chosen, rejected = (_written(turns, codec) for turns in (pair.prompt, pair.chosen, pair.rejected))
    if chosen == rejected:
        raise LeftOut("both sides are the same")
    if not chosen or not rejected:
        raise LeftOut("only one side speaks")
    _check_prompt(prompt)
    _check_answers(chosen)
    _check_answers(rejected)
    better = answers(codec, chosen, _trained(pair.chosen, chosen))
    worse = answers(codec, rejected, [turn.loss is not False for turn in pair.rejected])
    if not any(better[1]) or not any(worse[1]):
        raise LeftOut("no turn to train on")
    return Preference(tuple(codec.prompt(prompt)), *better, *worse, origin)


def _written(turns: Sequence[ImportedTurn], codec: ChatCodec) -> list[Message]:
    """Returns the messages of turns, calls of tools written as the model writes them."""
    messages, speech = [], codec.calls
    for turn in turns:
        message = turn.message
        if turn.calls and speech is None:
            raise LeftOut("it calls tools, and does not list them")
        if len(turn.calls) > 1:
            raise LeftOut("a turn calls several tools")
        if turn.calls and speech is not None:
            thought, call = speech.begin(message.content), speech.dialect.write(Call(*turn.calls[0]))
            message = Message(message.role, f"{thought}\n{call}" if thought else call)
        messages.append(message)
    return messages


def _trained(turns: Sequence[ImportedTurn], messages: Sequence[Message]) -> list[bool]:
    """Returns which turns are learnt: those that the file does not mark as context; an empty one only if the file says
    so."""
    if any(
        turn.loss is None and m.role == "assistant" and not m.content.strip()
        for turn, m in zip(turns, messages, strict=True)
    ):
        raise LeftOut("an empty turn of the agent")
    return [turn.loss is not False for turn in turns]


def _check_prompt(messages: Sequence[Message]) -> None:
    """Checks a prompt: a system message or none, then turns that alternate and begin and end with the user's."""
    turns = messages[1:] if messages and messages[0].role == "system" else messages
    if not turns or turns[-1].role == "assistant" or turns[0].role == "tool":
        raise LeftOut("nobody speaks to the agent before its first turn")
    _check_alternate(turns, 0)


def _check_answers(turns: Sequence[Message]) -> None:
    """Checks answers: turns that alternate and begin and end with the agent's."""
    if turns[-1].role != "assistant":
        raise LeftOut("the last turn is not the agent's")
    _check_alternate(turns, 1)


def _check_alternate(turns: Sequence[Message], first: int) -> None:
    if any(turn.role not in (("user", "tool"), ("assistant",))[(i + first) % 2] for i, turn in enumerate(turns)):
        raise LeftOut("the turns do not alternate")


_MAKE: dict[type, Callable[[Any, ChatCodec, Provenance], Row | Preference]] = {
    list: _sequence,
    ImportedPair: _preference,
    ImportedTokens: _tokens,
}
