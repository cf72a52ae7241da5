"""Action formats: how an action stands in the agent's turn, and how it is read from there.

Each format is one object with ``parse`` and ``compose``. What cannot be read is data, not an error: the agent is told so, and it is
counted. The text that a format returns is only ever sent to an environment server as a JSON string.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Protocol

from agentr.errors import ConfigError


@dataclass(frozen=True)
class Parsed:
    """What was read from a turn.

    Attributes:
        action: The action, or None if there is none.
        problem: For the agent: what was wrong with its turn. Empty if ``action`` is not None.
    """

    action: str | None
    thought: str = ""
    problem: str = ""


class ActionFormat(Protocol):
    name: str

    def parse(self, text: str) -> Parsed:
        """Reads a turn."""
        ...

    def compose(self, thought: str, action: str) -> str:
        """Writes a turn that ``parse`` reads back."""
        ...


class ReAct:
    """``Thought: ...`` then ``Action: ...`` (Yao et al. 2023). The action is the first line after the last ``Action:``."""

    name = "react"
    _marker = re.compile(r"Action(?: ?\d+)?:", re.IGNORECASE)

    def parse(self, text: str) -> Parsed:
        markers = list(self._marker.finditer(text))
        if not markers:
            return Parsed(None, problem="No action was found. Answer with a line 'Thought: ...' and a line 'Action: ...'.")
        thought = re.sub(r"^\s*Thought(?: ?\d+)?:\s*", "", text[: markers[0].start()], flags=re.IGNORECASE).strip()
        lines = text[markers[-1].end() :].strip().splitlines()
        action = re.sub(r"^\d+\.\s+", "", lines[0].strip()) if lines else ""
        if not action:
            return Parsed(None, thought, problem="The action is empty. Write it on one line, after 'Action:'.")
        return Parsed(action, thought)

    def compose(self, thought: str, action: str) -> str:
        return f"Thought: {thought}\nAction: {action}"


class Bare:
    """The whole turn is the action."""

    name = "bare"

    def parse(self, text: str) -> Parsed:
        action = text.strip()
        return Parsed(action) if action else Parsed(None, problem="The answer is empty. Answer with one action.")

    def compose(self, thought: str, action: str) -> str:
        return action


FORMATS: dict[str, ActionFormat] = {f.name: f for f in (ReAct(), Bare())}


def action_format(name: str) -> ActionFormat:
    """The format that an environment's specification names.

    Raises:
        ConfigError: agentr does not know it.
    """
    if name not in FORMATS:
        raise ConfigError(f"unknown action format {name!r}", hint=f"Known formats: {', '.join(FORMATS)}.")
    return FORMATS[name]
