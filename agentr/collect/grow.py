"""Growing one tree: ask the strategy, sample the turns, tell it, and keep a journal that a restart continues from."""

import random
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import ClassVar

from agentr.background import together
from agentr.collect.agent import Agent, Expanded
from agentr.collect.job import Unit, Work
from agentr.collect.sessions import Sessions
from agentr.search import Expansion, Node, Origin, Strategy, Tree
from agentr.search.stored import read_child, split_counts, stored_child, stored_counts
from agentr.seeds import derived_seed
from agentr.store.forest import Forest
from agentr.store.growing import GrowingForest
from agentr.store.layout import DEMONSTRATIONS, EVAL, WARM_START
from agentr.types import Outcome, Task
from env_servers.observation import Again, OtherAnswer

#: Sessions of expanded nodes that a tree keeps open if its strategy comes back to them.
SPARE_SESSIONS = 32


class Prefix(ABC):
    """How trees begin with turns of other trees of the same tasks."""

    #: Stage that those trees are from, as in ``Work.source``; empty if the turns are given.
    source: ClassVar[str]
    #: Names the work in place of its strategy, if it is not what the strategy is for.
    kind: ClassVar[str] = ""

    @abstractmethod
    async def last(self, unit: Unit) -> tuple[Tree, int] | None:
        """Returns the tree whose turns a unit's tree begins with, and the last of them; None if there are none after
        all.

        Raises:
            InfraError: The environment did not answer.
        """

    @abstractmethod
    def applies(self, tree: Tree) -> bool:
        """Whether ``tree`` has such turns."""


@dataclass(frozen=True)
class ExpertPath(Prefix):
    """The demonstration of the task."""

    source = WARM_START.stage(DEMONSTRATIONS)

    async def last(self, unit: Unit) -> tuple[Tree, int] | None:
        return (tree := unit.begun()), best_path(tree)[-1].id

    def applies(self, tree: Tree) -> bool:
        return any(tree.ended())


@dataclass(frozen=True)
class BadBeginning(Prefix):
    """The beginning of the warm start's failed episode, cut after a random turn but before its last one (Agent-R, Table
    3).

    Attributes:
        seed: Of the cut. It depends on the failed episode alone, so every policy goes on from the same place.
    """

    source = WARM_START.stage(EVAL)
    kind = "recover"

    seed: int

    async def last(self, unit: Unit) -> tuple[Tree, int] | None:
        tree = unit.begun()
        leaf = next(n for n in tree.ended() if n.reward == 0 and n.depth > 1)
        path = tree.path(leaf.id)
        cut = random.Random(derived_seed(self.seed, "cut", tree.task.key)).randint(1, len(path) - 1)
        return tree, path[cut - 1].id

    def applies(self, tree: Tree) -> bool:
        return any(n.reward == 0 and n.depth > 1 for n in tree.ended())


@dataclass(frozen=True)
class AfterRefusals(Prefix):
    """The beginning of the warm start's episode up to its first so many refused turns in a row: whether it failed or
    not, so that no outcome chooses the states.

    Attributes:
        count: How many turns in a row the environment did not carry out.
    """

    source = WARM_START.stage(EVAL)
    kind = "recover"

    count: int

    async def last(self, unit: Unit) -> tuple[Tree, int] | None:
        tree = unit.begun()
        last = self._last(tree)
        assert last is not None, "of other trees there is no unit"
        return tree, last

    def applies(self, tree: Tree) -> bool:
        return self._last(tree) is not None

    def _last(self, tree: Tree) -> int | None:
        for leaf in islice(tree.ended(), 1):
            refused = 0
            for node in tree.path(leaf.id)[:-1]:
                refused = 0 if node.valid else refused + 1
                if refused == self.count:
                    return node.id
        return None


@dataclass(frozen=True)
class AfterHarm(Prefix):
    """The beginning of the warm start's episode up to its first turn that was carried out and did harm: the
    environment's expert has more to do after it than before."""

    source = WARM_START.stage(EVAL)
    kind = "recover"

    async def last(self, unit: Unit) -> tuple[Tree, int] | None:
        tree = unit.begun()
        leaf = next(iter(tree.ended()))
        sessions = Sessions(tree, unit.agent.env)
        try:
            await sessions.along(leaf.id)
            before = await (await sessions.at(0)).expert()
            for node in tree.path(leaf.id)[:-1]:
                after = await (await sessions.at(node.id)).expert()
                if node.valid and before is not None and (after is None or len(after) > len(before)):
                    return tree, node.id
                before = after
        finally:
            sessions.close()
        return None

    def applies(self, tree: Tree) -> bool:
        return any(tree.ended())


@dataclass(frozen=True)
class Given(Prefix):
    """The turns of any tree of the task up to one of them."""

    source = ""

    tree: Tree
    node: int

    async def last(self, unit: Unit) -> tuple[Tree, int] | None:
        return self.tree, self.node

    def applies(self, tree: Tree) -> bool:
        return True


