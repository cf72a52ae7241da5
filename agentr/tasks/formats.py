"""Action formats: how an action stands in the agent's turn, and how it is read from there.

Each format is one object with ``parse`` and ``compose``. What cannot be read is data, not an error: the agent sees
the error, and it is counted. The text that a format returns is only ever sent to an environment server as a JSON
string.
"""

import re
from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

from agentr.errors import ConfigError
from env_servers.turns import code_of, dedented, fenced, tagged

#: Said to an agent whose turn ended at the limit of its length.
CUT_OFF = "The answer was cut off because it was too long. Answer briefly."


@dataclass(frozen=True)
class Parsed:
    """The parsed turn of an agent.

    Attributes:
        action: The action, or None if there is none.
        problem: For the agent: what was wrong with its turn. Empty if ``action`` is not None.
        begun: Whether an action was begun: a stop string before that ends no turn.
    """

    action: str | None
    thought: str = ""
    problem: str = ""
    begun: bool = True


class Unwritable(ValueError):
    """A thought or an action that a format cannot hold: it has a mark of the format, or is of a kind that the format
    has none of."""


class ActionFormat(ABC):
    """A way to write a turn.
    ``parse(compose(thought, action))`` is the same thought and action, but for blanks at their ends."""

    name: ClassVar[str]
    stop: ClassVar[tuple[str, ...]] = ()
    """Strings that end a turn, for models that would go on and imagine the environment's answer."""
    reasons: ClassVar[bool] = False
    """Whether it reads a turn's reasoning itself; otherwise it is given the turn without it."""
    thinks: ClassVar[bool] = True
    """Whether a turn has a thought."""

    @abstractmethod
    def parse(self, text: str) -> Parsed:
        """Reads a turn."""

    @abstractmethod
    def begin(self, thought: str) -> str:
        """Returns the beginning of a turn, up to its action.

        Raises:
            Unwritable: The thought would be read as more than one.
        """

    def compose(self, thought: str, action: str) -> str:
        """Writes a turn that ``parse`` reads back.

        Raises:
            Unwritable: There is none.
        """
        verb, body = split_action(action)
        action, thought = f"{verb}: {dedented(body)}" if verb == "python" else action.strip(), thought.strip()
        for turn in self._turns(self.begin(thought), action):
            if self.parse(turn) == Parsed(action, thought):
                return turn
        raise Unwritable(f"the format {self.name} cannot hold the action {action!r}")

    @abstractmethod
    def _turns(self, begun: str, action: str) -> Iterator[str]:
        """Yields what may be a turn of an action, the usual one first."""

    def _free(self, text: str, marks: re.Pattern[str]) -> str:
        """Returns a text in which there is no mark."""
        if found := marks.search(text):
            raise Unwritable(f"the format {self.name} cannot hold a thought with {found[0].strip()!r}")
        return text


def _label(words: str, before: str = "", flags: int = 0) -> re.Pattern[str]:
    """A label with its colon at the start of a line, and Markdown's marks around it.
    Lines end at a line break, not at U+2028."""
    return re.compile(rf"^[ \t]*{before}([*_]*)({words})([*_]*:[*_]*)[ \t]*", re.MULTILINE | flags)


def _thought(text: str) -> str:
    """What stands before an action, without its label."""
    return re.sub(r"\A\s*(?:#+[ \t]*)?[*_]*Thought(?: ?\d+)?[*_]*:[*_]*", "", text, flags=re.IGNORECASE).strip()


class ReAct(ActionFormat):
    """``Thought: ...`` then ``Action: ...`` (Yao et al. 2023). The action is the first line after the last ``Action:``.

    ``Action:`` counts at the start of a line; in a turn that has none there, after the end of a sentence, too. An
    action may stand in a fence, in quotes or in Markdown's marks, which are no part of it.

    Args:
        last_line: The last line of a turn without ``Action:`` is its action (the released code of Agent-R).
    """

    name = "react"
    _marker = _label(r"Action(?: ?\d+)?", r"(?:#+[ \t]*)?", re.IGNORECASE)
    _inline = re.compile(r"(?<=[.!?])[ \t]+()(Action(?: ?\d+)?)(:)[ \t]*(?=\S)", re.IGNORECASE)
    _quoted = re.compile(r"(\*{1,2}|`{1,3}|[\"'])(?!\s)((?:(?!\1).)+)(?<!\s)\1|“([^“”]+)”")

    def __init__(self, last_line: bool = False) -> None:
        self.last_line = last_line

    def parse(self, text: str) -> Parsed:
        markers = [*self._marker.finditer(text)] or [*self._inline.finditer(text)]
        if not markers and self.last_line and (whole := text.strip()):
            above, _, last = whole.rpartition("\n")
            last = re.sub(r"^\d+\.\s+", "", last)  # such a line may be an entry of a list
            return self.parse(f"{above}\nAction: {last}")
        if not markers:
            return Parsed(
                None, problem="No action was found. Answer with a line 'Thought: ...' and a line 'Action: ...'."
            )
        thought, marker = _thought(text[: markers[0].start()]), markers[-1]
        action = self._action(text[marker.end() :], "" if "*" in marker[3] or "_" in marker[3] else marker[1])
        if not action:
            return Parsed(None, thought, problem="The action is empty. Write it on one line, after 'Action:'.")
        return Parsed(action, thought)

    def _action(self, text: str, open_: str) -> str:
        """The action after its marker; ``open_``: Markdown's marks that were opened before it."""
        if (code := fenced(text)) is not None:
            return code.strip().split("\n")[0].strip()
        line = text.strip().split("\n")[0].strip().removesuffix(open_)
        quoted = self._quoted.fullmatch(line)
        return (quoted[2] or quoted[3]).strip() if quoted else line.strip()

    def begin(self, thought: str) -> str:
        begun = self._free(f"Thought: {thought}", self._marker)
        self._free(begun, self._inline)
        return begun

    def _turns(self, begun: str, action: str) -> Iterator[str]:
        yield f"{begun}\nAction: {action}"
        yield f"{begun}\nAction:\n```\n{action}\n```"  # for one that stands in quotes itself


