"""Action formats: how an action stands in the agent's turn, and how it is read from there.

Each format is one object with ``parse`` and ``compose``. What cannot be read is data, not an error: the agent is told so, and it is
counted. The text that a format returns is only ever sent to an environment server as a JSON string.
"""

from __future__ import annotations

import re
import textwrap
from dataclasses import dataclass
from typing import ClassVar, Protocol

from agentr.errors import ConfigError


@dataclass(frozen=True)
class Parsed:
    """The parsed turn of an agent.

    Attributes:
        action: The action, or None if there is none.
        problem: For the agent: what was wrong with its turn. Empty if ``action`` is not None.
    """

    action: str | None
    thought: str = ""
    problem: str = ""


class ActionFormat(Protocol):
    name: str
    stop: tuple[str, ...]
    """Strings that end a turn, for models that would go on and imagine the environment's answer."""
    reasons: bool
    """Whether it reads a turn's reasoning itself; otherwise it is given the turn without it."""

    def parse(self, text: str) -> Parsed:
        """Reads a turn."""
        ...

    def begin(self, thought: str) -> str:
        """The beginning of a turn, up to its action."""
        ...

    def compose(self, thought: str, action: str) -> str:
        """Writes a turn that ``parse`` reads back."""
        ...


class ReAct:
    """``Thought: ...`` then ``Action: ...`` (Yao et al. 2023). The action is the first line after the last ``Action:``.

    Args:
        last_line: The last line of a turn without ``Action:`` is its action (the released code of Agent-R).
    """

    name = "react"
    reasons = False
    stop: tuple[str, ...] = ()
    _marker = re.compile(r"Action(?: ?\d+)?:", re.IGNORECASE)

    def __init__(self, last_line: bool = False) -> None:
        self.last_line = last_line

    def parse(self, text: str) -> Parsed:
        markers = list(self._marker.finditer(text))
        if not markers and self.last_line and (whole := text.strip()):
            above, _, last = whole.rpartition("\n")
            return self.parse(f"{above}\nAction: {last}")
        if not markers:
            return Parsed(None, problem="No action was found. Answer with a line 'Thought: ...' and a line 'Action: ...'.")
        thought = re.sub(r"^\s*Thought(?: ?\d+)?:\s*", "", text[: markers[0].start()], flags=re.IGNORECASE).strip()
        lines = text[markers[-1].end() :].strip().splitlines()
        action = re.sub(r"^\d+\.\s+", "", lines[0].strip()) if lines else ""
        if not action:
            return Parsed(None, thought, problem="The action is empty. Write it on one line, after 'Action:'.")
        return Parsed(action, thought)

    def begin(self, thought: str) -> str:
        return f"Thought: {thought}"

    def compose(self, thought: str, action: str) -> str:
        return f"{self.begin(thought)}\nAction: {action}"


class Bare:
    """The whole turn is the action."""

    name = "bare"
    reasons = False
    stop: tuple[str, ...] = ()

    def parse(self, text: str) -> Parsed:
        action = text.strip()
        return Parsed(action) if action else Parsed(None, problem="The answer is empty. Answer with one action.")

    def begin(self, thought: str) -> str:
        return ""

    def compose(self, thought: str, action: str) -> str:
        return action


