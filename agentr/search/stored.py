"""How trees are written to disk: format 2, canonical JSON, compressed. The only place that knows.

The text of a tree depends on the task, the seed and the policy alone: same-seed trees are the same, byte for byte. What
else is known of it (seconds, tokens that came from a cache) is a second text behind the first one.
"""

import json
from collections.abc import Mapping
from dataclasses import fields
from typing import Any

import msgspec
import zstandard

from agentr.errors import DataError
from agentr.outside import MOST
from agentr.search.tree import Child, Spent, Tree
from agentr.types import Asked, CallStatus, Cost, FinishReason, Outcome

#: Version of the stored form; a reader refuses what it does not know.
FORMAT = 2


class _Formatted(msgspec.Struct):
    format: int


_FORMAT = msgspec.json.Decoder(_Formatted)
_TREE = msgspec.json.Decoder(Tree)

_COST = tuple(field.name for field in fields(Cost))
#: Bytes that are decompressed at a time.
_PIECE = 1 << 12
_IDS = ("token_ids", "bridge_ids", "logprobs")

#: Fields of a tree that are not in its text: where it is, and what changes from one run to the next.
_BESIDE = ("stage", "spent")

#: Fields that came later, with what they are without information: they are in the text only if they carry information,
#: so that trees without them keep their text.
_LATER: dict[str, Any] = {"evolutions": [], "hiding": None}
_LATER_OF_TURNS: dict[str, Any] = {"status": CallStatus.ok, "scores": {}, "forgotten": 0, "reasoning": 0}
_LATER_OF_TURNS |= {"sent": "", "asked": None, "behind": None, "worlds": ()}
_LATER_OF_MESSAGES: dict[str, Any] = {"answers": ""}
_LATER_OF_EVOLUTIONS: dict[str, Any] = {"guidance": "", "answer": "", "answer_ids": (), "answer_logprobs": ()}


def to_json(tree: Tree) -> str:
    """Writes a tree as canonical text: the same tree always gives the same bytes. What was spent on it is left out."""
    data = {key: value for key, value in _said(vars(tree), _LATER).items() if key not in _BESIDE}
    data["messages"] = [_said(vars(message), _LATER_OF_MESSAGES) for message in tree.messages]
    data["nodes"] = [_said(vars(node), _LATER_OF_TURNS) for node in tree.nodes]
    if tree.evolutions:
        data["evolutions"] = [_said(vars(made), _LATER_OF_EVOLUTIONS) for made in tree.evolutions]
    data["cost"] = {**vars(tree.cost), "cached_tokens": 0}
    return _text({"format": FORMAT, **data})


def from_json(text: str | bytes) -> Tree:
    """Reads what ``to_json`` wrote.

    Raises:
        DataError: The text is not a tree of a known format.
    """
    try:
        if _FORMAT.decode(text).format != FORMAT:
            raise DataError(
                "this tree was written by another version of agentr", hint=f"This version reads format {FORMAT}."
            )
        tree = _TREE.decode(text)
    except (msgspec.MsgspecError, RecursionError) as error:
        raise DataError(f"not a stored tree: {error}") from error
    if not tree.nodes:
        raise DataError("not a stored tree: it has no beginning")
    for number, node in enumerate(tree.nodes):  # a path that leads back would be followed for ever
        above, below = range(number) if number else (-1,), range(number + 1, len(tree.nodes))
        if node.id != number or node.parent not in above or any(child not in below for child in node.children):
            raise DataError(f"not a stored tree: node {number} is not where it should be")
    return tree


def to_bytes(tree: Tree) -> bytes:
    """Writes a tree as compressed text, and what was spent on it behind that."""
    return _compressed(to_json(tree)) + _compressed(_text([list(vars(spent).values()) for spent in tree.spent]))


def from_bytes(data: bytes) -> Tree:
    """Reads what ``to_bytes`` wrote, or its first part alone.

    Raises:
        DataError: The bytes are damaged or no tree.
    """
    return split_bytes(data)[2]


