"""Several conversations in one episode: prompts, messages and rows; and which conversation a call goes on from."""

import contextlib
import json
from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import settings as tried_with
from hypothesis import strategies as st

from agentr.collect.asked import answered, check_settings, codec_of, following, form_of, narrowed
from agentr.config.chat_template import shipped
from agentr.config.turns import Dialect, FullContext, PromptConfig, TurnFormat, TurnsConfig
from agentr.errors import ConfigError
from agentr.policy.chat import ChatCodec
from agentr.rows.sequences import make_rows, recorded
from agentr.search import Child, Origin, Tree
from agentr.search.stored import from_json, read_child, stored_child, to_json
from agentr.tasks.tool_calls import Call
from agentr.types import Asked, Completion, FinishReason, Message, Outcome, Sampling, Task, messages_of
from env_servers.observation import Answer
from env_servers.program.protocols import PROTOCOLS, Wire, chat
from env_servers.program.requests import BadRequest, Request, continues, difference, ignoring
from tests.policy.test_tools import QWEN_TOOLS, byte_level

CODEC = ChatCodec(byte_level(QWEN_TOOLS, shipped("hermes")))
#: Of a model whose prompts open the reasoning.
_OPENS = "{%- if add_generation_prompt -%}{{- '<|im_start|>assistant\\n"
THINKING = ChatCodec(
    byte_level(QWEN_TOOLS, shipped("hermes").replace(_OPENS, f"{_OPENS}<think>\\n") + "{#- </think> -#}")
)


def user(text: str) -> dict[str, Any]:
    return {"role": "user", "content": text}


def assistant(text: str) -> dict[str, Any]:
    return {"role": "assistant", "content": text}


def taken(tree: Tree, node: int, text: str, asked: Asked) -> int:
    """Adds a drawn turn, after which the program asks."""
    ids = tuple(codec_of(CODEC, tree.nodes[node].asked, Dialect.auto).turn(text))
    outcome = Outcome.FAILURE if asked.messages is None else None
    turn = Child(
        text=text,
        token_ids=ids,
        bridge_ids=(),
        logprobs=(-0.5,) * len(ids),
        finish=FinishReason.STOP,
        action=text,
        observation="",
        reward=0.0,
        valid=True,
        outcome=outcome,
    )
    more = following(tree, node, codec_of(CODEC, asked, Dialect.auto), turn, tuple(tree.prompt(node)), asked)
    child = read_child(stored_child(Child(**{**vars(turn), **more})))
    return tree.add(node, child, Origin.POLICY).id


def several() -> Tree:
    """An answer that is dropped, a question beside, a return to the first conversation, a history that is rewritten."""
    opening = [user("Go.")]
    task, asked = Task("program", "one", "train"), Asked(tuple(opening))
    messages = messages_of(opening)
    tree = Tree.start(task, tuple(messages), tuple(CODEC.prompt(messages)), 0, asked=asked)
    node = taken(tree, 0, "bad", Asked((user("That is no call."),), after=1))
    node = taken(tree, node, "plan", Asked(({"role": "system", "content": "Give a title."}, user("Go."))))
    node = taken(tree, node, "title", Asked((user("On."),), after=2, answered=True))
    node = taken(tree, node, "on", Asked((assistant("ON"), user("Well.")), after=4))
    taken(tree, node, "end", Asked())
    return from_json(to_json(tree))


def test_a_prompt_is_that_of_its_conversation_whatever_came_between() -> None:
    tree = several()
    go, no_call, on = Message("user", "Go."), Message("user", "That is no call."), Message("user", "On.")
    first = [go, no_call, Message("assistant", "plan"), on]
    expected = {
        0: [go],
        1: [go, no_call],
        2: [Message("system", "Give a title."), go],
        3: first,
        4: [*first, Message("assistant", "ON"), Message("user", "Well.")],
    }
    for node, messages in expected.items():
        assert tree.conversation(node) == messages
        assert tree.prompt(node) == CODEC.prompt(messages), node


