"""UCT against an independent simulation of the original's loop, golden trees, and properties that hold for any answers."""

from __future__ import annotations

import json
import math
import random
from pathlib import Path

import pytest
from agentr.config.methods import Dedupe, SearchConfig
from hypothesis import given, settings
from hypothesis import strategies as st

from agentr.search import UCT, Child, Tree
from agentr.search.strategy import Expansion
from agentr.types import FinishReason, Message, Outcome, Task

GOLDEN = Path(__file__).parent / "golden"
PAPER = SearchConfig(iterations=8, max_depth=20, width=4, c_uct=0.25, dedupe=Dedupe.text, stop_dive_at_success=False, enough_good=0)


def new_tree(seed: int = 0) -> Tree:
    return Tree.start(Task("toy", "t", "train"), (Message("user", "go"),), (1, 2, 3), seed)


def child(text: str, reward: float = 0.0, outcome: Outcome | None = None, valid: bool = True) -> Child:
    return Child(text, (7,), (8,), (-0.5,), FinishReason.STOP, text, f"saw {text}", reward, valid, outcome)


def toy_answers(tree: Tree, expansion: Expansion, end_probability: float = 0.0) -> list[Child]:
    """Turns drawn from the expansion's seed alone, as a seeded policy and a deterministic environment would give."""
    rng = random.Random(expansion.seed)
    answers = []
    for _ in range(expansion.n):
        text = f"a{rng.randrange(1000)}"
        ended = rng.random() < end_probability
        reward = float(rng.random() < 0.4) if ended else 0.0
        answers.append(child(text, reward, (Outcome.SUCCESS if reward else Outcome.FAILURE) if ended else None))
    return answers


def grow(strategy: UCT, tree: Tree, end_probability: float = 0.0) -> int:
    """Runs a search to its end and returns the number of completions."""
    calls = 0
    while wishes := strategy.ask(tree):
        for wish in wishes:
            calls += wish.n
            strategy.tell(tree, wish, toy_answers(tree, wish, end_probability))
    return calls


@pytest.mark.parametrize(("depth", "iterations", "expected"), [(10, 4, 164), (10, 8, 308), (20, 8, 628), (30, 8, 948)])
def test_number_of_calls_is_that_of_the_original(depth: int, iterations: int, expected: int) -> None:
    """specs: N(D+1) completions in the first dive, N*D in the next three, N*(D-1) after that."""
    config = SearchConfig(iterations=iterations, max_depth=depth, width=4, dedupe=Dedupe.none, stop_dive_at_success=False, enough_good=0)
    strategy = UCT(config)
    assert grow(strategy, new_tree()) == expected
    assert expected <= strategy.most == iterations * (depth + 1) * 4


def test_score_is_equation_5() -> None:
    tree = new_tree()
    for reward in (1.0, 0.0, 0.0):
        tree.back_up(tree.add(0, child(str(reward), reward, Outcome.FAILURE), origin="policy").id)  # type: ignore[arg-type]
    good, bad = tree.nodes[1], tree.nodes[2]
    strategy = UCT(PAPER)
    assert strategy.score(tree.root, good) == pytest.approx(1.0 + 0.25 * math.sqrt(math.log(3) / 1))
    assert strategy.score(tree.root, bad) == pytest.approx(0.0 + 0.25 * math.sqrt(math.log(3) / 1))
    fresh = tree.nodes[tree.add(0, child("fresh"), origin="policy").id]  # type: ignore[arg-type]
    assert strategy.score(tree.root, fresh) == math.inf


@pytest.mark.parametrize("name", ["paper", "default"])
def test_golden_tree(name: str) -> None:
    config = SearchConfig(iterations=3, max_depth=3, width=2)
    if name == "paper":
        config = SearchConfig(iterations=3, max_depth=3, width=2, dedupe=Dedupe.text, stop_dive_at_success=False, enough_good=0)
    tree = new_tree(seed=8)
    grow(UCT(config), tree, end_probability=0.25)
    shape = [[n.id, n.parent, n.action, n.outcome, n.visits, n.value, n.terminal] for n in tree.nodes]
    assert [shape, tree.search] == json.loads((GOLDEN / f"{name}_tree.json").read_text())


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 10_000), width=st.integers(1, 4), depth=st.integers(1, 6), ends=st.floats(0, 0.6), default=st.booleans())
def test_visits_and_values_are_conserved(seed: int, width: int, depth: int, ends: float, default: bool) -> None:
    config = SearchConfig(
        iterations=5, max_depth=depth, width=width, stop_dive_at_success=default, enough_good=2 if default else 0, enough_bad=1
    )
    tree, strategy = new_tree(seed), UCT(config)
    assert grow(strategy, tree, ends) <= strategy.most
    leaves = list(tree.ended())
    assert tree.root.visits == len(leaves)
    assert tree.root.value == pytest.approx(sum(n.reward for n in leaves))
    for node in tree.nodes:
        below = [leaf for leaf in leaves if node in tree.path(leaf.id, root=True)]
        assert node.visits == len(below)
        assert node.terminal == (node.outcome is not None or (bool(node.children) and all(tree.nodes[c].terminal for c in node.children)))
        assert node.depth <= depth + 1
        assert node.expansions <= 1
    assert tree.search["iteration"] <= 5


