"""Responses (OpenAI)."""

from collections.abc import Iterator, Mapping
from typing import Any

from env_servers.observation import Answer
from env_servers.program.protocols.chat import refusal as refusal
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

_ROLES = ("system", "developer", "user", "assistant")
_TEXTS = ("input_text", "output_text", "text", "refusal")


def read(body: Any) -> Request:
    """See `Wire.read`."""
    body = an_object(body)
    for name in ("previous_response_id", "conversation", "background", "prompt"):
        if body.get(name):
            raise BadRequest(f"{name} is not served: the whole conversation is the input")
    said: list[dict[str, Any]] = []
    if body.get("instructions"):
        said.append({"role": "system", "content": text_of(body["instructions"])})
    given = body.get("input")
    for item in [{"role": "user", "content": given}] if isinstance(given, str) else listed(body, "input"):
        _add(said, item)
    if not given or not said:
        raise BadRequest("input is empty")
    tools = tuple(_tool(tool) for tool in listed(body, "tools"))
    text = body.get("text")
    schema = schema_of(
        text.get("format") if isinstance(text, dict) else None, {"json_object": None, "json_schema": None}
    )
    one = body.get("parallel_tool_calls") is False
    settings = settings_of(tools, _choice(body.get("tool_choice")), one, None, body.get("max_output_tokens"), schema)
    return Request(str(body.get("model", "")), tuple(said), tools, settings)


def _tool(tool: Any) -> dict[str, Any]:
    if not isinstance(tool, dict) or tool.get("type") != "function":
        raise BadRequest(f"{str(tool)[:200]} is no function to call")
    return tool_of(tool)


def _choice(choice: Any) -> Any:
    if choice in (None, "auto"):
        return None
    if choice in ("none", "required"):
        return choice
    if isinstance(choice, dict) and choice.get("type") == "function" and isinstance(choice.get("name"), str):
        return {"name": choice["name"]}
    raise BadRequest(f"tool_choice={str(choice)[:200]} is not served")


def _add(said: list[dict[str, Any]], item: Any) -> None:
    """Adds an item of the input: what the agent says and the calls behind it are one message."""
    kind = item.get("type", "message") if isinstance(item, dict) else None
    if kind == "reasoning":
        return
    if kind == "function_call_output":
        output = text_of(item.get("output"), *_TEXTS)
        said.append({"role": "tool", "content": output, "call_id": str(item.get("call_id", ""))})
        return
    if kind == "function_call":
        call = {"id": str(item.get("call_id", "")), "name": str(item.get("name", ""))}
        if not said or said[-1]["role"] != "assistant":
            said.append({"role": "assistant", "content": ""})
        made = [*said[-1].get("calls", ()), {**call, "arguments": arguments_of(item.get("arguments"))}]
        said[-1] = {**said[-1], "calls": made}
        return
    if kind != "message" or item.get("role") not in _ROLES:
        raise BadRequest(f"the item {str(item)[:200]} is not served")
    said.append({"role": item["role"], "content": text_of(item.get("content"), *_TEXTS)})


def written(answer: Answer, number: int, request: Request) -> dict[str, Any]:
    """See `Wire.written`."""
    calls = message_of(answer, number).get("calls", ())
    cut = answer.finish == "length"
    status = "incomplete" if cut else "completed"
    output: list[dict[str, Any]] = []
    if answer.content or not calls:
        part = {"type": "output_text", "text": answer.content, "annotations": [], "logprobs": []}
        about = {"type": "message", "id": f"msg_{number:05}", "role": "assistant"}
        output.append({**about, "status": status, "content": [part]})
    output += [
        {
            "type": "function_call",
            "id": call["id"].replace("call", "fc"),
            "call_id": call["id"],
            "name": call["name"],
            "arguments": call["arguments"],
            "status": "completed",
        }
        for call in calls
    ]
    prompt, turn = answer.usage
    return {
        "id": f"resp_{number:05}",
        "object": "response",
        "created_at": 0,
        "status": status,
        "error": None,
        "incomplete_details": {"reason": "max_output_tokens"} if cut else None,
        "instructions": None,
        "metadata": {},
        "model": request.model,
        "output": output,
        "parallel_tool_calls": True,
        "temperature": None,
        "tool_choice": "auto",
        "tools": [],
        "top_p": None,
        "usage": {
            "input_tokens": prompt,
            "input_tokens_details": {"cached_tokens": 0},
            "output_tokens": turn,
            "output_tokens_details": {"reasoning_tokens": 0},
            "total_tokens": prompt + turn,
        },
    }


def events(written: dict[str, Any], body: Mapping[str, Any]) -> Iterator[str]:
    """See `Wire.events`."""
    for number, (kind, data) in enumerate(_events(written)):
        yield event({"type": kind, "sequence_number": number, **data}, kind)


def _events(written: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    begun = {"response": {**written, "status": "in_progress", "output": [], "usage": None}}
    yield "response.created", begun
    yield "response.in_progress", begun
    for index, item in enumerate(written["output"]):
        place = {"output_index": index}
        empty = {"content": []} if item["type"] == "message" else {"arguments": ""}
        yield "response.output_item.added", {**place, "item": {**item, **empty, "status": "in_progress"}}
        about = {**place, "item_id": item["id"]}
        if item["type"] == "message":
            (part,) = item["content"]
            inside = {**about, "content_index": 0}
            yield "response.content_part.added", {**inside, "part": {**part, "text": ""}}
            yield "response.output_text.delta", {**inside, "delta": part["text"], "logprobs": []}
            yield "response.output_text.done", {**inside, "text": part["text"], "logprobs": []}
            yield "response.content_part.done", {**inside, "part": part}
        else:
            yield "response.function_call_arguments.delta", {**about, "delta": item["arguments"]}
            whole = {"arguments": item["arguments"], "name": item["name"]}
            yield "response.function_call_arguments.done", {**about, **whole}
        yield "response.output_item.done", {**place, "item": item}
    yield f"response.{written['status']}", {"response": written}
