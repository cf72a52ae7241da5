"""Revision trajectories: a bad beginning, a reflection, and a good end (Agent-R section 3.2).

The original splices texts and asserts that the result would earn the good path's reward. Here the bad prefix stands in the real
environment (its node in the tree), the reflection becomes part of the thought of the next real action, and the good actions are
executed from the state that really holds. What comes of it is recorded as a branch of the same tree, whether it paid or not, so that
`build` is a query and the share of text splices that would have failed is a count.
"""

from __future__ import annotations

import random
from dataclasses import asdict, dataclass

from agentr.collect.judge import find_transition
from agentr.collect.player import Player, Sessions
from agentr.config.methods import ReviseConfig, Splice
from agentr.search import Expansion, Origin, Tree
from agentr.search.pairs import Pair, good_suffix, pair_paths
from agentr.search.tree import Node
from agentr.seeds import derived_seed
from agentr.types import Outcome


@dataclass
class Revision:
    """One attempt to revise a bad path.

    Attributes:
        bad: Leaf of the bad path.
        good: Leaf of the good path.
        ancestor: Where they part.
        transition: Last node of the bad prefix.
        reflection: The sentence put before the good action's thought.
        spliced: The good actions alone, executed after the bad prefix, earned the good path's reward.
        end: Leaf of the executed revision if it paid, else -1.
        continued: The policy had to go on by itself.
    """

    bad: int
    good: int
    ancestor: int
    transition: int
    reflection: str
    spliced: bool = False
    end: int = -1
    continued: bool = False


async def revise(tree: Tree, player: Player, config: ReviseConfig, alpha: float, max_depth: int) -> Tree:
    """Adds revision branches to a searched tree (in place) and lists them in ``tree.search["revisions"]``.

    Args:
        alpha: Least return of a good path in this round.
        max_depth: Longest revised path, in actions.

    Raises:
        InfraError: The policy or the environment did not answer.
    """
    sessions = Sessions(tree, player.env)
    revisions: list[Revision] = []
    try:
        for pair in pair_paths(tree, config, alpha):
            transition = await _transition(tree, pair, player, config)
            if transition is None:
                tree.count(revise_no_transition=1)
                continue
            revision = Revision(pair.bad, pair.good, pair.ancestor, transition.id, _reflection(tree, transition, config))
            executable = transition.outcome is None or transition.outcome is Outcome.STEP_LIMIT
            if executable and (config.splice is Splice.executed or config.audit):
                await _execute(tree, pair, revision, player, sessions, config, max_depth)
            revisions.append(revision)
    finally:
        await sessions.close()
    tree.search["revisions"] = [asdict(r) for r in revisions]
    return tree


async def _transition(tree: Tree, pair: Pair, player: Player, config: ReviseConfig) -> Node | None:
    """Where the bad prefix ends. Without any bad step the whole path is the prefix (as in the original), if one can go on from there."""
    last = tree.nodes[pair.bad]
    if config.splice is Splice.direct:
        return last
    found = await find_transition(tree, pair, player, config)
    return found or (last if last.outcome is Outcome.STEP_LIMIT or config.splice is Splice.paper else None)


def _reflection(tree: Tree, transition: Node, config: ReviseConfig) -> str:
    sentence = random.Random(derived_seed(tree.seed, "reflection", transition.id)).choice(config.reflections)
    reason = transition.note.get("reason", "")
    return f"{sentence} {reason}".strip() if config.reflect_with_reason else sentence


async def _execute(
    tree: Tree, pair: Pair, revision: Revision, player: Player, sessions: Sessions, config: ReviseConfig, max_depth: int
) -> None:
    """Runs the good actions after the bad prefix; where they stop to apply, the policy may go on."""
    node, goal = revision.transition, tree.nodes[pair.good].reward
    for turn in good_suffix(tree, pair):
        parsed = player.format.parse(turn.text)
        thought = f"{revision.reflection} {parsed.thought}".strip() if node == revision.transition else parsed.thought
        turns = await player.act(tree, node, await sessions.at(node), player.format.compose(thought, turn.action))
        if not turns.children[0].valid:
            break
        node = tree.add(node, turns.children[0], Origin.REVISION).id
        sessions.keep(node, turns.sessions[0])
        if tree.nodes[node].outcome is not None:
            break
    revision.spliced = _paid(tree, node, revision, goal)
    if not revision.spliced and config.splice is Splice.executed and config.continue_with_policy:
        revision.continued = True
        node = await _continue(tree, node, revision, player, sessions, max_depth)
    if _paid(tree, node, revision, goal):
        revision.end = node


def _paid(tree: Tree, node: int, revision: Revision, goal: float) -> bool:
    """Whether something was executed after the transition, it ended the episode, and its return is that of the good path."""
    return node != revision.transition and tree.nodes[node].outcome is not None and tree.nodes[node].reward >= goal


async def _continue(tree: Tree, node: int, revision: Revision, player: Player, sessions: Sessions, max_depth: int) -> int:
    """Lets the policy play on from ``node`` and returns where it ended. Its first turn opens with the reflection if none was made yet."""
    # The transition itself may be a leaf at the search's step limit: the environment can still go on from there.
    while (node == revision.transition or tree.nodes[node].outcome is None) and tree.nodes[node].depth <= max_depth:
        session, seed = await sessions.at(node), derived_seed(tree.seed, "continue", len(tree.nodes))
        if node == revision.transition:
            turns = await player.complete(tree, node, session, player.format.begin(revision.reflection), seed)
        else:
            turns = await player.draw(tree, Expansion(node, 0, 1, seed), session)
        tree.count(**turns.counts)
        node = tree.add(node, turns.children[0], Origin.CONTINUATION).id
        sessions.keep(node, turns.sessions[0])
    return node
