"""Tool calls in the messages of an OpenAI-compatible API, and in turns as this side keeps them: text, in the dialect of
the local model."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from agentr.foreign import Unreadable, read
from agentr.tasks.tool_calls import Call, ToolCalls, ToolOffer
from agentr.types import Message
from env_servers.observation import call_place


def as_messages(messages: Sequence[Message], offers: ToolOffer) -> list[dict[str, Any]]:
    """Returns a conversation as the API takes it: earlier calls as ``tool_calls``, what came back as the tool's.

    A last turn that is only begun stays text, and so does one whose calls cannot be read or are not all answered; what
    is answered to it is the user's.
    """
    found: list[dict[str, Any]] = []
    number = 0
    while number < len(messages):
        message, number = messages[number], number + 1
        thought, calls = offers.read(message.content) if message.role == "assistant" else ("", [])
        answers = messages[number : number + len(calls)]
        answering = ("tool", "user") if isinstance(offers, ToolCalls) else ("tool",)
        if not calls or len(answers) < len(calls) or any(answer.role not in answering for answer in answers):
            found.append({"role": "user" if message.role == "tool" else message.role, "content": message.content})
            continue
        ids = [f"call_{number}_{n}" for n in range(len(calls))]
        made = [
            {"id": identity, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}
            for identity, call in zip(ids, calls, strict=True)
        ]
        found.append({"role": "assistant", "content": thought.strip() or None, "tool_calls": made})
        places = [call_place(answer.answers) for answer in answers]
        ordered = [ids[place] for place in places if place in range(len(ids))]
        for identity, answer in zip(ordered if {*ordered} == {*ids} else ids, answers, strict=True):
            found.append({"role": "tool", "tool_call_id": identity, "content": answer.content})
        number += len(calls)
    return found


def narrowing(offers: ToolOffer | None, settings: Mapping[str, Any]) -> dict[str, Any]:
    """Returns what a request has of tools, and of what a program's call narrows (``Asked.settings``)."""
    body: dict[str, Any] = {}
    if offers is not None and offers.schemas:
        body["tools"] = [*offers.schemas]
        if choice := settings.get("tool_choice"):
            named = isinstance(choice, Mapping) and {"type": "function", "function": {"name": choice["name"]}}
            body["tool_choice"] = named or choice
        if isinstance(offers, ToolCalls) or settings.get("parallel_tool_calls") is False:
            body["parallel_tool_calls"] = False
    if schema := settings.get("response_format"):
        body["response_format"] = {"type": "json_schema", "json_schema": {"name": "answer", "schema": schema}}
    return body


def text_of(content: Any) -> str:
    """Returns the text of a message, which may be in parts. Reasoning and a refusal's words are no part of the turn.

    Raises:
        TypeError: There is something else in it than text.
    """
    if isinstance(content, str | None):
        return content or ""
    parts = [part for part in content if part["type"] not in ("reasoning", "thinking", "refusal")]
    if odd := [part["type"] for part in parts if part["type"] not in ("text", "output_text")]:
        raise TypeError(f"a part of the type {odd[0]!r}, which is no text")
    return "".join(part["text"] for part in parts)


def as_turn(message: dict[str, Any], offers: ToolOffer) -> str:
    """Returns an answer of the API as a turn's text.

    Raises:
        KeyError, TypeError, AttributeError: It is no message of an API.
    """
    content = text_of(message.get("content"))
    functions = [call["function"] for call in message.get("tool_calls") or ()]
    if not functions:
        return content
    calls = [Call(function["name"], _arguments(function["arguments"])) for function in functions]
    return offers.written(offers.unmarked(content), calls)


def _arguments(text: Any) -> Any:
    """Arguments of a call; as they are if they are no JSON object, for the format to name what is wrong with them."""
    try:
        found = text if isinstance(text, dict) else read(text)
    except Unreadable:
        found = text
    return found if isinstance(found, dict) else text if isinstance(text, str) else json.dumps(text)
