"""Action formats: what is read from a turn, and that what is written is read back."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentr.errors import ConfigError
from agentr.tasks.formats import FORMATS, Parsed, action_format

CODE = "python: total = 0\nfor i in range(3):\n    total += i\nprint(total)"
react, codeact, tags = FORMATS["react"], FORMATS["codeact"], FORMATS["tags"]


@pytest.mark.parametrize(
    ("name", "action"),
    [
        *((name, action) for name in ("codeact", "tags") for action in (CODE, "python: 1", "answer: \\frac{1}{2}", "answer: two\nlines")),
        ("tags", "search: who wrote it?"),
        ("react", "get 2 oak logs"),
        ("bare", "look"),
    ],
)
def test_what_is_composed_is_read_back(name: str, action: str):
    thought = "" if name == "bare" else "I sum them up.\nThen I look: it is 3."
    assert action_format(name).parse(action_format(name).compose(thought, action)) == Parsed(action, thought)


WORDS = ("Thought: ", "Action:", "Answer: ", "End Action", "\n", "\n", " ", "x = 1", "  y", "```python\n", "```", "42", "print('Answer:')")
TAGS = ("<think>", "</think>", "<python>", "</python>", "<search>", "</search>", "<answer>", "</answer>", "<result>")
pieces = st.sampled_from((*WORDS, *TAGS))


@pytest.mark.parametrize("name", ["react", "bare", "codeact", "tags"])
@given(text=st.one_of(st.text(max_size=40), st.lists(pieces, max_size=12).map("".join)))
def test_any_turn_is_read_or_has_a_problem(name: str, text: str):
    parsed = action_format(name).parse(text)
    assert (parsed.action is None) == bool(parsed.problem)
    assert parsed.action is None or parsed.action.strip()


@pytest.mark.parametrize("name", ["codeact", "tags"])
@given(text=st.lists(pieces.filter(lambda piece: "`" not in piece), max_size=12).map("".join))
def test_a_turn_that_was_read_can_be_written_again(name: str, text: str):
    format = action_format(name)
    parsed = format.parse(text)
    if parsed.action is not None:
        assert format.parse(format.compose(parsed.thought, parsed.action)) == parsed


@pytest.mark.parametrize(
    ("text", "action"),
    [
        ("Thought: a\nAction:\nprint(1)\nEnd Action", "python: print(1)"),
        ("Action: print(1)\nprint(2)", "python: print(1)\nprint(2)"),
        ("I think.\nAction:\n```python\nif x:\n    print(1)\n```\nEnd Action\n", "python: if x:\n    print(1)"),
        ("Action:\n```\nprint(1)\n```", "python: print(1)"),
        ("Action:\n    print(1)\n    print(2)\nEnd Action", "python: print(1)\nprint(2)"),
        ('Action:\nprint("""\nAnswer: 1""")\nEnd Action', 'python: print("""\nAnswer: 1""")'),
        ("Action:\nprint('Answer:', 1)", "python: print('Answer:', 1)"),
        ("Thought: the Answer: is near\nAnswer: 42", "answer: 42"),
    ],
)
def test_codeact_reads(text: str, action: str):
    assert codeact.parse(text).action == action


@pytest.mark.parametrize(
    "text", ["", "42", "Action:\nprint(1)\nEnd Action\nAnswer: 1", "Answer: 1\nAction: print(1)", "Action:\nEnd Action"]
)
def test_codeact_refuses(text: str):
    assert codeact.parse(text).action is None


@pytest.mark.parametrize(
    ("text", "action", "thought"),
    [
        ("<think> a </think> <python> print(1) </python>", "python: print(1)", "a"),
        ("<think>a</think>\n<python>\nprint(1)\n", "python: print(1)", "a"),
        ("<think>a</think><search>q</search><result>imagined</result><answer>b</answer>", "search: q", "a"),
        ("plain words <answer> \\boxed{2} </answer>", "answer: \\boxed{2}", "plain words"),
    ],
)
def test_tags_read(text: str, action: str, thought: str):
    assert tags.parse(text) == Parsed(action, thought)


@pytest.mark.parametrize("text", ["", "<think>a</think>", "<python></python>", "python: 1"])
def test_tags_refuse(text: str):
    assert tags.parse(text).action is None


@pytest.mark.parametrize("format", [codeact, tags])
def test_a_thought_alone_opens_a_turn(format):
    opening = format.compose("I was wrong.", "")
    assert format.parse(opening).action is None
    assert format.parse(opening + format.compose("", "answer: 2").removeprefix("Thought: \n")).action == "answer: 2"


def test_an_unknown_format_is_named():
    with pytest.raises(ConfigError, match="sounds"):
        action_format("sounds")
    assert react.parse("hm").problem


@pytest.mark.parametrize(
    ("text", "action", "thought"),
    [
        ("I need wood.\nget 2 oak logs", "get 2 oak logs", "I need wood."),
        ("Thought: I need wood.\n1. get 2 oak logs\n\n", "get 2 oak logs", "I need wood."),
        ("get 2 oak logs", "get 2 oak logs", ""),
        ("Thought: first\nAction: look\nget 2 oak logs", "look", "first"),
        ("Thought: first\nAction:", None, "first"),
        (" \n", None, ""),
    ],
)
def test_the_last_line_of_a_turn_without_an_action_is_one_only_if_that_is_asked_for(text: str, action: str | None, thought: str):
    read = action_format("react", last_line=True).parse(text)
    assert (read.action, read.thought) == (action, thought)
    assert action_format("react").parse(text).action == (action if "Action:" in text else None)


@pytest.mark.parametrize("name", ["bare", "codeact", "tags"])
def test_other_formats_know_no_last_line(name: str):
    assert action_format(name, last_line=True) is action_format(name)