class Bare(ActionFormat):
    """The whole turn is the action."""

    name = "bare"
    thinks = False

    def parse(self, text: str) -> Parsed:
        action = text.strip()
        return Parsed(action) if action else Parsed(None, problem="The answer is empty. Answer with one action.")

    def begin(self, thought: str) -> str:
        return self._free(thought, re.compile(r"\S+")).strip()

    def _turns(self, begun: str, action: str) -> Iterator[str]:
        yield action


class CodeAct(ActionFormat):
    """Code or an answer (Wang et al. 2024, in the form of DensePolicy): a thought, then one of the two blocks ::

        Action:                 Answer: 42
        print(6 * 7)
        End Action

    As an action they are ``python: print(6 * 7)`` and ``answer: 42``. Markers count at the start of a line only, so
    that code may print them. A fence around the code is taken off. A turn with both blocks has answered before it saw
    what its code says.
    """

    name = "codeact"
    stop = ("\nEnd Action",)
    _marker = _label("Action|Answer")
    _end = re.compile(r"^[ \t]*[*_]*End Action[*_]*[ \t\r]*$", re.MULTILINE)
    _verbs: ClassVar = {"Action": "python", "Answer": "answer"}

    def parse(self, text: str) -> Parsed:
        block = self._marker.search(text)
        if block is None:
            problem = "Neither 'Action:' nor 'Answer:' was found. Write one of them, at the start of a line."
            return Parsed(None, problem=problem, begun=False)
        thought = _thought(text[: block.start()])
        verb, body = self._verbs[block[2]], text[block.end() :]
        end = self._end.search(body) if verb == "python" else None
        body, rest = (body, body) if end is None else (body[: end.start()], body[end.end() :])
        if self._marker.search(rest):
            return Parsed(
                None,
                thought,
                "Write either 'Action:' or 'Answer:', once. You will see what the code prints before you go on.",
            )
        return _block(verb, body, thought)

    def begin(self, thought: str) -> str:
        return self._free(f"Thought: {thought}", self._marker)

    def _turns(self, begun: str, action: str) -> Iterator[str]:
        verb, body = split_action(action)
        if verb == "python":
            yield f"{begun}\nAction:\n{body}\nEnd Action"
        elif verb == "answer":
            yield f"{begun}\nAnswer: {body}"


class Tags(ActionFormat):
    """Thoughts, tool calls and the answer in tags (ET-Agent, ARPO): ``<think>...</think><python>...</python>``.

    ``<python>CODE</python>``, ``<search>QUERY</search>`` and ``<answer>TEXT</answer>`` are the actions
    ``python: CODE``, ``search: QUERY`` and ``answer: TEXT``. The first one outside of thoughts counts
    (`env_servers.turns`); what follows it is what the model imagines the tool to answer. Results come back in
    ``<result>``, from the environment.
    """

    name = "tags"
    reasons = True
    stop = ("</python>", "</search>", "</answer>")
    _think = re.compile(r"</?think>", re.IGNORECASE)

    def parse(self, text: str) -> Parsed:
        found = tagged(text)
        if found is None:
            problem = "No action was found. After </think>, write one of <python>, <search> and <answer>, and close it."
            return Parsed(None, problem=problem, begun=False)
        return _block(found.verb, found.body, found.thought)

    def begin(self, thought: str) -> str:
        return f"<think>{self._free(thought, self._think)}</think>"

    def _turns(self, begun: str, action: str) -> Iterator[str]:
        verb, body = split_action(action)
        lines = "\n" if verb == "python" else ""
        if verb:
            yield f"{begun}\n<{verb}>{lines}{body}{lines}</{verb}>"


class WholeTurn(ActionFormat):
    """The turn is the action: for programs that read it themselves. What is written before one is a paragraph."""

    name = "turn"

    def parse(self, text: str) -> Parsed:
        return Parsed(text)

    def begin(self, thought: str) -> str:
        return f"{thought}\n\n" if thought else ""

    def compose(self, thought: str, action: str) -> str:
        return self.begin(thought) + action

    def _turns(self, begun: str, action: str) -> Iterator[str]:
        yield action


def split_action(action: str) -> tuple[str, str]:
    """Verb and body of an action such as ``python: print(1)``; ("", action) for one of another kind."""
    verb, colon, body = action.lstrip().partition(": ")
    return (verb, body) if colon and verb in ("python", "search", "answer") else ("", action)


def _block(verb: str, body: str, thought: str) -> Parsed:
    body = code_of(body) if verb == "python" else body.strip()
    return Parsed(f"{verb}: {body}", thought) if body else Parsed(None, thought, f"The {verb} block is empty.")


def written(format: ActionFormat, thought: str, action: str = "") -> str | None:
    """Returns a turn, or its beginning up to an ``action``, without a thought where the format has none; None if it
    cannot hold them."""
    thought = thought if format.thinks else ""
    try:
        return format.compose(thought, action) if action else format.begin(thought)
    except Unwritable:
        return None


FORMATS: dict[str, ActionFormat] = {f.name: f for f in (ReAct(), Bare(), CodeAct(), Tags(), WholeTurn())}


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
