"""Action formats: what is read from a turn, and that what is written is read back."""

import re
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentr.errors import ConfigError
from agentr.tasks.formats import FORMATS, ActionFormat, Parsed, ReAct, Unwritable, action_format
from agentr.tasks.tool_calls import DIALECTS, ToolCalls
from agentr.tasks.tools import ACT
from env_servers.turns import code_of

CODE = "python: total = 0\nfor i in range(3):\n    total += i\nprint(total)"
react, codeact, tags = FORMATS["react"], FORMATS["codeact"], FORMATS["tags"]


@pytest.mark.parametrize(
    ("name", "action"),
    [
        *(
            (name, action)
            for name in ("codeact", "tags")
            for action in (CODE, "python: 1", "answer: \\frac{1}{2}", "answer: two\nlines")
        ),
        ("tags", "search: who wrote it?"),
        ("react", "get 2 oak logs"),
        ("bare", "look"),
    ],
)
def test_what_is_composed_is_read_back(name: str, action: str):
    thought = "" if name == "bare" else "I sum them up.\nThen I look: it is 3."
    assert action_format(name).parse(action_format(name).compose(thought, action)) == Parsed(action, thought)


WORDS = (
    "Thought: ",
    "Action:",
    "Answer: ",
    "End Action",
    "\n",
    "\n",
    " ",
    "x = 1",
    "  y",
    "```python\n",
    "```",
    "42",
    "print('Answer:')",
)
TAGS = ("<think>", "</think>", "<python>", "</python>", "<search>", "</search>", "<answer>", "</answer>", "<result>")
CALLS = ("<tool_call>", "</tool_call>", "[TOOL_CALLS]", "<|python_tag|>", '{"name": "act"', "{", '"')
#: What is near a mark, or ends lines elsewhere, and is no mark.
PLAIN = (
    "reaction: ",
    "transaction: ",
    " Action: ",
    "1. ",
    "search[",
    "satisfaction: ",
    "]",
    "\u2028",
    "\x85",
    "\f",
    "\x1c",
    "\r",
    "'",
    "”",
)
VERBS = ("", "python: ", "search: ", "answer: ")
pieces = st.sampled_from((*WORDS, *TAGS, *CALLS, *PLAIN, "**", "`", '"', "# ", "_"))
texts = st.one_of(st.text(max_size=20), st.lists(pieces, max_size=8).map("".join))
actions = st.tuples(st.sampled_from(VERBS), texts.map(str.strip)).map("".join)
#: All but the one whose action is the turn, whatever it is.
EVERY = [
    *(f for f in FORMATS.values() if f.name != "turn"),
    ReAct(last_line=True),
    *(ToolCalls([ACT], dialect) for dialect in DIALECTS),
]


def named(format: ActionFormat) -> str:
    return format.dialect.name if isinstance(format, ToolCalls) else format.name


@pytest.mark.parametrize("format", EVERY, ids=named)
@settings(deadline=None, derandomize=True, max_examples=250)
@given(thought=texts, action=actions)
def test_what_a_format_accepts_it_reads_back(format: ActionFormat, thought: str, action: str):
    try:
        turn = format.compose(thought, action)
    except Unwritable:
        return
    assert format.parse(turn) == Parsed(action.strip(), thought.strip())


@pytest.mark.parametrize("format", EVERY, ids=named)
@settings(deadline=None, derandomize=True, max_examples=150)
@given(thought=texts)
def test_a_thought_holds_no_action(format: ActionFormat, thought: str):
    """A turn that is only begun has none, whatever its thought says, and no format takes such a thought for another
    one."""
    try:
        begun = format.begin(thought)
    except Unwritable:
        return
    parsed = format.parse(begun)
    assert parsed.action is None or getattr(format, "last_line", False)
    assert parsed.begun is (not format.stop), "a stop string would end no action"


def _word(format: ActionFormat, verb: str) -> bool:
    """Whether actions of this kind are the format's."""
    kinds = {"codeact": ("python: ", "answer: "), "tags": ("python: ", "search: ", "answer: ")}
    return verb in kinds.get(format.name, VERBS)


