"""Each rule of sibling pairs on trees that can be checked by eye, the rows made of them, and the mixture of tasks."""

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from agentr.config.checks import find_problems
from agentr.errors import ConfigError
from agentr.methods import load
from agentr.methods.dense_policy.dense import Dense, DenseConfig
from agentr.methods.dense_policy.rows import SiblingsConfig, mix_pairs, preference_rows
from agentr.methods.dense_policy.siblings import (
    SiblingRule,
    TurnsLeft,
    contrasts,
    estimates,
    sibling_candidates,
    sibling_pairs,
)
from agentr.search import Child, Expansion, Node, Origin, Tree
from agentr.store.dataset import read_rows, write_rows
from agentr.store.rows import Dropped, Preference, Provenance
from agentr.types import Outcome, Task
from tests.runs import dataset, round_of
from tests.trees import add, child, new_tree, run_search, tree_of

ANY = SiblingsConfig(min_gap=0, max_visits=0, dedupe=False)


def start() -> Tree:
    return new_tree(name="door")


def turn(
    tree: Tree, parent: int, text: str, reward: float | None = None, outcome: Outcome | None = None, **more: Any
) -> Node:
    """A turn of one token, whose id is 100 and the node's number, and a bridge of one; with a reward, the episode
    ends."""
    if reward is not None and outcome is None:
        outcome = Outcome.SUCCESS if reward == 1 else Outcome.FAILURE
    made = {"token_ids": (100 + len(tree.nodes),), "bridge_ids": (9,), **more}
    return add(tree, parent, child(text, reward or 0.0, outcome, **made))


def golden() -> Tree:
    """Values in brackets: the mean of the children's, whatever their visits.

    root - look(1)[.75] - take(4)[1]
         |              \\ drop(5)[.5] - win(6)[1], lose(7)[0]
         | wait(2)[0] - sleep(8)[0], shout(9)[0]
         \\ open(3)[1]
    """
    below_look = ("look / take: 1.0", "look / drop / win: 1.0", "look / drop / lose: 0.0")
    return tree_of("look", "wait", "open: 1.0", *below_look, "wait / sleep: 0.0", "wait / shout: 0.0")


def pairs(tree: Tree, config: SiblingsConfig = ANY) -> list[tuple[int, int]]:
    return [(p.chosen, p.rejected) for p in sibling_pairs(tree, config)]


def faults(tree: Tree, rule: SiblingRule) -> Counter[str]:
    """Why siblings whose values differ are no pair."""
    return Counter(candidate.fault for candidate in sibling_candidates(tree, rule) if candidate.fault)


def rows(
    tree: Tree, config: SiblingsConfig = ANY, max_length: int = 1000, train_on_invalid: bool = False
) -> tuple[list[Preference], dict[str, int]]:
    found = list(preference_rows(tree, config, max_length, train_on_invalid=train_on_invalid, train_on_reasoning=True))
    dropped = [candidate for candidate in found if isinstance(candidate, Dropped)]
    assert {d.provenance.tree for d in dropped} <= {tree.task.key}
    return [row for row in found if isinstance(row, Preference)], dict(Counter(d.reason for d in dropped))


# values ---------------------------------------------------------------------------------------------------------------


def test_turns_left_are_a_mean_over_children_or_over_rollouts() -> None:
    """One child ends at once, its sibling has three rollouts that each go on for five turns: 1 + mean(0, 5), or mean(1,
    6, 6, 6)."""
    long = "go / a / b / c / d"
    tree = tree_of("open / stop: 0.0", *(f"open / {long} / {end}: 0.0" for end in ("x", "y", "z")))
    for over, expected in ((TurnsLeft.children, 3.5), (TurnsLeft.rollouts, 4.75)):
        found = estimates(tree, over)[1]
        assert found is not None and found.turns_left == expected
    assert SiblingRule().turns_left is TurnsLeft.children


def test_the_evidence_that_a_pair_needs_follows_the_turns_left() -> None:
    """Of five rollouts one ends after one turn and four after four: 2.5 turns over children, floor(2 ^ 2.5) = 5; 3.4
    over rollouts, 10."""
    tree = tree_of("stop: 1.0", "go / end: 0.0", *(f"go / a / b / c / {n}: 0.0" for n in range(4)))
    assert faults(tree, SiblingRule()) == {}
    assert faults(tree, SiblingRule(turns_left=TurnsLeft.rollouts)) == {"siblings with too few visits": 1}


