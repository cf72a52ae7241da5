"""Each rule of sibling pairs on trees that can be checked by eye, the rows made of them, and the mixture of tasks."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import cast

import pytest
from agentr.build.preferences import build_siblings
from agentr.config.methods import BuildConfig, DenseConfig, SiblingsConfig

from agentr.build.siblings import mix_pairs, preference_rows
from agentr.errors import ConfigError
from agentr.policy.chat import ChatCodec
from agentr.search import Child, Dense, Node, Origin, Tree
from agentr.search.siblings import contrasts, estimates, sibling_pairs
from agentr.store.rows import Preference, Provenance, read_preferences, write_rows
from agentr.types import FinishReason, Message, Outcome, Task

ANY = SiblingsConfig(min_gap=0, max_visits=0, dedupe=False)
BUILD = BuildConfig(max_length=1000)


def start() -> Tree:
    return Tree.start(Task("toy", "door", "train"), (Message("user", "Open the door."),), (1, 2, 3), 0)


def turn(tree: Tree, parent: int, text: str, reward: float | None = None, outcome: Outcome | None = None, **more) -> Node:
    """A turn of one token, whose id is 100 and the node's number, and a bridge of one; with a reward, the episode ends."""
    if reward is not None and outcome is None:
        outcome = Outcome.SUCCESS if reward == 1 else Outcome.FAILURE
    ids = more.pop("token_ids", (100 + len(tree.nodes),))
    origin = more.pop("origin", Origin.POLICY)
    made = Child(text, ids, (9,), (), FinishReason.STOP, text, f"saw {text}", reward or 0.0, more.pop("valid", True), outcome)
    node = tree.add(parent, made, origin)
    if outcome is not None and outcome is not Outcome.INFRA:
        tree.back_up(node.id)
    return node


def golden() -> Tree:
    """Values in brackets: the mean of the children's, whatever their visits.

    root - look(1)[.75] - take(4)[1]
         |              \\ drop(5)[.5] - win(6)[1], lose(7)[0]
         | wait(2)[0] - sleep(8)[0], shout(9)[0]
         \\ open(3)[1]
    """
    tree = start()
    for text, reward in (("look", None), ("wait", None), ("open", 1.0)):
        turn(tree, 0, text, reward)
    turn(tree, 1, "take", 1.0)
    turn(tree, 1, "drop")
    turn(tree, 5, "win", 1.0)
    turn(tree, 5, "lose", 0.0)
    turn(tree, 2, "sleep", 0.0)
    turn(tree, 2, "shout", 0.0)
    return tree


def pairs(tree: Tree, config: SiblingsConfig = ANY) -> list[tuple[int, int]]:
    return [(p.chosen, p.rejected) for p in sibling_pairs(tree, config)]


def rows(tree: Tree, config: SiblingsConfig = ANY, build: BuildConfig = BUILD) -> tuple[list[Preference], dict[str, int]]:
    dropped: Counter[str] = Counter()
    made = list(preference_rows(tree, config, build, dropped))
    return made, {why: n for why, n in dropped.items() if n}


# values -------------------------------------------------------------------------------------------------------------------


def test_value_is_the_unweighted_mean_of_the_children_and_turns_left_too() -> None:
    tree = golden()
    found = estimates(tree)
    assert [e and e.value for e in found] == pytest.approx([(0.75 + 0 + 1) / 3, 0.75, 0, 1, 1, 0.5, 1, 0, 0, 0])
    assert [e and e.turns_left for e in found] == pytest.approx([1 + (1.5 + 1 + 0) / 3, 1.5, 1, 0, 0, 1, 0, 0, 0, 0])
    assert tree.nodes[1].mean == pytest.approx(2 / 3)  # the mean of all ended leaves is another number
    assert contrasts(tree, found) == pytest.approx([0, 0.75, 1, 1, 0.5, 0.5, 1, 1, 0, 0])


