"""Parses files of trajectories and preference pairs that other tools write, as text without tokens.

- ``eto-sft``: ETO's demonstrations, ``{"id", "conversations": [{"from": "human" or "gpt", "value"}]}``: instruction, "OK", task, turns.
- ``eto-dpo``: ETO's pairs, ``{"id", "prompt": [...], "chosen": [...], "rejected": [...]}`` of such turns. A prompt or a side may also be
  a text, and a side may repeat the prompt, as in TRL's sets.
- ``sharegpt``: ``{"conversations": [...]}``; a turn with ``"loss": false`` is context. ``prompt`` and ``completion`` may stand for it: then
  only the completion is trained on.
- ``llamafactory``: LLaMA-Factory's ranking sets, ``instruction``, ``input``, ``history``, ``chosen``, ``rejected`` (alpaca) or
  ``conversations``, ``chosen``, ``rejected`` (sharegpt). Without sides they are sequences: the answer is ``output``, or the last turn.

Everywhere a turn may be ``{"role", "content"}`` in place of ``{"from", "value"}``, ``messages`` or ``trajectory`` may stand for
``conversations``, and ``system`` may hold the system message.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from agentr.errors import DataError
from agentr.types import Message

FORMATS = ("eto-sft", "eto-dpo", "sharegpt", "llamafactory")

_ROLES: dict[str, Literal["system", "user", "assistant"]] = {
    "human": "user",
    "user": "user",
    "gpt": "assistant",
    "assistant": "assistant",
    "system": "system",
}
_CONVERSATIONS = ("conversations", "messages", "trajectory")
#: Entries by which a format is recognised.
_LOOKED_AT = 20


@dataclass(frozen=True)
class ImportedTurn:
    """A message, and whether it is trained on; None if the file does not say."""

    message: Message
    loss: bool | None = None


@dataclass(frozen=True)
class ImportedPair:
    """Two continuations of one prompt."""

    prompt: list[Message]
    chosen: list[Message]
    rejected: list[Message]


def read_entries(path: Path) -> list[Any]:
    """Reads the entries of a JSON list or of JSON lines.

    Raises:
        DataError: The file is missing, is neither, or is empty.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"{path} cannot be read: {error}", hint="Give a JSON list, or one JSON object a line, in UTF-8.") from error
    # Not splitlines(): a text may hold other line separators, which JSON does not escape.
    parts = [text] if text.lstrip().startswith("[") else text.split("\n")
    entries: list[Any] = []
    for number, part in enumerate(parts, 1):
        try:
            entries += [json.loads(part)] if part.strip() else []
        except json.JSONDecodeError as error:
            where = f"{path}, line {number}," if len(parts) > 1 else f"{path}"
            raise DataError(f"{where} is not JSON: {error}", hint="Expected a JSON list or one JSON object a line.") from error
    entries = entries[0] if len(parts) == 1 and entries and isinstance(entries[0], list) else entries
    if not entries:
        raise DataError(f"{path} holds no entries", hint="Expected a JSON list or one JSON object a line.")
    return entries


def detect_format(path: Path, entries: Sequence[Any]) -> str:
    """Detects the format of the first entries.

    Raises:
        DataError: The entries have no known format, or several.
    """
    found = {_format_of(entry) for entry in entries[:_LOOKED_AT]}
    # A conversation whose instruction is answered "OK" proves nothing beside others that have no such opening.
    found -= {"eto-sft"} if "sharegpt" in found else set()
    if len(found) != 1 or "" in found:
        kinds = ", ".join(sorted(f or "none that is known" for f in found))
        raise DataError(
            f"the format of {path} cannot be recognised by its first entries: they look like {kinds}",
            hint=f"Say which it is: {', '.join(FORMATS)}.",
        )
    return found.pop()