@dataclass(frozen=True)
class Grow(Work):
    """Grow a tree of each task by a strategy, perhaps from turns of another tree on."""

    strategy: Strategy
    prefix: Prefix | None = None

    @property
    def kind(self) -> str:  # type: ignore[override]
        return (self.prefix.kind if self.prefix else "") or self.strategy.kind

    @property
    def source(self) -> str:  # type: ignore[override]
        return self.prefix.source if self.prefix else ""

    def tasks(self, tasks: Sequence[Task], source: Forest | None) -> list[Task]:
        if self.prefix is None or source is None:
            return list(tasks)
        known = {tree.task.key for tree in source if self.prefix.applies(tree)}
        return [task for task in tasks if task.key in known]

    @property
    def at_once(self) -> int:
        return self.strategy.at_once

    def max_completions(self, step_limit: int) -> int:
        return self.strategy.bounded(step_limit).max_completions

    async def make(self, unit: Unit) -> Tree | None:
        prefix = None if self.prefix is None else await self.prefix.last(unit)
        if self.prefix is not None and prefix is None:
            return None
        strategy = self.strategy.bounded(unit.agent.spec.step_limit)
        return await grow(unit.task, strategy, unit.agent, unit.forest, unit.seed, prefix)


async def grow(
    task: Task,
    strategy: Strategy,
    agent: Agent,
    forest: GrowingForest | None,
    seed: int,
    prefix: tuple[Tree, int] | None = None,
) -> Tree:
    """Grows the tree of a task to its end and returns it; the caller makes it visible.

    Every expansion is journaled after it was told. If the journal of an earlier attempt is there, its expansions are
    told again and the search goes on from the last one: the environment is replayed where needed, the policy is not
    asked again.

    Args:
        forest: Where the journal is; None for a tree that has none: it begins anew after a failure.
        prefix: Another tree of the same task, and the last of its turns that this one begins with, below its root.

    Raises:
        InfraError: The policy or the environment did not answer. The journal holds what was done.
    """
    journal = list(forest.journal(task.key)) if forest is not None else []
    known = prefix[0].others(0) if prefix is not None else ()
    if journal:
        known = tuple(OtherAnswer(**answer) for answer in journal[0].get("others", ()))
    tree, root = await agent.start(task, seed, known)
    opening = [] if journal else [vars(answer) for answer in tree.others(0)]  # the root has no entry of its own
    sessions = Sessions(tree, agent.env, root, SPARE_SESSIONS if strategy.revisits else 0)
    try:
        for turn in prefix[0].path(prefix[1]) if prefix is not None else ():
            tree.nodes[-1].expansions = 1
            child = turn.as_child()
            if child.outcome is Outcome.STEP_LIMIT:  # the limit was that of another strategy
                child = replace(child, outcome=None)
            tree.add(tree.nodes[-1].id, child, Origin.PREFIX)
        for entry in journal:
            strategy.tell(tree, Expansion(**entry["expansion"]), [read_child(c) for c in entry["children"]])
            cost, events = split_counts(entry["counts"])
            policy_s, env_s, *again = entry.get("seconds", (0.0, 0.0))
            turns = Expanded([], [], cost, events, policy_s, env_s, Again(*again))
            turns.account(tree, entry["expansion"]["node"], entry["expansion"]["attempt"])
        while expansions := strategy.ask(tree):
            results = await _sample_all(tree, expansions, agent, sessions)
            for expansion, turns in zip(expansions, results, strict=True):
                nodes = strategy.tell(tree, expansion, turns.children)
                turns.account(tree, expansion.node, expansion.attempt)
                entry = {
                    "expansion": vars(expansion),
                    "children": [stored_child(child) for child in turns.children],
                    "counts": stored_counts(turns.cost, turns.events),
                    "seconds": [turns.policy_s, turns.env_s, *turns.again],
                }
                if opening:
                    entry["others"], opening = opening, []
                if forest is not None:
                    forest.log(task.key, entry)
                for node, session in zip(nodes, turns.sessions, strict=True):
                    if node is not None:
                        sessions.keep(node.id, session)
            sessions.drop_finished()
        return tree
    finally:
        sessions.close()


async def _sample_all(tree: Tree, expansions: list[Expansion], agent: Agent, sessions: Sessions) -> list[Expanded]:
    """All expansions of one ask at the same time; if one fails, the others are cancelled."""

    async def one(expansion: Expansion) -> Expanded:
        return await agent.sample(tree, expansion, await sessions.at(expansion.node))

    return await together(map(one, expansions))


def best_path(tree: Tree) -> list[Node]:
    """Returns the path to the ended leaf with the highest return; of an expert's tree, its episode."""
    return tree.path(max(tree.ended(), key=lambda n: (n.reward, -n.id)).id)