@pytest.mark.parametrize("format", EVERY, ids=named)
@settings(deadline=None, derandomize=True, max_examples=200)
@given(
    thought=st.lists(st.sampled_from(("I go. ", "on", "\n", "<result>", "é ", *PLAIN)), max_size=6).map("".join),
    verb=st.sampled_from(VERBS),
    body=st.lists(st.sampled_from(("go", " ", "é", "(1)", *PLAIN)), max_size=6)
    .map("".join)
    .map(lambda text: f"a{text}b"),
)
def test_what_holds_no_mark_is_accepted(format: ActionFormat, thought: str, verb: str, body: str):
    """A format refuses a mark, an action of another kind, or a thought where it has none, and nothing else."""
    marked = bool(re.search(r"(^|[.!?]\s)\s*Action:", thought, re.MULTILINE))
    fine = (
        _word(format, verb)
        and not (marked and format.name in ("react", "codeact"))
        and (format.thinks or not thought.strip())
    )
    if fine:
        assert format.parse(format.compose(thought, verb + body)) == Parsed(verb + body, thought.strip())
    elif not marked:
        with pytest.raises(Unwritable):
            format.compose(thought, verb + body)


@pytest.mark.parametrize(
    "action",
    ['"look"', "'look'", "`look`", "**look**", "“look”", '"`look`"', "```look", "```", "~~~", "1. FC Kelm", "*"],
)
def test_an_action_that_looks_like_one_in_marks_is_written_so_that_it_is_read_back(action: str):
    assert react.parse(react.compose("So.", action)) == Parsed(action, "So.")


@pytest.mark.parametrize("format", EVERY, ids=named)
@given(text=st.one_of(st.text(max_size=40), st.lists(pieces, max_size=12).map("".join)))
@settings(deadline=None, derandomize=True)
def test_any_turn_is_read_or_has_a_problem(format: ActionFormat, text: str):
    parsed = format.parse(text)
    assert (parsed.action is None) == bool(parsed.problem)
    assert parsed.action is None or parsed.action.strip()


@pytest.mark.parametrize("name", ["codeact", "tags"])
@given(text=st.lists(st.sampled_from((*WORDS, *TAGS)).filter(lambda piece: "`" not in piece), max_size=12).map("".join))
@settings(deadline=None, derandomize=True)
def test_a_turn_that_was_read_can_be_written_again(name: str, text: str):
    format = action_format(name)
    parsed = format.parse(text)
    if parsed.action is not None:
        assert format.parse(format.compose(parsed.thought, parsed.action)) == parsed


@pytest.mark.parametrize("format", EVERY, ids=named)
@pytest.mark.parametrize(
    "text",
    ["<think>" * 30_000, "Action: " * 30_000, "`" * 30_000, "<search" * 30_000, "Action:\n" * 30_000, "\n" * 30_000],
)
def test_a_long_turn_is_read_at_once(format: ActionFormat, text: str):
    started = time.process_time()
    format.parse(text)
    assert time.process_time() - started < 5


FENCED = [
    "```python\nprint(1)\n```",
    "```python3\nprint(1)\n```",
    "```Python title=x\nprint(1)\n```\nThis prints 1.",
    "```\n  print(1)\n```",
]
FENCED += [
    "\n~~~py\nprint(1)\n~~~\n",
    "`print(1)`",
    "```python print(1)```",
    "````\nprint(1)\n````",
    "```python\r\nprint(1)\r\n```\r\n",
    "```py\nprint(1)",
]


@pytest.mark.parametrize("code", FENCED)
@pytest.mark.parametrize(
    "turn", ["Thought: x\nAction:\n{}\nEnd Action", "Thought: x\nAction: {}", "<think>x</think><python>\n{}\n</python>"]
)
def test_a_fence_is_no_part_of_the_code(turn: str, code: str):
    format = tags if "<python>" in turn else codeact
    assert format.parse(turn.format(code)).action == "python: print(1)" and code_of(code) == "print(1)"


def test_a_fence_within_code_stays():
    code = 'print("""\n```python\nx\n```\n""")'
    assert tags.parse(f"<python>\n{code}\n</python>").action == f"python: {code}"


@pytest.mark.parametrize("format", [codeact, tags])
def test_lines_of_blanks_stay_in_code(format: ActionFormat):
    code = "s = '''a\n   \n\t\nb'''\nprint(len(s))"
    assert format.parse(format.compose("So.", f"python: {code}")).action == f"python: {code}"
    indented = "".join(f"    {line}\n" if line.strip() else f"{line}\n" for line in code.split("\n"))
    assert format.parse(format.compose("So.", f"python: {indented}")).action == f"python: {code}"