def test_value_is_the_unweighted_mean_of_the_children_and_turns_left_too() -> None:
    tree = golden()
    found = estimates(tree)
    assert [e and e.value for e in found] == pytest.approx([(0.75 + 0 + 1) / 3, 0.75, 0, 1, 1, 0.5, 1, 0, 0, 0])
    assert [e and e.turns_left for e in found] == pytest.approx([1 + (1.5 + 1 + 0) / 3, 1.5, 1, 0, 0, 1, 0, 0, 0, 0])
    assert tree.nodes[1].mean == pytest.approx(2 / 3)  # the mean of all ended leaves is another number
    assert contrasts(tree, found) == pytest.approx([0, 0.75, 1, 1, 0.5, 0.5, 1, 1, 0, 0])


def test_what_is_open_or_broken_or_not_the_policys_has_no_say() -> None:
    tree = tree_of("begin / win: 1.0", "begin / open end", "begin / dead server: 0.0 infra")
    tree_of("as the expert: 0.0", into=tree, at=1, origin=Origin.EXPERT)
    tree_of("revised: 0.0", into=tree, at=1, origin=Origin.REVISION)
    tree_of("no room: 0.0 context_limit", into=tree, at=1)
    values = [e and e.value for e in estimates(tree)]
    assert values == [0.5, 0.5, 1.0, None, None, 0.0, 0.0, 0.0]
    # the context was full: the episode led to nothing, which the released code scores 0 as well
    assert pairs(tree) == [(2, 7)]


def test_a_return_between_0_and_1_is_a_value() -> None:
    tree = tree_of("a: 0.2", "b: 0.7", "c: 0.9")
    assert pairs(tree) == [(3, 1), (2, 1), (3, 2)]
    # 0.7 - 0.2 is half, whatever floating point says
    assert pairs(tree, SiblingsConfig(min_gap=0.5)) == [(3, 1), (2, 1)]
    assert pairs(tree, SiblingsConfig(min_gap=0.51)) == [(3, 1)]


# the rule -------------------------------------------------------------------------------------------------------------


def test_pairs_are_siblings_of_different_value_at_every_depth_largest_gap_first() -> None:
    assert pairs(golden()) == [(3, 2), (6, 7), (1, 2), (4, 5), (3, 1)]
    assert pairs(golden(), SiblingsConfig(min_gap=0.5, max_visits=0)) == [(3, 2), (6, 7), (1, 2), (4, 5)]


def test_equal_texts_are_no_pair() -> None:
    tree = start()
    for text, reward in (("go", 1.0), (" go\n", 0.0), ("stay", 0.0)):
        turn(tree, 0, text, reward)
    assert pairs(tree) == [(1, 3)]
    assert faults(tree, ANY) == {"siblings with the same text": 1}


def seen(*lengths: int) -> Tree:
    """A turn that failed at once, and one from which a rollout of each length succeeded."""
    tree = start()
    turn(tree, 0, "sure", 0.0)
    turn(tree, 0, "perhaps")
    for number, length in enumerate(lengths):
        parent = 2
        for left in reversed(range(length)):
            parent = turn(tree, parent, f"{number}-{left}", None if left else 1.0).id
    return tree


@pytest.mark.parametrize(
    ("length", "needed", "released"),
    [(1, 2, 2), (2, 4, 3), (3, 8, 5), (4, 8, 5), (9, 8, 5)],
    ids=lambda value: str(value),
)
def test_a_turn_far_from_the_end_needs_more_visits(length: int, needed: int, released: int) -> None:
    """min(floor(2 ^ turns left), 8) visits; the released code counts 1, 3, 5, 7, 9, and so needs fewer rollouts."""
    for config, enough in ((SiblingsConfig(), needed), (SiblingsConfig(released_visits=True), released)):
        assert pairs(seen(*[length] * enough), config) == [(2, 1)]
        too_few = seen(*[length] * (enough - 1))
        assert pairs(too_few, config) == []
        assert faults(too_few, config) == {"siblings with too few visits": 1}


def test_needed_visits_are_rounded_down_and_capped_and_both_sides_need_them() -> None:
    assert pairs(seen(1, 2), SiblingsConfig()) == [(2, 1)]  # 2 ^ 1.5 is 2.8, and two rollouts are enough
    assert pairs(seen(4, 4, 4), SiblingsConfig(max_visits=3)) == [(2, 1)]
    assert pairs(seen(4, 4, 4), SiblingsConfig(max_visits=4)) == []
    once = start()
    turn(once, 0, "win", 1.0)
    turn(once, turn(once, 0, "on").id, "lose", 0.0)
    assert pairs(once, SiblingsConfig(max_visits=1)) == [(1, 2)]
    assert pairs(once, SiblingsConfig(max_visits=2)) == []