def test_each_conversation_is_a_row_and_each_drawn_turn_a_target_once() -> None:
    tree = several()
    rows = make_rows(tree, recorded(tree.path(5), True), "rollout")
    spoken = []
    for row in rows:
        text = "".join(CODEC.decode([i]) if m else "|" for i, m in zip(row.input_ids, row.loss_mask, strict=True))
        spoken.append([part for part in text.split("|") if part])
        assert [p is not None for p in row.logprobs] == [bool(m) for m in row.loss_mask]
    assert spoken == [["bad"], ["title"], ["plan", "on"], ["end"]]
    whole = CODEC.decode(rows[-1].input_ids)
    assert "ON" in whole and "plan" in whole, "what was rewritten is context"


TOOL = {"name": "find", "description": "", "parameters": {"type": "object", "properties": {"q": {}}}}


def calling(content: str, *arguments: str) -> dict[str, Any]:
    calls = [{"id": f"call_{n}", "name": "find", "arguments": text} for n, text in enumerate(arguments)]
    return {"role": "assistant", "content": content, "calls": calls}


def test_a_conversation_with_tools_is_what_the_codec_writes_of_it_whole() -> None:
    """A turn of two calls whose answers are heard, one that the program dumps anew, and a last question without
    tools, which begins a conversation."""
    answers = [{"role": "tool", "content": text, "call_id": f"call_{n}"} for n, text in enumerate("ab")]
    asked = Asked(
        (user("Go."),), tools=(json.dumps(TOOL),), settings={"tool_choice": "none", "parallel_tool_calls": False}
    )
    codec = codec_of(CODEC, asked, Dialect.auto)
    assert codec.offers is not None and codec_of(CODEC, Asked((user("Go."),)), Dialect.auto) is CODEC
    opening, task = messages_of(asked.messages or ()), Task("program", "one", "train")
    tree = Tree.start(task, tuple(opening), tuple(codec.prompt(opening)), 0, asked=asked)
    two = codec.offers.written("So.", [Call("find", {"q": 1}), Call("find", {"q": "é"})])
    node = taken(tree, 0, two, Asked((*answers,), after=1, answered=True, tools=(json.dumps(TOOL),)))
    again = (calling("", '{"q":   2}', "{cut"), *answers)
    node = taken(tree, node, "bad", Asked(again, after=2, tools=(json.dumps(TOOL),)))
    node = taken(tree, node, "on", Asked((user("Go."), calling("So.", '{"q": 1}'), answers[0], user("Sum up."))))
    tree = from_json(to_json(tree))
    heard = tree.nodes[1].asked
    assert heard is not None and [message["call_id"] for message in heard.messages or ()] == ["call_0", "call_1"]
    heard_of = [Message("assistant", two), Message("tool", "a", "call_0"), Message("tool", "b", "call_1")]
    rewritten = Message("assistant", codec.offers.written("", [Call("find", {"q": 2}), Call("find", "{cut")]))
    expected = {0: opening, 1: [*opening, *heard_of], 2: [*opening, *heard_of, rewritten, *heard_of[1:]]}
    for node, messages in expected.items():
        assert tree.conversation(node) == messages
        assert tree.prompt(node) == codec.prompt(messages), node
    without = CODEC.with_tools((), Dialect.auto)
    assert "find" in without.decode(tree.prompt(3)) and "# Tools" not in without.decode(tree.prompt(3), special=True)
    assert tree.prompt(3) == without.prompt(tree.conversation(3))
    rows = make_rows(tree, recorded(tree.path(3), True), "rollout")
    assert [sum(row.loss_mask) for row in rows] == [
        len(codec.turn(two)) + len(codec.turn("bad")),
        len(codec.turn("on")),
    ]


@pytest.mark.parametrize(
    "settings, calls",
    [({}, 2), ({"parallel_tool_calls": False}, 1), ({"tool_choice": "none"}, 0), ({"stop": ["</tool_call>"]}, 2)],
)
def test_a_program_is_answered_as_by_an_engines_server(settings: dict[str, Any], calls: int) -> None:
    asked = Asked((user("Go."),), tools=(json.dumps(TOOL),), settings=settings)
    codec = codec_of(CODEC, asked, Dialect.auto)
    assert codec.offers is not None
    text = codec.offers.written("So.", [Call("find", {"q": 1}), Call("find", {"q": "é"})])
    drawn = Completion(text, tuple(codec.turn(text)), (), FinishReason.STOP)
    answer = Answer.read(answered(drawn, 7, asked, codec))
    made = [{"name": "find", "arguments": '{"q": 1}'}, {"name": "find", "arguments": '{"q": "é"}'}][:calls]
    assert answer == Answer("So.\n" if calls else text, tuple(made), "stop", (7, len(drawn.token_ids)))


