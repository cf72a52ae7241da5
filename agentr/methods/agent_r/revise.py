"""Splicing and executing revisions: a bad beginning, a reflection, and a good end (Agent-R section 3.2).

The original splices texts and asserts that the result would earn the good path's reward. Here the bad prefix stands in
the real environment (its node in the tree), the reflection becomes part of the thought of the next real action, and the
good actions are executed from the actual environment state after the bad prefix. The result is recorded as a branch of
the same tree, whether or not it earned the good path's return, so that building rows is a query and the share of text
splices that would have failed is a count.
"""

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from itertools import takewhile

from pydantic import NonNegativeInt

from agentr.collect.agent import Agent, take_turn
from agentr.collect.grow import grow
from agentr.collect.judge import JudgeConfig, find_transition
from agentr.collect.sessions import Sessions
from agentr.config.checks import Problem
from agentr.search import UCT, Origin, Tree, UCTConfig
from agentr.search.pairs import Pair, PairingConfig, good_suffix
from agentr.search.revision import Revision, Splice
from agentr.search.tree import Node
from agentr.seeds import derived_seed
from agentr.tasks.formats import written
from agentr.types import Outcome

#: A turn: its thought and its action.
Said = tuple[str, str]


class ReflectionFor(StrEnum):
    """What a reflection is drawn for."""

    transition = "transition"
    """Each transition: all revisions that leave a bad path at the same turn have the same."""
    pair = "pair"
    """Each pair of paths (the original)."""


class Begin(StrEnum):
    """Where bad beginnings are from."""

    trees = "trees"
    """The searched trees: a bad path up to its first bad step (the paper)."""
    greedy = "greedy"
    """The policy's greedy episodes of the round's tasks, as held-out ones are played: a failed one up to one of its
    refused turns, or to any turn if none was refused."""


class End(StrEnum):
    """Where the good end after a bad beginning is from."""

    path = "path"
    """The good path of the same tree, carried out after the beginning (the paper)."""
    search = "search"
    """A search by ``method.search`` that goes on from the beginning; the shortest good path that it finds."""
    expert = "expert"
    """The environment's expert, which goes on from the beginning. With begin=greedy this is DAgger (Ross et al. 2011,
    arXiv 1011.0686)."""


@dataclass
class ReviseConfig(JudgeConfig, PairingConfig):
    """From pairs of paths to revision trajectories (Agent-R section 3.3)."""

    begin: Begin = Begin.trees
    """Where bad beginnings are from."""
    end: End = End.path
    """Where the good end after a bad beginning is from."""
    whole_episodes: bool = False
    """The control of end=expert, for experiments: of the same tasks the expert's whole episodes are learnt in place of
    the revisions, as many trained tokens of them."""
    worlds: NonNegativeInt = 0
    """Other worlds in which each turn that may be learnt is tried again, drawn before it, given all that was observed
    (environments with a hidden state); 0 tries none."""
    learn_luck: bool = False
    """With worlds: also learn turns that other worlds do not pay. For experiments: they are counted."""
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
        if self.begin is Begin.greedy and self.end is End.path:
            message = "a greedy episode has no good path beside it whose end could follow"
            yield Problem("end", message, "Set method.revise.end=search, or expert.")
        if self.end is not End.path and self.splice is not Splice.executed:
            yield Problem("splice", f"end={self.end} goes on in the environment", "Leave splice=executed.")
        if self.end is End.search and self.begin is Begin.trees and not self.pairs_per_task:
            message = "end=search with every pair of a tree has no bound on what is drawn"
            yield Problem("pairs_per_task", message, "Say how many pairs a tree has at most.")
        if self.worlds and self.begin is Begin.greedy:
            message = "the searched trees, whose good paths are learnt too, would not be tried in other worlds"
            yield Problem("worlds", message, "Set method.revise.begin=trees.")
        if self.whole_episodes and self.end is not End.expert:
            yield Problem("whole_episodes", "these are the expert's", "Set method.revise.end=expert.")


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


