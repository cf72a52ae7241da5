"""A judge is asked whether an episode is right: of those that the flywheel makes, and of held-out ones.

That is the LLM judge of ET-Agent (arXiv 2601.06860, section 4.1). The environment has its own answer to the same
question, so what a judge says can be held against it.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace

from agentr.collect.advisor import Advisor, advisor
from agentr.collect.agent import Agent
from agentr.collect.job import Unit, Work
from agentr.collect.judge import read_verdict
from agentr.config.policy import AdvisorConfig
from agentr.search.episode import Episode, episodes
from agentr.search.revision import Rating, Verdict
from agentr.search.tree import Tree
from agentr.store.growing import GrowingForest

_WORK = """\
You check the work of an agent that solves a task turn by turn. After each turn its environment answers.

Task:
{task}

{steps}
"""

_SOLVED = """
The agent has stopped. The work is Good if the task is solved, Bad if it is not, and Uncertain if neither can be \
said."""

_ANSWERED = """\
You check the work of an agent that answers a question.

Question:
{task}

Right answer: {reference}
Answer of the agent: {answer}

The agent's answer is Good if it means the same as the right one, Bad if it does not, and Uncertain if neither can be \
said."""

_HOW = """
Give your reason in one sentence. Then end with one line: Judgement: Good, Judgement: Bad, or Judgement: Uncertain."""


def described(episode: Episode) -> str:
    """Returns an episode in words: the task, and each turn with the environment's answer."""
    turns = enumerate(episode.path, 1)
    steps = "\n\n".join(
        f"Step {step}:\n{node.text}\nAnswer of the environment: {node.observation}" for step, node in turns
    )
    return _WORK.format(task=episode.tree.messages[-1].content, steps=steps)


async def give_verdict(judge: Advisor | None, episode: Episode, reference: str = "") -> None:
    """Asks a judge, if there is one, whether an episode is right; its verdict stands at the last turn, none if there is
    no answer.

    An answer of the judge's that cannot be read is counted, and counts as uncertain.

    Args:
        reference: The right answer to the task, where episodes end with one: the judge then sees the two answers and
            not the work.
    """
    if judge is None or episode.leaf.verdict is not None:
        return
    if not reference:
        question = described(episode) + _SOLVED
    elif answer := episode.answer:
        question = _ANSWERED.format(task=episode.tree.messages[-1].content, reference=reference, answer=answer)
    else:
        episode.leaf.verdict = Verdict(Rating.BAD)  # there is nothing to ask about
        return
    said = await judge.ask(episode.tree, question + _HOW, f"right/{episode.leaf.id}")
    if said is None:
        return
    verdict = read_verdict(said)
    if verdict is None:
        episode.tree.count(judge_malformed=1)
    episode.leaf.verdict = replace(verdict or Verdict(Rating.UNCERTAIN, ""), answer=said)


@dataclass(frozen=True)
class Assess(Work):
    """Ask a judge about each episode in a stage of held-out ones."""

    judge: AdvisorConfig

    kind = "assess"

    async def make(self, unit: Unit) -> Tree:
        tree, prefix, reference = unit.without_costs(), unit.agent.spec.answer_prefix, ""
        if prefix and (steps := await unit.agent.env.expert(unit.task)) and steps[-1][1].startswith(prefix):
            reference = steps[-1][1].removeprefix(prefix).strip()
        for episode in episodes(tree, prefix):
            await give_verdict(unit.helper, episode, reference)
        return tree

    @asynccontextmanager
    async def helper(self, agent: Agent, forest: GrowingForest) -> AsyncIterator[Advisor | None]:
        async with advisor("eval.judge", self.judge, agent, forest) as judge:
            yield judge
