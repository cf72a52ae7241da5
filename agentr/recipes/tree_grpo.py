"""Tree-GRPO: rollouts that branch, compared with each other as a whole and turn by turn (arXiv 2509.21240)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

from agentr.build.advantages import AdvantageConfig
from agentr.collect.grow import Grow
from agentr.collect.job import Work
from agentr.config.checks import number
from agentr.rounds.online import Online
from agentr.rounds.online_config import BranchingConfig
from agentr.search.branch import Branch, Select


@dataclass
class TreeGRPOConfig(BranchingConfig):
    """Group relative policy optimisation over trees (docs/rl.md)."""

    type: str = "tree_grpo"
    at_once: int = number(2, least=1)
    """Branches of a task that begin together."""
    select: Select = Select.random
    """Where branches begin."""
    advantages: AdvantageConfig = field(default_factory=lambda: AdvantageConfig(turn=1.0))
    """What rewards are compared with; branches of a turn tell what came of it, so turns are compared, too."""


class TreeGRPO(Online[TreeGRPOConfig]):
    """Branching rollouts of each task, a policy gradient on how rollouts and turns compare, step after step."""

    name = "tree_grpo"
    title = "Tree-GRPO (arXiv 2509.21240)"
    page = "docs/rl.md"
    Config = TreeGRPOConfig

    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "paper": {"method": {"advantages": {"subtree": 1.0, "turn": 0.0}}, "train": [{"batch_size": 256}]}
    }

    def exploration(self, round_: int) -> Mapping[str, Work]:
        config = self.config
        branch = Branch(config.episodes, config.initial, config.at_once, config.max_steps, config.max_invalid, config.select)
        return {"rollouts": Grow(branch)}


RECIPE = TreeGRPO
