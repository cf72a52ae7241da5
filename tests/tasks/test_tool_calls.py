"""Tool calls as an action format: each dialect is read back, and what is wrong with a call is said."""

import json
import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from agentr.tasks.formats import Parsed, Unwritable
from agentr.tasks.tool_calls import DIALECTS, HERMES, LLAMA, MISTRAL, Call, ToolCalls, ToolDialect, ToolOffer
from agentr.tasks.tools import ACT, instruction_of, tools_of
from env_servers.base import read_spec
from env_servers.mathtool import MathTool
from env_servers.protocol import EnvironmentSpec, Tool
from env_servers.textcraft import TextCraft

TOOLS = [
    Tool(
        name="python",
        description="Runs code.",
        parameters={"type": "object", "properties": {"code": {"type": "string"}}, "required": ["code"]},
        action="python: {code}",
    ),
    Tool(
        name="move",
        description="Moves.",
        parameters={
            "type": "object",
            "properties": {
                "steps": {"type": "integer"},
                "where": {"type": "string", "enum": ["left", "right"], "default": "left"},
            },
            "required": ["steps"],
        },
        action="move {steps} {where}",
    ),
]
CODE = 'python: for i in range(3):\n    print("<tool_call>", i, "</tool_call>", "[TOOL_CALLS]", "<|python_tag|>é")'


def format_of(dialect: ToolDialect) -> ToolCalls:
    return ToolCalls(TOOLS, dialect)


@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize("action", [CODE, "python: 1\n \n\t\nx", "python: 1", "move 3 right", "move -1 left"])
@pytest.mark.parametrize("thought", ["", "I look.\nThen <call> I {think}."])
def test_what_is_composed_is_read_back(dialect: ToolDialect, action: str, thought: str) -> None:
    format = format_of(dialect)
    assert format.parse(format.compose(thought, action)) == Parsed(action, thought)


PIECES = (
    "<tool_call>",
    "</tool_call>",
    "[TOOL_CALLS]",
    "<|python_tag|>",
    '{"name": "python"',
    "{",
    "}",
    "[",
    '"',
    "\\",
    "\n",
    " ",
    "a",
    "é",
    ":",
)
texts = st.one_of(st.text(max_size=30), st.lists(st.sampled_from(PIECES), max_size=12).map("".join))


@pytest.mark.parametrize("dialect", DIALECTS)
@settings(deadline=None, max_examples=50)
@given(thought=texts, text=texts)
def test_any_argument_and_thought_survive(dialect: ToolDialect, thought: str, text: str) -> None:
    format = ToolCalls([ACT], dialect)
    thought = format.unmarked(thought)
    assert format.parse(format.compose(thought, f"do {text}.")) == Parsed(f"do {text}.", thought)


@pytest.mark.parametrize("dialect", DIALECTS)
@settings(deadline=None, max_examples=50)
@given(text=texts, call=st.booleans())
def test_any_turn_is_read_or_has_a_problem(dialect: ToolDialect, text: str, call: bool) -> None:
    format = format_of(dialect)
    parsed = format.parse(format.compose("", "python: 1") + text if call else text)
    assert (parsed.action is None) == bool(parsed.problem)
    list(format.marked(text))


@pytest.mark.parametrize("dialect", DIALECTS)
@settings(deadline=None, max_examples=50)
@given(thought=texts, text=texts)
def test_only_what_the_format_writes_is_marked(dialect: ToolDialect, thought: str, text: str) -> None:
    format = ToolCalls([ACT], dialect)
    turn = format.compose(format.unmarked(thought), f"do {text}.")
    marked = [turn[start:end] for start, end in format.marked(turn)]
    assert (
        marked
        == [mark for mark in dialect.marks if mark in turn]
        == [m.strip() for m in (dialect.opens, dialect.closes) if m]
    )


ANY = st.recursive(
    st.none() | st.booleans() | st.integers() | texts,
    lambda inner: st.lists(inner) | st.dictionaries(texts, inner),
    max_leaves=4,
)
made = st.builds(Call, st.sampled_from(["python", "find-it"]), st.dictionaries(texts, ANY, max_size=2))


