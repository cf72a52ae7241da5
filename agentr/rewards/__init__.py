"""Rewards by name.
A module here, or ``reward.py`` in a method's folder, that says ``REWARD = its_class`` is found by itself; one elsewhere
is named ``module:class``.

A reward is a class whose arguments are its options; called with a group, it returns what each rollout is worth. Its
answer must not depend on the order of the group. A price or a bonus is said to be one by
``Reward(total, shaping=total)``: then the gate holds for it.
"""

from __future__ import annotations

import difflib
import importlib
import inspect
import math
import pkgutil
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cache
from pathlib import Path
from typing import Any

from pydantic import PositiveFloat

from agentr.config.checks import Problem, Section
from agentr.config.named import imported
from agentr.errors import ConfigError, DataError
from agentr.rewards.apart import Apart
from agentr.rewards.group import Group, Reward
from agentr.rewards.judge import Ask, JudgeReward

#: A reward, made with its options.
Score = Callable[[Group], Sequence[Reward]]


@dataclass
class RewardConfig(Section):
    """A reward, and how much it counts."""

    name: str = "outcome"
    """A name of ``agentr list rewards``, or ``module:class``."""
    weight: float = 1.0
    """Factor of it in the sum of all rewards."""
    options: dict[str, Any] = field(default_factory=dict)
    """Arguments of the reward's class, e.g. sigma: 0.1."""
    timeout_s: PositiveFloat = 30.0
    """Deadline of one of your own for the rewards of one group; a group without an answer is left out."""

    def problems(self) -> Iterator[Problem]:
        try:
            make(self)
        except ConfigError as error:
            yield Problem(
                "name" if self.name not in known() and ":" not in self.name else "options",
                error.message.rstrip("."),
                error.hint,
            )


class Gate(StrEnum):
    outcome = "outcome"
    """Successes alone, measured from the least of its group; a failure counts for its outcome, and never more than a
    success."""
    none = "none"
    """All rollouts alike (the papers): among failures the shortest is then taught, and a short failure may rank above a
    long success."""


@cache
def known() -> dict[str, type]:
    """Returns the rewards in this package and in the methods' folders, by the module's or the method's name."""
    names = {found.name: f"{__name__}.{found.name}" for found in pkgutil.iter_modules(__path__)}
    methods = Path(__file__).parents[1] / "methods"
    names |= {file.parent.name: f"agentr.methods.{file.parent.name}.reward" for file in methods.glob("*/reward.py")}
    modules = {name: importlib.import_module(module) for name, module in names.items()}
    return {name: module.REWARD for name, module in sorted(modules.items()) if hasattr(module, "REWARD")}


def make(config: RewardConfig) -> Score:
    """Makes a reward with its options.

    Raises:
        ConfigError: There is no such reward, or it does not take these options.
    """
    reward = known().get(config.name) or imported(config.name, "reward", known())
    takes = list(inspect.signature(reward).parameters)
    for name in config.options:
        if name not in takes:
            near = difflib.get_close_matches(name, takes, n=1)
            hint = f"Did you mean {near[0]!r}?" if near else f"It has: {', '.join(takes) or 'none'}."
            raise ConfigError(f"the reward {config.name} has no option {name!r}", hint=hint)
    try:
        return reward(**config.options)
    except (TypeError, ValueError) as error:
        raise ConfigError(f"the reward {config.name} does not take {config.options}: {error}") from error


