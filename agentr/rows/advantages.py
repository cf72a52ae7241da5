"""How much better a turn was than what else the policy does there: pure functions of a group's rewards.

Rollouts of one task are compared with each other, so no value function is needed. A whole rollout is compared with the
others of its group; a turn, with the other turns that were taken after the same actions (in a deterministic
environment: in the same state).
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from statistics import fmean, stdev

from pydantic import NonNegativeFloat, PositiveFloat

from agentr.config.checks import Problem, Section
from agentr.search.episode import Episode

#: Spread of rewards below which all rollouts of a group are equal, and teach nothing.
EQUAL = 1e-8


class Baseline(StrEnum):
    mean = "mean"
    """The mean reward of the group (GRPO, arXiv 2402.03300, section 4.1.2)."""
    others = "others"
    """The mean reward of the other rollouts of the group (leave-one-out; RLOO, arXiv 2402.14740, Eq. 8)."""


class Scale(StrEnum):
    std = "std"
    """Divide by the standard deviation of the group's rewards (GRPO)."""
    none = "none"
    """Leave differences as they are: groups of a small spread weigh less (Dr. GRPO, arXiv 2503.20783, section 3.2)."""


@dataclass
class AdvantageConfig(Section):
    """What rollouts and turns are compared with."""

    baseline: Baseline = Baseline.mean
    """What a rollout's reward is compared with."""
    scale: Scale = Scale.std
    """What differences are divided by."""
    trajectory: NonNegativeFloat = 1.0
    """Weight of the comparison of whole rollouts; all turns of a rollout have it alike (Tree-GRPO's inter-tree
    term)."""
    subtree: NonNegativeFloat = 0.0
    """Weight of the comparison of whole rollouts with those of the same tree alone (Tree-GRPO's intra-tree term, arXiv
    2509.21240, section 3.3: 1, as trajectory). A tree is what branched off one of the method.initial rollouts, or off
    its opening; elsewhere what has the same first turn."""
    turn: NonNegativeFloat = 0.0
    """Weight of the comparison of each turn with the turns taken in the same state (GiGPO, arXiv 2505.10978, Eq. 8:
    1)."""

    shared: bool = True
    """Turns that several rollouts of a tree have in common are learnt; without, only what comes after they part
    (pivotal credit, R3L, arXiv 2601.03715, Eq. 10)."""
    amplify: PositiveFloat = 1.0
    """What an advantage above 0 is multiplied by, so that few successes outweigh many failures (positive amplification,
    R3L, Eq. 11: 3)."""
    best: NonNegativeFloat = 0.0
    """The advantage of rollouts that earn the most of their group, where not all earn the same; 0 leaves what
    comparison says (R3L, Eq. 11: 3, as amplify)."""

    def problems(self) -> Iterator[Problem]:
        if not self.trajectory and not self.subtree and not self.turn:
            message = "trajectory, subtree and turn are all 0: no rollout would be better than another"
            yield Problem("trajectory", message, "Set one of them.")


def advantages(
    episodes: Sequence[Episode], rewards: Sequence[float], config: AdvantageConfig, trees: int
) -> list[list[float]]:
    """Returns the advantage of each turn of each rollout of a group; all 0 if the rewards are equal or there is one
    rollout only.

    Args:
        trees: How many rollouts began at the opening, each a tree of its own, before others branched off; 0 if each
            that did is one.
    """
    if not differ(rewards):
        return [[0.0] * len(rollout.path) for rollout in episodes]
    among_all = standardised(rewards, config)
    among_own = [0.0] * len(rewards)
    if config.subtree:
        for members in _subtrees(episodes, trees):
            for index, value in zip(members, standardised([rewards[i] for i in members], config), strict=True):
                among_own[index] = value
    whole = [config.trajectory * one + config.subtree * other for one, other in zip(among_all, among_own, strict=True)]
    by_turn = (
        turn_differences(episodes, rewards, config.baseline) if config.turn else [[0.0] * len(r.path) for r in episodes]
    )
    spread = divisor(rewards, config.scale)
    found = [[own + config.turn * turn / spread for turn in turns] for own, turns in zip(whole, by_turn, strict=True)]
    if config.amplify != 1.0:
        found = [[value * config.amplify if value > 0 else value for value in values] for values in found]
    if config.best:
        most = max(rewards) - EQUAL
        found = [[config.best] * len(v) if r >= most else v for r, v in zip(rewards, found, strict=True)]
    if not config.shared:
        taken = Counter(id(turn) for rollout in episodes for turn in rollout.path)
        for rollout, values in zip(episodes, found, strict=True):
            values[:] = [0.0 if taken[id(turn)] > 1 else v for turn, v in zip(rollout.path, values, strict=True)]
    return found


