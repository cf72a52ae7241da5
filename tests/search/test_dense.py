"""The adaptive tree: its rules one by one, a golden tree, and properties that hold for any answers."""

from __future__ import annotations

import json
import math
import random
from collections import Counter
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path

import pytest
from agentr.config.methods import DenseConfig, SiblingsConfig
from hypothesis import given, settings
from hypothesis import strategies as st

from agentr.errors import ConfigError
from agentr.search import Child, Dense, Expansion, Tree
from agentr.search.siblings import sibling_pairs
from agentr.types import FinishReason, Outcome
from tests.search.test_uct import child, new_tree

GOLDEN = Path(__file__).parent / "golden"
Answer = Callable[[Expansion], list[Child]]
SMALL = DenseConfig(base=3, max_depth=3, window=2, stop_rollouts=12)


def dense(config: DenseConfig = SMALL, **siblings) -> Dense:
    return Dense(config, SiblingsConfig(**siblings))


def lucky(p: float, words: int = 1_000_000) -> Answer:
    """Turns that succeed with probability ``p`` each, whatever came before, drawn from the expansion's seed alone."""

    def answer(wish: Expansion) -> list[Child]:
        rng = random.Random(wish.seed)
        wins = [rng.random() < p for _ in range(wish.n)]
        return [child(f"a{rng.randrange(words)}", float(win), Outcome.SUCCESS if win else None) for win in wins]

    return answer


def grow(strategy: Dense, tree: Tree, answer: Answer, journal: list[str] | None = None, crash_after: int = -1) -> Tree:
    """Runs a search to its end, or until so many expansions were told. Each is written to the journal."""
    while wishes := strategy.ask(tree):
        for wish in wishes:
            if crash_after == 0:
                return tree
            crash_after -= 1
            children = answer(wish)
            strategy.tell(tree, wish, children)
            if journal is not None:
                journal.append(json.dumps([asdict(wish), [asdict(c) for c in children]]))
    return tree


def retell(strategy: Dense, tree: Tree, journal: list[str]) -> None:
    for line in journal:
        wish, children = json.loads(line)
        for c in children:
            c["finish"], c["outcome"] = FinishReason(c["finish"]), Outcome(c["outcome"]) if c["outcome"] else None
            c |= {name: tuple(c[name]) for name in ("token_ids", "bridge_ids", "logprobs")}
        strategy.tell(tree, Expansion(**wish), [Child(**c) for c in children])


def labels(tree: Tree, node: int) -> tuple[int, ...]:
    return tuple(n.note["label"] for n in tree.path(node))


def shared(batch: list[list[int]]) -> int:
    """How deep the last node is that all rollouts of a batch go through."""
    return next(i for i, at_depth in enumerate(zip(*batch, strict=True)) if len(set(at_depth)) > 1)


# rules --------------------------------------------------------------------------------------------------------------------


def test_first_batch_is_each_label_and_then_the_greedy_one() -> None:
    strategy, tree = dense(), new_tree()
    waves: list[list[tuple[int, int]]] = []
    while len(waves) < 3:
        wishes = strategy.ask(tree)
        waves.append([(w.node, w.n) for w in wishes])
        for wish in wishes:
            strategy.tell(tree, wish, lucky(0)(wish))
    # one request for each temperature at the root, then the three rollouts go on together
    assert waves == [[(0, 1)] * 3, [(1, 1), (2, 1), (3, 1)], [(4, 1), (5, 1), (6, 1)]]
    assert [labels(tree, n.id) for n in tree.ended()] == [(0, 0, 0), (1, 0, 0), (2, 0, 0)]
    assert {n.outcome for n in tree.ended()} == {Outcome.STEP_LIMIT}


def test_temperatures_go_by_label_and_equal_ones_are_one_request() -> None:
    strategy, tree = Dense(DenseConfig(), SiblingsConfig()), new_tree()
    wishes = strategy.ask(tree)
    assert [(w.temperature, w.n, w.attempt) for w in wishes] == [(0.0, 1, 0), (1.0, 3, 1), (0.5, 3, 2), (0.7, 3, 3)]
    assert len({w.seed for w in wishes}) == 4
    for wish in wishes:
        strategy.tell(tree, wish, [child(f"{wish.attempt}-{i}") for i in range(wish.n)])
    by_label = {tree.nodes[c].note["label"]: tree.nodes[c].text for c in tree.root.children}
    assert by_label == {0: "0-0", 1: "1-0", 4: "1-1", 7: "1-2", 2: "2-0", 5: "2-1", 8: "2-2", 3: "3-0", 6: "3-1", 9: "3-2"}


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        (DenseConfig(), [0.0, 1.0, 0.5, 0.7, 1.0, 0.5, 0.7, 1.0, 0.5, 0.7]),
        (DenseConfig(base=4, greedy_label=False), [0.7, 1.0, 0.5, 0.7]),
        (DenseConfig(base=3, temperatures=[0.9]), [0.0, 0.9, 0.9]),
    ],
)
def test_temperature_of_each_label(config: DenseConfig, expected: list[float]) -> None:
    assert [dense(config).temperature(label) for label in range(config.base)] == expected


