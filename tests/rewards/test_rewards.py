"""Rewards: the published ones by their numbers, and what is refused of others."""

from __future__ import annotations

import math
import os
import random
import re
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from agentr.config.checks import find_problems
from agentr.errors import ConfigError, DataError
from agentr.rewards import RewardConfig, Rewards, known, make
from agentr.rewards.apart import RewardLost
from agentr.rewards.group import Group, Reward, group_of
from agentr.search import Origin
from agentr.search.episode import Episode
from agentr.types import Outcome
from tests.trees import add, child, new_tree, tree_of


def episodes(calls: Sequence[int], tokens: Sequence[int], earned: Sequence[float] = (), malformed: Sequence[int] = ()) -> Group:
    """Episodes with so many calls and generated tokens; each ends with an answer, which is no call."""
    tree = new_tree()
    for index, (made, length) in enumerate(zip(calls, tokens, strict=True)):
        at = 0
        for number in range(made):
            at = add(tree, at, child(f"call {index} {number}", token_ids=())).id
        for number in range(malformed[index] if malformed else 0):
            at = add(tree, at, child(f"what {index} {number}", action="", token_ids=())).id
        reward = earned[index] if earned else 1.0
        ended = Outcome.SUCCESS if reward == 1.0 else Outcome.FAILURE
        add(tree, at, child(f"answer: {index}", reward, ended, token_ids=tuple(range(length)), scores={"f1": reward}))
    return group_of(tree, "answer:")


def test_et_agent_section_3_3_unit_vector_of_the_released_code() -> None:
    """sigma = 0.1, T = [1, 3, 2], L = [100, 200, 150]: the first earns 1.0500 x 1.0612 = 1.1142."""
    group = episodes([1, 3, 2], [100, 200, 150])
    first, second, third = make(RewardConfig("et_agent", options={"sigma_tool": 0.1, "sigma_len": 0.1}))(group)
    assert first.parts["f_tool"] == pytest.approx(1.0500, abs=5e-5) and first.parts["f_len"] == pytest.approx(1.0612, abs=5e-5)
    assert first.total == pytest.approx(1.1142, abs=1e-4)
    assert third.parts["f_tool"] == third.parts["f_len"] == 1.0 and second.total < third.total < first.total
    by_two = make(RewardConfig("et_agent", options={"scale": 1.0}))(group)
    assert by_two[0].total == pytest.approx(first.total / 4)  # the paper's: both factors are half as large


def test_et_agent_sigma_falls_by_round_and_within_one() -> None:
    score = make(RewardConfig("et_agent", options={"sigma_tool": [0.4, 0.2], "sigma_len": 0.0, "decay": True}))
    group = episodes([1, 3], [10, 10])

    def f_tool(**where: Any) -> float:
        return score(Group(group.episodes, **where))[0].parts["f_tool"]

    at = [f_tool(), f_tool(progress=0.5), f_tool(progress=1.0)]
    assert at[0] == pytest.approx(2 / (1 + math.exp(-0.4))) and at[1] == pytest.approx(2 / (1 + math.exp(-0.2))) and at[2] == 1.0
    assert f_tool(round_=2) == at[1] and f_tool(round_=5) == at[1]


def test_et_agent_length_is_without_observations_unless_the_released_way_is_asked_for() -> None:
    group = episodes([0, 3], [40, 40])  # the second read three observations of a token each
    same, longer = (make(RewardConfig("et_agent", options={"observations": o}))(group) for o in (False, True))
    assert same[0].parts["f_len"] == same[1].parts["f_len"] == 1.0
    assert longer[0].parts["f_len"] > 1.0 > longer[1].parts["f_len"]


def test_et_agent_wrong_or_malformed() -> None:
    group = episodes([1, 1, 1], [10, 10, 10], earned=[1.0, 0.0, 1.0], malformed=[0, 0, 1])
    right, wrong, malformed = make(RewardConfig("et_agent"))(group)
    assert right.total > 0.9 and wrong.total == 0.0 and malformed.total == pytest.approx(malformed.parts["f_tool"] - 1.0, abs=0.1)


