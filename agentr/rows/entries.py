"""Parses files of trajectories and preference pairs that other tools write, as text without tokens.

- ``eto-sft``: ETO's demonstrations, ``{"id", "conversations": [{"from": "human" or "gpt", "value"}]}``: instruction,
  "OK", task, turns.
- ``eto-dpo``: ETO's pairs, ``{"id", "prompt": [...], "chosen": [...], "rejected": [...]}`` of such turns. A prompt or a
  side may also be a text, and a side may repeat the prompt; without ``prompt`` it is what the sides begin with
  together, as in TRL's sets.
- ``sharegpt``: ``{"conversations": [...]}``. ``prompt`` and ``completion`` may stand for it: then only the completion
  is trained on. With ms-swift's ``rejected_response`` or ``rejected_messages`` it is a pair.
- ``llamafactory``: LLaMA-Factory's ranking sets, ``instruction``, ``input``, ``history``, ``chosen``, ``rejected``
  (alpaca) or ``conversations``, ``chosen``, ``rejected`` (sharegpt). Without sides they are sequences: the answer is
  ``output``, or the last turn.
- ``trl``: ``{"input_ids", "labels"}``, tokens of the model itself.

Everywhere a turn may be ``{"role", "content"}`` in place of ``{"from", "value"}``, other names may stand for
``conversations``, ``system`` may hold the system message, ``tools`` the tools that are offered, and a turn may state
whether it is trained on (`_MARKS`). A key that is not known is refused: it may mean that a turn is context, or an
answer a bad one.
"""

import itertools
import json
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from agentr.errors import DataError
from agentr.types import Message
from env_servers.protocol import Tool
from env_servers.records import checked, read_records, text_of

#: Speakers whose text is a call of a tool, as JSON (LLaMA-Factory, ms-swift).
_CALLERS = ("function_call", "tool_call")
_ROLES: dict[str, Literal["system", "user", "assistant", "tool"]] = {
    **dict.fromkeys(("human", "user"), "user"),
    **dict.fromkeys(("gpt", "assistant", *_CALLERS), "assistant"),
    **dict.fromkeys(("tool", "observation", "function", "tool_response", "ipython"), "tool"),
    "system": "system",
}
_CONVERSATIONS = ("conversations", "messages", "trajectory", "revise_log")
#: The forms of entries by their keys; ``conversations`` stands for all of its names.
_FORMS = [
    {"input_ids", "labels"},
    {"conversations"},
    *({start, end} for start, end in (("prompt", "completion"), ("instruction", "output"))),
    *({"conversations", side} for side in ("rejected_response", "rejected_messages")),
    *(
        {*start, "chosen", "rejected"}
        for start in ((), ("prompt",), ("instruction",), ("conversations",), ("prompt", "conversations"))
    ),
]
#: How turns are marked, and the value that says that one is learnt: agentr, ms-swift; OpenAI, Mistral; Axolotl; verl;
#: slime; torchtune.
_MARKS = dict.fromkeys(("loss", "weight", "train", "training", "trainable", "loss_mask", "step_loss_mask"), True) | {
    "masked": False
}
#: How tools mark an answer that is not to be imitated: TRL and ms-swift; LLaMA-Factory.
_LABELS = frozenset({"label", "kto_tag"})
#: Keys that do not change what is learnt, of an entry and of a turn.
_NOT_READ = frozenset(
    "kind task split uuid idx index prompt_id conversation_id source dataset data_source subset category domain lang "
    "language model generator metadata meta extra_info tags timestamp created_at url title score_chosen score_rejected "
    "task_num revise high_log low_log task_description revise_feedback".split()
)
_NOT_READ_OF_TURNS = frozenset({"id", "name", "tool_call_id", "timestamp", "metadata"})
#: Entries by which an opening is recognised.
_LOOKED_AT = 20


class LeftOut(Exception):
    """An entry that can be read but not trained on; the text says why."""


