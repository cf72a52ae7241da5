"""One file for each published method, over the same stages."""

from __future__ import annotations

from collections.abc import Callable

from agentr.errors import ConfigError
from agentr.recipes import agent_r
from agentr.rounds.experiment import Experiment

RECIPES: dict[str, Callable[[Experiment], None]] = {"agent_r": agent_r.run}


def recipe(name: str) -> Callable[[Experiment], None]:
    """A recipe by its name in ``run.recipe``.

    Raises:
        ConfigError: There is none of that name.
    """
    if name not in RECIPES:
        raise ConfigError(f"unknown recipe {name!r}", hint=f"Recipes: {', '.join(RECIPES)}.")
    return RECIPES[name]
