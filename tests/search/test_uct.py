"""UCT against an independent simulation of the original's loop, golden trees, and properties that hold for any
answers."""

import json
import math
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentr.search import UCT, Child, Origin, Tree, UCTConfig
from agentr.search.stored import from_bytes, to_bytes, to_json
from agentr.search.uct import Dedupe
from agentr.types import Outcome
from tests.trees import add, child, new_tree, run_search, toy_answers

GOLDEN = Path(__file__).parent / "golden"
PAPER = UCTConfig(
    iterations=8, max_depth=20, width=4, c_uct=0.25, dedupe=Dedupe.text, stop_simulation_at_success=False, enough_good=0
)
WIN = child("win", 1.0, Outcome.SUCCESS)
LOSE = child("lose", 0.0, Outcome.FAILURE)
WIN_TOO = child("win too", 1.0, Outcome.SUCCESS)
LOSE_TOO = child("lose too", 0.0, Outcome.FAILURE)


def grow(strategy: UCT, tree: Tree, end_probability: float = 0.0) -> int:
    """Runs a search to its end and returns the number of completions."""
    return sum(expansion.n for expansion in run_search(strategy, tree, toy_answers(end_probability)))


def tell_next(strategy: UCT, tree: Tree, *children: Child) -> None:
    """Answers the one expansion that is asked for."""
    (expansion,) = strategy.ask(tree)
    strategy.tell(tree, expansion, children)


@pytest.mark.parametrize(("depth", "iterations", "expected"), [(10, 4, 164), (10, 8, 308), (20, 8, 628), (30, 8, 948)])
def test_number_of_calls_is_that_of_the_original(depth: int, iterations: int, expected: int) -> None:
    """N(D+1) completions in the first simulation, N*D in the next three, N*(D-1) after that."""
    config = replace(PAPER, iterations=iterations, max_depth=depth, dedupe=Dedupe.none)
    strategy = UCT(config)
    assert grow(strategy, new_tree()) == expected
    assert expected <= strategy.max_completions == iterations * (depth + 1) * 4


def test_score_is_equation_5() -> None:
    tree = new_tree()
    for reward in (1.0, 0.0, 0.0):
        add(tree, 0, child(str(reward), reward, Outcome.FAILURE))
    good, bad = tree.nodes[1], tree.nodes[2]
    strategy = UCT(PAPER)
    assert strategy.score(tree.root, good) == pytest.approx(1.0 + 0.25 * math.sqrt(math.log(3) / 1))
    assert strategy.score(tree.root, bad) == pytest.approx(0.0 + 0.25 * math.sqrt(math.log(3) / 1))
    assert strategy.score(tree.root, add(tree, 0, child("fresh"))) == math.inf


@pytest.mark.parametrize("name", ["paper", "default"])
def test_golden_tree(name: str) -> None:
    config = replace(PAPER if name == "paper" else UCTConfig(), iterations=3, max_depth=3, width=2)
    tree = new_tree(seed=8)
    grow(UCT(config), tree, end_probability=0.25)
    shape = [[n.id, n.parent, n.action, n.outcome, n.visits, n.value, n.terminal] for n in tree.nodes]
    assert [shape, tree.search] == json.loads((GOLDEN / f"{name}_tree.json").read_text())


@settings(max_examples=60, deadline=None)
@given(
    seed=st.integers(0, 10_000),
    width=st.integers(1, 4),
    depth=st.integers(1, 6),
    ends=st.floats(0, 0.6),
    default=st.booleans(),
)
def test_visits_and_values_are_conserved(seed: int, width: int, depth: int, ends: float, default: bool) -> None:
    config = UCTConfig(
        iterations=5,
        max_depth=depth,
        width=width,
        stop_simulation_at_success=default,
        enough_good=2 if default else 0,
        enough_bad=1,
    )
    tree, strategy = new_tree(seed), UCT(config)
    assert grow(strategy, tree, ends) <= strategy.max_completions
    leaves = list(tree.ended())
    assert tree.root.visits == len(leaves)
    assert tree.root.value == pytest.approx(sum(n.reward for n in leaves))
    for node in tree.nodes:
        below = [leaf for leaf in leaves if node in tree.path(leaf.id, root=True)]
        assert node.visits == len(below)
        assert node.terminal == (
            node.outcome is not None or (bool(node.children) and all(tree.nodes[c].terminal for c in node.children))
        )
        assert node.depth <= depth + 1
        assert node.expansions <= 1
    assert tree.search["iteration"] <= 5


