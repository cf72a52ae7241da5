"""Rewards by name. A file beside this one that says ``REWARD = its_class`` is found by itself; one elsewhere is named ``module:class``.

A reward is a class whose arguments are its options; called with a group, it returns what each rollout is worth. Its answer must not depend
on the order of the group.
"""

from __future__ import annotations

import difflib
import importlib
import inspect
import math
import pkgutil
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from agentr.config.checks import Problem, number
from agentr.config.named import imported
from agentr.errors import ConfigError, DataError
from agentr.rewards.apart import Apart
from agentr.rewards.group import Group, Reward

#: A reward, made with its options.
Score = Callable[[Group], Sequence[Reward]]


@dataclass
class RewardConfig:
    """A reward, and how much it counts."""

    name: str = "outcome"
    """A name of ``agentr rewards``, or ``module:class``."""
    weight: float = number(1.0)
    """Factor of it in the sum of all rewards."""
    options: dict[str, Any] = field(default_factory=dict)
    """Arguments of the reward's class, e.g. sigma: 0.1."""
    timeout_s: float = number(30.0, above=0)
    """Deadline of one of your own for the rewards of one group; a group without an answer is left out."""

    def problems(self) -> Iterator[Problem]:
        try:
            make(self)
        except ConfigError as error:
            yield Problem("name" if self.name not in known() and ":" not in self.name else "options", error.message.rstrip("."), error.hint)


@cache
def known() -> dict[str, type]:
    """Returns the rewards in this package by name."""
    modules = {found.name: importlib.import_module(f"{__name__}.{found.name}") for found in pkgutil.iter_modules(__path__)}
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
    """Several rewards as one: the weighted sum of their totals."""

    configs: tuple[RewardConfig, ...]
    scores: tuple[Score, ...]

    @classmethod
    def of(cls, configs: Sequence[RewardConfig]) -> Rewards:
        """Makes the rewards of a configuration.

        Raises:
            ConfigError: One of them cannot be made.
        """
        return cls(tuple(configs), tuple(make(c) if c.name in known() else Apart(c.name, make, c, c.timeout_s) for c in configs))

    def __call__(self, group: Group) -> list[Reward]:
        """Returns what each rollout of a group is worth, with the components of all rewards.

        Raises:
            RewardLost: A user's reward took too long, or its process died.
            DataError: A reward raised, or gave something else than a finite number for each rollout.
        """
        totals, parts = [0.0] * len(group), [dict[str, float]() for _ in group.episodes]
        for config, score in zip(self.configs, self.scores, strict=True):
            prefix = f"{config.name.rpartition(':')[2]}/"
            for index, reward in enumerate(_asked(config, score, group)):
                totals[index] += config.weight * reward.total
                parts[index] |= {f"{prefix}{name}": value for name, value in reward.parts.items()} or {prefix.rstrip("/"): reward.total}
        return [Reward(total, found) for total, found in zip(totals, parts, strict=True)]


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
        for name, value in {"": reward.total, **reward.parts}.items():
            if not isinstance(value, int | float) or not math.isfinite(value):
                raise DataError(
                    f"the reward {config.name} gave {value!r} for {task}{f' ({name})' if name else ''}, which is no finite number"
                )
    return found