@pytest.mark.parametrize("dialect", DIALECTS)
@settings(deadline=None, max_examples=50)
@given(content=texts, calls=st.lists(made, max_size=3))
def test_several_calls_of_any_arguments_are_read_back(dialect: ToolDialect, content: str, calls: list[Call]) -> None:
    offers, content = ToolOffer([], dialect), ToolCalls([ACT], dialect).unmarked(content)
    turn = offers.written(content, calls)
    said, read = offers.read(turn)
    assert said.strip() == content and [(c.name, json.loads(str(c.arguments))) for c in read] == calls
    marked = [turn[start:end] for start, end in offers.marked(turn)]
    marks = [mark.strip() for mark in (dialect.opens, dialect.closes) if mark]
    assert marked == marks * (min(len(calls), 1) if dialect.identifier else len(calls))


@pytest.mark.parametrize("dialect", DIALECTS)
@settings(deadline=None, max_examples=50)
@given(text=texts, calls=st.lists(made, max_size=2))
def test_a_turn_that_cannot_be_read_is_text(dialect: ToolDialect, text: str, calls: list[Call]) -> None:
    offers = ToolOffer([], dialect)
    said, read = offers.read(turn := offers.written(text, calls) + text)
    assert read or said == turn


@pytest.mark.parametrize(
    "text",
    [
        '<tool_call>{"name": "python", "arguments": {"code": "1}}</tool_call>',
        '<tool_call>{"name": "python", "arguments": "1"}</tool_call>',
        '<tool_call>{"name": "python", "arguments": {}} and so on</tool_call>',
        '<tool_call>{"name": 3, "arguments": {}}</tool_call>',
        '<tool_call>{"name": "python", "arguments": {}}</tool_call><tool_call>[[',
        "<tool_call>[]</tool_call>",
        "I think.",
        "",
    ],
)
def test_one_bad_call_makes_the_whole_turn_a_text(text: str) -> None:
    assert ToolOffer([], HERMES).read(text) == (text, [])


def call(name: str = "python", **arguments: object) -> str:
    return f"I think.\n{HERMES.write(Call(name, arguments))}"


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (
            "I forgot.",
            r"No tool call was found\. Call one of the tools python, move, as in <tool_call>\n{\"name\": \"python\"",
        ),
        ("", "No tool call was found"),
        (
            '<tool_call>\n{"name": "python", "arguments": {"code": "1}}',
            r"cannot be read: Unterminated string starting at at its character \d+",
        ),
        ("<tool_call>" + "[" * 100_000, "cannot be read: (RecursionError|Expecting value)"),
        ("<tool_call>" + "1" * 10_000, "cannot be read: ValueError"),
        (call("python", code="1") + call("move", steps=1), "several tool calls"),
        (call("search", query="a"), r"There is no tool 'search'\. The tools are python, move\."),
        (call("python"), "The tool python needs the argument 'code'"),
        (call("python", code="1", fast=True), "The tool python has no argument 'fast'; it has code"),
        (call("python", code=" \n"), "The argument 'code' of python is empty"),
        (call("python", code=["1"]), "The argument 'code' of python must be of the type string"),
        (call("move", steps=True), "The argument 'steps' of move must be of the type integer"),
        (call("move", steps="3"), "The argument 'steps' of move must be of the type integer"),
        (call("move", steps=3, where="up"), "must be one of left, right"),
        ("<tool_call>3</tool_call>", 'has no "name"'),
        (
            '<tool_call>{"name": "python", "arguments": "1"}</tool_call>',
            '"arguments" of the tool call are no JSON object',
        ),
        ('<tool_call>{"name": "python", "arguments": {"code": "\\ud800"}}</tool_call>', "half a character"),
    ],
)
def test_what_is_wrong_with_a_call_is_said(text: str, problem: str) -> None:
    parsed = format_of(HERMES).parse(text)
    assert parsed.action is None and re.search(problem, parsed.problem), parsed.problem


