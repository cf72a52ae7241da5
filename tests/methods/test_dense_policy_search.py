"""The adaptive tree: its rules one by one, a golden tree, and properties that hold for any answers."""

import json
import math
import random
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentr.envs.server import EnvServer
from agentr.errors import ConfigError
from agentr.methods import load
from agentr.methods.dense_policy.dense import Dense, DenseConfig
from agentr.methods.dense_policy.rows import SiblingsConfig
from agentr.methods.dense_policy.siblings import SiblingRule, TurnsLeft, sibling_pairs
from agentr.search import Child, Expansion, Tree
from agentr.search.stored import from_bytes, to_bytes, to_json
from agentr.types import Outcome
from tests.collect import test_grow
from tests.trees import Answer, child, new_tree, retell, run_search

GOLDEN = Path(__file__).parent / "golden"
SMALL = DenseConfig(base=3, max_depth=3, window=2, stop_rollouts=12)


def dense(config: DenseConfig = SMALL, **rule: Any) -> Dense:
    return Dense(config, SiblingRule(**rule))


def lucky(p: float, words: int = 1_000_000) -> Answer:
    """Turns that succeed with probability ``p`` each, whatever came before, drawn from the expansion's seed alone."""

    def answer(expansion: Expansion) -> list[Child]:
        rng = random.Random(expansion.seed)
        wins = [rng.random() < p for _ in range(expansion.n)]
        return [child(f"a{rng.randrange(words)}", float(win), Outcome.SUCCESS if win else None) for win in wins]

    return answer


def grow(strategy: Dense, tree: Tree, answer: Answer) -> Tree:
    """Runs a search to its end."""
    run_search(strategy, tree, answer)
    return tree


def branches(tree: Tree, node: int) -> tuple[int | None, ...]:
    return tuple(n.branch for n in tree.path(node))


def shared(batch: list[list[int]]) -> int:
    """How deep the last node is that all rollouts of a batch go through."""
    return next(i for i, at_depth in enumerate(zip(*batch, strict=True)) if len(set(at_depth)) > 1)


# rules ----------------------------------------------------------------------------------------------------------------


def test_first_batch_is_each_branch_and_then_the_greedy_one() -> None:
    strategy, tree = dense(), new_tree()
    asks: list[list[tuple[int, int]]] = []
    while len(asks) < 3:
        asked = strategy.ask(tree)
        asks.append([(e.node, e.n) for e in asked])
        for expansion in asked:
            strategy.tell(tree, expansion, lucky(0)(expansion))
    # one request for each temperature at the root, then the three rollouts go on together
    assert asks == [[(0, 1)] * 3, [(1, 1), (2, 1), (3, 1)], [(4, 1), (5, 1), (6, 1)]]
    assert [branches(tree, n.id) for n in tree.ended()] == [(0, 0, 0), (1, 0, 0), (2, 0, 0)]
    assert {n.outcome for n in tree.ended()} == {Outcome.STEP_LIMIT}


def test_temperatures_go_by_branch_and_equal_ones_are_one_request() -> None:
    strategy, tree = dense(DenseConfig()), new_tree()
    asked = strategy.ask(tree)
    assert [(e.temperature, e.n, e.attempt) for e in asked] == [(0.0, 1, 0), (1.0, 3, 1), (0.5, 3, 2), (0.7, 3, 3)]
    assert len({e.seed for e in asked}) == 4
    for expansion in asked:
        strategy.tell(tree, expansion, [child(f"{expansion.attempt}-{i}") for i in range(expansion.n)])
    by_branch = {tree.nodes[c].branch: tree.nodes[c].text for c in tree.root.children}
    assert by_branch == {
        0: "0-0",
        1: "1-0",
        4: "1-1",
        7: "1-2",
        2: "2-0",
        5: "2-1",
        8: "2-2",
        3: "3-0",
        6: "3-1",
        9: "3-2",
    }


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        (DenseConfig(), [0.0, 1.0, 0.5, 0.7, 1.0, 0.5, 0.7, 1.0, 0.5, 0.7]),
        (DenseConfig(base=4, greedy_branch=False), [0.7, 1.0, 0.5, 0.7]),
        (DenseConfig(base=3, temperatures=[0.9]), [0.0, 0.9, 0.9]),
    ],
)
def test_temperature_of_each_branch(config: DenseConfig, expected: list[float]) -> None:
    assert [dense(config).temperature(branch) for branch in range(config.base)] == expected