NOW = {"name": "now", "description": "", "parameters": {"type": "object", "properties": {}}}
COLOUR = {"enum": ["red", "blue"]}


@pytest.mark.parametrize(
    "settings, follows",
    [
        ({"tool_choice": "required"}, ["find", "both"]),
        ({"tool_choice": "required", "parallel_tool_calls": False}, ["find"]),
        ({"tool_choice": {"name": "find"}}, ["find"]),
        ({"tool_choice": {"name": "now"}}, []),
        ({"tool_choice": "none", "response_format": COLOUR}, ["json"]),
        ({"response_format": COLOUR}, ["json", "find", "both"]),
        ({"response_format": COLOUR, "tool_choice": "required"}, ["find", "both"]),
    ],
)
@pytest.mark.parametrize("thinks", [False, True])
def test_the_form_of_a_turn_is_what_a_call_asks_for(settings: dict[str, Any], follows: list[str], thinks: bool) -> None:
    from xgrammar import Grammar
    from xgrammar.testing import _is_grammar_accept_string

    asked = Asked((user("Go."),), tools=(json.dumps(TOOL), json.dumps(NOW)), settings=settings)
    codec = codec_of(THINKING if thinks else CODEC, asked, Dialect.auto)
    assert codec.offers is not None and codec.begins_in_reasoning("", ()) is thinks
    calls = [Call("find", {"q": 1}), Call("now", {})]
    turns = {"find": codec.offers.written("", calls[:1]), "both": codec.offers.written("", calls), "json": '"red"'}
    grammar = Grammar.from_structural_tag(form_of(asked, codec))
    for name, turn in {**turns, "prose": "Red.", "other": '"green"', "nothing": ""}.items():
        said = f"Which?\n</think>\n\n{turn}" if thinks else turn
        assert _is_grammar_accept_string(grammar, said) is (name in follows), said


def test_a_call_that_narrows_nothing_has_no_form() -> None:
    for settings in ({}, {"tool_choice": "none"}, {"parallel_tool_calls": False}, {"stop": ["x"], "max_tokens": 3}):
        asked = Asked((user("Go."),), tools=(json.dumps(TOOL),), settings=settings)
        assert form_of(asked, codec_of(CODEC, asked, Dialect.auto)) == ""


def test_a_turn_that_is_drawn_freely_has_no_form() -> None:
    asked = Asked((user("Go."),), tools=(json.dumps(TOOL),), settings={"tool_choice": "required", "stop": ["x"]})
    codec = codec_of(CODEC, asked, Dialect.auto)
    bound, free = (narrowed(Sampling(max_tokens=9), asked, codec, free=free) for free in (False, True))
    assert bound.form and not free.form and bound.stop == free.stop == ("x",)


OFFERED = [{"type": "function", "function": {"name": "find", "parameters": {"type": "object"}}}]


@pytest.mark.parametrize(
    "body, settings",
    [
        ({"tools": OFFERED, "tool_choice": "auto", "response_format": {"type": "text"}}, {}),
        ({"tools": OFFERED, "tool_choice": "required"}, {"tool_choice": "required"}),
        ({"tools": OFFERED, "tool_choice": OFFERED[0]}, {"tool_choice": {"name": "find"}}),
        ({"tools": OFFERED, "tool_choice": "none"}, {"tool_choice": "none"}),
        ({"tool_choice": "none", "parallel_tool_calls": True}, {}),
        ({"parallel_tool_calls": False}, {"parallel_tool_calls": False}),
        ({"response_format": {"type": "json_object"}}, {"response_format": {"type": "object"}}),
        (
            {
                "response_format": {
                    "type": "json_schema",
                    "json_schema": {"name": "a", "strict": True, "schema": COLOUR},
                }
            },
            {"response_format": COLOUR},
        ),
    ],
)
def test_what_narrows_an_answer_is_read(body: dict[str, Any], settings: dict[str, Any]) -> None:
    assert request(user("a"), **body).settings == settings