def split_bytes(data: bytes) -> tuple[bytes, bytes, Tree]:
    """Returns the two parts of what ``to_bytes`` wrote, the tree and what was spent on it, and the tree that they hold.

    Raises:
        DataError: The bytes are damaged or no tree.
    """
    text, rest = decompressed(data)
    tree = from_json(text)
    if rest:
        read_spent(tree, rest)
    return data[: len(data) - len(rest)], rest, tree


def read_spent(tree: Tree, data: bytes) -> None:
    """Gives a tree what was spent on it: the second part of what ``to_bytes`` wrote.

    Raises:
        DataError: The bytes are damaged.
    """
    try:
        for values in json.loads(decompressed(data)[0]):
            tree.pay(Spent(*values))
    except (ValueError, TypeError) as error:
        raise DataError(f"a stored tree is damaged: {error!r}") from error


def decompressed(data: bytes) -> tuple[bytes, bytes]:
    """Returns the first text in some bytes, and the bytes behind it.

    Raises:
        DataError: The bytes are damaged, or the text is larger than a document may be.
    """
    reader, at, text = zstandard.ZstdDecompressor().decompressobj(), 0, bytearray()
    try:
        while not reader.eof and at < len(data):  # a little at a time: a thousand bytes may become a thousand million
            text += reader.decompress(data[at : at + _PIECE])
            at += _PIECE
            if len(text) > MOST:
                raise DataError(f"a stored tree is larger than {MOST >> 20} MiB")
    except zstandard.ZstdError as error:
        raise DataError(f"a stored tree is damaged: {error}") from error
    if not reader.eof:
        raise DataError("a stored tree is damaged: its end is missing")
    return bytes(text), reader.unused_data + data[at:]


def stored_child(child: Child) -> dict[str, Any]:
    """Returns a turn as plain data, for a journal."""
    said = _said(vars(child), _LATER_OF_TURNS)
    return {**said, "asked": vars(said["asked"])} if "asked" in said else said


def read_child(data: Mapping[str, Any]) -> Child:
    """Reads what ``stored_child`` returned, perhaps through JSON."""
    return Child(**_typed(dict(data)))


def stored_counts(cost: Cost, events: Mapping[str, int]) -> dict[str, int]:
    """Returns cost and events as one table, without zeros."""
    return {name: amount for name, amount in {**vars(cost), **events}.items() if amount}


def split_counts(counts: Mapping[str, int]) -> tuple[Cost, dict[str, int]]:
    """Returns the cost and the events in a table of ``stored_counts``."""
    cost = Cost(**{name: counts[name] for name in _COST if name in counts})
    return cost, {name: amount for name, amount in counts.items() if name not in _COST}


def _said(data: Mapping[str, Any], later: Mapping[str, Any]) -> dict[str, Any]:
    """Returns data without the fields that came later and teach nothing."""
    return {key: value for key, value in data.items() if key not in later or value != later[key]}


def _text(data: Any) -> str:
    # asdict would copy each of hundreds of numbers by itself.
    return json.dumps(data, sort_keys=True, separators=(",", ":"), ensure_ascii=False, default=vars)


def _compressed(text: str) -> bytes:
    return zstandard.ZstdCompressor(level=6, write_checksum=True).compress(text.encode())


def _typed(data: dict[str, Any]) -> dict[str, Any]:
    data["finish"] = FinishReason(data["finish"])
    data["outcome"] = Outcome(data["outcome"]) if data["outcome"] else None
    data["status"] = CallStatus(data.get("status", CallStatus.ok))
    if data.get("asked") is not None:
        data["asked"] = msgspec.convert(data["asked"], Asked)
    if data.get("behind") is not None:
        data["behind"] = tuple(data["behind"])
    for name in _IDS:
        data[name] = tuple(data[name])
    return data
