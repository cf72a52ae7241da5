"""Rollouts, what the policy writes about each, and retries with its own advice (R3L, arXiv 2601.03715, section 4.1)."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Literal

import msgspec

from agentr.background import together
from agentr.collect.advice import advised
from agentr.collect.advisor import Advisor, advisor
from agentr.collect.agent import Agent, Expanded
from agentr.collect.episode_judge import described
from agentr.collect.grow import grow
from agentr.collect.job import Unit, Work
from agentr.collect.sessions import Sessions
from agentr.config.policy import AdvisorConfig
from agentr.errors import ConfigError
from agentr.foreign import Unreadable, read
from agentr.policy.chat import ChatCodec
from agentr.search import Expansion, Origin, Sample, Tree
from agentr.search.episode import Episode, episodes
from agentr.search.evolution import Evolution
from agentr.search.strategy import cut_off
from agentr.seeds import derived_seed
from agentr.store.growing import GrowingForest

_HOW = """
The agent has stopped, and earned {earned:.2g} of 1.

What happened, and what should be tried in its place? Answer with one JSON object:
{{"summary": what the agent did, in a few sentences,
"outcome": "success", "success_but_inefficient" or "failure",
"root_cause": what went wrong first, and why; empty after a success,
"suggestion": what to do in its place, to the agent,
"retry_from_step": the number of the first step that should be done otherwise, from 1 to {steps}}}"""

_ADVICE = """\
You were here before, and it went wrong from here on.
What went wrong: {root_cause}
What to do: {suggestion}
Act as if you had not been told this."""

_OBJECT = re.compile(r"\{.*\}", re.DOTALL)


class Diagnosis(msgspec.Struct):
    """What was written about an episode.

    Attributes:
        retry_from_step: The first step that should be done otherwise, from 1 on: the pivot.
    """

    outcome: Literal["success", "success_but_inefficient", "failure"]
    root_cause: str
    suggestion: str
    retry_from_step: int
    summary: str = ""

    @property
    def advice(self) -> str:
        """What the policy is told where it begins again."""
        cause = self.root_cause or "nothing, but it took longer than it had to"
        return _ADVICE.format(root_cause=cause, suggestion=self.suggestion)


def question(episode: Episode) -> str:
    """Returns what is asked about an episode."""
    return described(episode) + _HOW.format(earned=episode.earned, steps=len(episode.path))


def read_diagnosis(text: str, steps: int) -> Diagnosis | None:
    """Reads what was written about an episode of so many steps; None if that cannot be read, or names no step of it."""
    if (found := _OBJECT.search(text)) is None:
        return None
    try:
        diagnosis: Diagnosis = read(found[0], Diagnosis)
    except Unreadable:
        return None
    return diagnosis if 1 <= diagnosis.retry_from_step <= steps else None


@dataclass(frozen=True)
class Retry(Work):
    """Rollouts of each task, each begun again once where the policy says that it went wrong, unless that is nowhere.

    Attributes:
        initial: Rollouts from the opening.
        retries: Most retries.
        reflect: Who writes what went wrong.
        max_steps: Actions after which a rollout ends, those before it was begun again included; 0 means the
            environment's own limit.
        max_invalid: Invalid actions in a row after which it ends; 0 means never.
    """

    initial: int
    retries: int
    reflect: AdvisorConfig
    max_steps: int = 0
    max_invalid: int = 0

    kind = "r3l"

    @property
    def at_once(self) -> int:
        return self.initial

    def max_completions(self, step_limit: int) -> int:
        return (self.initial + self.retries) * (self.max_steps or step_limit)

    @asynccontextmanager
    async def helper(self, agent: Agent, forest: GrowingForest) -> AsyncIterator[Advisor | None]:
        async with advisor("method.reflect", self.reflect, agent, forest) as found:
            yield found

    async def make(self, unit: Unit) -> Tree:
        agent, helper = unit.agent, unit.helper
        steps = self.max_steps or agent.spec.step_limit
        tree = await grow(unit.task, Sample(self.initial, steps, self.max_invalid), agent, unit.forest, unit.seed)
        if tree.root.asked is not None:
            message = "a program writes its prompts itself, and R3L puts advice into them"
            raise ConfigError(f"method.type = r3l: {message}.", hint="Take another method, such as grpo.")
        before = list(episodes(tree, agent.spec.answer_prefix))
        tree.evolutions = await together(_written(tree, episode, helper) for episode in before)
        chosen = list[Evolution]()
        for made in (made for made in tree.evolutions if made.guidance):
            if len(chosen) == self.retries:
                made.reason = "there are as many retries as there may be"
            elif not agent.has_room(len(told(tree, made, agent.codec).prompt(pivot(tree, made)))):
                made.reason = "the context has no room for the advice"
            else:
                chosen.append(made)
        await _retry(tree, chosen, agent, steps, self.max_invalid)
        return tree


async def _written(tree: Tree, episode: Episode, helper: Advisor) -> Evolution:
    """Returns what is written about an episode, and what comes of it: where it is begun again, or why it is not."""
    made = Evolution(parent=episode.leaf.id, operator="retry", asked=1)
    known = await helper.answer(tree, question(episode), f"reflect/{episode.leaf.id}")
    if known is None:
        made.reason = "nobody answered"
        return made
    made.answer_ids, made.answer_logprobs = tuple(known.get("token_ids", ())), tuple(known.get("logprobs", ()))
    tree.count(reflection_malformed=int(not decide(made, known["answer"], len(episode.path))))
    return made


def decide(made: Evolution, answer: str, steps: int) -> bool:
    """Decides by what was written about an episode of so many steps whether it is begun again, where, and what the
    policy is told there; returns whether it could be read. What the episode earned does not count."""
    made.answer, diagnosis = answer, read_diagnosis(answer, steps)
    if diagnosis is None:
        made.reason = "what was written cannot be read"
    elif diagnosis.outcome == "success":
        made.reason = "nothing went wrong"
    else:
        made.turn, made.kept = diagnosis.retry_from_step, diagnosis.retry_from_step - 1
        made.guidance = diagnosis.advice
    return diagnosis is not None


def pivot(tree: Tree, made: Evolution) -> int:
    """Returns the node after which an episode is begun again."""
    return tree.path(made.parent)[made.kept].parent


def told(tree: Tree, made: Evolution, codec: ChatCodec) -> Tree:
    """Returns the tree as the policy sees it from there on: with its advice."""
    return advised(tree, pivot(tree, made), made.guidance, codec)


async def _retry(tree: Tree, retries: Sequence[Evolution], agent: Agent, steps: int, invalid: int) -> None:
    """Begins episodes again, all at the same time, turn by turn: each with what it is told."""
    going, sessions = [(made, pivot(tree, made)) for made in retries], Sessions(tree, agent.env)

    async def turn(made: Evolution, at: int) -> Expanded:
        view = told(tree, made, agent.codec)
        seed = derived_seed(tree.seed, "retry", made.parent, at)
        return await agent.sample(view, Expansion(at, tree.nodes[at].expansions, 1, seed), await sessions.at(at))

    try:
        while going:
            turns, there, going = await together(turn(*one) for one in going), going, []
            for (made, at), taken in zip(there, turns, strict=True):
                taken.account(tree, at, tree.nodes[at].expansions)
                tree.nodes[at].expansions += 1
                node = tree.add(at, cut_off(tree, at, taken.children[0], steps, invalid), Origin.POLICY)
                sessions.keep(node.id, taken.sessions[0])
                made.completions += taken.cost.completions
                made.env_steps += taken.cost.env_steps
                if node.outcome is None:
                    going.append((made, node.id))
                else:
                    made.end = node.id
                    tree.back_up(node.id)
            sessions.drop_finished()
    finally:
        sessions.close()
