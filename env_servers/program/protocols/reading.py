"""What the protocols have in common: parts of requests, checked."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from env_servers.program.requests import BadRequest


def an_object(body: Any) -> dict[str, Any]:
    """Returns a body that is a JSON object."""
    if not isinstance(body, dict):
        raise BadRequest("the body is no JSON object")
    return body


def listed(data: Mapping[str, Any], key: str) -> list[Any]:
    """Returns a list of a request, empty if it has none."""
    found = data.get(key) or []
    if not isinstance(found, list):
        raise BadRequest(f"{key} is no list")
    return found


def text_of(content: Any, *kinds: str) -> str:
    """Returns a content that is a text, or a list of parts that are texts.

    Args:
        kinds: Their types.
    """
    if content is None or isinstance(content, str):
        return content or ""
    parts = content if isinstance(content, list) else [content]
    for part in parts:
        if not isinstance(part, dict) or part.get("type") not in kinds:
            kind = part.get("type") if isinstance(part, dict) else part
            raise BadRequest(f"a content of the type {str(kind)[:100]!r} is not served: text alone is")
    return "\n".join(str(part.get("text") or part.get("refusal") or "") for part in parts)


def arguments_of(arguments: Any) -> str:
    """Returns the arguments of a call as a text."""
    given = arguments or "{}"
    return given if isinstance(given, str) else json.dumps(given, ensure_ascii=False)


def tool_of(about: Any, parameters: str = "parameters") -> dict[str, Any]:
    """Returns a tool.

    Args:
        parameters: The key of its schema.
    """
    if not isinstance(about, dict) or not isinstance(about.get("name"), str):
        raise BadRequest(f"{str(about)[:200]} is no function to call")
    schema = about.get(parameters) or {"type": "object", "properties": {}}
    if not isinstance(schema, dict):
        raise BadRequest(f"the parameters of {about['name']} are no JSON schema")
    return {"name": about["name"], "description": str(about.get("description") or ""), "parameters": schema}


def settings_of(
    tools: Sequence[Mapping[str, Any]], choice: Any, one_call: bool, stop: Any, most: Any, schema: Any
) -> dict[str, Any]:
    """Returns what narrows an answer, as in `Asked`, without what does not.

    Args:
        choice: Of tools: None, ``none``, ``required``, or an object with the ``name`` of one.
        one_call: Whether there is to be one call at most.
        schema: That the answer follows.
    """
    stop = [stop] if isinstance(stop, str) else stop or []
    if not isinstance(stop, list) or not all(isinstance(text, str) for text in stop):
        raise BadRequest("stop is no text, and no list of texts")
    if most is not None and (type(most) is not int or most < 1):
        raise BadRequest("max_tokens is no number of tokens")
    names = [tool["name"] for tool in tools]
    name = choice.get("name") if isinstance(choice, dict) else None
    if choice not in (None, "none") and (not names or name not in (None, *names)):
        raise BadRequest(f"tool_choice demands {name or 'a call'}, and tools offers {', '.join(names) or 'none'}")
    found = {
        "stop": stop,
        "max_tokens": most,
        "tool_choice": None if choice == "none" and not names else choice,
        "parallel_tool_calls": False if one_call else None,
        "response_format": schema,
    }
    return {key: value for key, value in found.items() if value not in (None, [])}


def schema_of(form: Any, kinds: Mapping[str, str | None]) -> Any:
    """Returns the JSON schema of an answer; None for one in words.

    Args:
        kinds: The types of forms that have a schema, with the key of the object that holds it; None for the form
            itself.
    """
    kind = form.get("type") if isinstance(form, dict) else form
    if kind in (None, "text"):
        return None
    schema = None
    if kind == "json_object" and kind in kinds:
        schema = {"type": "object"}
    elif kind == "json_schema" and isinstance(form, dict):
        within = form if kinds[kind] is None else form.get(kinds[kind] or "")
        schema = within.get("schema") if isinstance(within, dict) else None
    if not isinstance(schema, dict):
        raise BadRequest(f"the form {str(form)[:200]} of an answer is not served")
    return schema


def event(data: Mapping[str, Any], name: str = "") -> str:
    """Returns an event of a stream."""
    return (f"event: {name}\n" if name else "") + f"data: {json.dumps(data)}\n\n"
