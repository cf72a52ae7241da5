"""Rollouts from every point of a given path: which points, in which order, and to which end."""

import pytest

from agentr.search.stepwise import Stepwise, given_path
from agentr.search.stored import to_json
from agentr.search.tree import Origin, Tree
from agentr.types import Outcome
from tests.trees import child, new_tree, run_search, toy_answers

STRATEGY = Stepwise(episodes=2, max_steps=6)


def begun(length: int = 3, origin: Origin = Origin.PREFIX, expanded: bool = True) -> Tree:
    """A tree that begins with an expert's path of ``length`` turns and a success."""
    tree = new_tree()
    for depth in range(1, length + 1):
        tree.nodes[-1].expansions = int(expanded)
        last = depth == length
        tree.add(depth - 1, child(f"e{depth}", float(last), Outcome.SUCCESS if last else None), origin)
    return tree


@pytest.mark.parametrize("expanded", [True, False])
@pytest.mark.parametrize("origin", [Origin.PREFIX, Origin.EXPERT])
def test_first_asks_for_every_point_that_an_expert_turn_follows(origin: Origin, expanded: bool) -> None:
    tree = begun(3, origin, expanded)
    asked = STRATEGY.ask(tree)
    assert [(e.node, e.n) for e in asked] == [(0, 2), (1, 2), (2, 2)]
    assert len({e.seed for e in asked}) == 3
    assert STRATEGY.ask(tree) == asked
    assert [n.text for n in given_path(tree)] == ["e1", "e2", "e3"]


def test_rollouts_are_chains_to_their_ends_beside_the_path() -> None:
    tree = begun()
    told = run_search(STRATEGY, tree, toy_answers(0.3))
    assert sum(expansion.n for expansion in told) <= STRATEGY.max_completions
    for point in range(3):
        drawn = [tree.nodes[c] for c in tree.nodes[point].children if tree.nodes[c].origin is Origin.POLICY]
        assert len(drawn) == 2
    policy = [n for n in tree.nodes if n.origin is Origin.POLICY]
    assert all(len(n.children) == (n.outcome is None) for n in policy)
    assert all(n.depth <= STRATEGY.max_steps for n in policy)
    assert any(n.outcome is Outcome.STEP_LIMIT for n in policy)
    assert tree.root.terminal
    assert tree.root.visits == 6, "each rollout is backed up once, and the expert's path is not the policy's"


@pytest.mark.parametrize("batch", [1, 2, 3])
def test_order_does_not_depend_on_where_a_batch_was_cut_off(batch: int) -> None:
    whole, cut = begun(), begun()
    run_search(STRATEGY, whole, toy_answers(0.3))
    run_search(STRATEGY, cut, toy_answers(0.3), batch=batch)
    assert to_json(cut) == to_json(whole)


def test_points_without_room_for_a_turn_are_left_out() -> None:
    tree = begun(5)
    assert [e.node for e in Stepwise(1, max_steps=3).ask(tree)] == [0, 1, 2]


def test_a_path_that_never_ended_is_not_gone_on_from_its_last_turn() -> None:
    tree = new_tree()
    tree.add(0, child("e1"), Origin.PREFIX)
    tree.add(1, child("e2"), Origin.PREFIX)
    assert [e.node for e in STRATEGY.ask(tree)] == [0, 1]


def test_nothing_is_asked_without_a_path_or_where_the_opening_does_not_fit() -> None:
    assert STRATEGY.ask(new_tree()) == []
    tree = begun()
    tree.root.outcome = Outcome.CONTEXT_LIMIT
    assert STRATEGY.ask(tree) == []


def test_a_rollout_ends_after_too_many_invalid_turns() -> None:
    strategy, tree = Stepwise(1, max_steps=10, max_invalid=2), begun(1)
    told = run_search(strategy, tree, lambda expansion: [child("?", valid=False)] * expansion.n)
    assert len(told) == 2
    assert tree.nodes[-1].outcome is Outcome.STEP_LIMIT
