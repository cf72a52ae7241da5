"""What the flywheel asks. A teacher: which step was redundant or wrong, what to do in its place, and how to think more briefly; these are
operators. A judge: whether an episode is right.

What a teacher writes is carried out in the environment like any other turn. A rewritten thought leaves the rest of its turn as it was,
byte for byte, and the environment must answer as before.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

from agentr.collect.evolver import Evolver, above
from agentr.collect.judge import read_verdict
from agentr.search.episode import Episode
from agentr.search.evolution import Evolution
from agentr.search.revision import Rating, Verdict
from agentr.search.tree import Node

_WORK = """\
You check the work of an agent that solves a task turn by turn. After each turn its environment answers.

Task:
{task}

{steps}
"""

_REDUNDANT = """
The agent has solved the task. Is there a step that it could have done without: a call that finds out nothing new, or reasoning that
repeats what was known? Name the first one and write the turn that should stand in its place, in the agent's own format.
Answer "Step: no" if every step was needed. Otherwise answer in three parts:
Step: its number
Analysis: why it is redundant
Corrected Step: the whole turn that should stand in its place"""

_FLAWED = """
The agent has not solved the task. Find the first step that went wrong: an error of logic, overthinking, a redundant call, or a call
that does not fit. Write the turn that should stand in its place, in the agent's own format. Answer in three parts:
Step: its number
Analysis: what went wrong
Corrected Step: the whole turn that should stand in its place"""

_THOUGHT = """
In step {step} the agent thought:
{thought}

Write this thought anew: as short and clear as it can be, in words that lead to the action of step {step}. Do not name the step or the
action's format. Answer with the new thought alone."""

_RIGHT = """
The agent has stopped. The work is Good if the task is solved, Bad if it is not, and Uncertain if neither can be said.
Give your reason in one sentence. Then end with one line: Judgement: Good, Judgement: Bad, or Judgement: Uncertain."""

_ANSWER = re.compile(r"Step:\s*#?(\d+)\b.*?Corrected Step:\s*(.+)", re.DOTALL | re.IGNORECASE)
_NONE = re.compile(r"Step:\s*no\b", re.IGNORECASE)


async def refine_redundant(evolver: Evolver, episode: Episode) -> Evolution:
    """The episode up to the first step that the teacher finds redundant, the teacher's turn in its place, and the policy from there."""
    return await _replaced(evolver, episode, "refine_redundant", _REDUNDANT)


async def correct_step(evolver: Evolver, episode: Episode) -> Evolution:
    """The episode up to the first step that the teacher finds wrong, the teacher's turn in its place, and the policy from there."""
    return await _replaced(evolver, episode, "correct_step", _FLAWED)


async def _replaced(evolver: Evolver, episode: Episode, name: str, question: str) -> Evolution:
    made = Evolution(parent=episode.leaf.id)
    answer = await evolver.ask(_about(evolver, episode.path) + question, f"{name}/{episode.leaf.id}")
    if answer is None:
        made.reason = "the teacher did not answer"
    elif _NONE.search(answer):
        made.reason = "the teacher finds no such step"
    else:
        step, turn = read_answer(answer, len(episode.path))
        if not step or evolver.agent.format.parse(turn).action is None:
            made.reason = "the teacher's answer cannot be read"
            return made
        made.turn, made.kept = step, step - 1
        node = await evolver.write(above(episode, step), turn)
        made.end = node if evolver.tree.nodes[node].outcome is not None else await evolver.go_on(node)
    return made


def read_answer(answer: str, steps: int) -> tuple[int, str]:
    """Returns the number of the step in a teacher's answer and the turn in its place; (0, "") if they cannot be read."""
    found = _ANSWER.search(answer)
    if found is None or not 1 <= int(found[1]) <= steps:
        return 0, ""
    return int(found[1]), found[2].strip()


async def rewrite_thoughts(evolver: Evolver, episode: Episode) -> Evolution:
    """The same episode with thoughts that the teacher wrote anew. Every action stays as it was, and must be answered as before."""
    tree, made = evolver.tree, Evolution(parent=episode.leaf.id)
    texts: list[str] = []
    for step, node in enumerate(episode.path, 1):
        thought = evolver.agent.format.parse(node.text).thought
        text = node.text
        if thought and node.text.count(thought) == 1:
            question = _about(evolver, episode.path) + _THOUGHT.format(step=step, thought=thought)
            answer = await evolver.ask(question, f"rewrite_thoughts/{node.id}")
            if answer is None:
                made.reason = "the teacher did not answer"
                return made
            text = rewritten(node.text, thought, answer)
            if evolver.agent.format.parse(text).action != evolver.agent.format.parse(node.text).action:
                made.reason = "the teacher's thought would change an action"
                return made
        texts.append(text)
    if texts == [node.text for node in episode.path]:
        made.reason = "there is no thought to rewrite"
        return made
    size, at = len(tree.nodes), 0
    for text, before in zip(texts, episode.path, strict=True):
        at = await evolver.write(at, text)
        if tree.nodes[at].observation != before.observation:
            await evolver.sessions.cut(size)
            made.reason = "the environment answered differently"
            return made
    made.end = at
    return made


def rewritten(text: str, thought: str, new: str) -> str:
    """Returns a turn with another thought and the rest as it was, byte for byte. White space around the new thought is dropped."""
    before, _, after = text.partition(thought)
    return f"{before}{' '.join(new.split())}{after}"


async def give_verdict(evolver: Evolver, episode: Episode) -> None:
    """Asks the judge, if there is one, whether an episode is right; its verdict stands at the last turn, none if there is no answer.

    An answer that cannot be read is counted, and counts as uncertain.
    """
    if evolver.judge is None or episode.leaf.verdict is not None:
        return
    question = _about(evolver, episode.path) + _RIGHT
    answer = await evolver.judge.ask(evolver.tree, question, f"right/{episode.leaf.id}")
    if answer is None:
        return
    verdict = read_verdict(answer)
    if verdict is None:
        evolver.tree.count(judge_malformed=1)
    episode.leaf.verdict = replace(verdict or Verdict(Rating.UNCERTAIN, ""), answer=answer)


def _about(evolver: Evolver, path: Sequence[Node]) -> str:
    steps = "\n\n".join(f"Step {step}:\n{node.text}\nAnswer of the environment: {node.observation}" for step, node in enumerate(path, 1))
    return _WORK.format(task=evolver.tree.messages[-1].content, steps=steps)
