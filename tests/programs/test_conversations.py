"""Several conversations in one episode: prompts, messages and rows; and which conversation a call goes on from."""

from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentr.collect.asked import check_settings, following, heard
from agentr.config.turns import FullContext, PromptConfig, TurnFormat, TurnsConfig
from agentr.errors import ConfigError
from agentr.rows.sequences import make_rows, recorded
from agentr.search import Child, Origin, Tree
from agentr.search.stored import from_json, read_child, stored_child, to_json
from agentr.types import Asked, FinishReason, Message, Outcome, Task
from env_servers.observation import Answer
from env_servers.program.requests import BadRequest, Request, continues, difference, ignoring, read_chat
from tests.trees import codec

CODEC = codec()


def user(text: str) -> dict[str, Any]:
    return {"role": "user", "content": text}


def assistant(text: str) -> dict[str, Any]:
    return {"role": "assistant", "content": text}


def taken(tree: Tree, node: int, text: str, asked: Asked) -> int:
    """Adds a drawn turn, after which the program asks."""
    ids = tuple(CODEC.turn(text))
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
    more = following(tree, node, CODEC, turn, tuple(tree.prompt(node)), asked)
    child = read_child(stored_child(Child(**{**vars(turn), **more})))
    return tree.add(node, child, Origin.POLICY).id


def several() -> Tree:
    """An answer that is dropped, a question beside, a return to the first conversation, a history that is rewritten."""
    opening = [user("Go.")]
    task, asked = Task("program", "one", "train"), Asked(tuple(opening))
    tree = Tree.start(task, tuple(heard(asked)), tuple(CODEC.prompt(heard(asked))), 0, asked=asked)
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


@pytest.mark.parametrize(
    "asked, lacking",
    [
        (Asked((user("a"),), tools=({"name": "f"},)), "tools"),
        (Asked((user("a"),), settings={"response_format": {}}), "response_format"),
        (Asked(({"role": "tool", "content": "x", "call_id": "1"},)), "tools"),
    ],
)
def test_what_is_not_served_yet_is_a_sentence(asked: Asked, lacking: str) -> None:
    with pytest.raises(ConfigError, match=f"the program's call has {lacking}, which agentr does not serve yet"):
        heard(asked)


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
    return read_chat({"model": "m", "messages": [*messages], **more})


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


@given(st.text(), st.text(), st.integers(0, 9), st.sampled_from(["stop", "length"]))
def test_an_answer_is_read_back_from_its_action(content: str, arguments: str, tokens: int, finish: str) -> None:
    answer = Answer(content, ({"name": "f", "arguments": arguments},), finish, (tokens, tokens))
    assert Answer.read(answer.text) == answer
    assert Answer.read(content).content == content


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(max_size=4),
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.dictionaries(
                st.sampled_from(["role", "content", "messages", "tools", "type", "function", "tool_calls"]), inner
            )
        ),
    )
)
def test_a_body_is_read_or_refused(body: Any) -> None:
    for tried in (body, {"messages": body}, {"messages": [body]}, {"messages": [{**user("a"), "tool_calls": body}]}):
        try:
            read_chat(tried)
        except BadRequest:
            continue