def test_score_is_the_formula() -> None:
    strategy = dense(DenseConfig())
    assert strategy.score(0, 0, 0) == pytest.approx(1.0)
    assert strategy.score(0.0625, 4, 3) == pytest.approx(0.8 * 0.5 + 0.2 * 0.5 + 2 * math.sqrt(4) / 5)
    other = Dense(
        DenseConfig(contrast_weight=2, contrast_power=1, depth_weight=3, explore_weight=0.5, max_depth=4), SiblingRule()
    )
    assert other.score(0.25, 2, 0) == pytest.approx(2 * 0.25 + 3 * 0.5 + 0.5 * 1)


@pytest.mark.parametrize(
    ("weights", "depths"),
    [
        ({"contrast_weight": 1.0}, {1}),
        ({"depth_weight": 1.0}, {0}),
        ({"explore_weight": 1.0}, {1, 2}),
        ({"depth_weight": 1.17, "explore_weight": 1.0}, {1}),
        ({"depth_weight": 1.3, "explore_weight": 1.0}, {0}),
    ],
)
def test_a_later_batch_goes_where_the_score_says(weights: dict[str, float], depths: set[int]) -> None:
    """Of three first rollouts, that of branch 2 succeeds at once.
    Its siblings differ from it by 1, the root has the most turns below it (1 + 4 / 3 against 2 at depth 1), and every
    open node but the root was visited once, those of depth 1 and those of depth 2. The root was visited three times:
    7/9 d + 0.8 e is more than 2/3 d + 0.943 e from d = 1.29 e on."""
    nothing = DenseConfig(base=3, max_depth=3, window=24, contrast_weight=0, depth_weight=0, explore_weight=0)
    strategy = dense(replace(nothing, **weights))
    found = set()
    for seed in range(10):
        tree = new_tree(seed)
        for _ in range(3):
            for expansion in strategy.ask(tree):
                won = expansion.node == 0 and expansion.temperature == 0.5
                strategy.tell(tree, expansion, [child("x", float(won), Outcome.SUCCESS if won else None)])
        assert tree.search["batches"] == 2
        assert len(tree.search["batch"]) > 1
        found.add(shared(tree.search["batch"]))
    assert found == depths


def test_where_every_path_broke_no_turn_is_known_to_be_left() -> None:
    """Branch 2 succeeds at once, and what follows branches 0 and 1 breaks: the root has one turn left, and they have
    none."""
    config = DenseConfig(base=3, max_depth=3, window=24, contrast_weight=0, explore_weight=0)
    found = set()
    for seed in range(10):
        strategy, tree = dense(config), new_tree(seed)
        for _ in range(2):
            for expansion in strategy.ask(tree):
                won = expansion.temperature == 0.5
                outcome = Outcome.INFRA if expansion.node else Outcome.SUCCESS if won else None
                strategy.tell(tree, expansion, [child("x", float(won), outcome)])
        assert tree.search["batches"] == 2
        found.add(shared(tree.search["batch"]))
    assert found == {0}


def test_turns_left_are_taken_in_the_search_as_in_its_pairs() -> None:
    config = replace(SMALL, max_depth=5, depth_weight=1.0, contrast_weight=0, explore_weight=0, stop_rollouts=30)
    over = [
        [grow(dense(config, turns_left=kind), new_tree(seed), lucky(0.3)) for seed in range(5)] for kind in TurnsLeft
    ]
    assert over[0] != over[1]


def test_a_covered_proposal_is_dropped_and_nodes_with_nothing_open_are_left_alone() -> None:
    """Branches 0 and 1 of three end at once, one of them in failure: all that is new lies below branch 2, and the batch
    finds it."""
    strategy, tree = dense(replace(SMALL, stop_rollouts=1000)), new_tree()
    ended = {0.0: Outcome.FAILURE, 1.0: Outcome.SUCCESS}
    while asked := strategy.ask(tree):
        for expansion in asked:
            outcome = ended.get(expansion.temperature or 0.0) if expansion.node == 0 else None
            strategy.tell(
                tree, expansion, [child("x", float(outcome is Outcome.SUCCESS), outcome) for _ in range(expansion.n)]
            )
    assert tree.search["stopped"] == "exhausted"
    assert tree.root.visits == 2 + 9
    assert [n.visits for n in tree.nodes[1:4]] == [1, 1, 9]


def test_rollouts_that_end_at_the_same_turn_are_one() -> None:
    strategy, tree = dense(DenseConfig(base=2, max_depth=3, window=8, stop_rollouts=100)), new_tree(3)
    grow(
        strategy,
        tree,
        lambda expansion: [
            child("x", 1.0, Outcome.SUCCESS) if expansion.node else child("go") for _ in range(expansion.n)
        ],
    )
    # below each of the two first turns every branch succeeds, so several indices of a batch lead to the same end
    assert tree.search["stopped"] == "exhausted"
    assert tree.root.visits == 4 == len(list(tree.ended()))