@dataclass(frozen=True)
class ImportedTurn:
    """A message, whether it is trained on (None if the file does not state it), and the calls of tools in it: name and
    arguments."""

    message: Message
    loss: bool | None = None
    calls: tuple[tuple[str, dict[str, Any]], ...] = ()


@dataclass(frozen=True)
class ImportedPair:
    """Two continuations of one prompt."""

    prompt: list[ImportedTurn]
    chosen: list[ImportedTurn]
    rejected: list[ImportedTurn]


@dataclass(frozen=True)
class ImportedTokens:
    """A sequence of token ids with its loss mask, both of shape [L]."""

    ids: tuple[int, ...]
    mask: tuple[int, ...]


#: The formats, and what their entries may be.
FORMATS: dict[str, tuple[type, ...]] = {
    **dict.fromkeys(("eto-sft", "sharegpt", "verl", "agent_r"), (list,)),
    **dict.fromkeys(("llamafactory", "messages"), (list, ImportedPair)),
    "eto-dpo": (ImportedPair,),
    "trl": (ImportedTokens,),
}


def read_entries(path: Path) -> list[tuple[str, Any]]:
    """Reads the entries of a JSON list, of JSON lines, or of a table (Parquet), each with its place.

    Raises:
        DataError: The file is missing, is none of them, or is empty.
    """
    hint = "Give a JSON list, one JSON object a line in UTF-8, or a table (Parquet)."
    try:
        entries = list(read_records(path, 1))
    except ValueError as error:
        raise DataError(str(error), hint=hint) from error
    if not entries:
        raise DataError(f"{path} holds no entries", hint=hint)
    return entries


def acknowledged(entries: Sequence[Any]) -> bool:
    """Returns whether the first entries begin as ETO's demonstrations do: with an instruction that is answered "OK"."""

    def begins(entry: Any) -> bool:
        said = next((entry[key] for key in _CONVERSATIONS if key in entry), None) if isinstance(entry, dict) else None
        second = said[1] if isinstance(said, list) and len(said) > 3 and isinstance(said[1], dict) else {}
        return str(second.get("value", second.get("content"))).strip().rstrip(".").upper() == "OK"

    return all(map(begins, entries[:_LOOKED_AT]))


def parse_entry(
    entry: Any, opened: bool, notes: Counter[str]
) -> list[ImportedTurn] | ImportedPair | ImportedTokens | LeftOut:
    """Parses one entry.

    Args:
        opened: Whether the first turn of the agent in a conversation is an acknowledgement, which is context if the
            file does not state it.
        notes: Counts what of entries is not read.

    Returns:
        What it holds, or why it is left out: it is an example of what to avoid.

    Raises:
        ValueError: It has none of the forms, or a key that is not known.
    """
    keys = {key for key, value in entry.items() if value is not None} if isinstance(entry, dict) else set[str]()
    names = [key for key in _CONVERSATIONS if key in keys]
    form = {"conversations" if key in names else key for key in keys} & set[str]().union(*_FORMS)
    pair = any("rejected" in key for key in form)
    known = {*form, *names, "id", "reward", "system", "tools", *(("input", "history") if "instruction" in form else ())}
    if isinstance(entry, dict) and (form not in _FORMS or len(names) > 1):
        raise ValueError(f"the keys {', '.join(entry) or '(none)'} are those of no form that is known")
    there = checked(entry, "", known if pair else known | _LABELS, _NOT_READ, notes)
    if not all(_flag(there[key], key) for key in sorted(_LABELS & there.keys())):
        return LeftOut("labelled as a bad example")
    if "input_ids" in form:
        return _tokens(there["input_ids"], there["labels"])

    def said(key: str, alone: Literal["user", "assistant"] = "assistant") -> list[ImportedTurn]:
        return _said(there[key], alone, notes)

    system = [ImportedTurn(Message("system", text_of(there["system"], "system")))] if there.get("system") else []
    start = "prompt" if "prompt" in form else names[0] if names else ""
    begun = [*system, *(_alpaca(there) if "instruction" in form else said(start, "user") if start else [])]
    if "completion" in form:
        return [*(replace(turn, loss=False) for turn in begun), *said("completion")]
    if "output" in form:
        return [*begun, *said("output")]
    if "rejected_response" in form:
        return _parted(begun, [*begun[:-1], *said("rejected_response")])
    if "rejected_messages" in form:
        return _parted(begun, [*system, *said("rejected_messages")])
    if form == {"chosen", "rejected"}:
        return _parted([*system, *said("chosen")], [*system, *said("rejected")])
    if pair:
        return ImportedPair(begun, *(_without(begun, said(key)) for key in ("chosen", "rejected")))
    first = next((i for i, turn in enumerate(begun) if turn.message.role == "assistant"), None)
    if opened and first is not None and begun[first].loss is None:
        begun[first] = replace(begun[first], loss=False)
    return begun


