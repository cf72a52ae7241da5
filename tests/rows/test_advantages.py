"""Advantages by paper and equation, on numbers that one can check by hand."""

from dataclasses import replace
from statistics import fmean, stdev

import pytest

from agentr.collect.grow import Grow
from agentr.config.checks import find_problems
from agentr.errors import DataError
from agentr.methods import load, method_of
from agentr.rewards.group import Reward, group_of
from agentr.rows.advantages import AdvantageConfig, Baseline, Scale, advantages, compared, turn_differences
from agentr.rows.rollouts import rollout_rows
from agentr.search import UCT, Tree
from agentr.store.rows import Dropped, Rollout
from tests.trees import add, child, new_tree, run_search, toy_answers, tree_of


def of(tree: Tree, **config) -> list[list[float]]:
    group = group_of(tree)
    return advantages(group.episodes, [e.earned for e in group.episodes], AdvantageConfig(**config), 0)


def test_grpo_section_4_1_2_rewards_are_standardised_in_the_group() -> None:
    """r = [1, 0, 0, 1]: mean 0.5, standard deviation 0.5774 (of a sample)."""
    found = of(tree_of("a: 1.0", "b: 0.0", "c: 0.0", "d / e: 1.0"))
    assert [len(turns) for turns in found] == [1, 1, 1, 2]
    assert [turns[0] for turns in found] == pytest.approx([0.8660, -0.8660, -0.8660, 0.8660], abs=1e-4)
    assert found[3][0] == found[3][1]  # all turns of a rollout alike


def test_dr_grpo_section_3_2_differences_are_not_divided() -> None:
    assert of(tree_of("a: 1.0", "b: 0.0", "c: 0.0", "d: 1.0"), scale=Scale.none) == [[0.5], [-0.5], [-0.5], [0.5]]


def test_rloo_eq_8_the_baseline_is_the_mean_of_the_others() -> None:
    """r = [1, 0.5, 0]: 1 - 0.25, 0.5 - 0.5, 0 - 0.75."""
    assert compared([1.0, 0.5, 0.0], Baseline.others) == pytest.approx([0.75, 0.0, -0.75])
    rewards = [0.3, 0.9, 0.1, 0.4]
    by_hand = [reward - fmean(rewards[:i] + rewards[i + 1 :]) for i, reward in enumerate(rewards)]
    assert compared(rewards, Baseline.others) == pytest.approx(by_hand)


def test_gigpo_eq_6_and_7_a_turn_is_compared_with_the_turns_in_its_state() -> None:
    """After "go": "left" earned 1, "right" 0 and 0. At the start "go" earned 1/3 on the mean, "stay" 1."""
    group = group_of(tree_of("go / left: 1.0", "go / right / x: 0.0", "go / right / y: 0.0", "stay: 1.0"))
    found = turn_differences(group.episodes, [1.0, 0.0, 0.0, 1.0])
    start = 0.5
    assert found[0] == pytest.approx([1 / 3 - start, 1 - 1 / 3])
    assert found[1] == pytest.approx([1 / 3 - start, 0 - 1 / 3, 0.0])  # x and y are alike: no difference between them
    assert found[3] == pytest.approx([1 - start])
    others = turn_differences(group.episodes, [1.0, 0.0, 0.0, 1.0], Baseline.others)
    assert others[3] == pytest.approx([1 - 1 / 3]) and others[0][0] == pytest.approx(1 / 3 - 1)


def test_episodes_that_did_the_same_are_in_the_same_state_although_they_share_no_node() -> None:
    apart = new_tree()
    for action, reward in (("left", 1.0), ("right", 0.0)):
        go = add(apart, 0, child("go"))
        add(apart, go.id, child(action, reward, tree_of("a: 1.0").nodes[1].outcome))
    shared = tree_of("go / left: 1.0", "go / right: 0.0")
    assert len(apart.nodes) == len(shared.nodes) + 1
    assert of(apart, turn=1.0) == of(shared, turn=1.0)


def test_gigpo_eq_8_both_comparisons_add_up() -> None:
    tree = tree_of("go / left: 1.0", "go / right: 0.0", "stay: 0.0")
    whole, turns, both = of(tree), of(tree, trajectory=0.0, turn=1.0), of(tree, turn=1.0)
    assert both == [
        [pytest.approx(a + b) for a, b in zip(one, other, strict=True)] for one, other in zip(whole, turns, strict=True)
    ]
    assert turns[0][1] == pytest.approx(0.5 / (stdev([1.0, 0.0, 0.0]) + 1e-6))


