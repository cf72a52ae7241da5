"""Turns in other worlds: with doors, where what a turn is worth can be counted."""

import asyncio
import re
import sys
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import replace
from statistics import fmean
from typing import TypeVar

import pytest

from agentr.collect.agent import Agent
from agentr.collect.sessions import Sessions
from agentr.collect.worlds import try_elsewhere
from agentr.config.policy import SamplingConfig
from agentr.config.turns import PromptConfig
from agentr.envs.client import EnvClient, Session
from agentr.policy.base import GenerateRequest, PolicyStats
from agentr.rows.targets import LUCK, Targets
from agentr.search import Origin, Tree
from agentr.search.pairs import by_luck
from agentr.search.stored import from_json, to_json
from agentr.search.tree import Node
from agentr.tasks.formats import ReAct, action_format
from agentr.types import Completion, FinishReason, Task
from env_servers.app import create_app
from env_servers.base import Environment
from env_servers.registry import load
from tests.env_servers.support import ROOT, TOKEN, serving
from tests.trees import codec

T = TypeVar("T")


def left(text: str) -> tuple[int, int]:
    """The doors that are left after what was heard."""
    low, high = 1, int(re.findall(r"There are (\d+) doors", text)[-1])
    for door, where in re.findall(r"Door (\d+): it is (here|on the left|on the right)", text):
        low = max(low, int(door) + (where == "on the right")) if where != "on the left" else low
        high = min(high, int(door) - (where == "on the left")) if where != "on the right" else high
    return low, high


class Opens:
    """Opens the door in the middle of those that are left, without listening."""

    def __init__(self) -> None:
        self.asked = 0

    async def generate(self, request: GenerateRequest) -> list[Completion]:
        self.asked += 1
        low, high = left("\n".join(message.content for message in request.messages))
        said = ReAct().compose("so", f"open {(low + high) // 2}")
        return [Completion(said, tuple(codec().turn(said)), (), FinishReason.STOP)] * request.n

    async def stats(self) -> PolicyStats:
        return PolicyStats()


@pytest.fixture
def doors(monkeypatch: pytest.MonkeyPatch) -> Iterator[Environment]:
    monkeypatch.syspath_prepend(ROOT / "examples")
    yield load("doors:Doors")
    del sys.modules["doors"]


def with_agent(doors: Environment, work: Callable[[Agent, Tree, Sessions], Awaitable[T]], task: str = "9-7") -> T:
    async def main(url: str) -> T:
        env = EnvClient([url], TOKEN, retries=1)
        spec = await env.spec()
        agent = Agent(
            policy=Opens(),
            env=env,
            codec=codec(),
            spec=spec,
            format=action_format(spec.action_format),
            prompt=PromptConfig(),
            sampling=SamplingConfig(max_tokens=32),
            max_model_len=8192,
        )
        tree, session = await agent.start(Task("doors", task, "train"), 0)
        try:
            return await work(agent, tree, Sessions(tree, env, session))
        finally:
            await env.aclose()

    with serving(create_app(doors, token=TOKEN)) as url:
        return asyncio.run(main(url))


async def played(agent: Agent, tree: Tree, sessions: Sessions, *actions: str) -> list[Node]:
    at = 0
    for action in actions:
        turns = await agent.act(tree, at, await sessions.at(at), ReAct().compose("", action))
        at = tree.add(at, turns.children[0], Origin.POLICY).id
        sessions.keep(at, turns.sessions[0])
    tree.back_up(at)
    return tree.path(at)