def test_the_same_two_texts_after_the_same_conversation_are_one_pair() -> None:
    tree = start()
    for text, reward in (("go", 1.0), ("go ", 0.4), ("stay", 0.0), ("stay", 0.7), ("run", 0.0)):
        turn(tree, 0, text, reward)
    assert pairs(tree) == [(1, 3), (1, 5), (4, 5), (2, 3), (2, 5), (1, 4), (4, 2)]
    distinct = pairs(tree, SiblingsConfig(min_gap=0, max_visits=0))
    assert faults(tree, SiblingRule(min_gap=0, max_visits=0)) == {
        "siblings with the same text": 2,
        "sibling pairs with the same two texts": 4,
    }
    # go over stay, go over run, stay over run; (4, 2) would contradict the first
    assert distinct == [(1, 3), (1, 5), (4, 5)]
    # Two parents with the same text and answer are one conversation.
    twins = start()
    for parent in (turn(twins, 0, "look").id, turn(twins, 0, "look").id, turn(twins, 0, "listen").id):
        turn(twins, parent, "go", 1.0)
        turn(twins, parent, "stay", 0.0)
    assert pairs(twins) == [(4, 5), (6, 7), (8, 9)]
    assert pairs(twins, SiblingsConfig(min_gap=0, max_visits=0)) == [(4, 5), (8, 9)]


# rows -----------------------------------------------------------------------------------------------------------------


def test_a_row_is_the_conversation_and_one_turn_on_either_side(tmp_path: Path) -> None:
    made, dropped = rows(golden(), SiblingsConfig())
    assert dropped == {"siblings that differ by less than method.pairs.min_gap": 1}
    assert [(r.provenance.nodes, r.provenance.rejected) for r in made] == [
        ((3,), (2,)),
        ((6,), (7,)),
        ((1,), (2,)),
        ((4,), (5,)),
    ]
    deepest = made[1]
    assert deepest.prompt_ids == (1, 2, 3, 101, 9, 105, 9)
    assert (deepest.chosen_ids, deepest.rejected_ids) == ((106,), (107,))
    assert (deepest.chosen_mask, deepest.rejected_mask) == ((1,), (1,))
    assert deepest.provenance.tree == "door"
    assert deepest.provenance.kind == "sibling"
    assert made[2].provenance.detail == {
        "gap": 0.75, "chosen_value": 0.75, "rejected_value": 0.0, "chosen_visits": 3, "rejected_visits": 2, "depth": 1,
    }  # fmt: skip
    write_rows(tmp_path, made)
    assert read_rows(tmp_path) == made


def test_caps_take_the_largest_gaps_and_count_the_rest() -> None:
    tree = golden()
    made, dropped = rows(tree, SiblingsConfig(min_gap=0, max_visits=0, pairs_per_parent=1))
    assert [r.provenance.nodes + r.provenance.rejected for r in made] == [(3, 2), (6, 7), (4, 5)]
    assert dropped == {"over method.pairs.pairs_per_parent": 2}
    made, dropped = rows(tree, SiblingsConfig(min_gap=0, max_visits=0, pairs_per_task=3))
    assert [r.provenance.nodes + r.provenance.rejected for r in made] == [(3, 2), (6, 7), (1, 2)]
    assert dropped == {"over method.pairs.pairs_per_task": 2}


def test_what_cannot_be_trained_on_takes_no_place_under_a_cap() -> None:
    tree = start()
    turn(tree, 0, "long", 1.0, token_ids=tuple(range(50)), logprobs=())
    turn(tree, 0, "???", 0.9, valid=False)
    turn(tree, 0, "silent", 0.8, token_ids=())
    turn(tree, 0, "good", 0.7)
    turn(tree, 0, "!!!", 0.0, valid=False)
    made, dropped = rows(tree, SiblingsConfig(pairs_per_parent=1), max_length=50)
    # an invalid turn may well be rejected
    assert [r.provenance.nodes + r.provenance.rejected for r in made] == [(4, 5)]
    assert dropped == {
        "siblings that differ by less than method.pairs.min_gap": 6,
        "longer than build.max_length": 1,
        "pairs whose chosen turn was invalid": 1,
        "pairs with a turn without tokens": 1,
    }
    made, _ = rows(tree, SiblingsConfig(), max_length=53, train_on_invalid=True)
    assert [r.provenance.nodes[0] for r in made] == [1, 2, 4]


def test_rows_of_a_searched_tree_follow_its_own_rule() -> None:
    config = SiblingsConfig()
    strategy, tree = Dense(DenseConfig(base=4, max_depth=3, stop_pairs=10), config.rule()), start()
    number = 0

    def third_wins(expansion: Expansion) -> list[Child]:
        nonlocal number
        answers = []
        for _ in range(expansion.n):
            number += 1
            won = number % 3 == 0
            answers.append(child(f"t{number}", float(won), Outcome.SUCCESS if won else None, action="a"))
        return answers

    run_search(strategy, tree, third_wins)
    assert tree.search["stopped"] == "pairs"
    made, _ = rows(tree, config)
    assert len(made) == len(sibling_pairs(tree, config.rule())) >= 10


