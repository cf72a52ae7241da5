"""ET-Agent's reward by its numbers."""

import math
from typing import Any

import pytest

from agentr.config.checks import find_problems
from agentr.errors import ConfigError
from agentr.rewards import RewardConfig, make
from agentr.rewards.group import Group, group_of
from tests.rewards.test_rewards import episodes, unanswered


def test_section_3_3_unit_vector_of_the_released_code() -> None:
    """sigma = 0.1, T = [1, 3, 2], L = [100, 200, 150]: the first earns 1.0500 x 1.0612 = 1.1142."""
    group = episodes([1, 3, 2], [100, 200, 150])
    first, second, third = make(RewardConfig("et_agent", options={"sigma_tool": 0.1, "sigma_len": 0.1}))(group)
    assert first.parts["f_tool"] == pytest.approx(1.0500, abs=5e-5) and first.parts["f_len"] == pytest.approx(
        1.0612, abs=5e-5
    )
    assert first.total == pytest.approx(1.1142, abs=1e-4)
    assert third.parts["f_tool"] == third.parts["f_len"] == 1.0 and second.total < third.total < first.total
    by_two = make(RewardConfig("et_agent", options={"scale": 1.0}))(group)
    assert by_two[0].total == pytest.approx(first.total / 4)  # the paper's: both factors are half as large


def test_sigma_falls_by_round_and_within_one() -> None:
    score = make(RewardConfig("et_agent", options={"sigma_tool": [0.4, 0.2], "sigma_len": 0.0, "decay": True}))
    group = episodes([1, 3], [10, 10])

    def f_tool(**where: Any) -> float:
        return score(Group(group.episodes, **where))[0].parts["f_tool"]

    at = [f_tool(), f_tool(progress=0.5), f_tool(progress=1.0)]
    assert (
        at[0] == pytest.approx(2 / (1 + math.exp(-0.4)))
        and at[1] == pytest.approx(2 / (1 + math.exp(-0.2)))
        and at[2] == 1.0
    )
    assert f_tool(round_=2) == at[1] and f_tool(round_=5) == at[1]


def test_length_is_without_observations_unless_the_released_way_is_asked_for() -> None:
    group = episodes([0, 3], [40, 40])  # the second read three observations of a token each
    same, longer = (make(RewardConfig("et_agent", options={"observations": o}))(group) for o in (False, True))
    assert same[0].parts["f_len"] == same[1].parts["f_len"] == 1.0
    assert longer[0].parts["f_len"] > 1.0 > longer[1].parts["f_len"]


def test_wrong_or_malformed() -> None:
    group = episodes([1, 1, 1], [10, 10, 10], earned=[1.0, 0.0, 1.0], malformed=[0, 0, 1])
    right, wrong, malformed = make(RewardConfig("et_agent"))(group)
    assert (
        right.total > 0.9
        and wrong.total == 0.0
        and malformed.total == pytest.approx(malformed.parts["f_tool"] - 1.0, abs=0.1)
    )


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


def test_an_episode_without_an_answer_is_not_well_formed() -> None:
    """At the limit of steps, with a full context, or after another action: the released code asks for an answer."""
    score = make(RewardConfig("et_agent"))
    assert [r.total for r in score(group_of(unanswered(), "answer:"))] == [-1.0, -1.0, -1.0, 0.0]
    assert [r.total for r in score(group_of(unanswered()))] == [0.0] * 4, (
        "where no action is an answer, none is missing"
    )
