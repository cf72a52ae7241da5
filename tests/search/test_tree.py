"""Storing trees, prompts from stored ids, damaged files."""

import json

import pytest
import zstandard

from agentr.errors import DataError
from agentr.search import Origin, Sample
from agentr.search.hiding import Hiding
from agentr.search.revision import Rating, Revision, Verdict
from agentr.search.stored import from_bytes, from_json, read_child, stored_child, to_bytes, to_json
from agentr.search.tree import Spent
from agentr.types import CallStatus, Cost, Outcome
from tests.trees import child, new_tree, run_search, tree_of


def test_prompt_is_the_concatenation_of_what_was_stored() -> None:
    tree = new_tree()
    first = tree.add(0, child("a"), Origin.POLICY)
    second = tree.add(first.id, child("b"), Origin.POLICY)
    assert tree.prompt(second.id) == [1, 2, 3, 7, 8, 7, 8]
    assert [m.content for m in tree.conversation(second.id)] == ["go", "a", "saw a", "b", "saw b"]
    assert tree.common_ancestor(first.id, second.id) == first.id


def test_round_trip_is_equal_and_stable() -> None:
    tree = new_tree()
    tree.back_up(tree.add(0, child("ä\n", 0.25, Outcome.FAILURE), Origin.POLICY).id)
    tree.add(0, child("b"), Origin.POLICY)
    tree.nodes[1].verdict = Verdict(Rating.BAD, "x", "x Judgement: Bad")
    tree.nodes[1].branch = 0
    tree.nodes[2].verdict = Verdict(Rating.UNCERTAIN)
    tree.search.update(iteration=1, cursor=0)
    tree.revisions.append(
        Revision(bad=1, good=2, ancestor=0, transition=1, reflection="That was wrong.", spliced=True, end=2)
    )
    tree.spend(Cost(calls=2, completions=8, judge_calls=1))
    tree.count(duplicates=3)
    again = from_bytes(to_bytes(tree))
    assert zstandard.get_frame_parameters(to_bytes(tree)).has_checksum, "a bit that flips on a disk is found"
    assert again == tree
    assert to_json(again) == to_json(tree)


def test_how_a_turn_came_out_and_its_scores_are_stored_where_they_say_something() -> None:
    plain, tree = tree_of("a / b: 1.0"), tree_of("a / b: 1.0")
    for node in json.loads(to_json(plain))["nodes"]:
        assert node.keys() & {"status", "scores"} == set(), "trees of before keep their text"
    assert stored_child(child("a")).keys() & {"status", "scores"} == set()
    tree.nodes[1].status, tree.nodes[2].scores = CallStatus.empty, {"f1": 0.5, "em": 0.0}
    again = from_bytes(to_bytes(tree))
    assert (
        again == tree and again.nodes[1].status is CallStatus.empty and again.nodes[2].scores == {"em": 0.0, "f1": 0.5}
    )
    stored = json.loads(to_json(tree))
    del stored["nodes"][1]["status"], stored["nodes"][2]["scores"]
    assert from_json(json.dumps(stored)) == plain
    told = child("b", status=CallStatus.timeout, scores={"f1": 0.25})
    told_again = read_child(json.loads(json.dumps(stored_child(told))))
    assert told_again == told and told_again.status is CallStatus.timeout
    with pytest.raises(DataError, match="not a stored tree"):
        from_json(to_json(tree).replace('"status":"empty"', '"status":"odd"'))


def test_reasoning_is_stored_where_there_is_some() -> None:
    plain, tree = tree_of("a / b: 1.0"), tree_of("a / b: 1.0")
    stored = json.loads(to_json(plain))
    assert "hiding" not in stored and all("reasoning" not in node for node in stored["nodes"]), (
        "trees of before keep their text"
    )
    assert "reasoning" not in stored_child(child("a"))
    tree.nodes[1].reasoning, tree.hiding = 1, Hiding(2, (5, 6))
    again = from_bytes(to_bytes(tree))
    assert again == tree and to_json(again) == to_json(tree) and again.hiding == Hiding(2, (5, 6))
    assert again.prompt(2) == tree.prompt(2) != plain.prompt(2)
    told = child("b", reasoning=1)
    assert read_child(json.loads(json.dumps(stored_child(told)))) == told


