"""Limits of calls, in the environments that have them: what is refused, and that copies and snapshots count on."""

from typing import Any

import pytest

from env_servers.base import Environment
from env_servers.calls import CallLimits, read_calls
from env_servers.observation import CallStatus
from env_servers.registry import load

MATHS, BOTH = "mathtool", "searchqa"
PYTHON, SEARCH = "python: print(6 * 7)", "search: capital"

#: Environment, options, calls until one is refused, and what the refusal says.
LIMITED = [
    (MATHS, {"calls": {"python": 1}}, [PYTHON, PYTHON], "You may call python once, and have done so."),
    (BOTH, {"calls": {"search": 2}}, [SEARCH, SEARCH, SEARCH], "You may call search twice, and have done so."),
    (
        BOTH,
        {"calls": {"search": 3, "all": 2}, "python": True},
        [SEARCH, PYTHON, SEARCH],
        "You may call tools twice, and have done so.",
    ),
    (BOTH, {"calls": {"python": 0}, "python": True}, [PYTHON], "You may call python never, and have done so."),
]


def opened(name: str, options: dict[str, Any]) -> tuple[Environment[Any], Any, str]:
    environment = load(name, options)
    state, observed = environment.reset(environment.split("train")[0].id)
    return environment, state, observed.observation


@pytest.mark.parametrize(("name", "options", "actions", "text"), LIMITED)
def test_one_call_too_many_is_refused_and_an_answer_is_not(
    name: str, options: dict[str, Any], actions: list[str], text: str
) -> None:
    environment, state, opening = opened(name, options)
    assert "\nYou may call " in opening
    *allowed, last = actions
    for action in allowed:
        assert environment.step(state, action).valid
    before = environment.snapshot(state)
    copies = [environment.fork(state), environment.restore(before)]
    for each in (state, *copies):
        refused = environment.step(each, last)
        assert (refused.status, refused.valid, refused.done, refused.reward) == (CallStatus.limit, False, False, 0.0)
        assert refused.observation.startswith(text)
        assert environment.snapshot(each) == before, "a refused call changes nothing"
    assert environment.step(state, "answer: nothing of the kind").done


def test_each_copy_counts_by_itself() -> None:
    environment, state, _ = opened(MATHS, {"calls": {"python": 2}})
    environment.step(state, PYTHON)
    copy = environment.fork(state)
    assert environment.step(copy, PYTHON).valid and not environment.step(copy, PYTHON).valid
    assert environment.step(state, PYTHON).valid


def test_without_limits_nothing_is_announced_or_refused() -> None:
    environment, state, opening = opened(BOTH, {})
    assert "You may call" not in opening
    assert all(environment.step(state, SEARCH).valid for _ in range(9))


def test_an_expert_who_needs_more_calls_is_none() -> None:
    environment = load(MATHS, {"wasteful": True, "calls": {"python": 1}})
    plans = [environment.expert(task.id) for task in environment.split("train")[:60]]
    assert {len(plan) for plan in plans if plan} == {2} and None in plans
    searching = [task.id for task in load(BOTH).split("train")]
    assert all(load(BOTH).expert(task) for task in searching[:9])
    limited = load(BOTH, {"calls": {"all": 0}})
    assert not any(limited.expert(task) for task in searching[:9])


@pytest.mark.parametrize(
    ("calls", "message"),
    [
        ({"pyhton": 3}, "there is no tool 'pyhton'; name python, all"),
        ({"python": -1}, "0 or more"),
        ({"all": "many"}, "0 or more"),
    ],
)
def test_limits_that_are_none_are_refused(calls: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        CallLimits(calls, ("python",))


@pytest.mark.parametrize("data", [None, [], {"python": 0}, {"python": True}, {"python": "1"}])
def test_a_snapshot_with_damaged_counts_is_refused(data: object) -> None:
    with pytest.raises(ValueError):
        read_calls(data)
    environment, state, _ = opened(MATHS, {})
    with pytest.raises(ValueError, match="not a mathtool snapshot"):
        environment.restore({**environment.snapshot(state), "calls": data})
