"""TextCraft's expert: a planner that picks a recipe for everything that has to be crafted.

It also decides which recipes an *exact* task shows (see `environment.py`): one recipe for each item on the way, with
every tag replaced by the item that the plan uses.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import pairwise

from env_servers.base import ExpertStep
from env_servers.textcraft.world import Ingredient, Names, Recipe, World, display


@dataclass
class Plan:
    """A recipe for each item on the way to a goal.

    Attributes:
        recipes: For each crafted item the recipe in use, its tags resolved to items.
    """

    goal: str
    recipes: dict[str, Recipe] = field(default_factory=dict)

    def named(self, names: Names) -> Plan:
        """The plan in other names."""
        return Plan(names.of(self.goal), {names.of(item): names.recipe(r) for item, r in self.recipes.items()})

    def order(self) -> list[str]:
        """Items, ingredients before what they go into, each once."""
        ordered: dict[str, None] = {}

        def visit(item: str) -> None:
            if item in ordered:
                return
            if item in self.recipes:
                for ingredient in self.recipes[item].inputs:
                    visit(ingredient.name)
            ordered[item] = None

        visit(self.goal)
        return list(ordered)

    def depth(self, item: str | None = None) -> int:
        """Crafting levels of the plan; 0 for an item that is fetched."""
        recipe = self.recipes.get(item or self.goal)
        return 0 if recipe is None else 1 + max(self.depth(i.name) for i in recipe.inputs)

    def steps(self, carried: Mapping[str, int] | None = None) -> list[ExpertStep]:
        """The demonstration: fetch and craft bottom-up, each item in the amount that the plan needs.

        Args:
            carried: How many of each item are there already.
        """
        carried = carried or {}
        order = self.order()
        needed: dict[str, int] = {self.goal: 1}
        crafts: dict[str, int] = {}
        for item in reversed(order):
            recipe = self.recipes.get(item)
            if recipe is None:
                continue
            crafts[item] = -(-max(0, needed.get(item, 0) - carried.get(item, 0)) // recipe.count)
            for ingredient in recipe.inputs:
                needed[ingredient.name] = needed.get(ingredient.name, 0) + ingredient.count * crafts[item]
        steps: list[ExpertStep] = []
        for item in order:
            recipe = self.recipes.get(item)
            if recipe is None:
                lacking = needed[item] - carried.get(item, 0)
                steps += [ExpertStep(self._reason(item), f"get {lacking} {display(item)}")] * (lacking > 0)
            else:
                steps += [ExpertStep(self._reason(item), str(recipe))] * crafts[item]
        return steps

    def _reason(self, item: str) -> str:
        """The chain of needs from the goal down to ``item``."""
        chain = [item]
        while chain[-1] != self.goal:
            chain.append(next(p for p, r in self.recipes.items() if any(i.name == chain[-1] for i in r.inputs)))
        if len(chain) == 1:
            return f"I have everything for {display(item)}."
        return (
            ", ".join(f"{display(above)} needs {display(below)}" for below, above in reversed(list(pairwise(chain))))
            + "."
        )


def make_plan(world: World, goal: str, rng: random.Random | None = None) -> Plan | None:
    """A plan for ``goal``, or None where none was found (one of Minecraft's 544 goals).

    Args:
        rng: Chooses among several recipes and among the items that fit a tag; without it the first of the shallowest is
            taken.
    """
    plan = Plan(goal)
    return plan if _resolve(world, plan, goal, frozenset(), rng) else None


def _resolve(world: World, plan: Plan, item: str, above: frozenset[str], rng: random.Random | None) -> bool:
    if item in plan.recipes or world.fetchable(item):
        return True
    if item in above:
        return False
    for recipe in _shuffled(
        world.by_item.get(item, []), rng, key=lambda r: max(world.depth.get(i.name, 0) for i in r.inputs)
    ):
        inputs: list[Ingredient] = []
        for ingredient in recipe.inputs:
            chosen = _choose(world, plan, ingredient, above | {item}, rng)
            if chosen is None or any(chosen == i.name for i in inputs):
                break
            inputs.append(Ingredient(chosen, ingredient.count, False))
        else:
            plan.recipes[item] = Recipe(item, recipe.count, recipe.tag, tuple(inputs))
            return True
    return False


def _choose(
    world: World, plan: Plan, ingredient: Ingredient, above: frozenset[str], rng: random.Random | None
) -> str | None:
    if not ingredient.is_tag:
        return ingredient.name if _resolve(world, plan, ingredient.name, above, rng) else None
    members = sorted(item for item, tag in world.tag_of.items() if tag == ingredient.name)
    already = [m for m in members if m in plan.recipes]
    for member in already or _shuffled(members, rng, key=lambda m: world.depth.get(m, 0)):
        if _resolve(world, plan, member, above, rng):
            return member
    return None


def _shuffled(options: list, rng: random.Random | None, key) -> list:
    options = list(options)
    if rng is not None:
        rng.shuffle(options)
    return sorted(options, key=key)