def test_what_is_open_or_broken_or_not_the_policys_has_no_say() -> None:
    tree = start()
    turn(tree, 0, "begin")
    turn(tree, 1, "win", 1.0)
    turn(tree, 1, "open end")
    turn(tree, 1, "dead server", 0.0, Outcome.INFRA)
    turn(tree, 1, "as the expert", 0.0, origin=Origin.EXPERT)
    turn(tree, 1, "revised", 0.0, origin=Origin.REVISION)
    turn(tree, 1, "no room", 0.0, Outcome.CONTEXT_LIMIT)
    values = [e and e.value for e in estimates(tree)]
    assert values == [0.5, 0.5, 1.0, None, None, 0.0, 0.0, 0.0]
    # the context was full: the episode led to nothing, which the released code scores 0 as well
    assert pairs(tree) == [(2, 7)]


def test_a_return_between_0_and_1_is_a_value() -> None:
    tree = start()
    for reward in (0.2, 0.7, 0.9):
        turn(tree, 0, str(reward), reward)
    assert pairs(tree) == [(3, 1), (2, 1), (3, 2)]
    assert pairs(tree, SiblingsConfig(min_gap=0.5)) == [(3, 1), (2, 1)]  # 0.7 - 0.2 is half, whatever floating point says
    assert pairs(tree, SiblingsConfig(min_gap=0.51)) == [(3, 1)]


# the rule -----------------------------------------------------------------------------------------------------------------


def test_pairs_are_siblings_of_different_value_at_every_depth_largest_gap_first() -> None:
    assert pairs(golden()) == [(3, 2), (6, 7), (1, 2), (4, 5), (3, 1)]
    assert pairs(golden(), SiblingsConfig(min_gap=0.5, max_visits=0)) == [(3, 2), (6, 7), (1, 2), (4, 5)]


def test_equal_texts_are_no_pair() -> None:
    tree = start()
    for text, reward in (("go", 1.0), (" go\n", 0.0), ("stay", 0.0)):
        turn(tree, 0, text, reward)
    dropped: Counter[str] = Counter()
    assert [(p.chosen, p.rejected) for p in sibling_pairs(tree, ANY, dropped)] == [(1, 3)]
    assert dropped["siblings with the same text"] == 1


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
    ("length", "needed", "released"), [(1, 2, 2), (2, 4, 3), (3, 8, 5), (4, 8, 5), (9, 8, 5)], ids=lambda value: str(value)
)
def test_a_turn_far_from_the_end_needs_more_visits(length: int, needed: int, released: int) -> None:
    """min(floor(2 ^ turns left), 8) visits; the released code counts 1, 3, 5, 7, 9, and so needs fewer rollouts."""
    for config, enough in ((SiblingsConfig(), needed), (SiblingsConfig(released_visits=True), released)):
        assert pairs(seen(*[length] * enough), config) == [(2, 1)]
        dropped: Counter[str] = Counter()
        assert sibling_pairs(seen(*[length] * (enough - 1)), config, dropped) == []
        assert dropped["siblings with too few visits"] == 1


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
    assert distinct == [(1, 3), (1, 5), (4, 5)]  # go over stay, go over run, stay over run; (4, 2) would contradict the first
    # Two parents with the same text and answer are one conversation.
    twins = start()
    for parent in (turn(twins, 0, "look").id, turn(twins, 0, "look").id, turn(twins, 0, "listen").id):
        turn(twins, parent, "go", 1.0)
        turn(twins, parent, "stay", 0.0)
    assert pairs(twins) == [(4, 5), (6, 7), (8, 9)]
    assert pairs(twins, SiblingsConfig(min_gap=0, max_visits=0)) == [(4, 5), (8, 9)]


# rows ---------------------------------------------------------------------------------------------------------------------


