"""How trees are written to disk: format 1, canonical JSON, compressed. The only place that knows.

In it a verdict is two entries (``judgement`` and the note's ``reason``), a branch is the note's ``label``, revisions are part of
``search``, and cost and events are one table, ``counts``.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, fields
from typing import Any

import zstandard

from agentr.errors import DataError
from agentr.search.revision import Rating, Revision, Verdict
from agentr.search.tree import Child, Node, Origin, Tree
from agentr.types import Cost, FinishReason, Message, Outcome, Task

#: Version of the stored form; a reader refuses what it does not know.
FORMAT = 1

_COST = tuple(field.name for field in fields(Cost))
_IDS = ("token_ids", "bridge_ids", "logprobs")


def to_json(tree: Tree) -> str:
    """Writes a tree as canonical text: the same tree always gives the same bytes."""
    data = asdict(tree)
    data["nodes"] = [_stored_node(node) for node in data["nodes"]]
    revisions = data.pop("revisions")
    data["search"] = {**data["search"], **({"revisions": revisions} if revisions else {})}
    data["counts"] = stored_counts(tree.cost, data.pop("events"))
    del data["cost"]
    return json.dumps({"format": FORMAT, **data}, sort_keys=True, separators=(",", ":"), ensure_ascii=False)


def from_json(text: str | bytes) -> Tree:
    """Reads what ``to_json`` wrote.

    Raises:
        DataError: The text is not a tree of a known format.
    """
    try:
        data = json.loads(text)
        if data.pop("format") != FORMAT:
            raise DataError("this tree was written by another version of agentr", hint=f"This version reads format {FORMAT}.")
        data["task"] = Task(**data["task"])
        data["messages"] = tuple(Message(**m) for m in data["messages"])
        data["prompt_ids"] = tuple(data["prompt_ids"])
        data["nodes"] = [_node(n) for n in data["nodes"]]
        data["revisions"] = [Revision(**r) for r in data["search"].pop("revisions", ())]
        data["cost"], data["events"] = split_counts(data.pop("counts"))
        return Tree(**data)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise DataError(f"not a stored tree: {error!r}") from error


def to_bytes(tree: Tree) -> bytes:
    """Writes a tree as compressed text."""
    return zstandard.ZstdCompressor(level=6).compress(to_json(tree).encode())


def from_bytes(data: bytes) -> Tree:
    """Reads what ``to_bytes`` wrote.

    Raises:
        DataError: The bytes are damaged or no tree.
    """
    try:
        return from_json(zstandard.ZstdDecompressor().decompress(data))
    except zstandard.ZstdError as error:
        raise DataError(f"a stored tree is damaged: {error}") from error


def stored_child(child: Child) -> dict[str, Any]:
    """Returns a turn as plain data, for a journal."""
    return asdict(child)


def read_child(data: Mapping[str, Any]) -> Child:
    """Reads what ``stored_child`` returned, perhaps through JSON."""
    return Child(**_typed(dict(data)))


def stored_counts(cost: Cost, events: Mapping[str, int]) -> dict[str, int]:
    """Returns cost and events as one table, without zeros."""
    return {name: amount for name, amount in {**asdict(cost), **events}.items() if amount}


def split_counts(counts: Mapping[str, int]) -> tuple[Cost, dict[str, int]]:
    """Returns the cost and the events in a table of ``stored_counts``."""
    cost = Cost(**{name: counts[name] for name in _COST if name in counts})
    return cost, {name: amount for name, amount in counts.items() if name not in _COST}


def _stored_node(node: dict[str, Any]) -> dict[str, Any]:
    verdict, branch = node.pop("verdict"), node.pop("branch")
    note = {} if branch is None else {"label": branch}
    if verdict is not None and verdict["reason"] is not None:
        note["reason"] = verdict["reason"]
    return {**node, "judgement": verdict["rating"] if verdict else "", "note": note}


def _node(data: dict[str, Any]) -> Node:
    rating, note = data.pop("judgement"), data.pop("note")
    verdict = Verdict(Rating(rating), note.get("reason")) if rating else None
    return Node(**_typed({**data, "origin": Origin(data["origin"])}), verdict=verdict, branch=note.get("label"))


def _typed(data: dict[str, Any]) -> dict[str, Any]:
    data["finish"] = FinishReason(data["finish"])
    data["outcome"] = Outcome(data["outcome"]) if data["outcome"] else None
    for name in _IDS:
        data[name] = tuple(data[name])
    return data