@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 10_000), ends=st.floats(0, 0.5))
def test_telling_twice_changes_nothing_and_ask_is_pure(seed: int, ends: float) -> None:
    strategy, tree, answer = UCT(UCTConfig(iterations=3, max_depth=4, width=3)), new_tree(seed), toy_answers(ends)
    while asked := strategy.ask(tree):
        assert strategy.ask(tree) == asked
        for expansion in asked:
            strategy.tell(tree, expansion, answer(expansion))
            told = to_json(tree)
            assert strategy.tell(tree, expansion, answer(expansion)) == []
            assert to_json(tree) == told


def test_search_continues_from_a_stored_tree_byte_for_byte() -> None:
    strategy = UCT(UCTConfig(iterations=4, max_depth=5, width=3))
    whole = new_tree(5)
    grow(strategy, whole, 0.2)
    half = new_tree(5)
    run_search(strategy, half, toy_answers(0.2), tells=6)
    resumed = from_bytes(to_bytes(half))
    grow(strategy, resumed, 0.2)
    assert to_json(resumed) == to_json(whole)


def test_duplicates_are_one_node_by_action_or_by_text() -> None:
    answers = [child("x"), child("x"), child("think x", action="x")]
    for dedupe, expected in ((Dedupe.none, 3), (Dedupe.text, 2), (Dedupe.action, 1)):
        tree, strategy = new_tree(), UCT(UCTConfig(width=3, dedupe=dedupe))
        nodes = strategy.tell(tree, strategy.ask(tree)[0], answers)
        assert len(tree.root.children) == expected
        assert [node.id for node in nodes if node is not None] == tree.root.children
        assert tree.events.get("duplicates", 0) == nodes.count(None) == 3 - expected


@pytest.mark.parametrize("other", ["Thought: a\nAction: x\n", "Thought 1: a\nAction 1: x", "  Thought 2: a\nAction: x"])
def test_numbers_and_white_space_make_no_other_turn_where_texts_are_normalised(other: str) -> None:
    answers = [child("Thought: a\nAction: x"), child(other), child("Thought: a\nAction: x 1:")]
    for dedupe, expected in ((Dedupe.text, 3), (Dedupe.normalised, 2)):
        tree, strategy = new_tree(), UCT(UCTConfig(width=3, dedupe=dedupe))
        strategy.tell(tree, strategy.ask(tree)[0], answers)
        assert len(tree.root.children) == expected


def test_simulation_ends_at_success_only_in_the_default() -> None:
    for stop in (True, False):
        tree, strategy = new_tree(), UCT(UCTConfig(width=2, stop_simulation_at_success=stop, enough_good=0))
        tell_next(strategy, tree, WIN, child("go on"))
        assert tree.search["iteration"] == (1 if stop else 0)
        assert strategy.ask(tree)[0].node == 2  # the open sibling either way: by a new simulation, or by the same one
        assert tree.search["cursor"] == 0


# stopping -------------------------------------------------------------------------------------------------------------


@pytest.mark.slow
@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 10_000), leaves=st.integers(1, 9), width=st.integers(1, 5), ends=st.floats(0, 0.8))
def test_a_search_for_so_many_leaves_ends_with_exactly_as_many(seed: int, leaves: int, width: int, ends: float) -> None:
    config = UCTConfig(
        iterations=1000, max_depth=4, width=width, dedupe=Dedupe.none, enough_good=0, stop_simulation_at_success=False
    )
    tree, strategy = new_tree(seed), UCT(config, leaves)
    grow(strategy, tree, ends)
    unbounded = new_tree(seed)
    grow(UCT(config), unbounded, ends)
    assert len(list(tree.ended())) == min(leaves, len(list(unbounded.ended())))
    assert tree.search["stopped"] == ("leaves" if len(list(tree.ended())) == leaves else "exhausted")


