"""What the pages are told of a program that plays the agent's part."""

import json
from pathlib import Path
from typing import Any

import pytest

import agentr
from agentr.search import Tree
from agentr.types import Asked, Outcome
from agentr.ui.report import report_of
from agentr.ui.show import address, fitted
from agentr.ui.views.program import NAME, SCHEMAS, UNNAMED
from env_servers.observation import Answer
from tests.trees import episode
from tests.ui.conftest import REFUSED, Ask, asked_by_program, asking, growing

STAGE = "rounds/02/collect"


def shown(runs: Path, tree: Tree, nodes: str, **query: Any) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """The answers of a tree, and of its turns."""
    _, store = growing(runs / "first", tree)
    store.close()
    where = {"stage": STAGE, "key": tree.task.key}
    ask = asking(runs)
    return ask("tree", **where), ask("turns", **where, nodes=nodes, **query)["turns"]


def test_a_turn_of_a_program_has_what_it_was_given_and_what_it_asks(runs: Path) -> None:
    tree, turns = shown(runs, asked_by_program(), "1,2,3,4,5,6")
    first = tree["program"]
    assert [tool["name"] for tool in tree["tools"]] == ["find", "now"] and first["tools"] == [0, 1]
    assert json.loads(tree["tools"][1]["content"])["name"] == "now"
    narrowed = {one["name"]: one["content"] for one in first["settings"]}
    assert narrowed == {"tool_choice": "required", "stop": '["x", ""]'}
    assert first["others"] == [{"name": "helper", "content": "I would begin.", "cut": 0}]
    one, two, three, four, end, refused = (turn["program"] for turn in turns)
    assert [(text["name"], text["content"]) for text in one["given"]] == [
        ("", "So."),
        ("find", '{"q": 1}'),
        ("find", '{"q": "é"}'),
    ]
    assert [(said["role"], said["content"], said["answers"]) for said in one["messages"]] == [
        ("tool", "found 1", [1, 2]),
        ("tool", "found 0", [1, 1]),
    ]
    assert two["given"] == [], "it was given the turn's text"
    asked = [(turn["asks"], turn["after"], turn["answered"], turn["tools"]) for turn in (one, two, three, four)]
    assert asked == [(True, 1, True, [0, 1]), (True, 2, False, [0, 1]), (True, 0, False, []), (True, 3, True, [0, 1])]
    assert not end["asks"] and not end["refused"] and refused["refused"] == REFUSED
    assert tree["partings"] == [[3, 0], [4, 3]]
    assert tree["outcomes"][tree["nodes"]["outcome"][6]] == "refused"
    assert {turn["observation"] for turn in turns} == {""}, "what messages say is not said twice"


def test_what_a_program_reported_is_shown_beside_its_messages(runs: Path) -> None:
    tree = asked_by_program()
    tree.nodes[2].observation = "A report."
    _, (two,) = shown(runs, tree, "2")
    assert two["observation"] == "A report." and two["program"]["messages"][0]["content"] == "No call."


def test_the_number_of_an_answer_is_that_on_its_path(runs: Path) -> None:
    """A branch whose turns have other numbers than their places on the path."""
    tree = asked_by_program()
    turn = tree.nodes[3].as_child()
    other = tree.add(2, turn, tree.nodes[3].origin).id
    back = Asked(({"role": "tool", "content": "late", "call_id": "call_00001_001"},), 3, True)
    last = tree.add(other, type(turn)(**{**vars(turn), "asked": back}), tree.nodes[3].origin).id
    view, (found,) = shown(runs, tree, str(last))
    assert found["program"]["after"] == other == 7 and found["program"]["messages"][0]["answers"] == [1, 2]
    assert view["partings"][-1] == [last, other]


@pytest.mark.parametrize("call_id", ["call_00009_000", "call_00001_002", "fc_1", ""])
def test_what_answers_no_known_call_says_so(runs: Path, call_id: str) -> None:
    tree = asked_by_program()
    tree.nodes[2].asked = Asked(({"role": "tool", "content": "late", "call_id": call_id},), 2, True)
    _, (two,) = shown(runs, tree, "2")
    assert two["program"]["messages"][0]["answers"] is None


def test_tools_are_sent_once_and_texts_are_cut(runs: Path) -> None:
    tree = asked_by_program("z" * 30_000, "y" * 40_000)
    view, (one, two, *_) = shown(runs, tree, "1,2,3,4,5,6")
    assert len(json.dumps(view["tools"])) < SCHEMAS + 1_000 and all(len(tool["name"]) == NAME for tool in view["tools"])
    assert all("y" * 100 not in json.dumps(turn) for turn in (one, two))
    program = one["program"]
    assert sum(len(text["content"]) for text in program["messages"]) == 20_000
    assert program["cut"] == sum(text["cut"] for part in ("given", "messages") for text in program[part])
    assert len(json.dumps(program)) < 75_000, "whatever a program says"
    (whole,) = asking(runs)("turns", stage=STAGE, key="asks", nodes="1", whole=1)["turns"]
    assert whole["program"]["cut"] == 0 and len(whole["program"]["messages"][0]["content"]) > 30_000


def test_what_is_no_schema_is_a_tool_without_a_name(runs: Path) -> None:
    tree = asked_by_program()
    tree.nodes[4].asked = Asked((), 3, True, ("[1", "[]", '{"name": 3}', "[" * 100_000))
    view, (four,) = shown(runs, tree, "4")
    names = [view["tools"][place]["name"] for place in four["program"]["tools"]]
    assert names == [UNNAMED, UNNAMED, "3", UNNAMED]


def test_a_call_without_a_name_is_still_a_call(runs: Path) -> None:
    tree = asked_by_program()
    tree.nodes[1].sent = Answer("", ({"name": "", "arguments": "{}"},)).text
    _, (one,) = shown(runs, tree, "1")
    assert [text["name"] for text in one["program"]["given"]] == [UNNAMED]


def test_a_tree_of_an_ordinary_environment_has_nothing_of_it(runs: Path, ask: Ask) -> None:
    tree, turns = shown(runs, episode("plain", ["wait"], 0.0, Outcome.FAILURE, 1), "0,1")
    assert (tree["program"], tree["tools"], tree["partings"]) == (None, [], [])
    assert [turn["program"] for turn in turns] == [None, None] and turns[1]["observation"]


def test_files_hold_what_a_program_asked(runs: Path) -> None:
    """A tree's file has the schemas; a run's has them not: each of its trees may offer them."""
    _, store = growing(runs / "first", asked_by_program("z" * 5_000, "y" * 10_000))
    store.close()
    run, where = agentr.open(runs / "first"), {"run": "run", "stage": STAGE, "key": "asks"}
    answers = fitted(run, [(STAGE, "asks")], {})
    assert "y" * 10_000 in answers[address("tree", **where)]["tools"][0]["content"]
    (turn,) = answers[address("turns", **where, nodes=1)]["turns"]
    assert turn["program"]["messages"][1]["content"].startswith("found 0") and turn["program"]["cut"] == 0
    answers = report_of(run)
    tools = answers[address("tree", **where)]["tools"]
    assert [(tool["content"], tool["cut"] > 10_000) for tool in tools] == [("", True)] * 2
    (turn,) = answers[address("turns", **where, nodes=1)]["turns"]
    assert sum(len(text["content"]) for text in turn["program"]["messages"]) == 4_000