def standardised(rewards: Sequence[float], config: AdvantageConfig) -> list[float]:
    """Returns how each reward compares with the others, all 0 if they are equal."""
    if not differ(rewards):
        return [0.0] * len(rewards)
    spread = divisor(rewards, config.scale)
    return [value / spread for value in compared(rewards, config.baseline)]


def divisor(rewards: Sequence[float], scale: Scale) -> float:
    """Returns what the differences between a group's rewards are divided by."""
    return stdev(rewards) + 1e-6 if scale is Scale.std else 1.0


def _subtrees(episodes: Sequence[Episode], trees: int) -> Iterator[list[int]]:
    """Yields the numbers of the rollouts of each tree.
    Branches at the opening, which all trees share, are dealt out in turn."""
    found: dict[int, list[int]] = {}
    for index, episode in enumerate(episodes):
        place = episode.tree.root.children.index(episode.path[0].id)
        found.setdefault(place % trees if trees else place, []).append(index)
    yield from found.values()


def differ(rewards: Sequence[float]) -> bool:
    """Returns whether the rollouts of a group are worth different things; else the group says nothing."""
    return len(rewards) > 1 and stdev(rewards) >= EQUAL


def compared(rewards: Sequence[float], baseline: Baseline) -> list[float]:
    """Returns each reward's difference to the baseline: r - mean(r), or r - mean of the others, which is n / (n - 1)
    times as much."""
    mean = fmean(rewards)
    factor = len(rewards) / (len(rewards) - 1) if baseline is Baseline.others and len(rewards) > 1 else 1.0
    return [(reward - mean) * factor for reward in rewards]


def turn_differences(
    episodes: Sequence[Episode], rewards: Sequence[float], baseline: Baseline = Baseline.mean
) -> list[list[float]]:
    """Returns, for each turn, the mean reward of the rollouts that took its action there minus that of all rollouts
    that were there.

    Rollouts that took the same actions so far are in the same state, whether they share nodes of a tree or not; a turn
    that could not be read counts as an action of its own. This is the step advantage of GiGPO (arXiv
    2505.10978, Eq. 6 and 7, with a discount of 1) with exact states in place of equal observations.

    Args:
        baseline: ``others`` compares with the rollouts that did something else there.
    """
    there: dict[tuple[str, ...], list[float]] = {}
    taken: dict[tuple[str, ...], list[float]] = {}
    steps: list[list[tuple[tuple[str, ...], tuple[str, ...]]]] = []
    for rollout, reward in zip(episodes, rewards, strict=True):
        state: tuple[str, ...] = ()
        steps.append([])
        for node in rollout.path:
            step = (*state, node.action)
            there.setdefault(state, []).append(reward)
            taken.setdefault(step, []).append(reward)
            steps[-1].append((state, step))
            state = step
    found = []
    for own in steps:
        found.append([])
        for state, step in own:
            everyone, same = there[state], taken[step]
            factor = (
                len(everyone) / (len(everyone) - len(same))
                if baseline is Baseline.others and len(everyone) > len(same)
                else 1.0
            )
            found[-1].append((fmean(same) - fmean(everyone)) * factor)
    return found