def test_a_row_is_the_conversation_and_one_turn_on_either_side(tmp_path: Path) -> None:
    made, dropped = rows(golden(), SiblingsConfig())
    assert dropped == {"siblings that differ by less than build.siblings.min_gap": 1}
    assert [(r.provenance.nodes, r.provenance.rejected) for r in made] == [((3,), (2,)), ((6,), (7,)), ((1,), (2,)), ((4,), (5,))]
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
    assert read_preferences(tmp_path) == made


def test_caps_take_the_largest_gaps_and_count_the_rest() -> None:
    tree = golden()
    made, dropped = rows(tree, SiblingsConfig(min_gap=0, max_visits=0, pairs_per_parent=1))
    assert [r.provenance.nodes + r.provenance.rejected for r in made] == [(3, 2), (6, 7), (4, 5)]
    assert dropped == {"over build.siblings.pairs_per_parent": 2}
    made, dropped = rows(tree, SiblingsConfig(min_gap=0, max_visits=0, pairs_per_task=3))
    assert [r.provenance.nodes + r.provenance.rejected for r in made] == [(3, 2), (6, 7), (1, 2)]
    assert dropped == {"over build.siblings.pairs_per_task": 2}


def test_what_cannot_be_trained_on_takes_no_place_under_a_cap() -> None:
    tree = start()
    turn(tree, 0, "long", 1.0, token_ids=tuple(range(50)))
    turn(tree, 0, "???", 0.9, valid=False)
    turn(tree, 0, "silent", 0.8, token_ids=())
    turn(tree, 0, "good", 0.7)
    turn(tree, 0, "!!!", 0.0, valid=False)
    short = BuildConfig(max_length=50)
    made, dropped = rows(tree, SiblingsConfig(pairs_per_parent=1), short)
    assert [r.provenance.nodes + r.provenance.rejected for r in made] == [(4, 5)]  # an invalid turn may well be rejected
    assert dropped == {
        "siblings that differ by less than build.siblings.min_gap": 6,
        "longer than build.max_length": 1,
        "pairs whose chosen turn was invalid": 1,
        "pairs with a turn without tokens": 1,
    }
    made, _ = rows(tree, SiblingsConfig(), BuildConfig(max_length=53, train_on_invalid=True))
    assert [r.provenance.nodes[0] for r in made] == [1, 2, 4]


def test_rows_of_a_searched_tree_follow_its_own_rule() -> None:
    strategy, tree = Dense(DenseConfig(base=4, max_depth=3, stop_pairs=10), SiblingsConfig()), start()
    number = 0
    while wishes := strategy.ask(tree):
        for wish in wishes:
            answers = []
            for _ in range(wish.n):
                number += 1
                won = number % 3 == 0
                answers.append(
                    Child(
                        f"t{number}", (number,), (9,), (), FinishReason.STOP, "a", "o", float(won), True, Outcome.SUCCESS if won else None
                    )
                )
            strategy.tell(tree, wish, answers)
    assert tree.search["stopped"] == "pairs"
    made, _ = rows(tree, SiblingsConfig())
    assert len(made) == len(sibling_pairs(tree, SiblingsConfig())) >= 10


# mixture ------------------------------------------------------------------------------------------------------------------


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
    build = BuildConfig(max_length=1000, siblings=SiblingsConfig(min_gap=0, max_visits=0, tasks=2, pairs=4))
    manifest = build_siblings(tmp_path, trees, build=build, codec=cast(ChatCodec, None), seed=0)
    assert (manifest["tasks"], manifest["rows"]) == (2, 4)
    assert len({row.provenance.tree for row in read_preferences(tmp_path)}) == 2


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
        assert drawn(by_task, seed, pairs=35) in ({"a1": 4, "a2": 14, "a3": 7, "a4": 10}, {"a1": 3, "a2": 14, "a3": 7, "a4": 11})
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
    with pytest.raises(ConfigError, match="mix_label"):
        drawn(pool(math1=3), mix={"math": 5})
    assert drawn(pool(math1=3, put1=0), mix_label="family", mix={"math": 2, "put": 2}) == {"math1": 2}