def offered(entry: dict[str, Any]) -> tuple[Tool, ...]:
    """Returns the tools that an entry offers: schemas as in OpenAI's API, bare or in JSON; none without ``tools``.

    Raises:
        ValueError: They are no such schemas.
    """
    tools = entry.get("tools") or []
    tools = _parsed(tools) if isinstance(tools, str) else tools
    if not isinstance(tools, list):
        raise ValueError(f"tools: a list is wanted, not {type(tools).__name__}")
    return tuple(map(_tool, tools))


def _tool(tool: Any) -> Tool:
    said = _function(tool, "description", "parameters", "strict")
    parameters = _arguments(said.get("parameters", {"type": "object", "properties": {}}))
    about = text_of(said.get("description", ""), "description")
    # Not validated: what a call of a foreign tool would do in an environment is not known, and not needed.
    return Tool.model_construct(name=said["name"], description=about, parameters=parameters, action="")


def _call(call: Any) -> tuple[str, dict[str, Any]]:
    said = _function(call, "arguments")
    return said["name"], _arguments(said.get("arguments", {}))


def _arguments(value: Any) -> dict[str, Any]:
    value = _parsed(value) if isinstance(value, str) else value
    if not isinstance(value, dict):
        raise ValueError("arguments: an object is wanted")
    text_of(json.dumps(value, ensure_ascii=False), "arguments")
    return value


def _parsed(text: str) -> Any:
    try:
        return json.loads(text)
    except RecursionError as error:
        raise ValueError(f"lists in lists in lists: {error}") from error


def _function(value: Any, *keys: str) -> dict[str, Any]:
    """Returns a function of OpenAI's API, bare or below the key ``function``."""
    keys_of_both = {"name", "id", "type", "index", *keys}
    outer = checked(value, "tools", {"function", *keys_of_both})
    said = checked(outer.get("function", outer), "function", keys_of_both)
    if not re.fullmatch(r"[\w.:/-]+", text_of(said.get("name"), "name")):
        raise ValueError(f"{said['name']!r} is no name of a tool")
    return said


def _alpaca(entry: dict[str, Any]) -> list[ImportedTurn]:
    asked = "\n".join(filter(None, (text_of(entry.get(key, ""), key) for key in ("instruction", "input"))))
    history = entry.get("history", [])
    if not isinstance(history, list) or not all(isinstance(pair, list) and len(pair) == 2 for pair in history):
        raise ValueError("history: a list of pairs of texts is wanted")
    said = [
        message
        for user, agent in history
        for message in (Message("user", text_of(user, "history")), Message("assistant", text_of(agent, "history")))
    ]
    return [ImportedTurn(message) for message in (*said, Message("user", asked))]


def _without(prompt: list[ImportedTurn], side: list[ImportedTurn]) -> list[ImportedTurn]:
    """Returns a side without the prompt that it may begin with once more."""
    spoken, side = ([turn for turn in turns if turn.message.role != "system"] for turns in (prompt, side))
    return side[len(spoken) :] if _same(spoken, side) == len(spoken) else side


