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
from agentr.tasks.tools import BadCall, action_of, call_of, schema
from env_servers.protocol import Tool

#: Line breaks in strings are read as models write them, though JSON wants them escaped.
_JSON = json.JSONDecoder(strict=False)
#: Stands for arguments.
_MARK = "arguments7c1f"


class Call(NamedTuple):
    """A call of a tool.
    Its arguments may be JSON already, right or wrong."""

    name: str
    arguments: Mapping[str, Any] | str


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

    def write(self, *calls: Call) -> str:
        """Writes the calls of a turn, to the letter as the chat templates that speak this dialect do."""
        written = [self._json(call) for call in calls]
        if self.identifier:
            return f"{self.opens}[{', '.join(written)}]{self.closes}"
        return self._between.join(f"{self.opens}{call}{self.closes}" for call in written)

    def form(self, tools: Sequence[tuple[str, Mapping[str, Any]]], one: bool) -> dict[str, Any]:
        """Returns the grammar of calls, as a format of xgrammar's structural tags.

        Args:
            tools: Name and schema of each that may be called.
            one: Of one call alone.
        """
        tags = []
        for name, arguments in tools:
            begin, _, end = self.write(Call(name, _MARK)).partition(_MARK)
            content = {"type": "json_schema", "json_schema": arguments}
            tags.append({"type": "tag", "begin": begin, "content": content, "end": end})
        first = {"at_least_one": True, "stop_after_first": one or bool(self.identifier)}
        return {"type": "tags_with_separator", "tags": tags, "separator": self._between, **first}

    @property
    def _between(self) -> str:
        return "\n" if self.opens else "; "

    def _json(self, call: Call) -> str:
        text = call.arguments
        if not isinstance(text, str):
            text = json.dumps(text, ensure_ascii=False)
        for mark in self.marks:
            text = text.replace(mark, f"\\u{ord(mark[0]):04x}{mark[1:]}")
        identifier = f', "id": "{self.identifier}"' if self.identifier else ""
        return f'{{"name": "{call.name}", "{self.arguments}": {text}{identifier}}}'


HERMES = ToolDialect("hermes", "<tool_call>\n", "\n</tool_call>")
LLAMA = ToolDialect("llama", arguments="parameters", before="<|python_tag|>")
MISTRAL = ToolDialect("mistral", "[TOOL_CALLS] ", identifier="call00000")
#: Those that are known; Mistral's tokenizers since Nemo write no space there.
DIALECTS = (HERMES, LLAMA, MISTRAL, replace(MISTRAL, opens="[TOOL_CALLS]"))


class Found(NamedTuple):
    """A call in a turn.

    Attributes:
        start: Where it begins in the text, with its mark.
        end: Where its JSON ends; where it begins if it cannot be read.
        value: What the JSON says.
        problem: Why it cannot be read.
    """

    start: int
    end: int
    value: Any = None
    problem: str = ""