def test_tree_grpo_section_3_3_rollouts_are_compared_in_their_own_tree_and_among_all() -> None:
    """Two initial rollouts: "go" with ends 1 and 0, "stay" with ends 1, 1, 0.
    Among all: mean 0.6, deviation 0.5477; in the first tree 0.5 and 0.7071, in the second 2/3 and 0.5774."""
    tree = tree_of("go / left: 1.0", "go / right: 0.0", "stay / a: 1.0", "stay / b: 1.0", "stay / c: 0.0")
    inter, intra = [0.7303, -1.0954, 0.7303, 0.7303, -1.0954], [0.7071, -0.7071, 0.5774, 0.5774, -1.1547]
    assert [turns[0] for turns in of(tree, trajectory=0.0, subtree=1.0)] == pytest.approx(intra, abs=1e-4)
    both = of(tree, subtree=1.0)
    assert [turns[0] for turns in both] == pytest.approx([a + b for a, b in zip(inter, intra, strict=True)], abs=1e-4)
    assert all(turns[0] == turns[1] for turns in both)
    alone = tree_of("go / left: 1.0", "go / right: 1.0", "stay: 0.0")
    # equal, equal, and by itself
    assert [turns[0] for turns in of(alone, trajectory=0.0, subtree=1.0)] == [0.0, 0.0, 0.0]


def test_what_rollouts_share_is_not_learnt_if_so_said() -> None:
    tree = tree_of("go / left / on: 1.0", "go / left / back: 0.0", "go / right: 0.0", "stay: 1.0")
    plain, pivotal = of(tree), of(tree, shared=False)
    assert [[value != 0 for value in turns] for turns in pivotal] == [
        [False, False, True],
        [False, False, True],
        [False, True],
        [True],
    ]
    assert [turns[-1] for turns in pivotal] == [turns[-1] for turns in plain], "the comparison is the same"
    amplified = of(tree, shared=False, amplify=3.0)
    assert amplified == [[3 * value if value > 0 else value for value in turns] for turns in pivotal]


@pytest.mark.parametrize(
    "tree", [tree_of("a: 1.0", "b: 1.0"), tree_of("a: 0.0"), new_tree()], ids=["equal", "one", "none"]
)
def test_without_a_difference_there_is_no_advantage(tree: Tree) -> None:
    assert not any(value for turns in of(tree, turn=1.0) for value in turns)


def test_a_rule_that_compares_nothing_is_a_problem() -> None:
    (problem,) = find_problems(AdvantageConfig(trajectory=0.0))
    assert problem.key == "trajectory" and "all 0" in problem.message


def test_rows_of_a_tree_say_of_each_token_which_turn_it_is_of() -> None:
    """A turn that two rollouts share is in both rows, with the advantage of each."""
    tree = tree_of("go / left: 1.0", "go / right: 0.0")
    group = group_of(tree)
    first, second = rollout_rows(group, [Reward(1.0, {"outcome": 1.0}), Reward(0.0)], AdvantageConfig(turn=1.0))
    assert isinstance(first, Rollout) and isinstance(second, Rollout)
    go, left, right = (tree.nodes[n] for n in (1, 2, 3))
    assert first.input_ids == (*tree.prompt_ids, *go.token_ids, *go.bridge_ids, *left.token_ids)
    assert second.input_ids[-1:] == right.token_ids and first.provenance.nodes == (1, 2)
    by_turn = of(tree, turn=1.0)
    assert first.advantages == (0.0, 0.0, 0.0, by_turn[0][0], 0.0, by_turn[0][1])
    assert first.loss_mask == (0, 0, 0, 1, 0, 1) and first.logprobs == (None, None, None, -0.5, None, -0.5)
    assert first.group == second.group == "door" and first.rewards == {"total": 1.0, "outcome": 1.0}


def test_reasoning_that_is_context_has_no_advantage_and_shifts_none() -> None:
    tree = tree_of("go / left: 1.0", "go / right: 0.0")
    for node, ids in zip(tree.nodes[1:], ((50, 51, 52), (60, 61), (70, 71)), strict=True):
        node.token_ids, node.reasoning, node.logprobs = ids, len(ids) - 1, (-0.5,) * len(ids)
    group, rewards = group_of(tree), [Reward(1.0), Reward(0.0)]
    first, second = rollout_rows(group, rewards, AdvantageConfig(turn=1.0), train_on_reasoning=False)
    assert isinstance(first, Rollout) and isinstance(second, Rollout)
    by_turn = of(tree, turn=1.0)
    assert first.loss_mask == second.loss_mask == (0, 0, 0, 0, 0, 1, 0, 0, 1)
    assert first.advantages == (0, 0, 0, 0, 0, by_turn[0][0], 0, 0, by_turn[0][1])
    assert second.advantages == (0, 0, 0, 0, 0, by_turn[1][0], 0, 0, by_turn[1][1])