def _parted(chosen: list[ImportedTurn], rejected: list[ImportedTurn]) -> ImportedPair:
    """Makes a pair of two conversations; its prompt is what they begin with together, up to a turn of the agent."""
    at = _same(chosen, rejected)
    while at and not all(side[at:] and side[at].message.role == "assistant" for side in (chosen, rejected)):
        at -= 1
    return ImportedPair(chosen[:at], chosen[at:], rejected[at:])


def _same(one: list[ImportedTurn], other: list[ImportedTurn]) -> int:
    """Counts the turns that two conversations begin with alike, whatever is learnt of them."""
    alike = (a.message == b.message and a.calls == b.calls for a, b in zip(one, other, strict=False))
    return sum(1 for _ in itertools.takewhile(bool, alike))


def _tokens(ids: Any, labels: Any) -> ImportedTokens:
    if not all(isinstance(part, list) and all(type(i) is int for i in part) for part in (ids, labels)) or len(
        ids
    ) != len(labels):
        raise ValueError("input_ids and labels are lists of whole numbers, of the same length")
    if any(label not in (-100, i) for i, label in zip(ids, labels, strict=True)):
        raise ValueError("a label is the token itself, or -100 for context")
    return ImportedTokens(tuple(ids), tuple(int(label != -100) for label in labels))


def _said(value: Any, alone: Literal["user", "assistant"], notes: Counter[str]) -> list[ImportedTurn]:
    """Returns the messages of a list, of a single turn, or of a text; a text has the role ``alone``."""
    if isinstance(value, str):
        return [ImportedTurn(Message(alone, text_of(value, alone)))]
    if not isinstance(value, list | dict):
        raise ValueError(f"a list of turns is wanted, not {type(value).__name__}")
    found = []
    for number, turn in enumerate(value if isinstance(value, list) else [value], 1):
        try:
            found.append(_turn(turn, notes))
        except ValueError as error:
            raise ValueError(f"turn {number}: {error}") from error
    return found


def _turn(said: Any, notes: Counter[str]) -> ImportedTurn:
    known = {"from", "role", "value", "content", "tool_calls", "function_call", *_MARKS}
    turn = checked(said, "", known, _NOT_READ_OF_TURNS, notes)
    speaker = _one(turn, "from", "role")
    if speaker not in _ROLES:
        raise ValueError(f"the speaker {speaker!r} is none of {', '.join(_ROLES)}")
    calling = turn.get("tool_calls") or turn.get("function_call") or []
    content = "" if calling and not turn.keys() & {"value", "content"} else _one(turn, "value", "content")
    if speaker in _CALLERS:
        calling, content = _parsed(content), ""
    role = _ROLES[speaker]
    marks = {_flag(turn[key], key) is learnt for key, learnt in _MARKS.items() if key in turn}
    if len(marks) > 1:
        raise ValueError("its marks mean that it is trained on, and that it is not")
    if marks == {True} and role != "assistant":
        notes["marks of turns of others as trained on"] += 1
    calls = tuple(map(_call, calling if isinstance(calling, list) else [calling]))
    if calls and role != "assistant":
        raise ValueError(f"the speaker {speaker!r} calls tools")
    return ImportedTurn(Message(role, content), marks.pop() if marks else None, calls)


def _one(turn: dict[str, Any], *keys: str) -> str:
    found = [key for key in keys if key in turn]
    if len(found) != 1:
        raise ValueError(f"{' and '.join(keys)} are both there" if found else f"{' or '.join(keys)} is missing")
    return text_of(turn[found[0]], found[0])


def _flag(value: Any, key: str) -> bool:
    if value not in (True, False):
        raise ValueError(f"{key} is true or false, not {value!r}")
    return bool(value)