# mixture --------------------------------------------------------------------------------------------------------------


def pool(**sizes: int) -> dict[Task, list[Preference]]:
    """Tasks named by family and number, with so many pairs each."""
    made: dict[Task, list[Preference]] = {}
    for name, size in sizes.items():
        task = Task("toy", name, "train", {"family": name.rstrip("0123456789")})
        made[task] = [Preference((1,), (2,), (1,), (3,), (1,), Provenance(name, (n,), "sibling")) for n in range(size)]
    return made


def test_the_manifest_counts_the_tasks_that_are_trained_on(tmp_path: Path) -> None:
    trees = [golden() for _ in range(3)]
    for number, tree in enumerate(trees):
        tree.task = Task("toy", f"door {number}", "train")
    method = "method={type: dense_policy, pairs: {min_gap: 0, max_visits: 0, tasks: 2, pairs: 4, pairs_per_task: 3}}"
    folder, manifest = dataset(round_of(tmp_path, [method], collect=trees))
    assert (manifest["tasks"], manifest["rows"], manifest["type"]) == (2, 4, "preferences")
    assert manifest["dropped"] == {"over method.pairs.pairs_per_task": 6, "left out of the mixture": 5}
    assert len({row.provenance.tree for row in read_rows(folder)}) == 2


def drawn(by_task: dict[Task, list[Preference]], seed: int = 0, **config) -> Counter[str]:
    chosen = mix_pairs(by_task, SiblingsConfig(**config), seed)
    assert len({(r.provenance.tree, r.provenance.nodes) for r in chosen}) == len(chosen)
    return Counter(r.provenance.tree for r in chosen)


def test_all_pairs_without_a_limit() -> None:
    assert drawn(pool(a1=3, a2=0, a3=5)) == {"a1": 3, "a3": 5}
    assert drawn(pool(a1=3, a3=5), pairs=100) == {"a1": 3, "a3": 5}


def test_density_keeps_the_tasks_with_most_pairs_and_the_same_share_of_each() -> None:
    by_task = pool(a1=10, a2=40, a3=20, a4=30)
    assert drawn(by_task, tasks=2) == {"a2": 40, "a4": 30}
    assert drawn(by_task, tasks=2, pairs=35) == {"a2": 20, "a4": 15}
    for seed in range(5):  # 3.5, 14, 7 and 10.5: one of the two halves is rounded up
        assert drawn(by_task, seed, pairs=35) in (
            {"a1": 4, "a2": 14, "a3": 7, "a4": 10},
            {"a1": 3, "a2": 14, "a3": 7, "a4": 11},
        )
    assert drawn(by_task, tasks=4, pairs=50) == {"a1": 5, "a2": 20, "a3": 10, "a4": 15}
    assert drawn(pool(b=4, a=4, c=4), tasks=2) == {"a": 4, "b": 4}


def test_the_draw_is_seeded() -> None:
    by_task = pool(a1=30, a2=30)
    config = SiblingsConfig(pairs=20)
    assert mix_pairs(by_task, config, 1) == mix_pairs(by_task, config, 1)
    assert mix_pairs(by_task, config, 1) != mix_pairs(by_task, config, 2)


def test_a_mixture_draws_from_each_group() -> None:
    by_task = pool(math1=30, math2=10, put1=8, cool1=4, other1=9)
    mixture = {"math": 20, "put": 100, "cool": 0}
    assert drawn(by_task, mix_label="family", mix=mixture) == {"math1": 15, "math2": 5, "put1": 8, "cool1": 4}
    assert drawn(by_task, mix_label="family", mix=mixture, tasks=1, pairs=1) == {"math1": 20, "put1": 8, "cool1": 4}


def test_a_mixture_of_nothing_that_is_there_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"'maths'.*family.*\n?.*math, put"):
        drawn(pool(math1=3, put1=2), mix_label="family", mix={"maths": 5})
    assert drawn(pool(math1=3, put1=0), mix_label="family", mix={"math": 2, "put": 2}) == {"math1": 2}


def test_a_mixture_must_say_what_its_groups_are() -> None:
    (problem,) = find_problems(SiblingsConfig(mix={"math": 5}))
    assert "mix_label" in str(problem)
    with pytest.raises(ConfigError, match=r"method\.pairs\.mix: mix needs mix_label"):
        load(None, ["method.type=dense_policy", "method.pairs.mix={math: 5}"])
    with pytest.raises(ConfigError, match=r"method\.pairs\.mix\.math: -1 is out of range"):
        load(None, ["method.type=dense_policy", "method.pairs={mix_label: family, mix: {math: -1}}"])