class ToolOffer:
    """The tools that a prompt offers, and how the model calls them.

    Args:
        schemas: The tools, as chat templates and APIs take them.
        dialect: How a call is written.
    """

    def __init__(self, schemas: Sequence[Mapping[str, Any]], dialect: ToolDialect) -> None:
        self.schemas = tuple(schemas)
        self.dialect = dialect
        self._begins = dialect.begins

    @property
    def names(self) -> list[str]:
        """Names of the tools."""
        return [schema["function"]["name"] for schema in self.schemas]

    def called(self, text: str) -> int | None:
        """Returns where a turn's first call begins, readable or not; None if it has none."""
        found = self._begins.search(text)
        return None if found is None else found.start()

    def marked(self, text: str) -> Iterator[tuple[int, int]]:
        """Yields where a turn's text marks its calls (start and end): what the dialect writes itself, and no argument's
        text."""
        spelled = re.compile("|".join(map(re.escape, self.dialect.marks)))
        for found in self._found(text):
            if first := spelled.match(text, found.start):
                yield first.span()
            if (last := self._closed(text, found)) is not None:
                yield last

    def written(self, content: str, calls: Sequence[Call]) -> str:
        """Returns a turn that says something and makes calls."""
        return "\n".join(filter(None, (content, self.dialect.write(*calls) if calls else "")))

    def read(self, text: str) -> tuple[str, list[Call]]:
        """Returns what a turn says before its calls, and the calls, each with its arguments as JSON.
        All of a turn is what it says if one of its calls cannot be read, as engines' servers have it."""
        calls, found = [], [*self._found(text)]
        for one in found:
            if one.problem or (self.dialect.closes and self._closed(text, one) is None and text[one.end :].strip()):
                return text, []
            for value in one.value if isinstance(one.value, list) else [one.value]:
                arguments = _arguments(value, self.dialect)
                if arguments is None:
                    return text, []
                calls.append(Call(value["name"], json.dumps(arguments, ensure_ascii=False)))
        return (text[: found[0].start], calls) if calls else (text, [])

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

    # ------------------------------------------------------------------------------------------------------------------

    def _found(self, text: str) -> Iterator[Found]:
        """Yields the calls of a turn, up to the first that cannot be read."""
        at = 0
        while begun := self._begins.search(text, at):
            at = begun.end() + len(text[begun.end() :]) - len(text[begun.end() :].lstrip())
            try:
                value, end = _JSON.raw_decode(text, at)
            except json.JSONDecodeError as error:
                yield Found(begun.start(), at, problem=f"{error.msg} at its character {error.pos - at + 1}")
                return
            except (ValueError, RecursionError) as error:  # a number of thousands of digits; lists in lists in lists
                yield Found(begun.start(), at, problem=type(error).__name__)
                return
            yield Found(begun.start(), end, value)
            at = end

    def _closed(self, text: str, found: Found) -> tuple[int, int] | None:
        """Where the text that closes a call stands behind its JSON."""
        after = found.end + len(text[found.end :]) - len(text[found.end :].lstrip())
        closes = self.dialect.closes.strip()
        here = closes and not found.problem and text.startswith(closes, after)
        return (after, after + len(closes)) if here else None


class ToolCalls(ToolOffer, ActionFormat):
    """An action format: a thought, then one call of a tool.

    Args:
        tools: Those that may be called.
        dialect: How a call is written.
    """

    name = "tool_calls"

    def __init__(self, tools: Sequence[Tool], dialect: ToolDialect) -> None:
        super().__init__([schema(tool) for tool in tools], dialect)
        self.tools = tuple(tools)

    def parse(self, text: str) -> Parsed:
        """Reads a turn.
        What follows its call is what the model imagines the tool to answer, unless it is another call."""
        found = next(self._found(text), None)
        if found is None:
            tool = self.tools[0]
            form = self.dialect.write(Call(tool.name, dict.fromkeys(tool.parameters["properties"], "...")))
            names = ", ".join(self.names)
            return Parsed(None, problem=f"No tool call was found. Call one of the tools {names}, as in {form}")
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

    def _turns(self, begun: str, action: str) -> Iterator[str]:
        if call := call_of(self.tools, action):
            yield "\n".join(filter(None, (begun, self.dialect.write(Call(*call)))))

    def read(self, text: str) -> tuple[str, list[Call]]:
        """Returns a turn's thought and its call; all of it is thought if there is no call that can be carried out."""
        parsed = self.parse(text)
        call = call_of(self.tools, parsed.action) if parsed.action is not None else None
        return (parsed.thought, [Call(call[0], json.dumps(call[1], ensure_ascii=False))]) if call else (text, [])

    # ------------------------------------------------------------------------------------------------------------------

    def _action(self, call: Any) -> str:
        if not isinstance(call, dict) or not isinstance(call.get("name"), str):
            raise BadCall(f'The tool call has no "name". The tools are {", ".join(self.names)}.')
        if (arguments := _arguments(call, self.dialect)) is None:
            raise BadCall(f'The "{self.dialect.arguments}" of the tool call are no JSON object.')
        return action_of(self.tools, call["name"], arguments)


def _arguments(call: Any, dialect: ToolDialect) -> dict[str, Any] | None:
    """The arguments of a call, none if it has none; None if it is no call.
    Models of one family have been seen with the other's key."""
    if not isinstance(call, dict) or not isinstance(call.get("name"), str):
        return None
    found = call.get(dialect.arguments, call.get("arguments", call.get("parameters", {})))
    return found if isinstance(found, dict) else None