def test_a_path_that_the_machinery_broke_is_no_rollout() -> None:
    strategy, tree = dense(DenseConfig(base=2, max_depth=2, window=4, stop_rollouts=50)), new_tree()
    grow(
        strategy,
        tree,
        lambda expansion: [child("x", 1.0, Outcome.INFRA if expansion.node == 1 else None) for _ in range(expansion.n)],
    )
    assert tree.search["stopped"] == "exhausted"
    assert (tree.nodes[1].visits, tree.nodes[2].visits, tree.root.visits, tree.root.value) == (0, 2, 2, 2.0)
    assert sibling_pairs(tree, SiblingRule(min_gap=0)) == []


# stopping -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("most, ends_at", [(0, 3), (1, 1), (2, 2), (4, 3)])
def test_a_path_of_invalid_turns_ends_early(most: int, ends_at: int) -> None:
    def noise(expansion: Expansion) -> list[Child]:
        return [child(f"{expansion.seed} {i}", valid=False) for i in range(expansion.n)]

    tree = grow(dense(replace(SMALL, max_invalid=most)), new_tree(), noise)
    ended = [n for n in tree.nodes if n.outcome is not None]
    assert {n.outcome for n in ended} == {Outcome.STEP_LIMIT}
    assert {n.depth for n in ended} == {ends_at}


def test_stops_when_there_are_enough_pairs() -> None:
    config = DenseConfig(stop_pairs=20)
    tree = grow(dense(config), new_tree(1), lucky(0.4))
    assert tree.search["stopped"] == "pairs"
    assert len(sibling_pairs(tree, SiblingRule())) >= 20
    assert tree.root.visits < 100
    capped = grow(dense(config, pairs_per_parent=1), new_tree(1), lucky(0.4))
    assert len(capped.nodes) > len(tree.nodes)
    # The cap of a task is no part of the rule: it takes the best of what the tree has.
    assert (
        grow(Dense(config, SiblingsConfig(pairs_per_task=1, pairs=3, tasks=1).rule()), new_tree(1), lucky(0.4)) == tree
    )


@pytest.mark.parametrize("most", [2, 10, 13, 40])
def test_stops_at_the_number_of_rollouts_exactly(most: int) -> None:
    tree = grow(dense(DenseConfig(stop_rollouts=most, stop_pairs=0)), new_tree(), lucky(0.0))
    assert tree.search["stopped"] == "rollouts"
    assert tree.root.visits == most


def test_stops_when_nothing_is_left() -> None:
    tree = grow(dense(DenseConfig(base=2, max_depth=2, window=2)), new_tree(), lucky(0.0))
    assert tree.search["stopped"] == "exhausted"
    assert len(tree.nodes) == 1 + 2 + 4


def test_stops_when_it_finds_nothing_new() -> None:
    """With one try for each batch, and a weight that keeps it below the root, sooner or later all draws are covered."""
    config = DenseConfig(base=3, max_depth=2, window=1, stop_empty=1, contrast_weight=0, explore_weight=0)
    reasons = Counter(grow(dense(config), new_tree(seed), lucky(0.0)).search["stopped"] for seed in range(20))
    assert reasons["empty"] > 0
    patient = replace(config, stop_empty=1000)
    assert {grow(dense(patient), new_tree(seed), lucky(0.0)).search["stopped"] for seed in range(20)} == {"exhausted"}


def test_nothing_is_asked_once_it_is_over() -> None:
    strategy = dense()
    tree = grow(strategy, new_tree(), lucky(0.2))
    assert strategy.ask(tree) == []
    refused = new_tree()
    refused.root.outcome, refused.root.terminal = Outcome.CONTEXT_LIMIT, True
    assert strategy.ask(refused) == []


@pytest.mark.parametrize("key", ["base", "max_depth", "window", "stop_rollouts", "stop_empty", "temperatures"])
def test_sizes_that_leave_nothing_to_do_are_refused(key: str) -> None:
    with pytest.raises(ConfigError, match=rf"method\.search\.{key}: "):
        load(None, ["method.type=dense_policy", f"method.search.{key}={'[]' if key == 'temperatures' else 0}"])


# whole searches -------------------------------------------------------------------------------------------------------