def test_a_searched_tree_gives_a_row_for_each_path_that_ended() -> None:
    """``explore: uct`` is one key: the same rewards, rows and losses take the trees of Agent-R's search."""
    batch = "train=[{batch_size: 16, micro_batch_size: 4}]"
    options = ["method.tasks=4", "method.episodes=4", "method.max_steps=3", "method.search.width=3"]
    config = load(None, ["method.type=tree_grpo", "method.explore=uct", batch, *options])
    (work,) = method_of(config.method).exploration(1).values()
    assert isinstance(work, Grow) and isinstance(work.strategy, UCT)
    tree = new_tree()
    run_search(work.strategy, tree, toy_answers(0.1))
    group = group_of(tree)
    rewards = [Reward(float(index % 2)) for index in range(len(group))]
    rows = list(rollout_rows(group, rewards, AdvantageConfig(turn=1.0)))
    assert len(rows) == len(list(tree.ended())) == 4 and max(len(episode.path) for episode in group.episodes) <= 3
    # turns from which nothing ended
    assert len(tree.nodes) - 1 > len({node for row in rows for node in row.provenance.nodes})
    first = [episode.path[0].id for episode in group.episodes]
    assert len(set(first)) < len(first)


def test_a_rollout_that_cannot_be_trained_on_is_dropped_with_its_reason_and_the_others_are_rows() -> None:
    """One that no policy drew, one that is reasoning alone, and one that is a row."""
    tree = tree_of("a: 1.0", "b: 0.0", "c: 0.5")
    tree.nodes[1].logprobs, tree.nodes[2].reasoning = (), 1
    *left_out, row = rollout_rows(
        group_of(tree), [Reward(1.0), Reward(0.0), Reward(0.5)], AdvantageConfig(), train_on_reasoning=False
    )
    found = [(one.reason, one.provenance.nodes) for one in left_out if isinstance(one, Dropped)]
    assert found == [("no log-probabilities", (1,)), ("no token", (2,))]
    assert isinstance(row, Rollout) and (row.provenance.nodes, row.provenance.kind) == ((3,), "rollout")
    assert row.provenance.detail == {"earned": 0.5}


def test_a_turn_without_log_probabilities_is_context_in_a_rollout() -> None:
    """Such as one that had to follow a grammar."""
    tree = tree_of("a / b / c: 1.0", "d: 0.0")
    tree.nodes[2].logprobs = ()
    forced, free = rollout_rows(group_of(tree), [Reward(1.0), Reward(0.0)], AdvantageConfig())
    assert isinstance(free, Rollout) and isinstance(forced, Rollout) and sum(free.loss_mask) == 1
    assert sum(forced.loss_mask) == 2 and [p is not None for p in forced.logprobs] == [
        bool(m) for m in forced.loss_mask
    ]
    assert [a != 0 for a in forced.advantages] == [bool(m) for m in forced.loss_mask]


def test_a_rollout_of_several_conversations_is_one_row_that_says_where_each_begins() -> None:
    """The second turn is asked for by a conversation of its own, and the third by the first one again: tokens have the
    advantages of their turns, in the order of the conversations."""
    tree = tree_of("a / b / c: 1.0", "a / d: 0.0")
    a, b, c = tree.path(3)
    a.behind, a.bridge_ids, b.behind, b.bridge_ids = (0, 0), (8, 9), (1, len(tree.prompt_ids) + 1), (7,)
    row, other = rollout_rows(group_of(tree), [Reward(1.0), Reward(0.0)], AdvantageConfig(turn=1.0))
    assert isinstance(row, Rollout) and isinstance(other, Rollout) and len(other.starts) == 1
    first, second = (8, 9, *b.token_ids), (*tree.prompt_ids, *a.token_ids, 7, *c.token_ids)
    assert row.sequences() == (first, second) and row.starts == (3,) and row.longest == len(second)
    assert row.loss_mask == (0, 0, 1, *(0 for _ in tree.prompt_ids), 1, 0, 1)
    of_a, of_b, of_c = of(tree, turn=1.0)[0]
    assert len({of_a, of_b}) == 2
    assert [value for value, mask in zip(row.advantages, row.loss_mask, strict=True) if mask] == [of_b, of_a, of_c]
    assert row.provenance.nodes == (1, 2, 3) and row.targets == 3
    with pytest.raises(DataError, match="a conversation without a prompt"):
        replace(row, starts=(2,))