def open_root(*turns: Child, enough: tuple[int, int], iterations: int = 9) -> Tree:
    """The tree of one simulation: these turns, and one that is left open beside them."""
    good, bad = enough
    strategy, tree = (
        UCT(UCTConfig(width=len(turns) + 1, enough_good=good, enough_bad=bad, iterations=iterations)),
        new_tree(),
    )
    tell_next(strategy, tree, *turns, child("go on"))
    assert not tree.root.terminal, "something is left to search"
    assert bool(strategy.ask(tree)) == ("stopped" not in tree.search)
    return tree


def test_search_stops_when_there_is_enough_to_learn_from() -> None:
    """Successes and other ended paths both count, each to its number, and 0 successes turn the rule off."""
    assert open_root(WIN, LOSE, enough=(1, 1)).search["stopped"] == "enough"
    assert open_root(WIN, WIN_TOO, LOSE, LOSE_TOO, enough=(2, 2)).search["stopped"] == "enough"
    assert open_root(WIN, enough=(1, 0)).search["stopped"] == "enough"
    for turns, enough in (
        ((WIN, LOSE), (2, 1)),
        ((WIN, LOSE), (1, 2)),
        ((WIN,), (1, 1)),
        ((WIN, WIN_TOO, LOSE), (0, 0)),
    ):
        tree = open_root(*turns, enough=enough)
        assert tree.search["iteration"] == 1
        assert "stopped" not in tree.search, f"{enough} was not reached by {len(turns)} turns"


def test_the_default_has_enough_with_four_successes_and_two_other_paths() -> None:
    wins = [child(f"win {i}", 1.0, Outcome.SUCCESS) for i in range(4)]
    ours = UCTConfig()
    enough = (ours.enough_good, ours.enough_bad)
    assert open_root(*wins, LOSE, LOSE_TOO, enough=enough).search["stopped"] == "enough"
    assert "stopped" not in open_root(*wins[:3], LOSE, LOSE_TOO, enough=enough).search
    assert "stopped" not in open_root(*wins, LOSE, enough=enough).search


def simulate(strategy: UCT, tree: Tree, ending: Child) -> None:
    """One simulation of two turns: an open one beside another, then ``ending`` beside a failure.
    Its other turn stays open."""
    done = tree.search.get("iteration", 0)
    while tree.search.get("iteration", 0) == done:
        (expansion,) = strategy.ask(tree)
        turns = [child("a"), child("b")] if expansion.node == 0 else [ending, LOSE]
        strategy.tell(tree, expansion, turns)


@pytest.mark.parametrize(
    ("after", "reward", "expected"),
    [(1, 0.0, "hopeless"), (2, 0.0, None), (0, 0.0, None), (1, 0.1, None)],
)
def test_search_stops_after_simulations_without_any_reward(after: int, reward: float, expected: str | None) -> None:
    """After the first of them ``b`` is still open, so nothing but the rule ends the search."""
    strategy, tree = UCT(UCTConfig(width=2, max_depth=5, iterations=9, stop_hopeless_after=after)), new_tree()
    simulate(strategy, tree, child("end", reward, Outcome.FAILURE))
    assert not tree.root.terminal
    assert tree.search["iteration"] == 1
    assert tree.search.get("stopped") == expected
    assert (strategy.ask(tree) == []) == (expected is not None)


def test_search_stops_when_nothing_is_left_or_all_simulations_are_done() -> None:
    strategy, tree = UCT(UCTConfig(width=2, enough_good=0, iterations=9)), new_tree()
    tell_next(strategy, tree, WIN, LOSE)
    assert tree.search["stopped"] == "exhausted"
    assert open_root(WIN, enough=(0, 0), iterations=1).search["stopped"] == "iterations"


# how paths end --------------------------------------------------------------------------------------------------------


def test_a_path_with_too_many_invalid_actions_ends() -> None:
    strategy, tree = UCT(UCTConfig(width=1, max_invalid=2, max_depth=9)), new_tree()
    tell_next(strategy, tree, child("bad", valid=False))
    assert not tree.nodes[1].terminal
    tell_next(strategy, tree, child("worse", valid=False))
    assert tree.nodes[2].outcome is Outcome.STEP_LIMIT


def test_infrastructure_failures_are_no_data() -> None:
    tree = new_tree()
    tree.add(0, child("x", 0.0, Outcome.INFRA), Origin.POLICY)
    assert list(tree.ended()) == []