@pytest.mark.parametrize(
    "body, problem",
    [
        ({"tool_choice": "required"}, "demands a call, and tools offers none"),
        ({"tools": OFFERED, "tool_choice": {"type": "function", "function": {"name": "look"}}}, "demands look, and"),
        ({"tools": OFFERED, "tool_choice": {"type": "allowed_tools"}}, "tool_choice=.*allowed_tools.* is not served"),
        ({"tools": OFFERED, "tool_choice": 3}, "tool_choice=3 is not served"),
        ({"tools": [{"type": "web_search"}]}, "is no function to call"),
        ({"response_format": {"type": "grammar"}}, "the form .*grammar.* is not served"),
        ({"response_format": {"type": "json_schema", "json_schema": {"schema": 3}}}, "is not served"),
        ({"response_format": "json"}, "is not served"),
    ],
)
def test_what_is_not_served_is_refused(body: dict[str, Any], problem: str) -> None:
    with pytest.raises(BadRequest, match=problem):
        request(user("a"), **body)


@pytest.mark.parametrize(
    "prompt, turns, key",
    [
        (PromptConfig(system="You are."), TurnsConfig(), "prompt.system"),
        (PromptConfig(examples=1), TurnsConfig(), "prompt.examples"),
        (PromptConfig(), TurnsConfig(keep_reasoning=False), "turns.keep_reasoning"),
        (PromptConfig(), TurnsConfig(full_context=FullContext.truncate), "turns.full_context"),
        (PromptConfig(), TurnsConfig(format=TurnFormat.tool_calls), "turns.format"),
    ],
)
def test_what_a_program_does_itself_is_not_configured(prompt: PromptConfig, turns: TurnsConfig, key: str) -> None:
    check_settings(PromptConfig(), TurnsConfig())
    with pytest.raises(ConfigError, match=f"^{key}: a program writes its prompts itself"):
        check_settings(prompt, turns)


# requests -------------------------------------------------------------------------------------------------------------


def request(*messages: Mapping[str, Any], **more: Any) -> Request:
    return chat.read({"model": "m", "messages": [*messages], **more})


def said(calls: Sequence[Mapping[str, Any]], content: str | None = None) -> dict[str, Any]:
    return {
        "role": "assistant",
        "content": content,
        "tool_calls": [{"id": c["id"], "type": "function", "function": c} for c in calls],
    }


@pytest.mark.parametrize(
    "one, other",
    [
        (request(user("a")), request({"role": "user", "content": [{"type": "text", "text": "a"}]})),
        (request(assistant("")), request({"role": "assistant", "content": None, "refusal": None})),
        (
            request(user("a")),
            request(user("a"), stream=True, stream_options={"include_usage": True}, user="me", seed=3),
        ),
        (request(user("a"), stop="x"), request(user("a"), stop=["x"])),
        (request(user("a"), tool_choice="auto", tools=None), request(user("a"))),
        (
            request(said([{"id": "1", "name": "add", "arguments": '{"a":2,   "b": 3}'}])),
            request(said([{"id": "1", "name": "add", "arguments": '{"b": 3.0, "a": 2}'}], "")),
        ),
    ],
)
def test_requests_that_mean_the_same_are_the_same(one: Request, other: Request) -> None:
    assert difference(one, other) == "" == difference(other, one)


@pytest.mark.parametrize(
    "one, other, place",
    [
        (request(user("a")), request(user("b")), "messages.0.content: 'b', was 'a'"),
        (request(user("a")), request(user("a"), user("b")), "messages.1"),
        (request(user("a")), request(user("a"), stop="x"), "stop"),
        (request(user("a")), request(user("a"), max_tokens=3), "max_tokens"),
        (
            request(said([{"id": "1", "name": "add", "arguments": "[1]"}])),
            request(said([{"id": "1", "name": "add", "arguments": "[true]"}])),
            "arguments.0: true, was 1",
        ),
    ],
)
def test_requests_that_differ_differ_at_a_place(one: Request, other: Request, place: str) -> None:
    assert place in difference(one, other)