def test_score_is_the_formula() -> None:
    strategy = Dense(DenseConfig(), SiblingsConfig())
    assert strategy.score(0, 0, 0) == pytest.approx(1.0)
    assert strategy.score(0.0625, 4, 3) == pytest.approx(0.8 * 0.5 + 0.2 * 0.5 + 2 * math.sqrt(4) / 5)
    other = Dense(DenseConfig(contrast_weight=2, contrast_power=1, depth_weight=3, explore_weight=0.5, max_depth=4), SiblingsConfig())
    assert other.score(0.25, 2, 0) == pytest.approx(2 * 0.25 + 3 * 0.5 + 0.5 * 1)


@pytest.mark.parametrize(
    ("weights", "depths"), [({"contrast_weight": 1.0}, {1}), ({"depth_weight": 1.0}, {0}), ({"explore_weight": 1.0}, {1, 2})]
)
def test_a_later_batch_goes_where_the_score_says(weights: dict[str, float], depths: set[int]) -> None:
    """Of three first rollouts, that of label 2 succeeds at once. Its siblings differ from it by 1, the root has the most turns below it
    (1 + 4 / 3), and every open node but the root was visited once, those of depth 1 and those of depth 2."""
    nothing = DenseConfig(base=3, max_depth=3, window=24, contrast_weight=0, depth_weight=0, explore_weight=0)
    strategy = dense(replace(nothing, **weights))
    found = set()
    for seed in range(10):
        tree = new_tree(seed)
        for _ in range(3):
            for wish in strategy.ask(tree):
                won = wish.node == 0 and wish.temperature == 0.5
                strategy.tell(tree, wish, [child("x", float(won), Outcome.SUCCESS if won else None)])
        assert tree.search["batches"] == 2
        assert len(tree.search["batch"]) > 1
        found.add(shared(tree.search["batch"]))
    assert found == depths


def test_a_covered_proposal_is_dropped_and_nodes_with_nothing_open_are_left_alone() -> None:
    """Labels 0 and 1 of two end at once, one of them in failure: all that is new lies below label 2, and the batch finds it."""
    strategy, tree = dense(replace(SMALL, stop_rollouts=1000)), new_tree()
    ended = {0.0: Outcome.FAILURE, 1.0: Outcome.SUCCESS}
    while wishes := strategy.ask(tree):
        for wish in wishes:
            outcome = ended.get(wish.temperature or 0.0) if wish.node == 0 else None
            strategy.tell(tree, wish, [child("x", float(outcome is Outcome.SUCCESS), outcome) for _ in range(wish.n)])
    assert tree.search["stopped"] == "exhausted"
    assert tree.root.visits == 2 + 9
    assert [n.visits for n in tree.nodes[1:4]] == [1, 1, 9]


def test_rollouts_that_end_at_the_same_turn_are_one() -> None:
    strategy, tree = dense(DenseConfig(base=2, max_depth=3, window=8, stop_rollouts=100)), new_tree(3)
    grow(strategy, tree, lambda wish: [child("x", 1.0, Outcome.SUCCESS) if wish.node else child("go") for _ in range(wish.n)])
    # below each of the two first turns every label succeeds, so several indices of a batch lead to the same end
    assert tree.search["stopped"] == "exhausted"
    assert tree.root.visits == 4 == len(list(tree.ended()))


def test_a_path_that_the_machinery_broke_is_no_rollout() -> None:
    strategy, tree = dense(DenseConfig(base=2, max_depth=2, window=4, stop_rollouts=50)), new_tree()
    grow(strategy, tree, lambda wish: [child("x", 1.0, Outcome.INFRA if wish.node == 1 else None) for _ in range(wish.n)])
    assert tree.search["stopped"] == "exhausted"
    assert (tree.nodes[1].visits, tree.nodes[2].visits, tree.root.visits, tree.root.value) == (0, 2, 2, 2.0)
    assert sibling_pairs(tree, SiblingsConfig(min_gap=0)) == []


