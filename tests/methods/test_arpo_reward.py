"""ARPO's reward by its numbers."""

import pytest

from agentr.errors import ConfigError
from agentr.rewards import RewardConfig, make
from agentr.rewards.group import group_of
from agentr.types import Outcome
from tests.rewards.test_rewards import unanswered
from tests.trees import add, child, new_tree


def test_section_3_4() -> None:
    """-1 for what is malformed or has no answer; a right answer earns 0.1 more if both tools were called, a wrong one
    nothing."""
    both, one = ("search: a", "python: 1"), ("search: a", "search: b")

    def reward(*actions: str, earned: float = 1.0, malformed: bool = False) -> float:
        tree, at = new_tree(), 0
        for action in actions[:-1]:
            at = add(tree, at, child(action, action="" if malformed else action)).id
        add(tree, at, child(actions[-1], earned, Outcome.SUCCESS if earned == 1.0 else Outcome.FAILURE))
        return make(RewardConfig("arpo"))(group_of(tree, "answer:"))[0].total

    assert reward(*both, "answer: x") == pytest.approx(1.1) and reward(*one, "answer: x") == 1.0
    assert (
        reward(*both, "answer: x", earned=0.4) == pytest.approx(0.5) and reward(*both, "answer: x", earned=0.0) == 0.0
    )
    assert reward(*both, "answer: x", malformed=True) == reward(*both, "search: c", earned=0.0) == -1.0
    with pytest.raises(ConfigError, match="must be a list"):
        make(RewardConfig("arpo", options={"tools": "search:"}))


def test_an_episode_without_an_answer_is_not_well_formed() -> None:
    found = make(RewardConfig("arpo"))(group_of(unanswered(), "answer:"))
    assert [reward.total for reward in found] == [-1.0, -1.0, -1.0, 0.0]
