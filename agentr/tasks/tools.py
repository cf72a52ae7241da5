"""The tools of an environment: what a chat template is given of them, and how a call becomes an action and an action a
call."""

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from agentr.config.turns import TurnFormat, TurnsConfig
from env_servers.protocol import EnvironmentSpec, Tool
from env_servers.turns import dedented

#: For environments that name no tools: any action is a call of it.
ACT = Tool(
    name="act",
    description="Takes one action in the environment and returns what is observed.",
    parameters={
        "type": "object",
        "properties": {"action": {"type": "string", "description": "The action alone, without a thought."}},
        "required": ["action"],
    },
    action="{action}",
)
_CALL = (
    "Take each action by calling a tool, one call in each turn, in place of any other way of writing actions that is "
    "named above."
)
_ARGUMENT = re.compile(r"\{(\w+)\}")
_KINDS: Mapping[str, tuple[type, ...]] = {
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
}


class BadCall(ValueError):
    """A call that is no action; says to the agent why."""


def tools_of(spec: EnvironmentSpec) -> list[Tool]:
    """Returns the tools of an environment: those it names, or one that takes any action."""
    return spec.tools or [ACT]


def instruction_of(spec: EnvironmentSpec) -> str:
    """Returns the instruction for an agent that acts by tool calls."""
    return spec.tools_instruction or f"{spec.instruction}\n{_CALL}"


def described(spec: EnvironmentSpec, turns: TurnsConfig) -> dict[str, Any]:
    """Returns how the agent acts, for a stage of trees to keep: with the tools, its conversations can be read from
    their ids.

    Tools are texts, since what is stored has its keys in another order, and templates show a schema's in its own.
    """
    if turns.format is TurnFormat.environment:
        return {"action_format": spec.action_format}
    return {"action_format": turns.format.value, "tools": [tool.model_dump_json() for tool in tools_of(spec)]}


def schema(tool: Tool) -> dict[str, Any]:
    """Returns a tool as chat templates and APIs take it."""
    return {
        "type": "function",
        "function": {"name": tool.name, "description": tool.description, "parameters": tool.parameters},
    }


def action_of(tools: Sequence[Tool], name: str, arguments: Mapping[str, Any]) -> str:
    """Returns the action that a call of a tool is.

    Raises:
        BadCall: There is no such tool, or it does not take these arguments.
    """
    tool = next((tool for tool in tools if tool.name == name), None)
    if tool is None:
        raise BadCall(f"There is no tool {name!r}. The tools are {', '.join(tool.name for tool in tools)}.")
    properties = tool.parameters["properties"]
    has = f"it has {', '.join(properties)}" if properties else "it has none"
    if unknown := [key for key in arguments if key not in properties]:
        raise BadCall(f"The tool {name} has no argument {unknown[0]!r}; {has}.")
    if missing := [key for key, about in properties.items() if key not in arguments and "default" not in about]:
        raise BadCall(f"The tool {name} needs the argument {missing[0]!r}.")
    said = {key: _said(name, key, about, arguments.get(key, about.get("default"))) for key, about in properties.items()}
    return _ARGUMENT.sub(lambda found: said[found[1]], tool.action)


def call_of(tools: Sequence[Tool], action: str) -> tuple[str, dict[str, Any]] | None:
    """Returns name and arguments of the call that is an action; None if no tool can take it."""
    for tool in tools:
        pattern = "".join(
            f"(?P<{part}>.*)" if n % 2 else re.escape(part) for n, part in enumerate(_ARGUMENT.split(tool.action))
        )
        if not (found := re.fullmatch(pattern, action, re.DOTALL)):
            continue
        properties = tool.parameters["properties"]
        try:
            arguments = {key: _value(about, found[key]) for key, about in properties.items()}
            if action_of(tools, tool.name, arguments) == action:
                return tool.name, arguments
        except ValueError:  # what stands in its place is no such argument
            continue
    return None


def _said(tool: str, key: str, about: Mapping[str, Any], value: Any) -> str:
    """An argument as it stands in an action. Code and texts are taken without what they are indented by together."""
    kind = about.get("type", "string")
    if kind == "string" and isinstance(value, int | float):  # a model's 12 for "12"
        value = json.dumps(value)
    if not isinstance(value, _KINDS.get(kind, (object,))) or (isinstance(value, bool) and kind != "boolean"):
        raise BadCall(f"The argument {key!r} of {tool} must be of the type {kind}.")
    if "enum" in about and value not in about["enum"]:
        raise BadCall(f"The argument {key!r} of {tool} must be one of {', '.join(map(str, about['enum']))}.")
    text = dedented(value) if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    if not text:
        raise BadCall(f"The argument {key!r} of {tool} is empty.")
    return text


def _value(about: Mapping[str, Any], text: str) -> Any:
    return text if about.get("type", "string") == "string" else json.loads(text)
