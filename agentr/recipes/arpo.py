"""ARPO: rollouts that branch where the policy is unsure after a tool's answer (arXiv 2507.19849)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from agentr.collect.grow import Grow
from agentr.collect.job import Work
from agentr.config.checks import Problem, number, share
from agentr.rounds.online import Online
from agentr.rounds.online_config import OnlineConfig
from agentr.search.entropy import Decides, EntropyBranch


@dataclass
class ARPOConfig(OnlineConfig):
    """Agentic reinforced policy optimisation (docs/rl.md)."""

    type: str = "arpo"
    initial: int = number(4, least=1)
    """Rollouts of a task that begin at its opening together (ARPO: 8 of 16)."""
    beam: int = number(2, least=1)
    """Rollouts that one becomes at most when it splits."""
    base: float = share(0.5)
    """Probability of a branch where the entropy is that of the first turn."""
    weight: float = number(0.2)
    """What a difference of 1 in normalised entropy adds to it."""
    entropy_tokens: int = number(20, least=1)
    """Tokens at the start of a turn whose entropies are summed."""
    entropy_scale: float = number(1.0, above=0)
    """What the sum is divided by, in nats (ARPO: the logarithm of the vocabulary's size, 11.9 for Qwen2.5)."""
    decides: Decides = Decides.after
    """Whether the turn after the environment's answer decides, or the turn before it."""

    def problems(self) -> Iterator[Problem]:
        if self.initial > self.episodes:
            yield Problem("initial", f"{self.initial} rollouts from the opening are more than episodes = {self.episodes}", "Lower it.")


class ARPO(Online[ARPOConfig]):
    """Rollouts of each task that branch by entropy, a policy gradient on how they compare, step after step."""

    name = "arpo"
    title = "ARPO (arXiv 2507.19849)"
    page = "docs/rl.md"
    Config = ARPOConfig

    def exploration(self, round_: int) -> Mapping[str, Work]:
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
        )
        return {"rollouts": Grow(branch)}

    _paper: ClassVar[Mapping[str, Any]] = {
        "method": {
            "episodes": 16,
            "initial": 8,
            "entropy_scale": 11.93,
            "rewards": [{"name": "arpo"}],
        }
    }
    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "paper": _paper,
        "released": {"method": {**_paper["method"], "decides": "before"}},
    }


RECIPE = ARPO
