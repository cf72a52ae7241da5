"""A preset of a method from its opening to the rows of a dataset, without Ray: one task, a real server, a scripted
policy."""

from __future__ import annotations

import asyncio
import json
import random
import re
from collections.abc import Callable
from contextlib import nullcontext
from copy import deepcopy
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from agentr.collect.agent import Agent, AgentSettings
from agentr.collect.job import TreeJob, run_job
from agentr.collect.units import StageProgress, as_dict
from agentr.config.schema import Config
from agentr.envs.client import EnvClient
from agentr.envs.connect import connect
from agentr.errors import DataError
from agentr.methods import load, method_of, methods
from agentr.policy.base import GenerateRequest, PolicyStats
from agentr.policy.chat import ChatCodec
from agentr.rounds.services import Services
from agentr.tasks.formats import ActionFormat
from agentr.train.job import TrainJob
from agentr.train.online_job import OnlineJob
from agentr.types import Completion, FinishReason, Task
from tests.one_part import OnePart
from tests.reasoning import drawn
from tests.rounds.test_steps import Training
from tests.runs import round_of
from tests.support import CHATML

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

ROOT = Path(__file__).parents[1]
#: Tasks of which the one with the shortest plan is explored; if there is one with so many actions at least, so that it
#: can be done by half.
CHOICE, LEAST = 4, 4
#: Ways to end an episode too early, in WebShop and ScienceWorld; elsewhere they are not understood.
WRONG = ["click[Buy Now]", "focus on agent"]
#: What makes the exploration of a task small, and what else takes long.
SMALL = {
    "agent_r": ["method.search.iterations=2", "method.search.max_depth=6"],
    "eto": ["method.max_steps=12"],
    "dense_policy": ["method.search.stop_rollouts=40"],
    "arpo": ["method.steps=1"],
    "r3l": ["method.steps=1"],
    "tree_grpo": ["method.steps=1"],
}
#: Where a preset leaves the context to who uses it: that of the shipped configuration of Agent-R.
CONTEXT = ["model.max_model_len=8192", "build.max_length=8192", "train[0].max_length=8192", "warm_start.enabled=false"]


@cache
def fluent_tokenizer() -> PreTrainedTokenizerBase:
    """A byte-level BPE tokenizer that knows the words of the environments."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    specials, alphabet = ["<|im_start|>", "<|im_end|>"], pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=8000, special_tokens=specials, initial_alphabet=alphabet, show_progress=False
    )
    tokenizer.train([str(path) for path in (ROOT / "env_servers").rglob("*.yaml")], trainer)
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        eos_token="<|im_end|>",
        additional_special_tokens=["<|im_start|>"],
        chat_template=CHATML,
    )


@cache
def reasoning_tokenizer() -> PreTrainedTokenizerBase:
    """The same with Qwen 3's template and its tokens of reasoning."""
    from tokenizers import AddedToken

    from tests.policy.test_families import text_of

    tokenizer: Any = deepcopy(fluent_tokenizer())
    tokenizer.add_tokens([AddedToken(token, special=False, normalized=False) for token in ("<think>", "</think>")])
    tokenizer.chat_template = text_of("qwen3.jinja")
    return tokenizer


def reflection(outcome: str, step: int) -> str:
    """What is written about an episode where R3L asks."""
    about = {"summary": "A.", "outcome": outcome, "root_cause": "It went astray.", "suggestion": "Follow the plan."}
    return f"So it was. {json.dumps({**about, 'retry_from_step': step})}"


