"""Demonstrations earn the reward, and the agent asks the same when it is begun again.

Run it in this folder:  python -m pytest
"""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from agentr.methods import load
from env_servers import registry


@contextmanager
def playing() -> Iterator[Any]:
    env = load(Path(__file__).with_name("run.yaml")).env
    agent = registry.load(env.name, env.options)
    try:
        yield agent
    finally:
        agent.stop()


def test_demonstrations_earn_the_reward() -> None:
    with playing() as agent:
        for task in agent.split("train")[:3]:
            state, observed = agent.reset(task.id)
            for step in agent.expert(task.id):
                observed = agent.step(state, step.action)
            assert observed.done and observed.reward == 1, task


def test_it_asks_the_same_when_it_is_begun_again() -> None:
    with playing() as agent:
        task = agent.split("train")[0]
        state, _ = agent.reset(task.id)
        agent.step(state, agent.expert(task.id)[0].action)
        copy = agent.fork(state)  # it has the program that runs; the other begins one anew
        first, second = agent.step(copy, "a word"), agent.step(state, "a word")
        assert first == second and not second.asked.refused, second.asked
        assert first.observation == "That is no number."
