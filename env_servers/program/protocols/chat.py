"""Chat Completions (OpenAI)."""

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

_ROLES = ("system", "developer", "user", "assistant", "tool")


def read(body: Any) -> Request:
    """See `Wire.read`."""
    body = an_object(body)
    messages = body.get("messages")
    if not isinstance(messages, list) or not messages:
        raise BadRequest("messages is empty")
    for name, value in (("n", 1), ("logprobs", False), ("functions", None), ("audio", None), ("modalities", ["text"])):
        if body.get(name) not in (None, value, []):
            raise BadRequest(f"{name}={body[name]!r} is not served")
    tools = tuple(_tool(tool) for tool in listed(body, "tools"))
    settings = settings_of(
        tools,
        _choice(body.get("tool_choice")),
        body.get("parallel_tool_calls") is False,
        body.get("stop"),
        body.get("max_completion_tokens") or body.get("max_tokens"),
        schema_of(body.get("response_format"), {"json_object": None, "json_schema": "json_schema"}),
    )
    return Request(str(body.get("model", "")), tuple(_message(message) for message in messages), tools, settings)


def _tool(tool: Any) -> dict[str, Any]:
    if not isinstance(tool, dict) or tool.get("type") != "function":
        raise BadRequest(f"{str(tool)[:200]} is no function to call")
    return tool_of(tool.get("function"))


def _choice(choice: Any) -> Any:
    if choice in (None, "auto"):
        return None
    if choice in ("none", "required"):
        return choice
    about = choice.get("function") if isinstance(choice, dict) and choice.get("type") == "function" else None
    if not isinstance(about, dict) or not isinstance(about.get("name"), str):
        raise BadRequest(f"tool_choice={str(choice)[:200]} is not served")
    return {"name": about["name"]}


def _message(message: Any) -> dict[str, Any]:
    if not isinstance(message, dict) or message.get("role") not in _ROLES:
        raise BadRequest(f"{str(message)[:200]} is no message of the roles {', '.join(_ROLES)}")
    read: dict[str, Any] = {"role": message["role"], "content": text_of(message.get("content"), "text", "refusal")}
    if calls := listed(message, "tool_calls"):
        read["calls"] = [_call(call) for call in calls]
    if message["role"] == "tool":
        read["call_id"] = str(message.get("tool_call_id", ""))
    return read


def _call(call: Any) -> dict[str, Any]:
    about = call.get("function") if isinstance(call, dict) else None
    if not isinstance(about, dict):
        raise BadRequest(f"{str(call)[:200]} is no call of a function")
    made = {"name": str(about.get("name", "")), "arguments": arguments_of(about.get("arguments"))}
    return {"id": str(call.get("id", "")), **made}


def written(answer: Answer, number: int, request: Request) -> dict[str, Any]:
    """See `Wire.written`."""
    calls = [
        {"id": call["id"], "type": "function", "function": {"name": call["name"], "arguments": call["arguments"]}}
        for call in message_of(answer, number).get("calls", ())
    ]
    message = {"role": "assistant", "content": answer.content or (None if calls else ""), "refusal": None}
    prompt, turn = answer.usage
    return {
        "id": f"chatcmpl-{number:05}",
        "object": "chat.completion",
        "created": 0,
        "model": request.model,
        "choices": [
            {
                "index": 0,
                "message": {**message, **({"tool_calls": calls} if calls else {})},
                "logprobs": None,
                "finish_reason": "tool_calls" if calls and answer.finish == "stop" else answer.finish,
            }
        ],
        "usage": {"prompt_tokens": prompt, "completion_tokens": turn, "total_tokens": prompt + turn},
    }


def events(written: dict[str, Any], body: Mapping[str, Any]) -> Iterator[str]:
    """See `Wire.events`."""
    (choice,) = written["choices"]
    message = choice["message"]
    about = {key: written[key] for key in ("id", "created", "model")} | {"object": "chat.completion.chunk"}
    calls = [{"index": n, **call} for n, call in enumerate(message.get("tool_calls", ()))]
    deltas = [
        {"role": "assistant", "content": message["content"] or ""},
        *({"tool_calls": [call]} for call in calls),
        {},
    ]
    for n, delta in enumerate(deltas):
        finish = choice["finish_reason"] if n == len(deltas) - 1 else None
        yield event({**about, "choices": [{"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}]})
    options = body.get("stream_options")
    if isinstance(options, dict) and options.get("include_usage"):
        yield event({**about, "choices": [], "usage": written["usage"]})
    yield "data: [DONE]\n\n"


def refusal(status: int, message: str) -> dict[str, Any]:
    """See `Wire.refusal`."""
    kind = {401: "authentication_error", 400: "invalid_request_error"}.get(status, "not_found_error")
    return {"error": {"message": message, "type": kind, "param": None, "code": None}}
