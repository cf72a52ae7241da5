"""Who is asked, the teacher by the flywheel's operators and the judge of episodes: the policy itself, or a model behind
an API.

Answers are kept beside the trees, by what was asked: a stage that is started again asks nothing twice.
"""

import asyncio
import hashlib
import json
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from agentr.collect.agent import Agent
from agentr.config.policy import AdvisorConfig, PolicyConfig, Who
from agentr.errors import BudgetExceeded, ContextOverflow, InfraError, PromptRefused, RunError
from agentr.policy.base import GenerateRequest, Policy, cost_of
from agentr.policy.chat import ChatCodec
from agentr.search.tree import Tree
from agentr.secrets import Secret
from agentr.seeds import derived_seed
from agentr.store.files import append_line
from agentr.store.forest import ANSWERS
from agentr.store.growing import GrowingForest
from agentr.types import Cost, Message, Sampling

if TYPE_CHECKING:
    from agentr.policy.openai_api import OpenAIPolicy


class Answers:
    """Asks, and keeps the answers in a file by what was asked: whoever is started again asks nothing twice.

    Args:
        role: What somebody is asked as, ``teacher`` or ``judge``; a part of the seeds.
        name: Of who is asked: a policy, or an address with a model there.
        codec: Without tools.
        file: To which they are added.
        known: What it holds.
        whole: Whether questions are kept beside their answers.
    """

    def __init__(
        self,
        role: str,
        name: str,
        config: AdvisorConfig,
        codec: ChatCodec,
        policy: Policy,
        file: Path,
        known: Iterable[dict[str, Any]],
        *,
        whole: bool = True,
    ) -> None:
        self.role, self._name, self._config, self._codec = role, name, config, codec
        self._policy, self._file, self._whole = policy, file, whole
        self._known: dict[str, dict[str, Any]] = {line["asked"]: line for line in known}

    async def get(self, question: str, seed: int, label: str, task: str) -> dict[str, Any]:
        """Returns the line with the answer to a question.

        Args:
            label: Names the question in its seed.
            task: Key of the task that it is about.

        Raises:
            PromptRefused, InfraError, BudgetExceeded: There is none.
        """
        own, messages = self._config.sampling, (Message("user", question),)
        sampling = Sampling(own.temperature, own.max_tokens, own.top_p, derived_seed(seed, self.role, label))
        # they add nothing to the name
        how = {key: value for key, value in asdict(sampling).items() if key != "stop_ids"}
        asked = hashlib.blake2b(json.dumps([self._name, question, how]).encode(), digest_size=16).hexdigest()
        if asked not in self._known:
            drawn = replace(sampling, stop_ids=self._codec.stop_ids)
            request = GenerateRequest(tuple(self._codec.prompt(messages)), 1, drawn, task, messages)
            (completion,) = await self._policy.generate(request)
            cost, own_policy = cost_of(request, [completion]), self._config.who is Who.policy
            spent = 0.0 if own_policy else (await self._policy.stats()).spent
            answer = self._codec.reply(completion.text) if own_policy else completion.text
            self._known[asked] = {
                "asked": asked,
                "task": task,
                **({"question": question} if self._whole else {}),
                "answer": answer,
                **({"whole": completion.text} if answer != completion.text else {}),
                **({"token_ids": completion.token_ids, "logprobs": completion.logprobs} if own_policy else {}),
                "prompt_tokens": cost.prompt_tokens,
                "completion_tokens": cost.completion_tokens,
                **({"spent": spent} if spent else {}),
            }
            append_line(self._file, self._known[asked])
        return self._known[asked]


class Advisor:
    """Asks about trees, and counts there what it costs and what comes of it.

    Args:
        key: Its section of the configuration, which ends with what it is asked as: ``teacher`` or ``judge``.
        forest: Of the stage.
    """

    def __init__(self, key: str, config: AdvisorConfig, agent: Agent, policy: Policy, forest: GrowingForest) -> None:
        self._key, self._config = key, config
        name = agent.policy_name if config.who is Who.policy else f"{config.openai.base_url} {config.openai.model}"
        role, codec = key.rpartition(".")[2], agent.codec.plain
        self._answers = Answers(role, name, config, codec, policy, forest.own(ANSWERS), forest.lines(ANSWERS))

    async def ask(self, tree: Tree, question: str, label: str) -> str | None:
        """Returns the answer to a question about a tree; None if there is none.

        Args:
            label: Names the question in its seed.

        Raises:
            RunError: There is none, and it is required.
        """
        known = await self.answer(tree, question, label)
        return None if known is None else known["answer"]

    async def answer(self, tree: Tree, question: str, label: str) -> dict[str, Any] | None:
        """Returns the same with what is known of it: where the policy answers, its ``token_ids`` and ``logprobs``."""
        role = self._answers.role
        try:
            known = await self._answers.get(question, tree.seed, label, tree.task.key)
        except PromptRefused as refused:
            tree.count(**{f"{role}_{'overflow' if isinstance(refused, ContextOverflow) else 'refused'}": 1})
            return None
        except (InfraError, BudgetExceeded) as error:
            if self._config.required:
                hint = f"Or set {self._key}.required=false."
                raise RunError(f"the {role} did not answer: {error}", hint=hint) from error
            tree.count(**{f"{role}_silent": 1})
            return None
        tree.spend(
            Cost(judge_calls=1, prompt_tokens=known["prompt_tokens"], completion_tokens=known["completion_tokens"])
        )
        return known


@asynccontextmanager
async def advisor(
    key: str, config: AdvisorConfig, agent: Agent, forest: GrowingForest
) -> AsyncIterator[Advisor | None]:
    """Gives the teacher or the judge of a stage, None if nobody is asked, and closes its connections in the end.

    Args:
        key: Its section of the configuration.

    Raises:
        ConfigError: It is behind an API that has no key.
    """
    if config.who is Who.nobody:
        yield None
        return
    if config.who is Who.policy:
        yield Advisor(key, config, agent, agent.policy, forest)
        return
    async with asking(config, agent.codec.plain, agent.secrets) as api:
        yield Advisor(key, config, agent, api, forest)


@asynccontextmanager
async def asking(
    config: AdvisorConfig, codec: ChatCodec, secrets: Mapping[str, str | Secret], spent: float = 0.0
) -> AsyncIterator["OpenAIPolicy"]:
    """Gives the API of an adviser, and closes its connections in the end.

    Args:
        spent: Of its budget, before.

    Raises:
        ConfigError: It has no key.
    """
    from agentr.policy.openai_api import OpenAIPolicy

    api = OpenAIPolicy(
        PolicyConfig(openai=config.openai, timeout_s=config.timeout_s, retries=config.retries),
        codec,
        secrets,
        spent=spent,
    )
    try:
        yield api
    finally:
        await asyncio.shield(api.close())
