"""ET-Agent's flywheel: better episodes are made of those that are there (arXiv 2601.06860, section 3.2).

A task's episodes are a tree. In each evolution one of them is chosen, a right one before a wrong one and among equals
the one with the fewest calls; operators for right episodes make it shorter or find another way, operators for wrong
ones mend it (``agentr.collect.operators``). What comes of it is a branch of the same tree, and may be chosen next.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

from agentr.collect.advisor import Advisor, advisor
from agentr.collect.agent import Agent
from agentr.collect.episode_judge import give_verdict
from agentr.collect.evolver import EvolveConfig, Evolver
from agentr.collect.job import Unit, Work
from agentr.collect.operators import apply, operator_named
from agentr.collect.sessions import Sessions
from agentr.search.episode import EVOLVED, Episode, episodes
from agentr.search.tree import Tree
from agentr.store.growing import GrowingForest


@dataclass(frozen=True)
class Evolve(Work):
    """Evolve the episodes of the trees of ``collect``.

    Attributes:
        max_steps: Actions after which an episode ends; 0 means the environment's own limit.
        max_invalid: Invalid actions in a row after which it ends; 0 means never.
    """

    config: EvolveConfig
    max_steps: int = 0
    max_invalid: int = 0

    kind = "evolve"
    source = "collect"
    extends = True

    def max_completions(self, step_limit: int) -> int:
        steps = self.max_steps or step_limit
        most = (
            sum(operator_named(name).most(self.config, steps) for name in names)
            for names in (self.config.right, self.config.wrong)
        )
        return self.config.evolutions * max(most)

    async def make(self, unit: Unit) -> Tree:
        assert unit.source is not None, "episodes are evolved from collected ones"
        teacher, judge = unit.helper
        tree = unit.source.read(unit.task.key)
        sessions = Sessions(tree, unit.agent.env)
        limit = self.max_steps or unit.agent.spec.step_limit
        evolver = Evolver(tree, unit.agent, sessions, self.config, unit.seed, limit, self.max_invalid, teacher, judge)
        try:
            for _ in range(self.config.evolutions):
                if not await self._evolve(evolver):
                    break
        finally:
            sessions.close()
        return tree

    @asynccontextmanager
    async def helper(self, agent: Agent, forest: GrowingForest) -> AsyncIterator[tuple[Advisor | None, Advisor | None]]:
        config = self.config
        async with (
            advisor("method.evolve.teacher", config.teacher, agent, forest) as teacher,
            advisor("method.evolve.judge", config.judge, agent, forest) as judge,
        ):
            yield teacher, judge

    async def _evolve(self, evolver: Evolver) -> bool:
        """Chooses an episode and applies its operators; False if there is none or nothing came of any operator."""
        tree = evolver.tree
        episode = chosen(tree, evolver.agent.spec.answer_prefix)
        if episode is None:
            return False
        await give_verdict(evolver.judge, episode)
        await evolver.sessions.along(episode.leaf.id)
        ended = []
        for name in self.config.right if episode.succeeded else self.config.wrong:
            size = len(tree.nodes)
            made = await apply(name, evolver, episode)
            ended.append(made.end >= size)
            if made.end >= size:
                await give_verdict(evolver.judge, Episode(tree, tuple(tree.path(made.end)), episode.answer_prefix))
        return any(ended)


def chosen(tree: Tree, answer_prefix: str) -> Episode | None:
    """Returns the best episode that was not chosen before; if all were, the best one: right before wrong, then by
    return, then by calls."""
    used = {made.parent for made in tree.evolutions}
    found = episodes(tree, answer_prefix, EVOLVED)
    return min(found, key=lambda e: (e.leaf.id in used, not e.succeeded, -e.earned, e.calls, e.leaf.id), default=None)
