"""Tree-GRPO: rollouts that branch, compared with each other as a whole and turn by turn (arXiv 2509.21240).

The same loss goes with the trees of Agent-R's search (``explore: uct``): all paths to an ended leaf are rollouts then.
"""

from dataclasses import dataclass, field, replace
from enum import StrEnum

from pydantic import PositiveInt

from agentr.collect.grow import Grow
from agentr.collect.job import Work
from agentr.methods.tree_grpo.branch import Branch, Select
from agentr.rounds.method import read_presets
from agentr.rounds.online import Online
from agentr.rounds.online_config import BranchingConfig
from agentr.rows.advantages import AdvantageConfig
from agentr.search import UCT, UCTConfig
from agentr.search.uct import Dedupe


class Explore(StrEnum):
    """How a tree grows."""

    branch = "branch"
    """Rollouts branch off from turns that were taken (Tree-GRPO)."""
    uct = "uct"
    """Monte Carlo tree search (Agent-R), until the tree has as many ended leaves or the search ends."""


@dataclass
class TreeGRPOConfig(BranchingConfig):
    """Group relative policy optimisation over trees (docs/rl.md)."""

    type: str = "tree_grpo"
    explore: Explore = Explore.branch
    """How a tree grows. For uct, initial, at_once and select do not matter."""
    search: UCTConfig = field(default_factory=lambda: UCTConfig(dedupe=Dedupe.none, enough_good=0))
    """For explore=uct: how a tree is searched; max_steps and max_invalid of the method hold, if they are set."""
    at_once: PositiveInt = 2
    """Branches of a task that begin together."""
    select: Select = Select.random
    """Where branches begin."""
    advantages: AdvantageConfig = field(default_factory=lambda: AdvantageConfig(turn=1.0))
    """What rewards are compared with; branches of a turn show what came of it, so turns are compared, too."""

    @property
    def trees(self) -> int:
        return self.initial if self.explore is Explore.branch else 0


class TreeGRPO(Online[TreeGRPOConfig]):
    """Branching rollouts of each task, a policy gradient on how rollouts and turns compare, step after step."""

    name = "tree_grpo"
    title = "Tree-GRPO (arXiv 2509.21240)"
    environments = ("searchqa",)
    page = "docs/rl.md"
    config_class = TreeGRPOConfig
    presets = read_presets(__file__)

    def rollouts(self) -> Work:
        config = self.config
        if config.explore is Explore.uct:
            depth = config.max_steps - 1 if config.max_steps else config.search.max_depth
            search = replace(
                config.search, max_depth=depth, max_invalid=config.max_invalid or config.search.max_invalid
            )
            return Grow(UCT(search, leaves=config.episodes))
        branch = Branch(
            config.episodes, config.initial, config.at_once, config.max_steps, config.max_invalid, config.select
        )
        return Grow(branch)


METHOD = TreeGRPO