def test_what_nobody_could_know_is_luck_and_what_was_found_out_is_not(doors: Environment):
    async def work(agent: Agent, tree: Tree, sessions: Sessions) -> tuple[list[Node], list[Node], Tree]:
        sure = await played(agent, tree, sessions, "listen 5", "listen 7", "open 7")
        lucky = await played(agent, tree, sessions, "listen 4", "open 7")
        await try_elsewhere(tree, [*sure, *lucky], agent, sessions, worlds=60, steps=8, invalid=0)
        return sure, lucky, tree

    sure, lucky, tree = with_agent(doors, work)
    assert [node.reward for node in (sure[-1], lucky[-1])] == [1.0, 1.0], "in their own world both earn it"
    assert sure[-1].worlds == (1.0,) * 60, "it was heard there"
    assert 0.08 < fmean(lucky[-1].worlds) < 0.36, "one of the five doors from 5 to 9"
    # after "listen 7" on the right of 5: of 6 to 9 it is 7, or 6, or one of the two on the right, of which one is tried
    assert 0.6 < fmean(sure[1].worlds) < 0.9
    # one of nine doors is heard; else the middle one of four
    assert 0.2 < fmean(sure[0].worlds) < 0.5
    assert [by_luck(sure, turn) for turn in (1, 2)] == [False, False]
    assert by_luck(lucky, 1)
    turns, reasons = Targets().turns(lucky)
    assert [turn.trained for turn in turns][-1] is False and reasons[LUCK] >= 1
    assert [turn.trained for turn in Targets(luck=True).turns(lucky)[0]] == [True, True]
    assert from_json(to_json(tree)) == tree, "it is stored"
    assert "worlds" not in to_json(replace(tree, nodes=[replace(node, worlds=()) for node in tree.nodes]))


def test_what_it_took_is_counted_and_a_turn_is_tried_once(doors: Environment):
    async def work(agent: Agent, tree: Tree, sessions: Sessions) -> None:
        path = await played(agent, tree, sessions, "listen 5", "open 7")
        before = tree.cost
        await try_elsewhere(tree, path, agent, sessions, worlds=3, steps=8, invalid=0)
        assert isinstance(agent.policy, Opens) and agent.policy.asked == 3, "after an opened door nobody is asked"
        assert tree.cost.completions - before.completions == 3
        assert tree.cost.env_steps - before.env_steps == 3 * (2 + 1)
        assert len(tree.nodes) == 3, "no other world is in the tree"
        again = tree.cost
        await try_elsewhere(tree, path, agent, sessions, worlds=9, steps=8, invalid=0)
        assert tree.cost == again and all(len(node.worlds) == 3 for node in path)

    with_agent(doors, work)


def test_equal_seeds_give_equal_returns(doors: Environment):
    async def work(agent: Agent, tree: Tree, sessions: Sessions) -> list[tuple[float, ...]]:
        path = await played(agent, tree, sessions, "listen 4", "open 7")
        await try_elsewhere(tree, path, agent, sessions, worlds=12, steps=8, invalid=0)
        return [node.worlds for node in path]

    assert with_agent(doors, work) == with_agent(doors, work)


def test_a_world_is_entered_again_when_its_server_forgot_it(doors: Environment):
    async def work(agent: Agent, tree: Tree, sessions: Sessions) -> None:
        [first, *_] = await played(agent, tree, sessions, "listen 5", "open 7")
        session = await sessions.at(first.id)
        others: list[Session] = [await session.redraw(seed) for seed in range(12)]
        found = []
        for other in others:
            [heard] = await other.expand(["listen 7"])
            await other.close()
            await heard.close()
            [again] = await other.expand(["listen 7"])
            assert again.last.observation == heard.last.observation
            [opened] = await heard.expand(["open 7"])
            assert (opened.last.reward == 1) is ("here" in heard.last.observation)
            found.append(heard.last.observation)
        assert len(set(found)) == 3, "here, left and right"
        assert session.history == others[0].history and agent.env.stats.replays >= 24

    with_agent(doors, work)


def test_an_environment_that_hides_nothing_is_not_asked_for_other_worlds(doors: Environment):
    doors.spec = doors.spec.model_copy(update={"redraws": False})

    async def work(agent: Agent, tree: Tree, sessions: Sessions) -> None:
        with pytest.raises(ValueError, match="doors draws no worlds"):
            await (await sessions.at(0)).redraw(1)

    with_agent(doors, work)