@pytest.mark.parametrize(("options", "message"), [
    ({"sigma_tool": -0.1}, "must not be below 0"),
    ({"sigma_len": []}, "is empty"),
    ({"scale": 0}, "must be above 0"),
    ({"format": 1.0}, "must be 0 or below"),
    ({"sigma": 0.1}, "has no option 'sigma'.*Did you mean 'sigma_"),
])  # fmt: skip
def test_options_that_make_no_sense_are_problems_of_the_configuration(options: dict[str, Any], message: str) -> None:
    config = RewardConfig("et_agent", options=options)
    with pytest.raises(ConfigError, match=message):
        make(config)
    (problem,) = find_problems(config)
    assert problem.key == "options"


def test_arpo_section_3_4() -> None:
    """-1 for what is malformed or has no answer; a right answer earns 0.1 more if both tools were called, a wrong one nothing."""
    both, one = ("search: a", "python: 1"), ("search: a", "search: b")

    def reward(*actions: str, earned: float = 1.0, malformed: bool = False) -> float:
        tree, at = new_tree(), 0
        for action in actions[:-1]:
            at = add(tree, at, child(action, action="" if malformed else action)).id
        add(tree, at, child(actions[-1], earned, Outcome.SUCCESS if earned == 1.0 else Outcome.FAILURE))
        return make(RewardConfig("arpo"))(group_of(tree, "answer:"))[0].total

    assert reward(*both, "answer: x") == pytest.approx(1.1) and reward(*one, "answer: x") == 1.0
    assert reward(*both, "answer: x", earned=0.4) == pytest.approx(0.5) and reward(*both, "answer: x", earned=0.0) == 0.0
    assert reward(*both, "answer: x", malformed=True) == reward(*both, "search: c", earned=0.0) == -1.0
    with pytest.raises(ConfigError, match="must be a list"):
        make(RewardConfig("arpo", options={"tools": "search:"}))


def test_unknown_rewards_name_the_nearest() -> None:
    with pytest.raises(ConfigError, match=r"no reward 'outcom'.*Did you mean 'outcome'"):
        make(RewardConfig("outcom"))
    with pytest.raises(ConfigError, match="'nowhere:Nothing' cannot be imported"):
        make(RewardConfig("nowhere:Nothing"))


def test_outcome_is_the_environments_return() -> None:
    group = group_of(tree_of("a: 1.0", "b: 0.5", "c: 0.0"))
    assert [r.total for r in make(RewardConfig("outcome"))(group)] == [1.0, 0.5, 0.0]
    assert [r.total for r in make(RewardConfig("outcome", options={"success_only": True}))(group)] == [1.0, 0.0, 0.0]


def test_score_is_the_environments_of_that_name_whatever_its_return() -> None:
    tree = new_tree()
    add(tree, 0, child("answer: a", 0.0, Outcome.FAILURE, scores={"em": 0.0, "f1": 0.5}))
    add(tree, 0, child("answer: b", 1.0, Outcome.SUCCESS, scores={"em": 1.0, "f1": 1.0}))
    add(tree, 0, child("search: c", 0.0, Outcome.STEP_LIMIT))

    def score(**options: Any) -> list[float]:
        return [r.total for r in make(RewardConfig("score", options=options))(group_of(tree, "answer:"))]

    assert score(name="f1") == score() == [0.5, 1.0, 0.0] and score(name="em") == [0.0, 1.0, 0.0]
    with pytest.raises(ValueError, match=r"gives no score 'math' with an answer; it gives em, f1: name one of them"):
        score(name="math")


def test_score_without_any_answer_is_0_and_without_any_score_is_an_error() -> None:
    score = Rewards.of([RewardConfig("score")])
    assert [r.total for r in score(group_of(tree_of("a: 0.0 step_limit", "b: 0.0 context_limit")))] == [0.0, 0.0]
    with pytest.raises(DataError, match="gives no score 'f1' with an answer; it gives none: use another reward"):
        score(group_of(tree_of("a: 0.0 step_limit", "b: 0.0")))


def test_a_group_is_the_episodes_that_the_policy_ended() -> None:
    tree = tree_of("a / b: 1.0", "a / c: 0.0")
    add(tree, 0, child("broken", outcome=Outcome.INFRA))
    add(tree, 0, child("taken over", 1.0, Outcome.SUCCESS), Origin.PREFIX)
    assert [[node.action for node in episode.path] for episode in group_of(tree).episodes] == [["a", "b"], ["a", "c"]]


