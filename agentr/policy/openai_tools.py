"""Tool calls in the messages of an OpenAI-compatible API, and in turns as this side keeps them: text, in the dialect of
the local model."""

import json
from collections.abc import Sequence
from typing import Any

from agentr.foreign import Unreadable, read
from agentr.tasks.tool_calls import Call, ToolCalls
from agentr.types import Message


def as_messages(messages: Sequence[Message], calls: ToolCalls) -> list[dict[str, Any]]:
    """Returns a conversation as the API takes it: earlier calls as ``tool_calls``, what came back as the tool's.

    A last turn that is only begun stays text, and so does one whose call cannot be read; what is answered to it is the
    user's.
    """
    found: list[dict[str, Any]] = []
    answering = ""
    for number, message in enumerate(messages):
        call = calls.call(message.content) if message.role == "assistant" and number + 1 < len(messages) else None
        if answering and message.role in ("user", "tool"):
            found.append({"role": "tool", "tool_call_id": answering, "content": message.content})
        elif call is None:
            found.append({"role": "user" if message.role == "tool" else message.role, "content": message.content})
        else:
            thought, name, arguments = call
            function = {"name": name, "arguments": json.dumps(arguments, ensure_ascii=False)}
            made = {"id": f"call_{number}", "type": "function", "function": function}
            found.append({"role": "assistant", "content": thought or None, "tool_calls": [made]})
        answering = "" if call is None else f"call_{number}"
    return found


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


def as_turn(message: dict[str, Any], calls: ToolCalls) -> str:
    """Returns an answer of the API as a turn's text.

    Raises:
        KeyError, TypeError, AttributeError: It is no message of an API.
    """
    content = text_of(message.get("content"))
    functions = [call["function"] for call in message.get("tool_calls") or ()]
    if not functions:
        return content
    written = [calls.dialect.write(Call(function["name"], _arguments(function["arguments"]))) for function in functions]
    return "\n".join([*filter(None, [calls.unmarked(content)]), *written])


def _arguments(text: Any) -> Any:
    """Arguments of a call; as they are if they are no JSON object, for the format to name what is wrong with them."""
    try:
        found = text if isinstance(text, dict) else read(text)
    except Unreadable:
        found = text
    return found if isinstance(found, dict) else text if isinstance(text, str) else json.dumps(text)