@pytest.mark.parametrize(
    ("text", "action"),
    [
        ("Thought: x\nAction: go north\nExpected reaction: a door opens", "go north"),
        ("Action: search[satisfaction: guaranteed soap]", "search[satisfaction: guaranteed soap]"),
        ("Action: search[the last Action: hero]", "search[the last Action: hero]"),
        ("Thought: I write Action: last.\nAction: look\u2028up\x85 \fnow", "look\u2028up\x85 \fnow"),
        ("Thought: x\r\nAction: look\r\nObservation: made up", "look"),
        ("Thought: I look around. Action: look", "look"),
        ("Thought: x\nAction: 1. FC Kelm", "1. FC Kelm"),
        ("Thought: x\nAction 2: look", "look"),
        ("**Thought:** I search.\n**Action:** search[red lamp]", "search[red lamp]"),
        ("**Action**: search[red lamp]", "search[red lamp]"),
        ("**Action: search[red lamp]**", "search[red lamp]"),
        ("### Thought: x\n### Action:\nsearch[red lamp]", "search[red lamp]"),
        ("Action: **search[red lamp]**", "search[red lamp]"),
        ("Action: `search[red lamp]`", "search[red lamp]"),
        ("Action: ```search[red lamp]```", "search[red lamp]"),
        ('Action: "search[red lamp]"', "search[red lamp]"),
        ("Action: “search[red lamp]”", "search[red lamp]"),
        ('Action: say "a" and "b"', 'say "a" and "b"'),
        ("Action:\n```text\ngo north\n```\nThat is all.", "go north"),
    ],
)
def test_react_reads(text: str, action: str):
    assert react.parse(text).action == action


def test_markdown_around_a_label_is_no_part_of_the_thought():
    assert react.parse("**Thought:** I search.\n**Action:** look").thought == "I search."
    assert codeact.parse("**Thought:** I add.\n**Answer:** 42") == Parsed("answer: 42", "I add.")


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
        ("<think>First <answer>...</answer>.</think><search>q</search>", "search: q", "First <answer>...</answer>."),
        ("<think>I use <search> for it.</think><search>q", "search: q", "I use <search> for it."),
        ("<think>a</think><think><answer>b</answer></think><search>q</search>", "search: q", "a<answer>b</answer>"),
        (
            "begun by the prompt: <answer>a</answer></think><search>q</search>",
            "search: q",
            "begun by the prompt: <answer>a</answer>",
        ),
        ("<THINK>a</THINK><Search>q</SEARCH> so", "search: q", "a"),
    ],
)
def test_tags_read(text: str, action: str, thought: str):
    assert tags.parse(text) == Parsed(action, thought)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "<think>a</think>",
        "<python></python>",
        "python: 1",
        "<think>So: <search>q</search>",
        "<answer>a</answer></think>",
    ],
)
def test_tags_refuse(text: str):
    assert tags.parse(text).action is None


@pytest.mark.parametrize("format", [codeact, tags])
def test_a_thought_alone_opens_a_turn(format):
    opening = format.begin("I was wrong.")
    assert format.parse(opening).action is None
    assert format.parse(opening + format.compose("", "answer: 2").removeprefix("Thought: ")).action == "answer: 2"


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
def test_the_last_line_of_a_turn_without_an_action_is_one_only_if_that_is_asked_for(
    text: str, action: str | None, thought: str
):
    read = action_format("react", last_line=True).parse(text)
    assert (read.action, read.thought) == (action, thought)
    assert action_format("react").parse(text).action == (action if "Action:" in text else None)


@pytest.mark.parametrize("name", ["bare", "codeact", "tags"])
def test_other_formats_know_no_last_line(name: str):
    assert action_format(name, last_line=True) is action_format(name)


@given(st.text(max_size=40), st.text(max_size=40))
def test_a_whole_turn_is_its_action_and_a_thought_stands_before_it(thought: str, action: str) -> None:
    turn = FORMATS["turn"].compose(thought, action)
    assert FORMATS["turn"].parse(turn) == Parsed(turn) and turn.startswith(thought) and turn.endswith(action)
