"""Experts that go on from any state: from wherever a player that errs has come to, they reach the goal."""

import random

import pytest

from env_servers.base import Environment
from env_servers.registry import load

OPTIONS = {"textcraft": {"recipes": "exact", "distractors": 3}, "household": {}, "babyai": {}}


def erring(env: Environment, task: str, rng: random.Random) -> list[str]:
    """Some of what may be done: the expert's actions in any order, and what belongs to nothing."""
    own = [step.action for step in env.expert(task) or []]
    if env.spec.name == "textcraft":
        return [*own, *(f"get {rng.randint(1, 5)} {item}" for item in ("oak log", "cobblestone", "iron ingot"))]
    return own


@pytest.mark.parametrize("name", OPTIONS)
def test_the_goal_is_reached_from_wherever_one_is(name: str):
    env, rng = load(name, OPTIONS[name]), random.Random(5)
    tasks = [task.id for task in env.split("train")]
    gone_on = held = stuck = 0
    some = 8 if name == "babyai" else 40  # a step there takes a hundred times as long
    for task in rng.sample(tasks, some):
        state, seen = env.reset(task)
        assert env.expert_from(state) == env.expert(task), "at the beginning there is nothing to go on from"
        actions = erring(env, task, rng)
        for _ in range(rng.randint(1, 12)):
            possible = env.actions(state) or actions
            seen = env.step(state, rng.choice(possible if rng.random() < 0.7 else actions))
            if seen.done:
                break
        else:
            before = env.snapshot(state)
            steps = env.expert_from(state)
            assert env.snapshot(state) == before
            if steps is None and name == "babyai":  # a toggled box is gone, and what it was wanted for with it
                stuck += 1
                continue
            assert steps and all(step.thought for step in steps), task
            for step in steps:
                assert not seen.done, f"{task}: over before {step.action}"
                seen = env.step(state, step.action)
                assert seen.valid, f"{task}: {step.action} is refused"
            assert seen.done and seen.reward > 0, task
            gone_on += 1
            held += any("do not need" in step.thought for step in steps)
    assert gone_on >= some / 2 and stuck <= 2
    assert held or name != "household", "nothing was put away"
