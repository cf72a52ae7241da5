"""One turn, and the sessions of a tree, without a server."""

import asyncio
from itertools import pairwise
from types import SimpleNamespace
from typing import Any, cast

import pytest

from agentr.collect.agent import Agent
from agentr.collect.sessions import Sessions
from agentr.config.policy import SamplingConfig
from agentr.config.turns import PromptConfig
from agentr.envs.client import EnvClient, Session
from agentr.policy.base import GenerateRequest, Policy, PolicyStats
from agentr.search import Expansion
from agentr.tasks.formats import CUT_OFF, ActionFormat, CodeAct, ReAct, Tags
from agentr.types import CallStatus, Completion, FinishReason, Observation
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


def agent_of(policy: Policy, format: ActionFormat) -> Agent:
    return Agent(
        policy=policy,
        env=cast(EnvClient, None),
        codec=codec(),
        spec=Counter().spec,
        format=format,
        prompt=PromptConfig(),
        sampling=SamplingConfig(max_tokens=200),
        max_model_len=4096,
    )


@pytest.mark.parametrize(
    ("finish", "problem"),
    [(FinishReason.STOP, ReAct().parse("just prose").problem), (FinishReason.LENGTH, CUT_OFF)],
    ids=["prose", "cut"],
)
def test_a_turn_without_an_action_keeps_the_return_so_far(finish: FinishReason, problem: str) -> None:
    """The environment is not asked.
    Where it gives partial rewards, an episode that ends at such a turn has earned something."""
    agent = agent_of(Says("just prose", finish), ReAct())
    tree = new_tree()
    add(tree, 0, child("a", 0.4))
    session = cast(Session, SimpleNamespace(last=None))
    turns = asyncio.run(agent.sample(tree, Expansion(1, 0, 2, 0), session))
    assert [(turn.reward, turn.valid, turn.status) for turn in turns.children] == [(0.4, False, CallStatus.error)] * 2
    assert {turn.observation for turn in turns.children} == {problem} and turns.events == {"unparsed": 2}
    assert turns.sessions == [session, session] and turns.cost.env_steps == 0


class Draws:
    """A policy that draws token by token what it was told to, and stops as engines do: at a stop string, wherever it
    stands."""

    def __init__(self, text: str) -> None:
        self.ids, self.asked, self.drawn = codec().turn(text), list[GenerateRequest](), 0

    async def generate(self, request: GenerateRequest) -> list[Completion]:
        self.asked.append(request)
        ids, left = list[int](), self.ids[self.drawn :][: request.sampling.max_tokens]
        while len(ids) < len(left) and not any(stop in codec().decode(ids) for stop in request.sampling.stop):
            ids.append(left[len(ids)])
        self.drawn += len(ids)
        return [Completion(codec().decode(ids), tuple(ids), (-0.5,) * len(ids), FinishReason.STOP)]

    async def stats(self) -> PolicyStats:
        return PolicyStats()


NAMED = "<think>The format is <answer>...</answer>, or <search>...</search>.</think>\n<search>the door</search>"
CODE = "Thought: I write code, then\nEnd Action\nfor it. Now:\nAction:\nprint('End Action')\nEnd Action"


@pytest.mark.parametrize(
    ("format", "text", "requests", "action"),
    [
        (Tags(), NAMED, 3, "search: the door"),
        (Tags(), NAMED.replace("</think>", ""), 4, None),
        (Tags(), "<think>So.</think><search></search>", 1, None),
        (Tags(), "<think>So: </search>", 2, None),
        (CodeAct(), CODE, 2, "python: print('End Action')"),
    ],
)
def test_a_stop_string_that_a_thought_names_ends_no_turn(
    format: ActionFormat, text: str, requests: int, action: str | None
) -> None:
    """The policy goes on after what it has drawn, with what is left of its tokens: the turn is what it would have been
    without the stop."""
    policy = Draws(text)
    agent = agent_of(policy, format)
    executed = list[str]()

    async def expand(actions: list[str]) -> list[Session]:
        executed.extend(actions)
        return [session for _ in actions]

    session = cast(Session, SimpleNamespace(last=Observation("seen"), expand=expand))
    turns = asyncio.run(agent.sample(new_tree(), Expansion(0, 0, 1, 0), session))
    (turn,) = turns.children
    assert executed == ([] if action is None else [action]) and turn.text == text
    assert turn.token_ids == tuple(codec().encode(text)) + (
        (codec().end_id,) if turn.token_ids[-1] == codec().end_id else ()
    )
    assert len(turn.logprobs) == len(turn.token_ids)
    assert (turns.cost.calls, turns.cost.completions, turns.cost.completion_tokens) == (
        requests,
        1,
        len(turn.token_ids),
    )
    for before, after in pairwise(policy.asked):
        assert (
            after.prompt_ids[: len(before.prompt_ids)] == before.prompt_ids
            and after.sampling.seed != before.sampling.seed
        )
        assert after.sampling.max_tokens == before.sampling.max_tokens - (
            len(after.prompt_ids) - len(before.prompt_ids)
        )
        assert after.messages[-1].role == "assistant" and text.startswith(after.messages[-1].content)


def test_expansions_of_one_node_at_the_same_time_open_one_session() -> None:
    class Env:
        opened = 0

        async def open(self, *_: Any, **_more: Any) -> object:
            self.opened += 1
            await asyncio.sleep(0)
            return object()

    async def main() -> None:
        env = Env()
        sessions = Sessions(new_tree(), cast(EnvClient, env))
        first, second = await asyncio.gather(sessions.at(0), sessions.at(0))
        assert first is second and env.opened == 1

    asyncio.run(main())
