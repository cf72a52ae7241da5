"""Splicing and executing revisions: a bad beginning, a reflection, and a good end (Agent-R section 3.2).

The original splices texts and asserts that the result would earn the good path's reward. Here the bad prefix stands in
the real environment (its node in the tree), the reflection becomes part of the thought of the next real action, and the
good actions are executed from the actual environment state after the bad prefix. The result is recorded as a branch of
the same tree, whether or not it earned the good path's return, so that building rows is a query and the share of text
splices that would have failed is a count.
"""

import random
from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import StrEnum

from agentr.collect.agent import Agent, take_turn
from agentr.collect.judge import JudgeConfig, find_transition
from agentr.collect.sessions import Sessions
from agentr.config.checks import Problem
from agentr.search import Origin, Tree
from agentr.search.pairs import Pair, PairingConfig, good_suffix
from agentr.search.revision import Revision, Splice
from agentr.search.tree import Node
from agentr.seeds import derived_seed
from agentr.tasks.formats import written
from agentr.types import Outcome


class ReflectionFor(StrEnum):
    """What a reflection is drawn for."""

    transition = "transition"
    """Each transition: all revisions that leave a bad path at the same turn have the same."""
    pair = "pair"
    """Each pair of paths (the original)."""


@dataclass
class ReviseConfig(JudgeConfig, PairingConfig):
    """From pairs of paths to revision trajectories (Agent-R section 3.3)."""

    splice: Splice = Splice.executed
    """How a bad prefix and a good end are joined."""
    reflections: list[str] = field(
        default_factory=lambda: [
            "My last action was a mistake.",
            "That did not help.",
            "I went the wrong way.",
            "This is not what the task needs.",
            "I should correct what I just did.",
            "Looking back, that step was wrong.",
            "That was not the right step.",
            "I need to change my plan.",
        ]
    )
    """Openings of a reflection, of which one is drawn. A very small model needs one that it can learn to write."""
    reflection_for: ReflectionFor = ReflectionFor.transition
    """Whether one is drawn for each transition, or for each pair."""
    continue_with_policy: bool = True
    """If the good actions no longer apply after a bad prefix, let the policy go on."""
    audit: bool = True
    """With splice=paper or direct: also run each splice in the environment and count how many earn less than the good
    path."""

    def problems(self) -> Iterator[Problem]:
        yield from super().problems()
        if not self.reflections:
            yield Problem("reflections", "the list is empty", "Give at least one sentence.")


async def transition(tree: Tree, pair: Pair, agent: Agent, config: ReviseConfig) -> Node | None:
    """Returns the last node of the bad prefix, or None if the path has no bad step to end it.

    Without any bad step the whole path is the prefix (as in the original), if one can go on from there.

    Raises:
        InfraError: The judge did not answer.
    """
    last = tree.nodes[pair.bad]
    if config.splice is Splice.direct:
        return last
    found = await find_transition(tree, pair, agent, config, config.beta)
    return found or (last if last.outcome is Outcome.STEP_LIMIT or config.splice is Splice.paper else None)


def splice(tree: Tree, pair: Pair, last: Node, config: ReviseConfig) -> Revision:
    """Returns the revision that joins the bad prefix up to ``last`` with the good path's end by a reflection."""
    place = (last.id,) if config.reflection_for is ReflectionFor.transition else (pair.bad, pair.good)
    reflection = random.Random(derived_seed(tree.seed, "reflection", *place)).choice(config.reflections)
    return Revision(bad=pair.bad, good=pair.good, ancestor=pair.ancestor, transition=last.id, reflection=reflection)


async def execute(
    tree: Tree, pair: Pair, revision: Revision, agent: Agent, sessions: Sessions, config: ReviseConfig, max_depth: int
) -> None:
    """Runs the good actions after the bad prefix in the environment; if they stop to apply, the policy may go on.

    Nothing is run if the splice is not to be executed (``config.splice``, ``config.audit``), or if the episode ended at
    the transition.

    Args:
        max_depth: Longest revised path, in actions.

    Raises:
        InfraError: The policy or the environment did not answer.
    """
    last = tree.nodes[revision.transition]
    executable = last.outcome is None or last.outcome is Outcome.STEP_LIMIT
    if not executable or (config.splice is not Splice.executed and not config.audit):
        return
    node, goal = revision.transition, tree.nodes[pair.good].reward
    for turn in good_suffix(tree, pair):
        # of a reasoning policy, without what it reasoned elsewhere
        parsed = agent.sampler.read(turn.text, turn.token_ids)
        thought = f"{revision.reflection} {parsed.thought}".strip() if node == revision.transition else parsed.thought
        text = written(agent.format, thought, turn.action)
        turns = None if text is None else await agent.act(tree, node, await sessions.at(node), text)
        if turns is None or not turns.children[0].valid:
            break
        node = tree.add(node, turns.children[0], Origin.REVISION).id
        sessions.keep(node, turns.sessions[0])
        if tree.nodes[node].outcome is not None:
            break
    revision.spliced = _earned(tree, node, revision, goal)
    if not revision.spliced and config.splice is Splice.executed and config.continue_with_policy:
        revision.continued = True
        node = await _continue(tree, node, revision, agent, sessions, max_depth)
    if _earned(tree, node, revision, goal):
        revision.end = node


def _earned(tree: Tree, node: int, revision: Revision, goal: float) -> bool:
    """Whether turns were executed after the transition, the episode ended, and its return is at least the good
    path's."""
    return node != revision.transition and tree.nodes[node].outcome is not None and tree.nodes[node].reward >= goal


async def _continue(tree: Tree, node: int, revision: Revision, agent: Agent, sessions: Sessions, max_depth: int) -> int:
    """Lets the policy play on from ``node`` and returns where it ended.
    Its first turn opens with the reflection if none was made yet."""
    opening = written(agent.format, revision.reflection) if node == revision.transition else None
    # The transition itself may be a leaf at the search's step limit: the environment can still go on from there.
    while (node == revision.transition or tree.nodes[node].outcome is None) and tree.nodes[node].depth <= max_depth:
        taken = await take_turn(tree, node, agent, sessions, Origin.CONTINUATION, "continue", opening)
        if taken is None:
            return node
        node, opening = taken, None
    return node
