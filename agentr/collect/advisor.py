"""Who is asked, the teacher by the flywheel's operators and the judge of episodes: the policy itself, or a model behind
an API.

Answers are kept beside the trees, by what was asked: a stage that is started again asks nothing twice.
"""

import asyncio
import hashlib
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import asdict, replace
from typing import Any

from agentr.collect.agent import Agent
from agentr.config.policy import AdvisorConfig, PolicyConfig, Who
from agentr.errors import BudgetExceeded, ContextOverflow, InfraError, PromptRefused, RunError
from agentr.policy.base import GenerateRequest, Policy, cost_of
from agentr.search.tree import Tree
from agentr.seeds import derived_seed
from agentr.store.files import append_line
from agentr.store.forest import ANSWERS
from agentr.store.growing import GrowingForest
from agentr.types import Cost, Message, Sampling


class Advisor:
    """Asks, and remembers the answers.

    Args:
        key: Its section of the configuration, which ends with what it is asked as: ``teacher`` or ``judge``.
        forest: Of the stage.
    """

    def __init__(self, key: str, config: AdvisorConfig, agent: Agent, policy: Policy, forest: GrowingForest) -> None:
        self._key, self._config, self._agent, self._policy, self._file = key, config, agent, policy, forest.own(ANSWERS)
        self._role = key.rpartition(".")[2]
        self._known: dict[str, dict[str, Any]] = {line["asked"]: line for line in forest.lines(ANSWERS)}

    async def ask(self, tree: Tree, question: str, label: str) -> str | None:
        """Returns the answer to a question about a tree; None if there is none.

        Args:
            label: Names the question in its seed.

        Raises:
            RunError: There is none, and it is required.
        """
        own, messages = self._config.sampling, (Message("user", question),)
        sampling = Sampling(own.temperature, own.max_tokens, own.top_p, derived_seed(tree.seed, self._role, label))
        name = (
            self._agent.policy_name
            if self._config.who is Who.policy
            else f"{self._config.openai.base_url} {self._config.openai.model}"
        )
        # they add nothing to the name
        how = {key: value for key, value in asdict(sampling).items() if key != "stop_ids"}
        asked = hashlib.blake2b(json.dumps([name, question, how]).encode(), digest_size=16).hexdigest()
        if asked not in self._known:
            codec = self._agent.codec.plain
            drawn = replace(sampling, stop_ids=codec.stop_ids)
            request = GenerateRequest(tuple(codec.prompt(messages)), 1, drawn, tree.task.key, messages)
            try:
                (completion,) = await self._policy.generate(request)
            except PromptRefused as refused:
                tree.count(**{f"{self._role}_{'overflow' if isinstance(refused, ContextOverflow) else 'refused'}": 1})
                return None
            except (InfraError, BudgetExceeded) as error:
                if self._config.required:
                    hint = f"Or set {self._key}.required=false."
                    raise RunError(f"the {self._role} did not answer: {error}", hint=hint) from error
                tree.count(**{f"{self._role}_silent": 1})
                return None
            cost = cost_of(request, [completion])
            tokens = {"prompt_tokens": cost.prompt_tokens, "completion_tokens": cost.completion_tokens}
            answer = codec.reply(completion.text) if self._config.who is Who.policy else completion.text
            whole = {"whole": completion.text} if answer != completion.text else {}
            self._known[asked] = {
                "asked": asked,
                "task": tree.task.key,
                "question": question,
                "answer": answer,
                **whole,
                **tokens,
            }
            append_line(self._file, self._known[asked])
        known = self._known[asked]
        tree.spend(
            Cost(judge_calls=1, prompt_tokens=known["prompt_tokens"], completion_tokens=known["completion_tokens"])
        )
        return known["answer"]


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
    from agentr.policy.openai_api import OpenAIPolicy

    api = OpenAIPolicy(
        PolicyConfig(openai=config.openai, timeout_s=config.timeout_s, retries=config.retries),
        agent.codec.plain,
        agent.secrets,
    )
    try:
        yield Advisor(key, config, agent, api, forest)
    finally:
        await asyncio.shield(api.close())