def begun(tree: Tree, alpha: float) -> Node | None:
    """Returns the last turn of the bad beginning in a tree of one greedy episode, or None if it is none: it earned
    enough, or has no turn that one can go on from."""
    leaf = next(iter(tree.ended()), None)
    if leaf is None or leaf.reward >= alpha:
        return None
    turns = [turn for turn in tree.path(leaf.id) if turn.outcome is None or turn.outcome is Outcome.STEP_LIMIT]
    places = [turn for turn in turns if not turn.valid] or turns
    return random.Random(derived_seed(tree.seed, "begin")).choice(places) if places else None


def good_turns(tree: Tree, pair: Pair, agent: Agent) -> list[Said]:
    """Returns the good path after what it shares with the bad one."""
    return [_said(agent, turn) for turn in good_suffix(tree, pair)]


async def searched_on(tree: Tree, last: Node, agent: Agent, search: UCTConfig, goal: float) -> list[Said]:
    """Searches on from ``last`` in a tree of its own, and returns the shortest path that earns ``goal``, without turns
    that were refused; nothing if there is none. What it took is counted in ``tree``.

    Raises:
        InfraError: The policy or the environment did not answer. Nothing of it is kept.
    """
    refused = len(list(takewhile(lambda turn: not turn.valid, reversed(tree.path(last.id)))))
    # what is allowed begins anew: the beginning's own turns would use up most of it
    invalid = search.max_invalid and search.max_invalid + refused
    strategy = UCT(replace(search, max_depth=search.max_depth + last.depth, max_invalid=invalid))
    seed = derived_seed(tree.seed, "search on", last.id)
    found = await grow(tree.task, strategy, agent, None, seed, (tree, last.id))
    tree.spend(found.cost)
    tree.count(**found.events)
    good = [node for node in found.ended() if node.reward >= goal and node.depth > last.depth]
    if not good:
        return []
    best = min(good, key=lambda node: (node.depth, node.id))
    return [_said(agent, turn) for turn in found.path(best.id)[last.depth :] if turn.valid]


def _said(agent: Agent, turn: Node) -> Said:
    """A turn's thought and action; of a reasoning policy, without what it reasoned elsewhere."""
    return agent.sampler.read(turn.text, turn.token_ids).thought, turn.action


async def execute(
    tree: Tree,
    revision: Revision,
    turns: Sequence[Said],
    goal: float,
    agent: Agent,
    sessions: Sessions,
    config: ReviseConfig,
    max_depth: int,
) -> None:
    """Runs the good turns after the bad prefix in the environment; if they stop to apply, the policy may go on.

    Nothing is run if the splice is not to be executed (``config.splice``, ``config.audit``), or if the episode ended at
    the transition.

    Args:
        turns: The good end.
        goal: The return that it has to earn.
        max_depth: Longest revised path, in actions.

    Raises:
        InfraError: The policy or the environment did not answer.
    """
    last = tree.nodes[revision.transition]
    executable = last.outcome is None or last.outcome is Outcome.STEP_LIMIT
    if not executable or (config.splice is not Splice.executed and not config.audit):
        return
    node = await carry_out(tree, last.id, turns, agent, sessions, Origin.REVISION, revision.reflection)
    revision.spliced = _earned(tree, node, revision, goal)
    if not revision.spliced and config.splice is Splice.executed and config.continue_with_policy:
        revision.continued = True
        node = await _continue(tree, node, revision, agent, sessions, max_depth)
    if _earned(tree, node, revision, goal):
        revision.end = node


async def carry_out(
    tree: Tree,
    node: int,
    turns: Sequence[Said],
    agent: Agent,
    sessions: Sessions,
    origin: Origin,
    reflection: str = "",
) -> int:
    """Carries out turns after ``node`` until the episode ends or one is refused, which is not kept.

    Args:
        reflection: What the first thought opens with.

    Returns:
        The last node.
    """
    for thought, action in turns:
        text = written(agent.format, f"{reflection} {thought}".strip(), action)
        taken = None if text is None else await agent.act(tree, node, await sessions.at(node), text)
        if taken is None or not taken.children[0].valid:
            break
        node, reflection = tree.add(node, taken.children[0], origin).id, ""
        sessions.keep(node, taken.sessions[0])
        if tree.nodes[node].outcome is not None:
            break
    return node


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
