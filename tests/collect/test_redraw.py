"""A refused action is not made again: which turns are drawn anew, and which of them is taken."""

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import cast

import pytest

from agentr.collect.agent import Agent, Expanded
from agentr.collect.redraw import refused_since
from agentr.config.policy import SamplingConfig
from agentr.config.turns import PromptConfig, RepeatRefused, TurnsConfig
from agentr.envs.client import EnvClient, Session
from agentr.policy.base import GenerateRequest, PolicyStats
from agentr.search import Expansion, Tree
from agentr.tasks.formats import ReAct
from agentr.types import Completion, FinishReason, Observation
from tests.env_servers.support import Counter
from tests.trees import add, codec, new_tree, reasoned

ALL = (RepeatRefused.allow, RepeatRefused.redraw, RepeatRefused.vote)


class Drawn:
    """A policy that gives these actions, request by request; an empty one is a turn without an action."""

    def __init__(self, *answers: Sequence[str]) -> None:
        self.answers, self.asked = list(answers), list[GenerateRequest]()

    async def generate(self, request: GenerateRequest) -> list[Completion]:
        self.asked.append(request)
        actions = self.answers.pop(0)
        assert len(actions) == request.n
        texts = [
            ReAct().compose(f"thought {place}", action) if action else "prose" for place, action in enumerate(actions)
        ]
        ids = [tuple(codec().turn(text)) for text in texts]
        return [Completion(t, i, (-0.5,) * len(i), FinishReason.STOP) for t, i in zip(texts, ids, strict=True)]

    async def stats(self) -> PolicyStats:
        return PolicyStats()


def after(*turns: tuple[str, bool]) -> Tree:
    """A path of turns that were carried out or not."""
    tree, node = new_tree(), 0
    for action, valid in turns:
        node = add(tree, node, replace(reasoned(action or "x", valid=valid), action=action)).id
    return tree


def taken(policy: Drawn, how: RepeatRefused, tree: Tree, temperature: float = 0.0, n: int = 1) -> Expanded:
    agent = Agent(
        policy=policy,
        env=cast(EnvClient, None),
        codec=codec(),
        spec=Counter().spec,
        format=ReAct(),
        prompt=PromptConfig(),
        sampling=SamplingConfig(max_tokens=200, temperature=temperature),
        max_model_len=4096,
        turns=TurnsConfig(repeat_refused=how),
    )

    async def expand(actions: list[str]) -> list[Session]:
        return [cast(Session, SimpleNamespace(last=Observation("seen"))) for _ in actions]

    session = cast(Session, SimpleNamespace(last=Observation("seen"), expand=expand))
    return asyncio.run(agent.sample(tree, Expansion(len(tree.nodes) - 1, 0, n, 7), session))


REFUSED = (("get a", True), ("make b", False), ("make c", False))


@pytest.mark.parametrize(
    ("turns", "expected"),
    [
        (REFUSED, {"make b", "make c"}),
        ((("make b", False), ("get a", True)), set()),
        ((("make b", False), ("get a", True), ("make b", False)), {"make b"}),
        ((("", False), ("x", False)), {"x"}),  # a turn without an action is no action
        ((), set()),
    ],
)
def test_what_was_refused_since_the_last_action_that_was_carried_out(
    turns: Sequence[tuple[str, bool]], expected: set[str]
) -> None:
    tree = after(*turns)
    for how in ALL:
        there = set() if how is RepeatRefused.allow else expected
        assert refused_since(tree, len(tree.nodes) - 1, TurnsConfig(repeat_refused=how)) == there


@pytest.mark.parametrize(
    ("others", "redraw", "vote"),
    [
        (["make c", "get d", "get e", "get e"], "get e", "get e"),
        (["make c", "make c", "get e", "make b"], "get e", "make c"),
        (["get d", "get e", "make b", ""], "get d", "get d"),  # among equals the first
        (
            ["make c", "make b", "make b", "make b"],
            "make b",
            "make b",
        ),  # nothing else: it stays, by redraw as it was drawn
        (["", "", "", ""], "make b", "make b"),
    ],
)
def test_a_repeated_refused_action_gives_way_to_the_commonest_other_one(
    others: list[str], redraw: str, vote: str
) -> None:
    for how, action in zip(ALL, ("make b", redraw, vote), strict=True):
        policy = Drawn(["make b"], others)
        found = taken(policy, how, after(*REFUSED))
        (child,) = found.children
        assert child.action == action, how
        if how is RepeatRefused.allow:
            assert len(policy.asked) == 1 and child.logprobs and found.events == {}
            continue
        first, more = policy.asked
        assert (more.n, more.sampling.temperature, first.sampling.temperature) == (4, 1.0, 0.0)
        assert more.sampling.seed != first.sampling.seed and more.prompt_ids == first.prompt_ids
        assert child.logprobs == () and found.events == {"redrawn": 1}, "it is no draw of the policy's"
        assert (found.cost.calls, found.cost.completions) == (2, 5)


@pytest.mark.parametrize("how", ALL)
def test_what_was_not_refused_stays_as_it_was_drawn(how: RepeatRefused) -> None:
    for tree, action in ((after(*REFUSED), "get e"), (after(("make b", False), ("get a", True)), "make b")):
        policy = Drawn([action])
        (child,) = taken(policy, how, tree).children
        assert child.action == action and child.logprobs and len(policy.asked) == 1


def test_of_several_turns_those_alone_are_chosen_anew_that_repeat() -> None:
    policy = Drawn(["make b", "get d", "make c"], ["get e"] * 4, ["get f"] * 4)
    found = taken(policy, RepeatRefused.redraw, after(*REFUSED), temperature=0.7, n=3)
    assert [child.action for child in found.children] == ["get e", "get d", "get f"]
    assert [bool(child.logprobs) for child in found.children] == [False, True, False]
    assert {request.sampling.temperature for request in policy.asked} == {0.7}
    assert len({request.sampling.seed for request in policy.asked}) == 3 and found.events == {"redrawn": 2}


def test_a_turn_takes_no_more_completions_than_is_said() -> None:
    assert [TurnsConfig(repeat_refused=how, redraws=3).draws for how in ALL] == [1, 4, 4]
    assert replace(TurnsConfig(), redraws=9).draws == 1
