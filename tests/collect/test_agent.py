"""One turn, and the sessions of a tree, without a server."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import pytest

from agentr.collect.agent import CUT_OFF, Agent, Sessions
from agentr.config.policy import SamplingConfig
from agentr.config.turns import PromptConfig
from agentr.envs.client import EnvClient, Session
from agentr.policy.base import GenerateRequest, PolicyStats
from agentr.search import Expansion
from agentr.tasks.formats import ReAct
from agentr.types import CallStatus, Completion, FinishReason
from tests.env_servers.support import Counter
from tests.trees import add, child, codec, new_tree


class Says:
    """A policy that always says the same."""

    def __init__(self, text: str, finish: FinishReason) -> None:
        self.completion = Completion(text, tuple(codec().turn(text)), (), finish)

    async def generate(self, request: GenerateRequest) -> list[Completion]:
        return [self.completion] * request.n

    async def stats(self) -> PolicyStats:
        return PolicyStats()


@pytest.mark.parametrize(
    ("finish", "problem"), [(FinishReason.STOP, ReAct().parse("just prose").problem), (FinishReason.LENGTH, CUT_OFF)], ids=["prose", "cut"]
)
def test_a_turn_without_an_action_keeps_the_return_so_far(finish: FinishReason, problem: str) -> None:
    """The environment is not asked. Where it gives partial rewards, an episode that ends at such a turn has earned something."""
    policy, sampling = Says("just prose", finish), SamplingConfig(max_tokens=32)
    agent = Agent(
        policy=policy,
        env=cast(EnvClient, None),
        codec=codec(),
        spec=Counter().spec,
        format=ReAct(),
        prompt=PromptConfig(),
        sampling=sampling,
        max_model_len=4096,
    )
    tree = new_tree()
    add(tree, 0, child("a", 0.4))
    session = cast(Session, SimpleNamespace(last=None))
    turns = asyncio.run(agent.sample(tree, Expansion(1, 0, 2, 0), session))
    assert [(turn.reward, turn.valid, turn.status) for turn in turns.children] == [(0.4, False, CallStatus.error)] * 2
    assert {turn.observation for turn in turns.children} == {problem} and turns.events == {"unparsed": 2}
    assert turns.sessions == [session, session] and turns.cost.env_steps == 0


def test_expansions_of_one_node_at_the_same_time_open_one_session() -> None:
    class Env:
        opened = 0

        async def open(self, *_: Any) -> object:
            self.opened += 1
            await asyncio.sleep(0)
            return object()

    async def main() -> None:
        env = Env()
        sessions = Sessions(new_tree(), cast(EnvClient, env))
        first, second = await asyncio.gather(sessions.at(0), sessions.at(0))
        assert first is second and env.opened == 1

    asyncio.run(main())