# stopping -----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("most, ends_at", [(0, 3), (1, 1), (2, 2), (4, 3)])
def test_a_path_of_invalid_turns_ends_early(most: int, ends_at: int) -> None:
    def noise(wish: Expansion) -> list[Child]:
        return [child(f"{wish.seed} {i}", valid=False) for i in range(wish.n)]

    tree = grow(dense(replace(SMALL, max_invalid=most)), new_tree(), noise)
    ended = [n for n in tree.nodes if n.outcome is not None]
    assert {n.outcome for n in ended} == {Outcome.STEP_LIMIT}
    assert {n.depth for n in ended} == {ends_at}


def test_stops_when_there_are_enough_pairs() -> None:
    config = DenseConfig(stop_pairs=20)
    tree = grow(dense(config), new_tree(1), lucky(0.4))
    assert tree.search["stopped"] == "pairs"
    assert len(sibling_pairs(tree, SiblingsConfig())) >= 20
    assert tree.root.visits < 100
    capped = grow(dense(config, pairs_per_parent=1), new_tree(1), lucky(0.4))
    assert len(capped.nodes) > len(tree.nodes)
    assert grow(dense(config, pairs_per_task=1), new_tree(1), lucky(0.4)) == tree


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
    with pytest.raises(ConfigError, match=f"collect.dense.{key}"):
        dense(replace(SMALL, **{key: [] if key == "temperatures" else 0}))


# whole searches -----------------------------------------------------------------------------------------------------------


def test_golden_tree() -> None:
    tree = grow(dense(), new_tree(seed=4), lucky(0.25, words=4))
    shape = [[n.id, n.parent, n.note.get("label"), n.action, n.outcome, n.visits, n.value, n.terminal] for n in tree.nodes]
    assert [shape, tree.search] == json.loads((GOLDEN / "dense_tree.json").read_text())


@settings(max_examples=60, deadline=None)
@given(
    seed=st.integers(0, 10_000), base=st.integers(1, 5), depth=st.integers(1, 5), window=st.integers(1, 6), p=st.floats(0, 0.7),
    greedy=st.booleans(),
)  # fmt: skip
def test_properties_of_any_search(seed: int, base: int, depth: int, window: int, p: float, greedy: bool) -> None:
    config = DenseConfig(base=base, max_depth=depth, window=window, stop_rollouts=30, greedy_label=greedy)
    strategy, tree, asked = dense(config), new_tree(seed), Counter()
    while wishes := strategy.ask(tree):
        before = tree.to_json()
        assert strategy.ask(tree) == wishes
        assert tree.to_json() == before
        assert len({(w.node, w.attempt) for w in wishes}) == len(wishes)
        assert len({(w.node, w.temperature) for w in wishes}) == len(wishes)
        for wish in wishes:
            first = len(tree.nodes)
            strategy.tell(tree, wish, lucky(p)(wish))
            assert len(tree.nodes) == first + wish.n
            assert {strategy.temperature(n.note["label"]) for n in tree.nodes[first:]} == {wish.temperature}
            asked.update((n.parent, n.note["label"]) for n in tree.nodes[first:])
            told = tree.to_json()
            strategy.tell(tree, wish, lucky(p)(wish))
            assert tree.to_json() == told
    assert all(count == 1 for count in asked.values())
    assert len(asked) <= strategy.most
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
        assert 0 <= node.note.get("label", 0) < base
    assert tree.search["stopped"] in ("exhausted", "pairs", "rollouts", "empty")


@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 10_000), cut=st.integers(0, 60), p=st.floats(0, 0.5))
def test_a_journal_continues_byte_for_byte_wherever_it_broke_off(seed: int, cut: int, p: float) -> None:
    strategy = dense(DenseConfig(base=5, max_depth=4, window=4, stop_rollouts=40))
    whole = grow(strategy, new_tree(seed), lucky(p))
    journal: list[str] = []
    half = grow(strategy, new_tree(seed), lucky(p), journal, crash_after=cut)
    again = new_tree(seed)
    retell(strategy, again, journal + journal[-2:])
    assert again.to_json() == half.to_json()
    assert grow(strategy, again, lucky(p)).to_json() == whole.to_json()
    assert grow(strategy, Tree.from_bytes(half.to_bytes()), lucky(p)).to_json() == whole.to_json()


def test_finds_pairs_at_the_size_of_the_original() -> None:
    """base 10, depth 8, window 8, a fifth of all turns succeed: hundreds of pairs, and far fewer turns than rollouts x depth."""
    tree = grow(dense(DenseConfig()), new_tree(), lucky(0.2))
    assert len(sibling_pairs(tree, SiblingsConfig())) >= 50
    assert len(tree.nodes) < 4 * tree.root.visits