def test_what_hides_reasoning_takes_its_opening_off_and_puts_what_the_template_writes() -> None:
    tree = new_tree()
    tree.hiding = Hiding(opened=1, instead=(50, 51))
    tree.add(0, child("a", token_ids=(10, 11, 12), bridge_ids=(20, 21), reasoning=2), Origin.POLICY)
    tree.add(1, child("b", token_ids=(13, 14), bridge_ids=(22, 23)), Origin.POLICY)
    assert tree.prompt(0) == [1, 2, 3], "the opening of the turn that is next stays"
    assert tree.prompt(1) == [1, 2, 50, 51, 12, 20, 21]
    assert tree.prompt(2) == [1, 2, 50, 51, 12, 20, 50, 51, 13, 14, 22, 23]
    assert tree.prompt(2, forgotten=1) == [1, 2, 50, 51, 13, 14, 22, 23]
    assert [tree.length(node) for node in tree.nodes[1:]] == [4, 5]


@pytest.mark.parametrize(
    ("paths", "draws", "expected"),
    [
        (["a / b: 1.0"], 1, False),
        (["a / b: 1.0"], 2, True),
        (["a / b: 1.0", "a / b: 1.0"], 1, True),
        (["a / b: 1.0", "a / c: 1.0"], 1, False),
        (["a / b: 1.0", "c / b: 1.0"], 1, False),
        (["a / b: 1.0", "a / b: 0.0 infra"], 1, False),
        (["a / b"], 2, False),
    ],
)
def test_episodes_are_identical_where_several_were_drawn_and_say_the_same(
    paths: list[str], draws: int, expected: bool
) -> None:
    tree = tree_of(*paths)
    tree.nodes[2].draws = draws
    assert tree.identical() is expected


def test_a_conversation_shows_reasoning_where_later_prompts_do() -> None:
    tree = new_tree()
    tree.add(0, child("<think>It is locked.</think>\n\nopen", token_ids=(10, 11, 12), reasoning=2), Origin.POLICY)
    tree.add(1, child("<think>Hm", token_ids=(13, 14), reasoning=2), Origin.POLICY)
    tree.add(2, child("wait"), Origin.POLICY)
    said = ["<think>It is locked.</think>\n\nopen", "<think>Hm", "wait"]
    assert [m.content for m in tree.conversation(3) if m.role == "assistant"] == said
    tree.hiding = Hiding()
    assert [m.content for m in tree.conversation(3) if m.role == "assistant"] == ["open", "", "wait"]
    assert [m.content for m in tree.conversation(3, forgotten=2)] == ["go", "wait", tree.nodes[3].observation]


def test_what_expansions_took_is_kept_in_order_and_their_cached_tokens_are_a_cost() -> None:
    tree = new_tree()
    tree.spend(Cost(calls=1, cached_tokens=4))
    spent = [Spent(0, 0, 2, 0.5, 0.25, cached_tokens=3), Spent(1, 0, 2, 0.5, 0.25)]
    for one in spent:
        tree.pay(one)
    assert tree.spent == spent and tree.cost == Cost(calls=1, cached_tokens=7)


@pytest.mark.parametrize("damage", [b"", b"nonsense", to_bytes(new_tree())[:-5], to_bytes(new_tree())[5:]])
def test_damaged_bytes_are_refused(damage: bytes) -> None:
    with pytest.raises(DataError, match=r"damaged|not a stored tree"):
        from_bytes(damage)


def test_another_format_is_refused() -> None:
    with pytest.raises(DataError, match="another version"):
        from_json(to_json(new_tree()).replace('"format":2', '"format":99'))


def test_independent_rollouts_are_chains() -> None:
    strategy, tree = Sample(episodes=3, max_steps=4), new_tree()
    run_search(strategy, tree, lambda expansion: [child("same")] * expansion.n)
    assert len(tree.root.children) == 3  # equal answers stay apart: each is an episode
    assert [n.outcome for n in tree.ended()] == [Outcome.STEP_LIMIT] * 3
    assert {n.depth for n in tree.ended()} == {4}
    assert tree.root.visits == 3
    assert len(tree.nodes) - 1 == strategy.max_completions