@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 10_000), ends=st.floats(0, 0.5))
def test_telling_twice_changes_nothing_and_ask_is_pure(seed: int, ends: float) -> None:
    strategy, tree = UCT(SearchConfig(iterations=3, max_depth=4, width=3)), new_tree(seed)
    while wishes := strategy.ask(tree):
        assert strategy.ask(tree) == wishes
        for wish in wishes:
            answers = toy_answers(tree, wish, ends)
            strategy.tell(tree, wish, answers)
            told = tree.to_json()
            strategy.tell(tree, wish, answers)
            assert tree.to_json() == told


def test_search_continues_from_a_stored_tree_byte_for_byte() -> None:
    strategy = UCT(SearchConfig(iterations=4, max_depth=5, width=3))
    whole = new_tree(5)
    grow(strategy, whole, 0.2)
    half = new_tree(5)
    for _ in range(6):
        for wish in strategy.ask(half):
            strategy.tell(half, wish, toy_answers(half, wish, 0.2))
    resumed = Tree.from_bytes(half.to_bytes())
    grow(strategy, resumed, 0.2)
    assert resumed.to_json() == whole.to_json()


def test_duplicates_are_one_node_by_action_or_by_text() -> None:
    answers = [child("x"), child("x"), Child("think x", (7,), (8,), (), FinishReason.STOP, "x", "saw x", 0.0, True)]
    for dedupe, expected in ((Dedupe.none, 3), (Dedupe.text, 2), (Dedupe.action, 1)):
        tree, strategy = new_tree(), UCT(SearchConfig(width=3, dedupe=dedupe))
        strategy.tell(tree, strategy.ask(tree)[0], answers)
        assert len(tree.root.children) == expected
        assert tree.counts.get("duplicates", 0) == 3 - expected


def test_dive_ends_at_success_only_in_the_default() -> None:
    answers = [child("win", 1.0, Outcome.SUCCESS), child("go on")]
    for stop in (True, False):
        tree, strategy = new_tree(), UCT(SearchConfig(width=2, stop_dive_at_success=stop, enough_good=0))
        strategy.tell(tree, strategy.ask(tree)[0], answers)
        assert tree.search["iteration"] == (1 if stop else 0)
        assert strategy.ask(tree)[0].node == 2  # the open sibling either way: by a new dive, or by the same one
        assert tree.search["cursor"] == 0


def test_search_stops_when_there_is_enough_or_no_hope() -> None:
    strategy = UCT(SearchConfig(width=2, enough_good=1, enough_bad=1, iterations=9))
    tree = new_tree()
    strategy.tell(tree, strategy.ask(tree)[0], [child("win", 1.0, Outcome.SUCCESS), child("lose", 0.0, Outcome.FAILURE)])
    assert tree.search["stopped"] == "exhausted"
    hopeless = UCT(SearchConfig(width=2, max_depth=0, iterations=9, stop_hopeless_after=1))
    tree = new_tree()
    hopeless.tell(tree, hopeless.ask(tree)[0], [child("a"), child("b")])
    assert tree.search["stopped"] in ("exhausted", "hopeless")


def test_a_path_with_too_many_invalid_actions_ends() -> None:
    strategy, tree = UCT(SearchConfig(width=1, max_invalid=2, max_depth=9)), new_tree()
    strategy.tell(tree, strategy.ask(tree)[0], [child("bad", valid=False)])
    assert not tree.nodes[1].terminal
    strategy.tell(tree, strategy.ask(tree)[0], [child("worse", valid=False)])
    assert tree.nodes[2].outcome is Outcome.STEP_LIMIT


def test_infrastructure_failures_are_no_data() -> None:
    tree = new_tree()
    tree.add(0, child("x", 0.0, Outcome.INFRA), origin="policy")  # type: ignore[arg-type]
    assert list(tree.ended()) == []