class Learner:
    """Knows the expert's plan and mostly takes its next action, less often once it went astray.

    Greedily it takes none of the last two, so that there is something to learn. As a judge it finds every other step
    bad, and it reflects on its episodes. Where the template knows of reasoning, it first thinks of another turn.

    Args:
        plans: Thoughts and actions by the task's key.
    """

    def __init__(self, codec: ChatCodec, turns: ActionFormat, plans: dict[str, list[tuple[str, str]]]) -> None:
        self.codec = codec
        self.turns = turns
        self.plans = plans
        self.noise = {
            "react": ["look", "inventory", "search[red lamp]", *WRONG],
            "codeact": ["python: print(1)", "answer: -1"],
        }
        self.noise["tags"] = ["python: print(1)", "answer: nobody"]

    async def generate(self, request: GenerateRequest) -> list[Completion]:
        return [self._answer(request, random.Random(f"{request.sampling.seed}/{i}")) for i in range(request.n)]

    async def stats(self) -> PolicyStats:
        return PolicyStats()

    def _answer(self, request: GenerateRequest, rng: random.Random) -> Completion:
        if "Judgement:" in request.messages[0].content:
            text = f"So. Judgement: {rng.choice(['Good', 'Bad'])}"
        elif found := re.search(r"retry_from_step.* from 1 to (\d+)", request.messages[0].content):
            text = reflection(rng.choice(["failure", "success"]), rng.randint(1, int(found[1])))
        else:
            text = self.turns.compose(*self._turn(request, rng))
        if self.codec.reasons:
            text = (
                f"<think>\n{self.turns.compose('Or', rng.choice(self.noise[self.turns.name]))} {rng.randrange(9)}?\n"
                f"</think>\n\n{text}"
            )
        ids = drawn(self.codec, text) if self.codec.reasons else tuple(self.codec.turn(text))
        return Completion(text, ids, (-0.5,) * len(ids), FinishReason.STOP)

    def _turn(self, request: GenerateRequest, rng: random.Random) -> tuple[str, str]:
        plan, done = self.plans[request.affinity], 0
        for message in request.messages:
            if (
                message.role == "assistant"
                and done < len(plan)
                and self.turns.parse(message.content).action == plan[done][1]
            ):
                done += 1
        greedy = request.sampling.temperature == 0
        astray = any("let me see" in message.content for message in request.messages)
        if rng.random() < (0.4 if astray else 0.8) and done < len(plan) - 2 * greedy:
            return plan[done]
        wrong = WRONG if greedy and self.turns.name == "react" else self.noise[self.turns.name]
        return f"let me see {rng.randrange(3)}", rng.choice(wrong)


class Here(OnePart):
    """Services in this process. Every selection of tasks is the one task; trainings are made up."""

    def __init__(self, config: Config, url: str, codec: ChatCodec) -> None:
        self.config, self.url, self.codec = config, url, codec
        self.jobs: list[OnlineJob] = []
        self._spec, self.task, self.plan = self._with(self._chosen)

    def _with(self, work: Callable[[EnvClient], Any]) -> Any:
        async def main() -> Any:
            env = connect(self.config.env, [self.url], "secret")
            try:
                return await work(env)
            finally:
                await env.aclose()

        return asyncio.run(main())

    async def _chosen(self, env: EnvClient) -> tuple[Any, Task, list[tuple[str, str]]]:
        tasks = await env.tasks(replace(self.config.collect.tasks, limit=CHOICE))
        plans = [(task, plan) for task in tasks if (plan := await env.expert(task))]
        return (await env.spec(), *min(plans, key=lambda found: (len(found[1]) < LEAST, len(found[1]))))

    def spec(self) -> Any:
        return self._spec

    def tasks(self, selection: Any, *, training: bool) -> list[Task]:
        return [self.task]

    def collect(self, title: str, job: TreeJob, policy: Any, update: Any = None) -> dict[str, Any]:
        async def work(env: EnvClient) -> dict[str, Any]:
            agent = Agent.of(AgentSettings.of(self.config), cast(Any, None), env, self.codec, self._spec)
            agent = replace(agent, policy=Learner(self.codec, agent.format, {self.task.key: self.plan}))
            return as_dict(await run_job(job, agent, StageProgress()))

        return self._with(work)

    def start(self, checkpoint: Path) -> list[Any]:
        return []

    def machines(self) -> int:
        return 1

    def sleep(self) -> None:
        """There are none."""

    def awaiting(self, job: TrainJob, what: str) -> Any:
        return nullcontext()

    def beside(self, job: OnlineJob) -> Training:
        self.jobs.append(job)
        return Training(job)


def configured(method: str, preset: str, env: str, *overrides: str) -> Config:
    """A preset in an environment, with a small exploration."""
    own = methods()[method].presets[preset].get("model", {})
    context = CONTEXT if "max_model_len" not in own else []
    return small(
        load(
            None,
            [
                f"method.type={method}",
                f"method.preset={preset}",
                f"env.name={env}",
                *context,
                *SMALL.get(method, []),
                *overrides,
            ],
        )
    )


def small(config: Config) -> Config:
    """The same with one step in each later round of online training."""
    config = deepcopy(config)
    for change in config.from_round.values():
        change["method"]["steps"] = 1
    return config


def datasets(config: Config, url: str, folder: Path, codec: ChatCodec) -> dict[int, Path | str]:
    """Makes what round 1, and each round that changes something, train on: a dataset, or why there is none."""
    found: dict[int, Path | str] = {}
    for number in (1, *config.from_round):
        services = Here(config, url, codec)
        round_ = round_of(folder / str(number), (), number=number, config=config, services=cast(Services, services))
        round_.experiment.codec = codec
        method = method_of(round_.config.method)
        try:
            if method.online:
                method.train(round_, round_.policy)
                found[number] = services.jobs[0].rows_of(1)
            else:
                method.explore(round_)
                found[number] = method.build(round_)
        except DataError as error:
            found[number] = str(error)
        finally:
            round_.experiment.store.close()
    return found
