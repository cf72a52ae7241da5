"""Gymnasium's environments in words: the ones that it ships, and one that does not repeat itself."""

import itertools
import re
from typing import Any

import pytest

from env_servers.gym import Gym
from env_servers.gym.environment import DidNotRepeat
from env_servers.registry import BadOptions, about, load

if not about("gym").available:
    pytest.skip("gymnasium is missing: pip install gymnasium", allow_module_level=True)

import gymnasium
import numpy

NOISE = itertools.count()


class Noisy(gymnasium.Env):
    """Takes any text, and says a number that comes once."""

    observation_space = gymnasium.spaces.Text(100)
    action_space = gymnasium.spaces.Text(10)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[str, dict[str, Any]]:
        return f"seed {seed}", {"hints": ["look", "look", "wait"]}

    def step(self, action: str) -> tuple[str, float, bool, bool, dict[str, Any]]:
        return f"{action} {next(NOISE)}", 0.5, False, False, {}


gymnasium.register("Noisy-v0", Noisy)
LAKE: dict[str, Any] = {
    "id": "FrozenLake-v1",
    "kwargs": {"is_slippery": False},
    "actions": ["left", "down", "right", "up"],
}
WAY = ["down", "down", "right", "right", "down", "right"]


class Wide(Noisy):
    """Shows more numbers than numpy does by itself."""

    observation_space = gymnasium.spaces.Dict(
        {"grid": gymnasium.spaces.MultiDiscrete([9] * 2000), "map": gymnasium.spaces.Dict()}
    )

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        return {"grid": numpy.arange(2000), "map": {"part": numpy.arange(2000)}}, {}


gymnasium.register("Wide-v0", Wide)


@pytest.mark.parametrize("key", ["grid", "map"])
def test_all_of_a_long_array_is_shown(key: str):
    env = Gym(id="Wide-v0", observation=[key])
    text = env.reset(env.split("train")[0].id)[1].observation
    assert [int(number) for number in re.findall(r"\d+", text)] == list(range(2000)) and "..." not in text


def test_a_picture_is_read_with_its_colours_and_the_goal_is_a_success():
    lake = Gym(**LAKE)
    state, opening = lake.reset("FrozenLake-v1@3")
    assert opening.observation.startswith("<red>S</red>FFF")
    answers = [lake.step(state, action) for action in WAY]
    assert [answer.reward for answer in answers] == [0, 0, 0, 0, 0, 1] and answers[-1].done
    assert answers[-1].observation.endswith("<red>G</red>")
    wrong = lake.step(lake.reset("FrozenLake-v1@3")[0], "jump")
    assert not wrong.valid and "left, down, right, up" in wrong.observation


def test_a_copy_is_played_again_and_goes_its_own_way_however_few_are_kept_open():
    lake = Gym(**LAKE, live=1)
    state, _ = lake.reset("FrozenLake-v1@3")
    lake.step(state, "down")
    copies = [lake.fork(state) for _ in range(3)]
    seen = [
        lake.step(copy, action).observation.splitlines()[0].strip()
        for copy, action in zip(copies, ("up", "down", "left"), strict=True)
    ]
    assert seen == ["(Up)", "(Down)", "(Left)"] and len(lake._live) == 1
    assert [len(each.steps) for each in (state, *copies)] == [1, 2, 2, 2]
    again = lake.restore(lake.snapshot(copies[1]))
    assert again == copies[1]


def test_an_environment_that_does_not_repeat_itself_is_found_out():
    noisy = Gym("Noisy-v0", suggestions="hints")
    state, opening = noisy.reset("Noisy-v0@1")
    assert opening.observation == "seed 1" and noisy.actions(state) == ["look", "wait"]
    noisy.step(state, "look")
    assert noisy.step(state, "wait").reward == 1.0, "rewards add up"
    with pytest.raises(DidNotRepeat, match="action 1, recorded 'look"):
        noisy.step(noisy.fork(state), "look")
    assert not noisy.step(state, "x" * 11).valid


@pytest.mark.slow
def test_distinct_tasks_share_no_opening():
    taxi = Gym("Taxi-v4", distinct=True, train=[0, 60], dev=[60, 70], test=[70, 80])
    openings = [taxi.reset(task.id)[1].observation for name in ("train", "dev", "test") for task in taxi.split(name)]
    assert 0 < len(openings) == len(set(openings)) < 80


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"id": "Nowhere-v0"}, "does not make 'Nowhere-v0'"),
        ({"id": "CartPole-v1"}, "observation: an observation of CartPole-v1 is Box"),
        ({"id": "Pendulum-v1"}, "only Text and Discrete can be words"),
        ({"id": "FrozenLake-v1", "actions": ["left"]}, "has 4 actions"),
        ({"id": "Blackjack-v1", "observation": "render"}, "does not render as text"),
        ({"train": [0, 10], "dev": [5, 20]}, "train and dev share the seeds 5 to 9"),
        ({"returns": "mean"}, "must be sum or last"),
        ({"low": 1.0}, "must be below"),
    ],
)
def test_options_that_do_not_fit_are_refused_with_what_would(options: dict[str, Any], reason: str):
    with pytest.raises(BadOptions, match=reason):
        load("gym", options)
