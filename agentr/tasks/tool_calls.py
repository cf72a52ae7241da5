"""Actions as tool calls, in a model's own way of writing them.

A *dialect* is how a family of models writes a call; which one a model speaks is seen from its chat template
(`agentr.policy.tools`). What the dialect itself writes around the JSON (``<tool_call>``, ``[TOOL_CALLS]``) may be
special tokens of the model; what stands in a call's arguments never is: a text there that spells one is escaped, as
JSON allows.
"""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from agentr.tasks.formats import ActionFormat, Parsed
from agentr.tasks.tools import BadCall, action_of, call_of
from env_servers.protocol import Tool

#: Line breaks in strings are read as models write them, though JSON wants them escaped.
_JSON = json.JSONDecoder(strict=False)


@dataclass(frozen=True)
class ToolDialect:
    """How a call is written: ``opens``, JSON, ``closes``.

    Attributes:
        opens: What stands before the JSON; empty if its JSON alone makes a call.
        closes: What stands after it.
        arguments: The key of the arguments.
        identifier: The id of every call; not empty where the JSON is a list of calls with ids.
        before: May stand before the JSON as well, and says nothing.
    """

    name: str
    opens: str = ""
    closes: str = ""
    arguments: str = "arguments"
    identifier: str = ""
    before: str = ""

    @property
    def marks(self) -> tuple[str, ...]:
        """The texts by which it marks a call, without white space: they may be special tokens."""
        return tuple(mark for mark in (self.opens.strip(), self.closes.strip(), self.before) if mark)

    @property
    def begins(self) -> re.Pattern[str]:
        """Finds the beginning of a call, up to its JSON."""
        if mark := self.opens.strip():
            return re.compile(re.escape(mark))
        return re.compile(
            rf'{re.escape(self.before)}|(?=\{{\s*"(?:name|type|function|arguments|{self.arguments})"\s*:)'
        )

    def write(self, name: str, arguments: Mapping[str, Any] | str) -> str:
        """Writes a call, to the letter as the chat templates that speak this dialect do.
        Arguments may be JSON already, right or wrong."""
        text = arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False)
        for mark in self.marks:
            text = text.replace(mark, f"\\u{ord(mark[0]):04x}{mark[1:]}")
        call = f'{{"name": "{name}", "{self.arguments}": {text}}}'
        if self.identifier:
            call = f'[{call[:-1]}, "id": "{self.identifier}"}}]'
        return f"{self.opens}{call}{self.closes}"


HERMES = ToolDialect("hermes", "<tool_call>\n", "\n</tool_call>")
LLAMA = ToolDialect("llama", arguments="parameters", before="<|python_tag|>")
MISTRAL = ToolDialect("mistral", "[TOOL_CALLS] ", identifier="call00000")
#: Those that are known; Mistral's tokenizers since Nemo write no space there.
DIALECTS = (HERMES, LLAMA, MISTRAL, replace(MISTRAL, opens="[TOOL_CALLS]"))


class Found(NamedTuple):
    """The first call of a turn.

    Attributes:
        start: Where it begins in the text, with its mark.
        json: Where its JSON begins.
        end: Where its JSON ends; ``json`` if it cannot be read.
        value: What the JSON says.
        problem: Why it cannot be read.
    """

    start: int
    json: int
    end: int
    value: Any = None
    problem: str = ""


