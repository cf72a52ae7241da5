"""Growing one tree: ask the strategy, take the turns, tell it, and keep a journal that a restart continues from."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import asdict, fields

from agentr.collect.player import Player, Sessions, Turns
from agentr.search import Child, Dense, Expansion, Node, Origin, Strategy, Tree
from agentr.store.forest import Forest
from agentr.types import FinishReason, Outcome, Task

#: Sessions of expanded nodes that a tree keeps open where its strategy comes back to them.
SPARE_SESSIONS = 32


async def grow(task: Task, strategy: Strategy, player: Player, forest: Forest, seed: int, prefix: Sequence[Node] = ()) -> Tree:
    """Grows the tree of a task to its end and returns it; the caller makes it visible.

    Every expansion is journaled after it was told. If the journal of an earlier attempt is there, its expansions are told again and
    the search goes on from the last one: the environment is replayed where needed, the policy is not asked again.

    Args:
        prefix: Turns of another tree of the same task that this one begins with, below its root.

    Raises:
        InfraError: The policy or the environment did not answer. The journal holds what was done.
    """
    tree, root = await player.start(task, seed)
    sessions = Sessions(tree, player.env, root, SPARE_SESSIONS if isinstance(strategy, Dense) else 0)
    try:
        for turn in prefix:
            tree.nodes[-1].expansions = 1
            tree.add(tree.nodes[-1].id, _as_child(turn), Origin.PREFIX)
        for entry in forest.journal(task.key):
            strategy.tell(tree, Expansion(**entry["expansion"]), [_child(c) for c in entry["children"]])
            tree.count(**entry["counts"])
        while wishes := strategy.ask(tree):
            drawn = await _draw_all(tree, wishes, player, sessions)
            for wish, turns in zip(wishes, drawn, strict=True):
                first = len(tree.nodes)
                strategy.tell(tree, wish, turns.children)
                tree.count(**turns.counts)
                children = [asdict(child) for child in turns.children]
                forest.log(task.key, {"expansion": asdict(wish), "children": children, "counts": turns.counts})
                after = {child.action: session for child, session in zip(turns.children, turns.sessions, strict=True)}
                for node in tree.nodes[first:]:
                    sessions.keep(node.id, after[node.action])
            await sessions.drop_finished()
        return tree
    finally:
        await sessions.close()


async def _draw_all(tree: Tree, wishes: list[Expansion], player: Player, sessions: Sessions) -> list[Turns]:
    """All expansions of one ask at the same time; if one fails, the others are cancelled."""

    async def one(wish: Expansion) -> Turns:
        return await player.draw(tree, wish, await sessions.at(wish.node))

    try:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(one(wish)) for wish in wishes]
    except ExceptionGroup as failed:
        raise failed.exceptions[0] from failed
    return [task.result() for task in tasks]


async def demonstrate(task: Task, player: Player, seed: int, given: Sequence[str] | None = None) -> Tree | None:
    """The expert's episode as a tree of one branch, or None where the environment has no expert for the task.

    Args:
        given: An expert's turns to play in place of the environment's own.

    Raises:
        InfraError: The environment did not answer, or its answers were not those of a replay.
    """
    if given is None:
        steps = await player.env.expert(task)
        if steps is None:
            return None
        given = [player.format.compose(thought, action) for thought, action in steps]
    tree, session = await player.start(task, seed)
    sessions = Sessions(tree, player.env, session)
    try:
        node = 0
        for text in given:
            turns = await player.act(tree, node, session, text)
            child, session = turns.children[0], turns.sessions[0]
            node = tree.add(node, child, Origin.EXPERT).id
            sessions.keep(node, session)
            if child.outcome is not None:
                tree.back_up(node)
                break
    finally:
        await sessions.close()
    return tree


def _as_child(node: Node) -> Child:
    return Child(**{field.name: getattr(node, field.name) for field in fields(Child)})


def _child(data: dict) -> Child:
    data = dict(data)
    for name in ("token_ids", "bridge_ids", "logprobs"):
        data[name] = tuple(data[name])
    data["finish"] = FinishReason(data["finish"])
    data["outcome"] = Outcome(data["outcome"]) if data["outcome"] else None
    return Child(**data)
