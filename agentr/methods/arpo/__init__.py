"""ARPO: rollouts that branch where the policy is unsure after a tool's answer (arXiv 2507.19849)."""

from dataclasses import dataclass

from pydantic import PositiveFloat, PositiveInt

from agentr.collect.grow import Grow
from agentr.collect.job import Work
from agentr.config.checks import Proportion
from agentr.methods.arpo.entropy import Decides, EntropyBranch
from agentr.rounds.method import read_presets
from agentr.rounds.online import Online
from agentr.rounds.online_config import BranchingConfig


@dataclass
class ARPOConfig(BranchingConfig):
    """Agentic reinforced policy optimisation (docs/rl.md)."""

    type: str = "arpo"
    beam: PositiveInt = 2
    """Rollouts that one becomes at most when it splits."""
    base: Proportion = 0.5
    """Probability of a branch where the entropy is that of the first turn."""
    weight: float = 0.2
    """What a difference of 1 in normalised entropy adds to it."""
    entropy_tokens: PositiveInt = 20
    """Tokens at the start of a turn whose entropies are summed."""
    entropy_scale: PositiveFloat = 1.0
    """What the sum is divided by, in nats (ARPO: the logarithm of the vocabulary's size, 11.9 for Qwen2.5)."""
    decides: Decides = Decides.after
    """Whether the turn after the environment's answer decides, or the turn before it."""
    own_first: bool = False
    """Compare a branch with the entropy of its own first turn (the released code), in place of its rollout's."""


class ARPO(Online[ARPOConfig]):
    """Rollouts of each task that branch by entropy, a policy gradient on how they compare, step after step."""

    name = "arpo"
    title = "ARPO (arXiv 2507.19849)"
    environments = ("mathtool", "searchqa")
    page = "docs/rl.md"
    config_class = ARPOConfig
    presets = read_presets(__file__)

    def rollouts(self) -> Work:
        config = self.config
        branch = EntropyBranch(
            config.episodes,
            config.initial,
            config.beam,
            config.base,
            config.weight,
            config.entropy_tokens,
            config.entropy_scale,
            config.decides,
            config.max_steps,
            config.max_invalid,
            config.own_first,
        )
        return Grow(branch)


METHOD = ARPO
