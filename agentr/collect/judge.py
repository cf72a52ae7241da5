"""Where did a bad path go wrong? The first step with the verdict "bad" is the transition point (Agent-R section 3.2).

The judge is the policy itself. Each step of a tree is judged once, whatever number of paths share it; the verdict is kept on its node.
A verdict that cannot be read is counted, and the tree's own values decide in its place.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

from agentr.collect.player import Player
from agentr.config.methods import Judge, ReviseConfig
from agentr.policy.base import GenerateRequest
from agentr.search import Tree
from agentr.search.pairs import Pair, falls_behind
from agentr.search.tree import Node
from agentr.seeds import derived_seed
from agentr.types import Message, Sampling

_INSTRUCTION = """\
You check the work of an agent in an interactive environment, one step at a time.

Task:
{task}

Steps so far:
{history}

Step to judge:
{step}

A step is Good if it clearly helps to finish the task, Bad if it clearly harms or wastes effort, and Uncertain if neither can be said.
Give your reason in one sentence. Then end with one line: Judgement: Good, Judgement: Bad, or Judgement: Uncertain."""

_VERDICT = re.compile(r"judge?ment:?\W*(good|bad|uncertain)", re.IGNORECASE)


@dataclass(frozen=True)
class Verdict:
    """``label`` is good, bad, uncertain, or empty for an answer that could not be read."""

    label: str
    reason: str = ""


def read_verdict(text: str) -> Verdict:
    """The last verdict in an answer and the reason before it."""
    found = list(_VERDICT.finditer(text))
    if not found:
        return Verdict("")
    reason = re.sub(r"\s+", " ", text[: found[-1].start()]).strip()
    return Verdict(found[-1][1].lower(), re.sub(r"^reasons?:\s*", "", reason, flags=re.IGNORECASE))


async def find_transition(tree: Tree, pair: Pair, player: Player, config: ReviseConfig) -> Node | None:
    """The first bad step of the pair's bad path, or None if no step is bad.

    Raises:
        InfraError: The judge did not answer.
    """
    path = tree.path(pair.bad)
    first = 0 if config.judge_shared_prefix else tree.nodes[pair.ancestor].depth
    for step in range(first, len(path)):
        node = path[step]
        if not node.judgement:
            await _judge(tree, path[: step + 1], player, config)
        if node.judgement == "bad":
            return node
    return None


async def _judge(tree: Tree, path: list[Node], player: Player, config: ReviseConfig) -> None:
    node = path[-1]
    behind = "bad" if falls_behind(tree, node, config.beta) else "uncertain"
    if config.judge is Judge.tree:
        node.judgement = behind
        return
    request = _question(tree, path, player, config)
    (answer,) = await player.policy.generate(request)
    tree.count(judge_calls=1, prompt_tokens=len(request.prompt_ids), completion_tokens=len(answer.token_ids))
    verdict = read_verdict(answer.text)
    if not verdict.label:
        tree.count(judge_malformed=1)
    node.judgement = verdict.label or behind
    node.note["reason"] = verdict.reason


def _question(tree: Tree, path: list[Node], player: Player, config: ReviseConfig) -> GenerateRequest:
    """The judge's prompt. Oldest steps are left out, whole, until it fits the context."""
    *history, node = [f"Action: {n.action}\nObservation: {n.observation}" for n in path]
    sampling = config.judge_sampling
    while True:
        text = _INSTRUCTION.format(task=tree.messages[-1].content, history="\n".join(history) or "(none)", step=node)
        messages = (Message("user", text),)
        ids = tuple(player.codec.prompt(messages))
        if len(ids) + sampling.max_tokens <= player.max_model_len or not history:
            break
        history = history[1:]
    drawn = Sampling(sampling.temperature, sampling.max_tokens, sampling.top_p, derived_seed(tree.seed, "judge", path[-1].id))
    request = GenerateRequest(ids, 1, drawn, affinity=tree.task.key, messages=messages)
    # A task whose own text leaves no room is cut at the front: the judge still sees the step.
    room = player.max_model_len - sampling.max_tokens
    return replace(request, prompt_ids=ids[-room:]) if len(ids) > room else request