class CodeAct:
    """Code or an answer (Wang et al. 2024, in the form of DensePolicy): a thought, then one of the two blocks ::

        Action:                 Answer: 42
        print(6 * 7)
        End Action

    As an action they are ``python: print(6 * 7)`` and ``answer: 42``. Markers count at the start of a line only, so that code may
    print them. A fence around the code is taken off. A turn with both blocks has answered before it saw what its code says.
    """

    name = "codeact"
    reasons = False
    stop: tuple[str, ...] = ("End Action",)
    _marker = re.compile(r"^[ \t]*(Action|Answer):[ \t]*", re.MULTILINE)
    _end = re.compile(r"^[ \t]*End Action[ \t]*$", re.MULTILINE)
    _fence = re.compile(r"\s*```[ \t]*(?:python|py)?[ \t]*\n(.*?)\n?[ \t]*```\s*", re.DOTALL)
    _verbs: ClassVar = {"Action": "python", "Answer": "answer"}

    def parse(self, text: str) -> Parsed:
        block = self._marker.search(text)
        if block is None:
            return Parsed(None, problem="Neither 'Action:' nor 'Answer:' was found. Write one of them, at the start of a line.")
        thought = re.sub(r"^\s*Thought:\s*", "", text[: block.start()]).strip()
        verb, body = self._verbs[block[1]], text[block.end() :]
        end = self._end.search(body) if verb == "python" else None
        body, rest = (body, body) if end is None else (body[: end.start()], body[end.end() :])
        if self._marker.search(rest):
            return Parsed(None, thought, "Write either 'Action:' or 'Answer:', once. You will see what the code prints before you go on.")
        if verb == "python" and (fenced := self._fence.fullmatch(body)):
            body = fenced[1]
        return _block(verb, body, thought)

    def begin(self, thought: str) -> str:
        return f"Thought: {thought}"

    def compose(self, thought: str, action: str) -> str:
        verb, body = split_action(action)
        if verb == "python":
            return f"{self.begin(thought)}\nAction:\n{body}\nEnd Action"
        return f"{self.begin(thought)}\nAnswer: {body}" if verb == "answer" else f"{self.begin(thought)}\n{action}"


class Tags:
    """Thoughts, tool calls and the answer in tags (ET-Agent, ARPO): ``<think>...</think><python>...</python>``.

    ``<python>CODE</python>``, ``<search>QUERY</search>`` and ``<answer>TEXT</answer>`` are the actions ``python: CODE``, ``search:
    QUERY`` and ``answer: TEXT``. The first one counts; what follows it is what the model imagines the tool to answer. The closing
    tag may be missing, because a stop string ends the turn there. Results come back in ``<result>``, from the environment.
    """

    name = "tags"
    reasons = True
    stop: tuple[str, ...] = ("</python>", "</search>", "</answer>")
    _block = re.compile(r"<(python|search|answer)>(.*?)(?:</\1>|\Z)", re.DOTALL)
    _think = re.compile(r"</?think>")

    def parse(self, text: str) -> Parsed:
        found = self._block.search(text)
        if found is None:
            return Parsed(None, problem="No action was found. After </think>, write one of <python>, <search> and <answer>, and close it.")
        return _block(found[1], found[2], self._think.sub("", text[: found.start()]).strip())

    def begin(self, thought: str) -> str:
        return f"<think>{thought}</think>"

    def compose(self, thought: str, action: str) -> str:
        verb, body = split_action(action)
        lines = "\n" if verb == "python" else ""
        block = f"<{verb}>{lines}{body}{lines}</{verb}>" if verb else action
        return f"{self.begin(thought)}\n{block}"


def split_action(action: str) -> tuple[str, str]:
    """Verb and body of an action such as ``python: print(1)``; ("", action) for one of another kind."""
    verb, colon, body = action.partition(": ")
    return (verb, body) if colon and verb in ("python", "search", "answer") else ("", action)


def _block(verb: str, body: str, thought: str) -> Parsed:
    body = textwrap.dedent(body).strip() if verb == "python" else body.strip()
    return Parsed(f"{verb}: {body}", thought) if body else Parsed(None, thought, f"The {verb} block is empty.")


FORMATS: dict[str, ActionFormat] = {f.name: f for f in (ReAct(), Bare(), CodeAct(), Tags())}


def action_format(name: str, last_line: bool = False) -> ActionFormat:
    """The format that an environment's specification names.

    Args:
        last_line: As in ``ReAct``; other formats have no such thing.

    Raises:
        ConfigError: agentr does not know it.
    """
    if name not in FORMATS:
        raise ConfigError(f"unknown action format {name!r}", hint=f"Known formats: {', '.join(FORMATS)}.")
    return ReAct(last_line=True) if last_line and name == ReAct.name else FORMATS[name]