def test_golden_tree() -> None:
    tree = grow(dense(), new_tree(seed=4), lucky(0.25, words=4))
    shape = [[n.id, n.parent, n.branch, n.action, n.outcome, n.visits, n.value, n.terminal] for n in tree.nodes]
    assert [shape, tree.search] == json.loads((GOLDEN / "dense_tree.json").read_text())


@pytest.mark.slow
@settings(max_examples=60, deadline=None)
@given(
    seed=st.integers(0, 10_000), base=st.integers(1, 5), depth=st.integers(1, 5), window=st.integers(1, 6),
    p=st.floats(0, 0.7),
    greedy=st.booleans(),
)  # fmt: skip
def test_properties_of_any_search(seed: int, base: int, depth: int, window: int, p: float, greedy: bool) -> None:
    config = DenseConfig(base=base, max_depth=depth, window=window, stop_rollouts=30, greedy_branch=greedy)
    strategy, tree, answer, drawn = dense(config), new_tree(seed), lucky(p), Counter()
    while asked := strategy.ask(tree):
        before = to_json(tree)
        assert strategy.ask(tree) == asked
        assert to_json(tree) == before
        assert len({(e.node, e.attempt) for e in asked}) == len(asked)
        assert len({(e.node, e.temperature) for e in asked}) == len(asked)
        for expansion in asked:
            first = len(tree.nodes)
            assert strategy.tell(tree, expansion, answer(expansion)) == tree.nodes[first:]
            assert len(tree.nodes) == first + expansion.n
            assert {strategy.temperature(n.branch or 0) for n in tree.nodes[first:]} == {expansion.temperature}
            drawn.update((n.parent, n.branch) for n in tree.nodes[first:])
            told = to_json(tree)
            strategy.tell(tree, expansion, answer(expansion))
            assert to_json(tree) == told
    assert all(count == 1 for count in drawn.values())
    assert len(drawn) <= strategy.max_completions
    leaves = list(tree.ended())
    assert tree.root.visits == len(leaves) <= 30
    for node in tree.nodes:
        below = [leaf for leaf in leaves if node in tree.path(leaf.id, root=True)]
        assert node.visits == len(below)
        assert node.value == pytest.approx(sum(leaf.reward for leaf in below))
        assert node.is_leaf == (node.outcome is not None)
        assert node.depth <= depth
        full = len(node.children) == base and all(tree.nodes[c].terminal for c in node.children)
        assert node.terminal == (node.outcome is not None or full)
        assert node.branch in (range(base) if node.id else (None,))
    assert tree.search["stopped"] in ("exhausted", "pairs", "rollouts", "empty")


@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 10_000), cut=st.integers(0, 60), p=st.floats(0, 0.5))
def test_a_journal_continues_byte_for_byte_wherever_it_broke_off(seed: int, cut: int, p: float) -> None:
    strategy = dense(DenseConfig(base=5, max_depth=4, window=4, stop_rollouts=40))
    whole = grow(strategy, new_tree(seed), lucky(p))
    journal: list[str] = []
    half = new_tree(seed)
    run_search(strategy, half, lucky(p), journal=journal, tells=cut)
    again = new_tree(seed)
    retell(strategy, again, journal + journal[-2:])
    assert to_json(again) == to_json(half)
    assert to_json(grow(strategy, again, lucky(p))) == to_json(whole)
    assert to_json(grow(strategy, from_bytes(to_bytes(half)), lucky(p))) == to_json(whole)


@pytest.mark.slow
def test_finds_pairs_at_the_size_of_the_original() -> None:
    """base 10, depth 8, window 8, a fifth of all turns succeed: hundreds of pairs, and far fewer turns than rollouts x
    depth."""
    tree = grow(dense(DenseConfig()), new_tree(), lucky(0.2))
    assert len(sibling_pairs(tree, SiblingRule())) >= 50
    assert len(tree.nodes) < 4 * tree.root.visits


GROWN = {"base": 3, "max_depth": 5, "window": 3}


def test_a_killed_dense_tree_continues_from_its_last_expansion(server: EnvServer, tmp_path: Path) -> None:
    dense = Dense(DenseConfig(**GROWN, stop_rollouts=9), SiblingRule())
    test_grow.test_a_killed_tree_continues_from_its_last_expansion(server, tmp_path, dense, 3)


def test_a_refused_prompt_ends_its_dense_episode_and_nothing_else(server: EnvServer, tmp_path: Path) -> None:
    dense = Dense(DenseConfig(**GROWN), SiblingRule())
    test_grow.test_a_refused_prompt_ends_its_episode_and_nothing_else(server, tmp_path, dense)
