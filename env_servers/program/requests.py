"""What a program asks a model: a request in one form for all providers and clients, and how two are compared.

Two requests are the same if they ask the same: arguments of calls are JSON values, an absent content is an empty one,
and what says nothing to a model (streaming, marks of caches, metadata, headers) is left out.
"""

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import groupby
from typing import Any, NamedTuple

from env_servers.observation import Answer, call_id


class BadRequest(ValueError):
    """A request that cannot be answered; says why."""


@dataclass(frozen=True)
class Request:
    """A request, without what says nothing to a model.

    Attributes:
        messages: Each with ``role`` and ``content``, perhaps ``calls`` (``id``, ``name``, ``arguments``), ``call_id``.
            Results of calls side by side are in the order of the calls, in whichever they came.
        tools: Each with ``name``, ``description``, ``parameters``.
        settings: What narrows the answer, as in `Asked`.
    """

    model: str
    messages: tuple[Mapping[str, Any], ...]
    tools: tuple[Mapping[str, Any], ...] = ()
    settings: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        object.__setattr__(self, "messages", tuple(_in_order_of_calls(self.messages)))

    @cached_property
    def stored(self) -> dict[str, Any]:
        """The request as plain data, which `restored` reads."""
        parts = {"settings": dict(self.settings), "tools": [*self.tools]}
        return {"model": self.model, "messages": [*self.messages], **parts}

    @classmethod
    def restored(cls, data: Mapping[str, Any]) -> "Request":
        """Raises:
        TypeError, KeyError: It is no stored request.
        """
        return cls(str(data["model"]), tuple(data["messages"]), tuple(data["tools"]), dict(data["settings"]))


def _in_order_of_calls(messages: Iterable[Mapping[str, Any]]) -> Iterator[Mapping[str, Any]]:
    order: dict[str, int] = {}
    for results, group in groupby(messages, key=lambda message: message["role"] == "tool"):
        said = list(group)
        if not results:
            order = {call["id"]: place for place, call in enumerate(said[-1].get("calls", ()))}
        elif all(message.get("call_id") in order for message in said):
            said.sort(key=lambda message: order[message["call_id"]])
        yield from said


def message_of(answer: Answer, number: int) -> dict[str, Any]:
    """Returns an answer as a message; the ids of its calls are in the order of the calls, as texts, too.

    Args:
        number: Of the answer in its session, from 1 on.
    """
    calls = [{"id": call_id(number, n), **call} for n, call in enumerate(answer.calls)]
    return {"role": "assistant", "content": answer.content, **({"calls": calls} if calls else {})}


class Continues(NamedTuple):
    """The conversation that a request goes on from.

    Attributes:
        after: Number of the request whose conversation it is, from 1 on; 0 for a conversation that begins.
        answered: Whether the answer to that request is in it; programs drop what they cannot use.
        new: Messages that come behind it.
    """

    after: int
    answered: bool
    new: tuple[Mapping[str, Any], ...]


# comparing ------------------------------------------------------------------------------------------------------------


def ignoring(rules: Sequence[str]) -> list[tuple[str, re.Pattern[str]]]:
    """Reads rules ``PATH /regex/``: what matches in texts below a path makes no difference.

    Raises:
        ValueError: One is no such rule.
    """
    read = []
    for rule in rules:
        if not (found := re.fullmatch(r"(\S+) /(.*)/", rule, re.DOTALL)):
            raise ValueError(f"ignore: {rule!r} is not PATH /regex/, such as 'messages /in [0-9.]+ s/'")
        try:
            read.append((found[1], re.compile(found[2])))
        except re.error as error:
            raise ValueError(f"ignore: {rule!r}: {error}") from error
    return read


def masked(text: str, ignore: Sequence[tuple[str, re.Pattern[str]]]) -> str:
    """Returns what was said in messages without what makes no difference in any of them, and with each blank as a
    space, as texts of one line have them."""
    for path, pattern in ignore:
        if path.partition(".")[0] == "messages":
            text = pattern.sub("", text)
    return re.sub(r"[\n\t]", " ", text)


