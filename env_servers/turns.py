"""What agents write around an action, read by one rule on both sides: by environments, and by the agents' formats.

A thought holds no action: what stands between ``<think>`` and the next ``</think>`` is only ever a thought, tags of
actions included. A turn that closes a thought which it did not open began in it, as where a chat template opens it. One
that is never closed has no end.
"""

import os
import re
from typing import NamedTuple

_MARK = re.compile(r"<(/?)think>|<(python|search|answer)>", re.IGNORECASE)
_LINE = re.compile(r"\s*(python|search|answer)\s*:(.*)", re.IGNORECASE | re.DOTALL)
#: A fence with its language or other words; what follows its end is about the code.
_FENCE = re.compile(r"\s*(`{3,}|~{3,})[^`\n]*\n(.*?)(?:^[ \t]*\1[ \t\r]*$|\Z)", re.DOTALL | re.MULTILINE)
_INLINE = re.compile(r"\s*(`{1,3})(?:py(?:thon)?\d*[ \t]+)?([^`\n]+)\1\s*", re.IGNORECASE)


class Block(NamedTuple):
    """An action in tags: the thought before it, ``python``, ``search`` or ``answer``, and what stands in the tags, as
    it is."""

    thought: str
    verb: str
    body: str


def tagged(text: str) -> Block | None:
    """Returns the first action in tags outside of thoughts.
    Its closing tag may be missing, as where a stop string ends a turn."""
    marks = list(_MARK.finditer(text))
    thinks = next((mark[1] == "/" for mark in marks if not mark[2]), False)
    for mark in marks:
        if not mark[2]:
            thinks = not mark[1]
        elif not thinks:
            closing = re.compile(f"</{mark[2]}>", re.IGNORECASE).search(text, mark.end())
            thought = re.sub(r"</?think>", "", text[: mark.start()], flags=re.IGNORECASE).strip()
            return Block(thought, mark[2].lower(), text[mark.end() : closing.start() if closing else None])
    return None


def spoken(action: str) -> tuple[str, str]:
    """Returns verb and text of an action ``verb: text``; both empty if it is none."""
    line = _LINE.fullmatch(action)
    return (line[1].lower(), line[2]) if line else ("", "")


def fenced(text: str) -> str | None:
    """Returns what stands in the fence of code (three backticks or tildes) that a text begins with; None if it begins
    with none."""
    found = _FENCE.match(text)
    return found[2] if found else None


def code_of(text: str) -> str:
    """Returns the code in what an agent wrote for code, without a fence or backticks around it and as `dedented`."""
    if (inner := fenced(text)) is None:
        inner = found[2] if (found := _INLINE.fullmatch(text)) else text
    # one blank belongs to the mark before the code, as in ``python: x``
    return dedented(re.sub(r"\A (?=\S)", "", inner))


def dedented(code: str) -> str:
    """Returns code without the indentation that all of it has, and without blanks at its ends.

    Unlike by `textwrap.dedent`, lines of blanks stay as they are: they may stand in a string.
    """
    lines = code.split("\n")
    indents = [line[: len(line) - len(line.lstrip(" \t"))] for line in lines if line.strip()]
    margin = os.path.commonprefix(indents)  # noqa: RUF071 - of texts, not of paths
    return "\n".join(line.removeprefix(margin) for line in lines).strip()
