"""Exports datasets as texts in ETO's, LLaMA-Factory's and verl's formats, decoded from token ids: no trees are needed.

- ``eto-sft``, ``eto-dpo``: ETO's JSON lists of demonstrations and of pairs.
- ``llamafactory``: LLaMA-Factory's sharegpt form, for sequences and for pairs of one turn.
- ``verl``: a table (Parquet) for verl's fine-tuning on conversations: ``messages``, and ``extra_info``. verl trains on every turn of the
  assistant, so a row in which one is context counts as inexact.

`agentr.build.imports` reads them back, to the same ids and masks if the tokenizer spells the text as the policy did.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from agentr.build.conversations import ConversationReader, answers
from agentr.errors import DataError
from agentr.policy.chat import ChatCodec
from agentr.store.files import write_list, writing
from agentr.store.rows import Preference, Row
from agentr.types import Message

#: Formats, and the rows that each has a place for.
TEXT_FORMATS: dict[str, tuple[type, ...]] = {"eto-sft": (Row,), "eto-dpo": (Preference,), "llamafactory": (Row, Preference), "verl": (Row,)}

_FROM = {"user": "human", "assistant": "gpt", "system": "system"}


def export_texts(path: Path, rows: Iterable[Row | Preference], codec: ChatCodec, kind: str) -> tuple[int, int]:
    """Writes a dataset, of trees or imported, as texts: a JSON list, or verl's table.

    Returns:
        The number of entries, and the number of those that get other ids or masks when they are imported again: text does not keep
        a spelling in other tokens than the tokenizer's, and not the cut-off of a turn.

    Raises:
        DataError: The format is unknown, has no place for these rows, or the rows are of another tokenizer.
    """
    if kind not in TEXT_FORMATS:
        raise DataError(f"unknown export format {kind!r}", hint=f"Formats: {', '.join(TEXT_FORMATS)}.")
    reader = ConversationReader(codec)
    inexact = 0

    def entries() -> Iterator[dict[str, Any]]:
        nonlocal inexact
        for number, row in enumerate(rows):
            if not isinstance(row, TEXT_FORMATS[kind]):
                fitting = [name for name, types in TEXT_FORMATS.items() if isinstance(row, types)]
                what = "preferences" if isinstance(row, Preference) else "sequences"
                raise DataError(f"the format {kind} has no place for {what}.", hint=f"Formats that have: {', '.join(fitting)}.")
            if isinstance(row, Preference):
                entry, exact = _pair_entry(row, reader, codec, kind)
            else:
                entry, exact = _sequence_entry(row, reader, codec, kind)
            inexact += not exact
            yield {"id": f"{row.provenance.tree}_{number}", "kind": row.provenance.kind, **entry}

    return (_write_table if kind == "verl" else write_list)(path, entries()), inexact


#: Rows of a table that are held at a time.
_BATCH = 1000


def _write_table(path: Path, entries: Iterable[dict[str, Any]]) -> int:
    """Writes entries as a Parquet table, and returns their number."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    said = pa.struct([("role", pa.string()), ("content", pa.string())])
    about = pa.struct([("id", pa.string()), ("kind", pa.string())])
    schema = pa.schema([("messages", pa.list_(said)), ("extra_info", about)])
    count, left = 0, iter(entries)
    with writing(path) as file, pq.ParquetWriter(file, schema) as table:
        while batch := list(itertools.islice(left, _BATCH)):
            lines = [{"messages": e["messages"], "extra_info": {"id": e["id"], "kind": e["kind"]}} for e in batch]
            table.write_table(pa.Table.from_pylist(lines, schema))
            count += len(batch)
    return count


def _sequence_entry(row: Row, reader: ConversationReader, codec: ChatCodec, kind: str) -> tuple[dict[str, Any], bool]:
    passages = reader.conversation(row.input_ids)
    messages = [p.message for p in passages]
    first = next((i for i, m in enumerate(messages) if m.role == "assistant"), len(messages))
    # One further than the content: an empty turn is its end-of-turn token alone.
    trained = [m.role == "assistant" and any(row.loss_mask[p.start : p.end + 1]) for m, p in zip(messages, passages, strict=True)]
    prompt = tuple(codec.prompt(messages[:first]))
    ids, mask = answers(codec, messages[first:], trained[first:])
    exact = (*prompt, *ids) == row.input_ids and (*(0 for _ in prompt), *mask) == row.loss_mask
    if kind == "verl":
        said = [{"role": message.role, "content": message.content} for message in messages]
        return {"messages": said}, exact and all(t for t, m in zip(trained, messages, strict=True) if m.role == "assistant")
    said = _said(messages)
    for turn, target in zip(said[first:], trained[first:], strict=True):
        turn |= {"loss": target} if turn["from"] == "gpt" else {}
    return ({"conversations": said} if kind == "eto-sft" else _with_system(said)), exact


def _pair_entry(row: Preference, reader: ConversationReader, codec: ChatCodec, kind: str) -> tuple[dict[str, Any], bool]:
    prompt = [p.message for p in reader.conversation(row.prompt_ids)]
    chosen, rejected = ([p.message for p in reader.continuation(ids)] for ids in (row.chosen_ids, row.rejected_ids))
    exact = tuple(codec.prompt(prompt)) == row.prompt_ids
    exact &= answers(codec, chosen, [True] * len(chosen)) == (row.chosen_ids, row.chosen_mask)
    exact &= answers(codec, rejected, [True] * len(rejected)) == (row.rejected_ids, row.rejected_mask)
    if kind == "eto-dpo":
        return {"prompt": _said(prompt), "chosen": _said(chosen), "rejected": _said(rejected)}, exact
    if len(chosen) > 1 or len(rejected) > 1:
        raise DataError(
            f"a pair of {row.provenance.tree} has a side of several turns, and LLaMA-Factory's ranking sets have one answer on each side",
            hint="Export it as eto-dpo.",
        )
    return {**_with_system(_said(prompt)), "chosen": _said(chosen)[0], "rejected": _said(rejected)[0]}, exact


def _said(messages: Iterable[Message]) -> list[dict[str, Any]]:
    return [{"from": _FROM[m.role], "value": m.content} for m in messages]


def _with_system(said: list[dict[str, Any]]) -> dict[str, Any]:
    """Moves the system message to a column of its own, as LLaMA-Factory has it."""
    system = said[0]["value"] if said and said[0]["from"] == "system" else ""
    return {"system": system, "conversations": said[1:] if system else said}
