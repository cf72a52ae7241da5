"""Messages (Anthropic)."""

import json
from collections.abc import Iterator, Mapping
from typing import Any

from env_servers.observation import Answer
from env_servers.program.protocols.reading import (
    an_object,
    arguments_of,
    event,
    listed,
    schema_of,
    settings_of,
    text_of,
    tool_of,
)
from env_servers.program.requests import BadRequest, Request, message_of

#: Reasoning, which comes back with a signature.
_THOUGHTS = ("thinking", "redacted_thinking")
_FINISH = {"stop": "end_turn", "length": "max_tokens"}


def read(body: Any) -> Request:
    """See `Wire.read`."""
    body = an_object(body)
    if not listed(body, "messages"):
        raise BadRequest("messages is empty")
    said: list[dict[str, Any]] = []
    if body.get("system"):
        said.append({"role": "system", "content": text_of(body["system"], "text")})
    for message in body["messages"]:
        said += _messages(message)
    tools = tuple(_tool(tool) for tool in listed(body, "tools"))
    choice, one = _choice(body.get("tool_choice"))
    output = body.get("output_config")
    form = output.get("format") if isinstance(output, dict) else body.get("output_format")
    schema = schema_of(form, {"json_schema": None})
    settings = settings_of(tools, choice, one, body.get("stop_sequences"), body.get("max_tokens"), schema)
    return Request(str(body.get("model", "")), tuple(said), tools, settings)


def _tool(tool: Any) -> dict[str, Any]:
    if isinstance(tool, dict) and tool.get("type") not in (None, "custom"):
        raise BadRequest(f"{str(tool)[:200]} is no function to call")
    return tool_of(tool, "input_schema")


def _choice(choice: Any) -> tuple[Any, bool]:
    """Which tools are to be called, and whether one at most."""
    if choice is None:
        return None, False
    about = choice if isinstance(choice, dict) else {"type": choice}
    kind, one = about.get("type"), about.get("disable_parallel_tool_use") is True
    for name, meant in (("auto", None), ("any", "required"), ("none", "none")):
        if kind == name:
            return meant, one
    if kind != "tool" or not isinstance(about.get("name"), str):
        raise BadRequest(f"tool_choice={str(choice)[:200]} is not served")
    return {"name": about["name"]}, one


def _messages(message: Any) -> Iterator[dict[str, Any]]:
    """Yields a message, of which results of tools are messages of their own."""
    role = message.get("role") if isinstance(message, dict) else None
    if role not in ("user", "assistant", "system"):
        raise BadRequest(f"{str(message)[:200]} is no message of the roles user, assistant")
    content = message.get("content")
    parts = content if isinstance(content, list) else [{"type": "text", "text": content}]
    if not all(isinstance(part, dict) for part in parts):
        raise BadRequest(f"{str(content)[:200]} is no content")
    parts = [part for part in parts if part.get("type") not in _THOUGHTS]
    inside = "tool_use" if role == "assistant" else "tool_result"
    for part in parts if role != "assistant" else ():
        if part.get("type") == inside:
            said = text_of(part.get("content"), "text")
            yield {"role": "tool", "content": said, "call_id": str(part.get("tool_use_id", ""))}
    texts = [part for part in parts if part.get("type") != inside]
    calls = [
        {"id": str(p.get("id", "")), "name": str(p.get("name", "")), "arguments": arguments_of(p.get("input"))}
        for p in parts
        if role == "assistant" and p.get("type") == inside
    ]
    if texts or role == "assistant":
        yield {"role": role, "content": text_of(texts, "text"), **({"calls": calls} if calls else {})}


def written(answer: Answer, number: int, request: Request) -> dict[str, Any]:
    """See `Wire.written`."""
    calls = message_of(answer, number).get("calls", ())
    content: list[dict[str, Any]] = [{"type": "text", "text": answer.content}] if answer.content or not calls else []
    content += [
        {"type": "tool_use", "id": call["id"], "name": call["name"], "input": _input(call["arguments"])}
        for call in calls
    ]
    prompt, turn = answer.usage
    cached = {"cache_creation_input_tokens": 0, "cache_read_input_tokens": 0}
    return {
        "id": f"msg_{number:05}",
        "type": "message",
        "role": "assistant",
        "model": request.model,
        "content": content,
        "stop_reason": "tool_use" if calls and answer.finish == "stop" else _FINISH.get(answer.finish, "end_turn"),
        "stop_sequence": None,
        "usage": {"input_tokens": prompt, "output_tokens": turn, **cached},
    }


def _input(arguments: str) -> dict[str, Any]:
    try:
        read = json.loads(arguments)
    except (ValueError, RecursionError):
        return {}
    return read if isinstance(read, dict) else {}


def events(written: dict[str, Any], body: Mapping[str, Any]) -> Iterator[str]:
    """See `Wire.events`."""

    def made(kind: str, **data: Any) -> str:
        return event({"type": kind, **data}, kind)

    start = {**written, "content": [], "stop_reason": None, "usage": {**written["usage"], "output_tokens": 0}}
    yield made("message_start", message=start)
    for index, block in enumerate(written["content"]):
        if block["type"] == "text":
            empty, delta = {"text": ""}, {"type": "text_delta", "text": block["text"]}
        else:
            empty, delta = {"input": {}}, {"type": "input_json_delta", "partial_json": json.dumps(block["input"])}
        yield made("content_block_start", index=index, content_block={**block, **empty})
        yield made("content_block_delta", index=index, delta=delta)
        yield made("content_block_stop", index=index)
    ended = {key: written[key] for key in ("stop_reason", "stop_sequence")}
    yield made("message_delta", delta=ended, usage=written["usage"])
    yield made("message_stop")


def refusal(status: int, message: str) -> dict[str, Any]:
    """See `Wire.refusal`."""
    kind = {401: "authentication_error", 400: "invalid_request_error"}.get(status, "not_found_error")
    return {"type": "error", "error": {"type": kind, "message": message}}
