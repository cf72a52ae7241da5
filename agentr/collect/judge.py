"""Where did a bad path go wrong? The first step with the verdict "bad" is the transition point (Agent-R section 3.2).

The judge is the policy itself. Each step of a tree is judged once, whatever number of paths share it; the verdict is
kept on its node. A verdict that cannot be read is counted, and the tree's own values decide in its place.
"""

import re
from dataclasses import dataclass, field, replace
from enum import StrEnum

from agentr.collect.agent import Agent
from agentr.config.checks import Section
from agentr.config.policy import SamplingConfig
from agentr.policy.base import GenerateRequest
from agentr.search import Tree
from agentr.search.pairs import Pair, falls_behind
from agentr.search.revision import Rating, Verdict
from agentr.search.tree import Node
from agentr.seeds import derived_seed
from agentr.types import Cost, Message, Sampling

_INSTRUCTION = """\
You check the work of an agent in an interactive environment, one step at a time.

Task:
{task}

Steps so far:
{history}

Step to judge:
{step}

A step is Good if it clearly helps to finish the task, Bad if it clearly harms or wastes effort, and Uncertain if \
neither can be said.
Give your reason in one sentence. Then end with one line: Judgement: Good, Judgement: Bad, or Judgement: Uncertain."""

_VERDICT = re.compile(r"judge?ment:?\W*(good|bad|uncertain)", re.IGNORECASE)


class Judge(StrEnum):
    actor = "actor"
    """The current policy is asked for a verdict on each step (Agent-R)."""
    tree = "tree"
    """The first step after which the tree's mean return falls behind its best sibling's; no model call."""


@dataclass
class JudgeConfig(Section):
    """Who says which step of a bad path was wrong."""

    judge: Judge = Judge.actor
    """The policy itself, or the tree's values."""
    judge_sampling: SamplingConfig = field(default_factory=lambda: SamplingConfig(temperature=0.0, max_tokens=128))
    """How the judge's answers are drawn."""
    judge_shared_prefix: bool = False
    """Judge from the first step on (the original) instead of from where the two paths part."""


def read_verdict(text: str) -> Verdict | None:
    """Returns the last verdict in an answer with the reason before it, or None if there is none to be read."""
    found = list(_VERDICT.finditer(text))
    if not found:
        return None
    reason = re.sub(r"\s+", " ", text[: found[-1].start()]).strip()
    return Verdict(Rating(found[-1][1].lower()), re.sub(r"^reasons?:\s*", "", reason, flags=re.IGNORECASE))


async def find_transition(tree: Tree, pair: Pair, agent: Agent, config: JudgeConfig, margin: float) -> Node | None:
    """Returns the first bad step of the pair's bad path, or None if no step is bad.

    Args:
        margin: How far a step's value must fall behind its best sibling's to be bad by the tree's verdict.

    Raises:
        InfraError: The judge did not answer.
    """
    path = tree.path(pair.bad)
    first = 0 if config.judge_shared_prefix else tree.nodes[pair.ancestor].depth
    for step in range(first, len(path)):
        node = path[step]
        if node.verdict is None:
            node.verdict = await _judge(tree, path[: step + 1], agent, config, margin)
        if node.verdict.rating is Rating.BAD:
            return node
    return None


async def _judge(tree: Tree, path: list[Node], agent: Agent, config: JudgeConfig, margin: float) -> Verdict:
    by_value = Rating.BAD if falls_behind(tree, path[-1], margin) else Rating.UNCERTAIN
    if config.judge is Judge.tree:
        return Verdict(by_value)
    request = _question(tree, path, agent, config)
    (answer,) = await agent.policy.generate(request)
    tree.spend(Cost(judge_calls=1, prompt_tokens=len(request.prompt_ids), completion_tokens=len(answer.token_ids)))
    verdict = read_verdict(agent.codec.reply(answer.text))
    if verdict is None:
        tree.count(judge_malformed=1)
    return replace(verdict or Verdict(by_value, ""), answer=answer.text)


def _question(tree: Tree, path: list[Node], agent: Agent, config: JudgeConfig) -> GenerateRequest:
    """The judge's prompt. Oldest steps are left out, whole, until it fits the context."""
    *history, node = [f"Action: {n.action}\nObservation: {n.observation}" for n in path]
    sampling = config.judge_sampling
    while True:
        text = _INSTRUCTION.format(task=tree.messages[-1].content, history="\n".join(history) or "(none)", step=node)
        messages = (Message("user", text),)
        ids = tuple(agent.codec.plain.prompt(messages))
        if len(ids) + sampling.max_tokens <= agent.max_model_len or not history:
            break
        history = history[1:]
    seed, stop_ids = derived_seed(tree.seed, "judge", path[-1].id), agent.codec.stop_ids
    drawn = Sampling(sampling.temperature, sampling.max_tokens, sampling.top_p, seed, stop_ids=stop_ids)
    request = GenerateRequest(ids, 1, drawn, affinity=tree.task.key, messages=messages)
    # A task whose own text leaves no room is cut at the front: the judge still sees the step.
    room = agent.max_model_len - sampling.max_tokens
    return replace(request, prompt_ids=ids[-room:]) if len(ids) > room else request
