"""One file for each published method, over the same stages."""

from __future__ import annotations

from agentr.errors import ConfigError
from agentr.recipes import agent_r, dense_policy, eto, rft, sft
from agentr.recipes.recipe import Recipe

RECIPES = {"agent_r": agent_r.RECIPE, "eto": eto.RECIPE, "dense_policy": dense_policy.RECIPE, "rft": rft.RECIPE, "sft": sft.RECIPE}


def recipe(name: str) -> Recipe:
    """A recipe by its name in ``run.recipe``.

    Raises:
        ConfigError: There is none of that name.
    """
    if name not in RECIPES:
        raise ConfigError(f"unknown recipe {name!r}", hint=f"Recipes: {', '.join(RECIPES)}.")
    return RECIPES[name]
