"""Operators that ask a teacher: which step was redundant or wrong, what to do in its place, and how to think more
briefly.

What a teacher writes is carried out in the environment like any other turn. A rewritten thought leaves the rest of its
turn as it was, byte for byte, and the environment must answer as before.
"""

import re
from dataclasses import replace

from agentr.collect.agent import Agent
from agentr.collect.episode_judge import described
from agentr.collect.evolver import Evolver, above
from agentr.search.episode import Episode
from agentr.search.evolution import Evolution
from agentr.tasks.formats import ActionFormat

_REDUNDANT = """
The agent has solved the task. Is there a step that it could have done without: a call that finds out nothing new, or \
reasoning that
repeats what was known? Name the first one and write the turn that should stand in its place, in the agent's own format.
Answer "Step: no" if every step was needed. Otherwise answer in three parts:
Step: its number
Analysis: why it is redundant
Corrected Step: the whole turn that should stand in its place"""

_FLAWED = """
The agent has not solved the task. Find the first step that went wrong: an error of logic, overthinking, a redundant \
call, or a call
that does not fit. Write the turn that should stand in its place, in the agent's own format. Answer in three parts:
Step: its number
Analysis: what went wrong
Corrected Step: the whole turn that should stand in its place"""

_THOUGHT = """
In step {step} the agent thought:
{thought}

Write this thought anew: as short and clear as it can be, in words that lead to the action of step {step}. Do not name \
the step or the
action's format. Answer with the new thought alone."""

_ANSWER = re.compile(r"Step:\s*#?(\d+)\b.*?Corrected Step:\s*(.+)", re.DOTALL | re.IGNORECASE)
#: A thought with one of these is not well formed where turns have tags, though it may be read.
_TAG = re.compile(r"</?(?:think|python|search|answer|result)>", re.IGNORECASE)
_NONE = re.compile(r"Step:\s*no\b", re.IGNORECASE)


async def refine_redundant(evolver: Evolver, episode: Episode) -> Evolution:
    """The episode up to the first step that the teacher finds redundant, the teacher's turn in its place, and the
    policy from there."""
    return await _replaced(evolver, episode, "refine_redundant", _REDUNDANT)


async def correct_step(evolver: Evolver, episode: Episode) -> Evolution:
    """The episode up to the first step that the teacher finds wrong, the teacher's turn in its place, and the policy
    from there."""
    return await _replaced(evolver, episode, "correct_step", _FLAWED)


async def _replaced(evolver: Evolver, episode: Episode, name: str, question: str) -> Evolution:
    made = Evolution(parent=episode.leaf.id)
    answer = await evolver.ask(described(episode) + question, f"{name}/{episode.leaf.id}")
    if answer is None:
        made.reason = "the teacher did not answer"
    elif _NONE.search(answer):
        made.reason = "the teacher finds no such step"
    else:
        found = read_answer(answer, len(episode.path))
        if found is None or _action(evolver.agent, found[1]) is None:
            made.reason = "the teacher's answer cannot be read"
            return made
        step, turn = found
        made.turn, made.kept = step, step - 1
        node = await evolver.write(above(episode, step), turn)
        made.end = node if evolver.tree.nodes[node].outcome is not None else await evolver.go_on(node)
    return made


def read_answer(answer: str, steps: int) -> tuple[int, str] | None:
    """Returns the number of the step in a teacher's answer and the turn in its place; None if they cannot be read."""
    found = _ANSWER.search(answer)
    if found is None or not 1 <= int(found[1]) <= steps:
        return None
    return int(found[1]), found[2].strip()


async def rewrite_thoughts(evolver: Evolver, episode: Episode) -> Evolution:
    """The same episode with thoughts that the teacher wrote anew.
    Every action stays as it was, and must be answered as before."""
    tree, made = evolver.tree, Evolution(parent=episode.leaf.id)
    agent, texts = evolver.agent, list[str]()
    # Reasoning that the format does not read cannot be written as the policy would have drawn it, and is left out.
    said = [agent.sampler.said(node.text, node.token_ids) for node in episode.path]
    for step, (node, text) in enumerate(zip(episode.path, said, strict=True), 1):
        thought = agent.format.parse(text).thought
        if thought and text.count(thought) == 1:
            question = described(episode) + _THOUGHT.format(step=step, thought=thought)
            answer = await evolver.ask(question, f"rewrite_thoughts/{node.id}")
            if answer is None:
                made.reason = "the teacher did not answer"
                return made
            if not answer.strip():
                made.reason = "the teacher's answer cannot be read"
                return made
            new = rewritten(agent.format, text, thought, answer)
            if new is None:
                made.reason = "the teacher's thought holds a mark of the format"
                return made
            text = new
        texts.append(text)
    if texts == said:
        made.reason = "there is no thought to rewrite"
        return made
    size, at = len(tree.nodes), 0
    for text, before in zip(texts, episode.path, strict=True):
        at = await evolver.write(at, text)
        if tree.nodes[at].observation != before.observation:
            evolver.sessions.cut(size)
            made.reason = "the environment answered differently"
            return made
    made.end = at
    return made


def _action(agent: Agent, text: str) -> str | None:
    """Returns the action of a turn that was written."""
    return agent.sampler.read(text, agent.codec.turn(text)).action


def rewritten(format: ActionFormat, text: str, thought: str, new: str) -> str | None:
    """Returns a turn with another thought and the rest as it was, byte for byte; None if the format would not read it
    back so.

    White space in the new thought becomes single blanks.
    """
    before, _, after = text.partition(thought)
    new = " ".join(new.split())
    turn = f"{before}{new}{after}"
    tagged = format.reasons and _TAG.search(new)
    return None if tagged or format.parse(turn) != replace(format.parse(text), thought=new) else turn