@pytest.mark.parametrize(
    ("dialect", "text", "action"),
    [
        (HERMES, 'So.<tool_call>{"name": "python", "arguments": {"code": "1"}}', "python: 1"),  # not closed
        # a bare line break
        (HERMES, '<tool_call>\n{"name": "python", "arguments": {"code": "a\nb"}}</tool_call>', "python: a\nb"),
        (HERMES, call("python", code="    x\n    y\n"), "python: x\ny"),
        (HERMES, call("python", code=12), "python: 12"),
        (HERMES, call("move", steps=2), "move 2 left"),
        (HERMES, call("python", code="1") + "\n<tool_response>\n2", "python: 1"),  # imagines the answer
        (LLAMA, '<|python_tag|>{"name": "python", "parameters": {"code": "1"}}', "python: 1"),
        (LLAMA, '{"type": "function", "name": "python", "parameters": {"code": "1"}}', "python: 1"),
        (LLAMA, 'A set {1, 2}.\n{"name": "python", "arguments": {"code": "1"}}', "python: 1"),
        (MISTRAL, '[TOOL_CALLS][{"arguments": {"code": "1"}, "name": "python", "id": "aB3dE5gH7"}]', "python: 1"),
        (MISTRAL, '[TOOL_CALLS] {"name": "python", "arguments": {"code": "1"}}', "python: 1"),
    ],
)
def test_calls_as_models_write_them(dialect: ToolDialect, text: str, action: str) -> None:
    assert format_of(dialect).parse(text).action == action


def test_a_list_of_two_calls_is_refused() -> None:
    two = [{"name": "python", "arguments": {"code": str(n)}} for n in range(2)]
    assert "several tool calls" in format_of(MISTRAL).parse(f"[TOOL_CALLS] {json.dumps(two)}").problem
    assert 'has no "name"' in format_of(MISTRAL).parse("[TOOL_CALLS] []").problem


@pytest.mark.parametrize(
    ("thought", "action"), [("Hm.", "wait"), ("Hm.", "move far left"), ("Hm. <tool_call>", "move 1 left")]
)
def test_an_action_that_no_tool_can_take_and_a_thought_with_a_call_are_refused(thought: str, action: str) -> None:
    with pytest.raises(Unwritable):
        format_of(HERMES).compose(thought, action)


def test_environments_without_tools_offer_one_that_takes_any_action() -> None:
    spec = TextCraft().spec
    assert tools_of(spec) == [ACT]
    assert instruction_of(spec).startswith(spec.instruction) and "calling a tool" in instruction_of(spec)
    assert ToolCalls([ACT], HERMES).parse(ToolCalls([ACT], HERMES).compose("So.", "get 1 stick")) == Parsed(
        "get 1 stick", "So."
    )


def test_the_tools_of_an_environment_make_its_actions() -> None:
    spec = read_spec(MathTool.folder)
    assert [tool.name for tool in tools_of(spec)] == ["python", "answer"] and "Action:" not in instruction_of(spec)
    format = ToolCalls(tools_of(spec), HERMES)
    assert format.parse(HERMES.write(Call("answer", {"answer": "12"}))).action == "answer: 12"


def test_a_specification_without_tools_is_sent_as_before() -> None:
    assert not {"tools", "tools_instruction"} & TextCraft().spec.model_dump().keys()
    spec = read_spec(MathTool.folder)
    assert EnvironmentSpec.model_validate_json(spec.model_dump_json()) == spec


@pytest.mark.parametrize(
    ("action", "required", "problem"),
    [
        ("python: {text}", ["code"], r"the action of tool t has the arguments \['text'\]"),
        ("{code}", [], "'code' is neither required nor"),
    ],
)
def test_a_tool_whose_action_does_not_fit_is_refused(action: str, required: list[str], problem: str) -> None:
    schema = {"type": "object", "properties": {"code": {"type": "string"}}, "required": required}
    with pytest.raises(ValidationError, match=problem):
        Tool(name="t", description="", parameters=schema, action=action)