class ToolCalls(ActionFormat):
    """An action format: a thought, then one call of a tool.

    Args:
        tools: Those that may be called.
        dialect: How a call is written.
    """

    name = "tool_calls"

    def __init__(self, tools: Sequence[Tool], dialect: ToolDialect) -> None:
        self.tools = tuple(tools)
        self.dialect = dialect
        self._begins = dialect.begins

    def parse(self, text: str) -> Parsed:
        """Reads a turn.
        What follows its call is what the model imagines the tool to answer, unless it is another call."""
        found = self._find(text)
        if found is None:
            tool = self.tools[0]
            form = self.dialect.write(tool.name, dict.fromkeys(tool.parameters["properties"], "..."))
            return Parsed(None, problem=f"No tool call was found. Call one of the tools {self._names()}, as in {form}")
        thought = text[: found.start].strip()
        if found.problem:
            return Parsed(
                None,
                thought,
                f"The tool call cannot be read: {found.problem}. Write it as JSON, and close every string.",
            )
        calls = found.value if isinstance(found.value, list) else [found.value]
        if len(calls) > 1 or self._begins.search(text, found.end):
            return Parsed(
                None,
                thought,
                "There are several tool calls. Call one tool, and see its answer before you call the next.",
            )
        try:
            action = self._action(calls[0] if calls else None)
            action.encode()
        except BadCall as error:
            return Parsed(None, thought, str(error))
        except UnicodeEncodeError:
            return Parsed(None, thought, "The tool call holds half a character (a lone surrogate).")
        return Parsed(action, thought)

    def begin(self, thought: str) -> str:
        return self._free(thought, self._begins)

    def unmarked(self, thought: str) -> str:
        """Returns a thought without the marks of calls: one that an API sends beside its calls is about them, and
        none."""
        while self._begins.search(thought):
            thought = (
                self._begins.sub("", thought)
                if self.dialect.opens
                else thought.replace(self.dialect.before, "").replace("{", "(")
            )
        return thought.strip()

    def _turns(self, begun: str, action: str) -> Iterator[str]:
        if call := call_of(self.tools, action):
            yield "\n".join(filter(None, (begun, self.dialect.write(*call))))

    def called(self, text: str) -> int | None:
        """Returns where a turn's call begins, readable or not; None if it has none."""
        found = self._begins.search(text)
        return None if found is None else found.start()

    def call(self, text: str) -> tuple[str, str, dict[str, Any]] | None:
        """Returns a turn's thought, and name and arguments of its call; None if there is none that can be carried
        out."""
        parsed = self.parse(text)
        call = call_of(self.tools, parsed.action) if parsed.action is not None else None
        return (parsed.thought, *call) if call else None

    def marked(self, text: str) -> Iterator[tuple[int, int]]:
        """Yields where a turn's text marks its call (start and end): what the format writes itself, and no argument's
        text."""
        found = self._find(text)
        if found is None:
            return
        spelled = re.compile("|".join(map(re.escape, self.dialect.marks)))
        if first := spelled.match(text, found.start):
            yield first.span()
        after = found.end + len(text[found.end :]) - len(text[found.end :].lstrip())
        if self.dialect.closes and not found.problem and text.startswith(closes := self.dialect.closes.strip(), after):
            yield after, after + len(closes)

    # ------------------------------------------------------------------------------------------------------------------

    def _names(self) -> str:
        return ", ".join(tool.name for tool in self.tools)

    def _find(self, text: str) -> Found | None:
        begun = self._begins.search(text)
        if begun is None:
            return None
        at = begun.end() + len(text[begun.end() :]) - len(text[begun.end() :].lstrip())
        try:
            value, end = _JSON.raw_decode(text, at)
        except json.JSONDecodeError as error:
            return Found(begun.start(), at, at, problem=f"{error.msg} at its character {error.pos - at + 1}")
        except (ValueError, RecursionError) as error:  # a number of thousands of digits; lists in lists in lists
            return Found(begun.start(), at, at, problem=type(error).__name__)
        return Found(begun.start(), at, end, value)

    def _action(self, call: Any) -> str:
        if not isinstance(call, dict) or not isinstance(call.get("name"), str):
            raise BadCall(f'The tool call has no "name". The tools are {self._names()}.')
        # Models of one family have been seen with the other's key.
        arguments = call.get(self.dialect.arguments, call.get("arguments", call.get("parameters", {})))
        if not isinstance(arguments, dict):
            raise BadCall(f'The "{self.dialect.arguments}" of the tool call are no JSON object.')
        return action_of(self.tools, call["name"], arguments)