@pytest.mark.parametrize("name", known())
def test_every_reward_is_finite_and_does_not_depend_on_the_order(name: str) -> None:
    generator = random.Random(name)
    for size in (0, 1, 2, 7):
        calls = [generator.randrange(4) for _ in range(size)]
        group = episodes(calls, [generator.randrange(1, 60) for _ in calls], [generator.choice([0.0, 0.4, 1.0]) for _ in calls])
        rewards = Rewards.of([RewardConfig(name)])
        order = generator.sample(range(size), size)
        shuffled = rewards(Group([group.episodes[i] for i in order]))
        assert [rewards(group)[i].total for i in order] == pytest.approx([r.total for r in shuffled])


class Raising:
    def __call__(self, group: Group) -> list[Reward]:
        raise KeyError("gold")


class NotANumber:
    def __call__(self, group: Group) -> list[Reward]:
        return [Reward(1.0, {"part": float("nan")}) for _ in group.episodes]


class Slow:
    def __call__(self, group: Group) -> list[Reward]:
        time.sleep(5)
        return []


class HoldsTheInterpreter:
    """No thread of its process runs while the expression is tried."""

    def __call__(self, group: Group) -> list[Reward]:
        re.match(r"(a+)+$", "a" * 40 + "b")
        return []


class Dies:
    def __call__(self, group: Group) -> list[Reward]:
        os._exit(3)


class SlowOnce:
    """Hangs at its first group, in whatever process."""

    def __init__(self, file: str) -> None:
        self.file = Path(file)

    def __call__(self, group: Group) -> list[float]:
        if not self.file.exists():
            self.file.touch()
            time.sleep(60)
        return [episode.earned for episode in group.episodes]


def test_after_a_group_without_an_answer_the_next_one_has_one(tmp_path: Path) -> None:
    own = RewardConfig(f"{__name__}:SlowOnce", options={"file": str(tmp_path / "asked")}, timeout_s=1)
    rewards, group = Rewards.of([own]), group_of(tree_of("a: 1.0", "b: 0.0"))
    with pytest.raises(RewardLost):
        rewards(group)
    assert [reward.total for reward in rewards(group)] == [1.0, 0.0]


class TooFew:
    def __call__(self, group: Group) -> list[float]:
        return [1.0]


class Length:
    """A user's own: plain numbers will do."""

    def __init__(self, per_token: float = 0.01) -> None:
        self.per_token = per_token

    def __call__(self, group: Group) -> list[float]:
        return [self._one(episode) for episode in group.episodes]

    def _one(self, episode: Episode) -> float:
        return -self.per_token * episode.tokens


@pytest.mark.parametrize(("reward", "message"), [
    (Raising, r"failed: KeyError: 'gold' \(for door\)"),
    (NotANumber, r"gave nan for door \(part\), which is no finite number"),
    (Slow, r"gave no answer within 2 s \(for door\)"),
    (HoldsTheInterpreter, r"gave no answer within 2 s \(for door\)"),
    (Dies, r"lost its process \(for door\)"),
    (TooFew, "gave 1 answers for the 2 rollouts of door"),
])  # fmt: skip
def test_a_reward_that_goes_wrong_says_which_and_where(reward: type, message: str) -> None:
    rewards = Rewards.of([RewardConfig(f"{__name__}:{reward.__name__}", timeout_s=2)])
    with pytest.raises(DataError, match=message):
        rewards(group_of(tree_of("a: 1.0", "b: 0.0")))


def test_rewards_add_up_by_weight_and_keep_their_components() -> None:
    own = RewardConfig(f"{__name__}:Length", weight=2.0, options={"per_token": 0.1})
    (first, _) = Rewards.of([RewardConfig("outcome"), own])(group_of(tree_of("a / b: 1.0", "c: 0.0")))
    assert first.total == pytest.approx(1.0 - 2.0 * 0.1 * 2)
    assert first.parts == {"outcome": 1.0, "Length": pytest.approx(-0.2)}
