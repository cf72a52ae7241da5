"""Turns tried again in other worlds: what a turn is worth where the agent does not see all of the state.

A search in copies of one fixed world rewards luck: the branch that guesses what nobody could know is the good one, and
a policy that imitates it learns to guess. So a turn is taken again in worlds that are drawn *before* it, given all that
was observed up to there, and the policy goes on; the mean of what it earns is what the turn is worth to somebody who
knows what the agent knows.
"""

from collections.abc import Sequence
from dataclasses import replace

from agentr.background import together
from agentr.collect.agent import Agent, Expanded
from agentr.collect.sessions import Sessions
from agentr.envs.session import Session
from agentr.search import Origin, Tree
from agentr.search.strategy import cut_off, request
from agentr.search.tree import Node
from agentr.seeds import derived_seed
from agentr.types import Cost


async def try_elsewhere(
    tree: Tree, turns: Sequence[Node], agent: Agent, sessions: Sessions, worlds: int, steps: int, invalid: int
) -> None:
    """Notes at each turn that was not tried yet what it earns in other worlds (``Node.worlds``). What that took is
    counted in the tree.

    Args:
        worlds: How many are drawn before each turn.
        steps: Actions after which an episode ends there.
        invalid: Invalid actions in a row after which it ends; 0 means never.

    Raises:
        InfraError: The policy or the environment did not answer.
    """
    for turn in turns:
        if turn.worlds:
            continue
        before = await sessions.at(turn.parent)
        seeds = [derived_seed(tree.seed, "world", turn.id, number) for number in range(worlds)]
        found = await together(_earned(tree, turn, before, seed, agent, steps, invalid) for seed in seeds)
        turn.worlds = tuple(earned for earned, _ in found)
        tree.spend(Cost.sum(cost for _, cost in found))


async def _earned(
    tree: Tree, turn: Node, before: Session, seed: int, agent: Agent, steps: int, invalid: int
) -> tuple[float, Cost]:
    """Takes a turn in a world of its own, lets the policy go on, and returns what that earns and what it took."""
    there = replace(tree, seed=seed, nodes=[], cost=Cost(), events={}, spent=[], revisions=[], search={})
    for node in tree.path(turn.parent, root=True):
        there.nodes.append(replace(node, id=len(there.nodes), parent=len(there.nodes) - 1, children=[]))
    at, session = len(there.nodes) - 1, await before.redraw(seed)
    taken: Expanded = await agent.retake(there, at, session, turn)
    while True:
        taken.account(there, at, 0)
        if (after := taken.sessions[0]) is not session:
            agent.env.free([session])
            session = after
        node = there.add(at, cut_off(there, at, taken.children[0], steps, invalid), Origin.POLICY)
        if node.outcome is not None:
            agent.env.free([session])
            return node.reward if node.outcome.is_the_agents else 0.0, there.cost
        at = node.id
        taken = await agent.sample(there, request(there, at, 1), session)