def difference(recorded: Request, now: Request, ignore: Sequence[tuple[str, re.Pattern[str]]] = ()) -> str:
    """Returns the first place at which two requests differ, and what is there; empty if they are the same."""
    return _differ(meaning(recorded.stored, "", ignore), meaning(now.stored, "", ignore), "")


def continues(
    request: Request,
    before: Sequence[tuple[Request, Answer]],
    ignore: Sequence[tuple[str, re.Pattern[str]]] = (),
) -> Continues:
    """Returns the conversation that a request goes on from: the longest of those that it begins with.

    Args:
        before: The requests so far with their answers, in order.
    """
    best, most = Continues(0, False, request.messages), -1
    for number, (earlier, answer) in enumerate(before, start=1):
        size, messages = len(earlier.messages), request.messages
        if earlier.tools != request.tools or len(messages) < size or size < most:
            continue
        answered = len(messages) > size + 1 and _echoes(message_of(answer, number), messages[size])
        if size + answered > most and not any(
            _differ(meaning(one, place, ignore), meaning(other, place, ignore), place)
            for n, (one, other) in enumerate(zip(earlier.messages, messages, strict=False))
            if one != other  # the usual case, and fast
            for place in (f"messages.{n}",)
        ):
            best, most = Continues(number, answered, messages[size + answered :]), size + answered
    return best


def _echoes(answer: Mapping[str, Any], message: Mapping[str, Any]) -> bool:
    """Whether a message is our own answer, as programs send it back: stripped, and its calls dumped anew."""
    if message["role"] != "assistant" or answer["content"].strip() != message["content"].strip():
        return False
    calls = [sorted(_canonical(meaning(call, "", ())) for call in said.get("calls", ())) for said in (answer, message)]
    return calls[0] == calls[1]


def meaning(value: Any, path: str, ignore: Sequence[tuple[str, re.Pattern[str]]]) -> Any:
    """Returns a value in which what makes no difference is the same."""
    if isinstance(value, Mapping):
        read = {key: meaning(part, f"{path}.{key}".lstrip("."), ignore) for key, part in value.items()}
        if isinstance(value.get("arguments"), str):
            read["arguments"] = _arguments(value["arguments"])
        return {key: part for key, part in read.items() if part not in (None, "", [], {})}
    if isinstance(value, list | tuple):
        return [meaning(part, f"{path}.{n}", ignore) for n, part in enumerate(value)]
    if isinstance(value, str):
        for below, pattern in ignore:
            if path == below or path.startswith(f"{below}."):
                value = pattern.sub("", value)
    return value


def _arguments(text: str) -> Any:
    try:
        return json.loads(text or "{}")
    except (ValueError, RecursionError):
        return text


def _differ(one: Any, other: Any, path: str) -> str:
    if isinstance(one, dict) and isinstance(other, dict):
        places = [(f"{path}.{key}".lstrip("."), one.get(key), other.get(key)) for key in sorted({*one, *other})]
    elif isinstance(one, list) and isinstance(other, list):
        longer = max(len(one), len(other))
        pairs = zip(one + [None] * (longer - len(one)), other + [None] * (longer - len(other)), strict=True)
        places = [(f"{path}.{n}", *pair) for n, pair in enumerate(pairs)]
    else:
        same = one == other and isinstance(one, bool) == isinstance(other, bool)
        return "" if same else f"{path}: {_short(other, one)}, was {_short(one, other)}"
    return next(filter(None, (_differ(a, b, place) for place, a, b in places)), "")


def _short(value: Any, beside: Any) -> str:
    """A value for people, of a long text what is around the first character that differs."""
    if isinstance(value, str) and isinstance(beside, str):
        at = next(
            (n for n, (a, b) in enumerate(zip(value, beside, strict=False)) if a != b), len(min(value, beside, key=len))
        )
        start = max(0, at - 20)
        return repr(("..." if start else "") + value[start : at + 60])
    return _canonical(value)[:80]


def _canonical(value: Any) -> str:
    return json.dumps(value, sort_keys=True, ensure_ascii=False)