def test_what_is_ignored_makes_no_difference_below_its_path_alone() -> None:
    rules = ignoring(["messages.1 /[0-9.]+ s/"])
    one, other = request(user("in 1 s"), user("in 1.2 s")), request(user("in 1 s"), user("in 3 s"))
    assert not difference(one, other, rules) and difference(one, other)
    assert difference(one, request(user("in 2 s"), user("in 1.2 s")), rules).startswith("messages.0.content")


def test_a_call_goes_on_from_the_longest_conversation_that_it_begins_with() -> None:
    first, answer = request(user("Go.")), Answer("  plan\n")
    before = [(first, answer), (request(user("Go.")), Answer("other"))]
    went_on = continues(request(user("Go."), assistant("plan"), user("On.")), before)
    assert (went_on.after, went_on.answered, went_on.new) == (1, True, (user("On."),))
    assert continues(request(user("Go."), assistant("other"), user("On.")), before)[:2] == (2, True)
    assert continues(request(user("Go."), user("No.")), before) == (1, False, (user("No."),)), "it was dropped"
    assert continues(request(user("Go.")), before) == (1, False, ()), "a vote"
    rewritten = continues(request(user("Go."), assistant("PLAN"), user("On.")), before)
    assert rewritten == (1, False, (assistant("PLAN"), user("On.")))
    assert continues(request(user("Come.")), before) == (0, False, (user("Come."),))
    tools = [{"type": "function", "function": {"name": "f"}}]
    assert continues(request(user("Go."), user("No."), tools=tools), before).after == 0


@given(st.permutations(range(4)))
def test_results_are_in_the_order_of_their_calls(order: list[int]) -> None:
    """Those of claude-code come as its tools end."""
    calls = said([{"id": f"call {n}", "name": "f", "arguments": "{}"} for n in range(4)])
    results = [{"role": "tool", "tool_call_id": f"call {n}", "content": str(n)} for n in range(4)]
    whole = request(calls, *results, user("On."), calls, *results)
    other = request(calls, *(results[n] for n in order), user("On."), calls, *(results[n] for n in order[::-1]))
    assert other.messages == whole.messages
    stray = [{**result, "tool_call_id": "?"} for result in results[:1]]
    kept = request(calls, *(results[n] for n in order), *stray)
    assert [message["content"] for message in kept.messages[1:]] == [*map(str, order), "0"], "nothing is known of one"


@given(st.text(), st.text(), st.integers(0, 9), st.sampled_from(["stop", "length"]))
def test_an_answer_is_read_back_from_its_action(content: str, arguments: str, tokens: int, finish: str) -> None:
    answer = Answer(content, ({"name": "f", "arguments": arguments},), finish, (tokens, tokens))
    assert Answer.read(answer.text) == answer
    assert Answer.read(content).content == content


WORDS = (
    "auto none any tool function custom json_schema json_object text user assistant tool_result tool_use function_call "
    "function_call_output reasoning"
)
KEYS = st.sampled_from(
    "role content messages input tools type function tool_calls name tool_choice format system text schema json_schema "
    "response_format output_config stop max_tokens arguments".split()
)
ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.sampled_from(WORDS.split()) | st.text(max_size=4),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=4),
)


@pytest.mark.parametrize("wire", PROTOCOLS.values(), ids=PROTOCOLS)
@tried_with(deadline=None, max_examples=300)
@given(body=ANYTHING, key=KEYS)
def test_a_body_is_read_or_refused(wire: Wire, body: Any, key: str) -> None:
    asked = {"messages": [user("a")], "input": [user("a")]}
    within = {"messages": [body], "input": [body]}
    for tried in (
        body,
        asked | {key: body},
        within,
        {"messages": [user("a") | {key: body}], "input": [{"type": body}]},
    ):
        with contextlib.suppress(BadRequest):
            wire.read(tried)
