"""Storing trees, prompts from stored ids, damaged files."""

from __future__ import annotations

import pytest

from agentr.errors import DataError
from agentr.search import Origin, Sample, Tree
from agentr.types import Outcome
from tests.search.test_uct import child, new_tree


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
    tree.nodes[1].note["reason"] = "x"
    again = Tree.from_bytes(tree.to_bytes())
    assert again == tree
    assert again.to_json() == tree.to_json()


@pytest.mark.parametrize("damage", [b"", b"nonsense", new_tree().to_bytes()[:-5], new_tree().to_bytes()[5:]])
def test_damaged_bytes_are_refused(damage: bytes) -> None:
    with pytest.raises(DataError, match=r"damaged|not a stored tree"):
        Tree.from_bytes(damage)


def test_another_format_is_refused() -> None:
    with pytest.raises(DataError, match="another version"):
        Tree.from_json(new_tree().to_json().replace('"format":1', '"format":99'))


def test_independent_rollouts_are_chains() -> None:
    strategy, tree = Sample(episodes=3, max_steps=4), new_tree()
    while wishes := strategy.ask(tree):
        for wish in wishes:
            strategy.tell(tree, wish, [child("same")] * wish.n)
    assert len(tree.root.children) == 3  # equal answers stay apart: each is an episode
    assert [n.outcome for n in tree.ended()] == [Outcome.STEP_LIMIT] * 3
    assert {n.depth for n in tree.ended()} == {4}
    assert tree.root.visits == 3
    assert len(tree.nodes) - 1 == strategy.most
