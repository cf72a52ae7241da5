"""An agent for tests without a model: a real environment server, a real tokenizer, and answers that depend on prompt
and seed alone."""

import random
from collections.abc import Sequence
from dataclasses import replace

from agentr.collect.agent import Agent
from agentr.config.policy import SamplingConfig
from agentr.config.turns import PromptConfig, TurnsConfig
from agentr.envs.client import EnvClient
from agentr.policy.base import GenerateRequest, PolicyStats
from agentr.policy.chat import ChatCodec
from agentr.tasks.formats import ReAct, action_format
from agentr.types import Completion, Cost, FinishReason, Task
from env_servers.textcraft import TextCraft
from tests.reasoning import drawn
from tests.support import tiny_tokenizer

OPTIONS = {"recipes": "exact", "distractors": 3}


class SloppyExpert:
    """Knows the expert's plan and follows it with some probability; otherwise it looks around, asks for nonsense or
    forgets the format.

    Args:
        skill: Probability of the right next action.
        tasks: Tasks it may be asked about; a request's affinity names one by its key.
    """

    def __init__(self, codec: ChatCodec, tasks: Sequence[Task], skill: float = 0.6) -> None:
        self.codec = codec
        self.skill = skill
        self.plans = {t.key: [s.action for s in TextCraft(**OPTIONS).expert(t.id) or []] for t in tasks}
        self.calls = 0

    async def generate(self, request: GenerateRequest) -> list[Completion]:
        self.calls += 1
        return [self._answer(request, random.Random(f"{request.sampling.seed}/{i}")) for i in range(request.n)]

    async def stats(self) -> PolicyStats:
        return PolicyStats(Cost(calls=self.calls))

    def _answer(self, request: GenerateRequest, rng: random.Random) -> Completion:
        if "You check the work" in request.messages[0].content:
            text = (
                "It wastes a step. Judgement: Bad"
                if "inventory" in request.messages[0].content.split("Step to judge:")[1]
                else "Fine. Judgement: Good"
            )
        else:
            text = ReAct().compose("let me see", self._action(request, rng))
            if rng.random() < 0.05:
                text = "I forgot how to answer"
        ids = tuple(self.codec.turn(text))
        return Completion(text, ids, (-0.25,) * len(ids), FinishReason.STOP)

    def _action(self, request: GenerateRequest, rng: random.Random) -> str:
        plan = list(self.plans[request.affinity])
        for message in request.messages:
            if message.role == "assistant" and (done := ReAct().parse(message.content).action) in plan:
                plan.remove(done)
        if plan and rng.random() < self.skill:
            return plan[0]
        return rng.choice(["inventory", "get 1 moon cheese", "get 1 stick", *self.plans[request.affinity]])


class ThinkingExpert(SloppyExpert):
    """The same after some reasoning, which names an action that it does not take, and now and then never ends."""

    def _answer(self, request: GenerateRequest, rng: random.Random) -> Completion:
        said = super()._answer(request, rng).text
        thought = f"<think>\nAction: get 1 moon cheese? Judgement: Bad? No. {rng.randrange(9)}"
        text = thought if rng.random() < 0.05 else f"{thought}\n</think>\n\n{said}"
        ids = drawn(self.codec, text)
        return Completion(text, ids, (-0.25,) * len(ids), FinishReason.STOP)


async def sloppy_agent(env: EnvClient, tasks: Sequence[Task], skill: float = 0.6) -> Agent:
    codec = ChatCodec(tiny_tokenizer())
    spec = await env.spec()
    return Agent(
        policy=SloppyExpert(codec, tasks, skill),
        env=env,
        codec=codec,
        spec=spec,
        format=action_format(spec.action_format),
        prompt=PromptConfig(instruction=False),
        sampling=SamplingConfig(max_tokens=64),
        max_model_len=8192,
        policy_name="test",
    )


async def thinking_agent(
    env: EnvClient, tasks: Sequence[Task], codec: ChatCodec, *, keeps: bool, skill: float = 0.6
) -> Agent:
    """The same with a policy that reasons, for a codec whose template knows of that."""
    agent = await sloppy_agent(env, tasks)
    sampling, turns = SamplingConfig(max_tokens=256), TurnsConfig(keep_reasoning=keeps)
    return replace(
        agent,
        codec=codec,
        policy=ThinkingExpert(codec, tasks, skill),
        turns=turns,
        sampling=sampling,
        max_model_len=16384,
    )
