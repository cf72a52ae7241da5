"""What a program that plays the agent's part is given for a turn, and what it asks after it."""

import json
from collections.abc import Iterable, Mapping
from typing import Any

from agentr.search.tree import Node, Tree
from agentr.ui.texts import LONGEST
from env_servers.observation import Answer, call_id

#: Most characters of the schemas of a tree's tools, and of a name.
SCHEMAS, NAME = 200_000, 100
UNNAMED = "(no name)"
#: The parts of a turn that are texts.
_TEXTS = ("given", "messages", "settings", "others")


def tools_of(tree: Tree) -> dict[str, int]:
    """Returns the tools that a program offers anywhere in a tree, each with its place among them."""
    places: dict[str, int] = {}
    for node in tree.nodes:
        for tool in node.asked.tools if node.asked is not None else ():
            places.setdefault(tool, len(places))
    return places


def tool_views(tools: Iterable[str]) -> list[dict[str, Any]]:
    """Returns tools with their schemas, as much of them as there is room for."""
    return fit([_named(_name_of(tool), tool) for tool in tools], SCHEMAS)


def partings(tree: Tree) -> list[tuple[int, int]]:
    """Returns the turns after which a program goes on from another conversation than theirs, each with the turn whose
    conversation that is; 0 for one that begins."""
    found = []
    for node in tree.nodes[1:]:
        if node.asked is not None and node.asked.messages is not None and node.asked.after != node.depth:
            found.append((node.id, _turn_of(tree.path(node.id), node.asked.after)))
    return found


def program_view(tree: Tree, node: Node, places: Mapping[str, int], whole: bool = False) -> dict[str, Any] | None:
    """Returns what a program was given for a turn, and its next call; None where no program plays the agent's part.

    Args:
        places: Of the tools (``tools_of``).
        whole: Long texts are not cut.
    """
    asked, path = node.asked, tree.path(node.id)
    if asked is None:
        return None
    view = {
        "given": _given(node) if path else [],
        "messages": [] if asked.messages is None or not path else _messages(path, asked.messages),
        "asks": asked.messages is not None,
        "after": _turn_of(path, asked.after),
        "answered": asked.answered,
        "tools": [places[tool] for tool in asked.tools],
        "settings": [_named(name, _written(value)) for name, value in asked.settings.items()],
        "others": [_named(answer.model, answer.body) for answer in asked.others],
        "refused": asked.refused[:LONGEST],
        "cut": 0,
    }
    return view if whole else shortened_view(view, LONGEST)


def said_by(node: Node) -> str | None:
    """Returns the observation of a turn as a program's messages give it; None where there are none."""
    if node.asked is None or node.asked.messages is None:
        return None
    return "\n".join(message["content"] for message in node.asked.messages if message["role"] != "assistant")


def shortened_view(view: dict[str, Any], longest: int) -> dict[str, Any]:
    """Returns a turn of a program with no more characters of each of its parts than those."""
    cut = {name: fit(view[name], longest) for name in _TEXTS}
    return {**view, **cut, "cut": sum(text["cut"] for texts in cut.values() for text in texts)}


def fit(texts: Iterable[Mapping[str, Any]], room: int) -> list[dict[str, Any]]:
    """Returns texts of which no more than so many characters are left, those of the first ones first."""
    fitted = []
    for text in texts:
        kept = text["content"][:room]
        room -= len(kept)
        fitted.append({**text, "content": kept, "cut": text["cut"] + len(text["content"]) - len(kept)})
    return fitted


def _given(node: Node) -> list[dict[str, Any]]:
    answer = Answer.read(node.played)
    own, calls = answer.content.strip(), [_named(call["name"] or UNNAMED, call["arguments"]) for call in answer.calls]
    content = [] if own == node.text.strip() or (calls and not own) else [_named("", answer.content)]
    return content + calls


def _messages(path: list[Node], messages: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    calls: dict[str, tuple[int, int]] = {}
    if any("call_id" in message for message in messages):
        for number, turn in enumerate(path, start=1):
            made = range(len(Answer.read(turn.played).calls))
            calls |= {call_id(number, n): (turn.id, n + 1) for n in made}
    return [
        {"role": said["role"], "content": said["content"], "cut": 0, "answers": calls.get(said.get("call_id", ""))}
        for said in messages
    ]


def _turn_of(path: list[Node], number: int) -> int:
    """The turn of a number on a path, from 1 on."""
    return path[number - 1].id if 0 < number <= len(path) else 0


def _named(name: str, content: str) -> dict[str, Any]:
    return {"name": name if len(name) <= NAME else f"{name[: NAME - 1]}…", "content": content, "cut": 0}


def _name_of(tool: str) -> str:
    try:
        return str(json.loads(tool)["name"]) or UNNAMED
    except (ValueError, TypeError, KeyError, RecursionError):
        return UNNAMED


def _written(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