@dataclass(frozen=True)
class Rewards:
    """Several rewards as one: the weighted sum of their totals, with shaping for those whom the gate lets through."""

    configs: tuple[RewardConfig, ...]
    scores: tuple[Score, ...]
    gate: Gate = Gate.outcome

    @classmethod
    def of(cls, configs: Sequence[RewardConfig], gate: Gate = Gate.outcome) -> Rewards:
        """Makes the rewards of a configuration.

        Raises:
            ConfigError: One of them cannot be made.
        """
        scores = tuple(make(c) if c.name in known() else Apart(c.name, make, c, c.timeout_s) for c in configs)
        return cls(tuple(configs), scores, gate)

    @property
    def judges(self) -> list[JudgeReward]:
        """Those that ask a model."""
        return [score for score in self.scores if isinstance(score, JudgeReward)]

    def asking(self, ask: Ask) -> None:
        """Lets those that ask a model do it by ``ask``."""
        for judge in self.judges:
            judge.ask = ask

    def prepare(self, groups: Sequence[Group]) -> None:
        """Asks a model about several groups at the same time, before each is scored."""
        for judge in self.judges:
            judge.prepare(groups)

    def __call__(self, group: Group) -> list[Reward]:
        """Returns what each rollout of a group is worth, with the components of all rewards; of a failure also
        ``gate``: what its shaping would have taken from it, or given to it with the opposite sign.

        Raises:
            RewardLost: A user's reward took too long, or its process died.
            DataError: A reward raised, or gave something else than a finite number for each rollout.
        """
        totals, shaping, parts = [0.0] * len(group), [0.0] * len(group), [dict[str, float]() for _ in group.episodes]
        for config, score in zip(self.configs, self.scores, strict=True):
            prefix = f"{config.name.rpartition(':')[2]}/"
            for index, reward in enumerate(_asked(config, score, group)):
                totals[index] += config.weight * (reward.total - reward.shaping)
                shaping[index] += config.weight * reward.shaping
                parts[index] |= {f"{prefix}{name}": value for name, value in reward.parts.items()} or {
                    prefix.rstrip("/"): reward.total
                }
        if self.gate is Gate.none or not any(shaping):
            totals = [total + shaped for total, shaped in zip(totals, shaping, strict=True)]
        else:
            succeeded = [episode.succeeded for episode in group.episodes]
            totals = gated(totals, shaping, succeeded)
            for found, shaped, won in zip(parts, shaping, succeeded, strict=True):
                found |= {"gate": -shaped} if shaped and not won else {}
        return [Reward(total, found) for total, found in zip(totals, parts, strict=True)]


def gated(outcomes: Sequence[float], shaping: Sequence[float], succeeded: Sequence[bool]) -> list[float]:
    """Returns what rollouts of a group are worth if shaping is for successes alone.

    A failure is worth its outcome, so failures that came to the same end are equal. A success is worth its outcome and
    what its shaping is above the least among the successes, which is at least 0: prices are negative, and as they stand
    would put a dear success below a failure. If an outcome itself puts one there, all successes are raised by the same,
    to 1 above the best failure.

    Args:
        outcomes: What each is worth without its shaping.
    """
    if not any(succeeded):
        return list(outcomes)
    least = min(shaped for shaped, won in zip(shaping, succeeded, strict=True) if won)
    totals = [
        worth + (shaped - least if won else 0.0)
        for worth, shaped, won in zip(outcomes, shaping, succeeded, strict=True)
    ]
    lost = max((total for total, won in zip(totals, succeeded, strict=True) if not won), default=-math.inf)
    worst = min(total for total, won in zip(totals, succeeded, strict=True) if won)
    raised = lost - worst + 1.0 if worst <= lost else 0.0
    return [total + raised if won else total for total, won in zip(totals, succeeded, strict=True)]


def _asked(config: RewardConfig, score: Score, group: Group) -> list[Reward]:
    """Asks a reward, and checks its answer."""
    task = group.episodes[0].tree.task.key if group.episodes else "a task without rollouts"
    try:
        found = score(group)
    except DataError as error:
        raise type(error)(f"{error.message} (for {task})", hint=error.hint) from error
    except Exception as error:
        raise DataError(f"the reward {config.name} failed: {type(error).__name__}: {error} (for {task})") from error
    found = [reward if isinstance(reward, Reward) else Reward(reward) for reward in found]
    if len(found) != len(group):
        raise DataError(f"the reward {config.name} gave {len(found)} answers for the {len(group)} rollouts of {task}")
    for reward in found:
        for name, value in {"": reward.total, "shaping": reward.shaping, **reward.parts}.items():
            if not isinstance(value, int | float) or not math.isfinite(value):
                raise DataError(
                    f"the reward {config.name} gave {value!r} for {task}{f' ({name})' if name else ''}, which is no "
                    "finite number"
                )
    return found
