"""What held-out successes could have done without: each of their turns is left out in turn, and the rest carried out
again.

That is the conciseness of ET-Agent (arXiv 2601.06860, section 4.1), which there a larger model is asked for, proved by
execution.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from agentr.collect.evolver import EvolveConfig, Evolver
from agentr.collect.job import Unit, Work
from agentr.collect.operators import apply
from agentr.collect.sessions import Sessions
from agentr.search.episode import episodes
from agentr.search.tree import Tree
from agentr.store.forest import Forest
from agentr.types import Task


@dataclass(frozen=True)
class Shorten(Work):
    """Leave out of each success in a stage of held-out episodes the turns that it did not need.

    Attributes:
        samples: Answers that are drawn where a turn was left out, if episodes end with an answer; one of them has to be
            right.
        max_steps: Actions after which an episode ends; 0 means the environment's own limit.
        max_invalid: Invalid actions in a row after which it ends; 0 means never.
    """

    samples: int = 1
    max_steps: int = 0
    max_invalid: int = 0

    kind = "shorten"

    def tasks(self, tasks: Sequence[Task], source: Forest | None) -> list[Task]:
        return [] if source is None else [tree.task for tree in source if tree.successes()]

    async def make(self, unit: Unit) -> Tree:
        tree = unit.without_costs()
        sessions = Sessions(tree, unit.agent.env)
        limit = self.max_steps or unit.agent.spec.step_limit
        evolver = Evolver(
            tree, unit.agent, sessions, EvolveConfig(samples=self.samples), unit.seed, limit, self.max_invalid
        )
        try:
            for episode in [found for found in episodes(tree, unit.agent.spec.answer_prefix) if found.succeeded]:
                await sessions.along(episode.leaf.id)
                await apply("drop_redundant", evolver, episode)
        finally:
            sessions.close()
        return tree