def _format_of(entry: Any) -> str:
    keys = set(entry) if isinstance(entry, dict) else set()
    talk = next((entry[key] for key in _CONVERSATIONS if key in keys), None)
    if {"chosen", "rejected"} <= keys:
        return "eto-dpo" if "prompt" in keys else "llamafactory" if talk is not None or "instruction" in keys else ""
    if {"instruction", "output"} <= keys:
        return "llamafactory"
    if {"prompt", "completion"} <= keys:
        return "sharegpt"
    if not isinstance(talk, list):
        return ""
    second = talk[1] if len(talk) > 3 and isinstance(talk[1], dict) else {}
    acknowledged = str(second.get("value", second.get("content"))).strip().rstrip(".").upper() == "OK"
    return "eto-sft" if acknowledged else "sharegpt"


def parse_entry(entry: Any, format: str, train_opening: bool) -> list[ImportedTurn] | ImportedPair:
    """Parses one entry.

    Args:
        train_opening: Whether the first turn of the agent in ``eto-sft``, its acknowledgement, is trained on.

    Raises:
        KeyError, TypeError, ValueError: The entry does not have the format.
    """
    if not isinstance(entry, dict):
        raise TypeError(f"an object is wanted, not {type(entry).__name__}")
    system = [ImportedTurn(Message("system", _text(entry["system"])))] if entry.get("system") else []
    if format == "eto-dpo":
        return _pair(entry, [*system, *_said(entry["prompt"], "user")])
    if format == "llamafactory" and "instruction" in entry:
        prompt = [*system, *_alpaca(entry)]
        return _pair(entry, prompt) if "chosen" in entry else [*prompt, *_said(entry["output"], "assistant")]
    if format == "sharegpt" and "completion" in entry:
        prompt = [replace(turn, loss=False) for turn in _said(entry["prompt"], "user")]
        return [*system, *prompt, *_said(entry["completion"], "assistant")]
    key = next((key for key in _CONVERSATIONS if key in entry), _CONVERSATIONS[0])
    said = [*system, *_said(entry[key], "user")]
    if format == "llamafactory" and "chosen" in entry:
        return _pair(entry, said)
    opening = next((i for i, turn in enumerate(said) if turn.message.role == "assistant"), None)
    if format == "eto-sft" and opening is not None and said[opening].loss is None:
        said[opening] = ImportedTurn(said[opening].message, train_opening)
    return said


def _alpaca(entry: dict[str, Any]) -> list[ImportedTurn]:
    asked = "\n".join(filter(None, (_text(entry["instruction"]), _text(entry.get("input") or ""))))
    history = entry.get("history") or ()
    said = [ImportedTurn(Message(*turn)) for pair in history for turn in zip(("user", "assistant"), map(_text, pair), strict=True)]
    return [*said, ImportedTurn(Message("user", asked))]


def _pair(entry: dict[str, Any], prompt: list[ImportedTurn]) -> ImportedPair:
    asked = [turn.message for turn in prompt]
    spoken = [message for message in asked if message.role != "system"]
    sides = []
    for name in ("chosen", "rejected"):
        side = [turn.message for turn in _said(entry[name], "assistant") if turn.message.role != "system"]
        sides.append(side[len(spoken) :] if side[: len(spoken)] == spoken else side)
    return ImportedPair(asked, *sides)


def _said(value: Any, alone: Literal["user", "assistant"]) -> list[ImportedTurn]:
    """Returns the messages of a list, of a single turn, or of a text; a text has the role ``alone``."""
    if isinstance(value, str):
        return [ImportedTurn(Message(alone, value))]
    if isinstance(value, dict):
        value = [value]
    if not isinstance(value, list):
        raise TypeError(f"a list of turns is wanted, not {type(value).__name__}")
    found = []
    for turn in value:
        role = turn["from"] if "from" in turn else turn["role"]
        if role not in _ROLES:
            raise ValueError(f"the speaker {role!r} is none of {', '.join(_ROLES)}")
        if turn.get("loss") not in (None, True, False):
            raise ValueError(f"the loss of a turn is true or false, not {turn['loss']!r}")
        text = _text(turn["value"] if "value" in turn else turn["content"])
        loss = turn.get("loss")
        found.append(ImportedTurn(Message(_ROLES[role], text), None if loss is None else bool(loss)))
    return found


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(f"a text is wanted, not {type(value).__name__}")
    value.encode()  # half a surrogate pair, as cut-off emoji leave it in JSON, has no tokens
    return value
