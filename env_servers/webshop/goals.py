"""Goals: what a customer asks for, from the official files.

Two numberings are published. WebShop's 12,087 human goals belong to the full catalogue. AgentGym and Agent-R use the
*synthetic* goals of the 1,000-product set: 6,910 of them, one for each combination of the options of the 415 products
that have an instruction. Either list is shuffled with seed 233, and a task's number is its place in that order.
"""

import itertools
import random
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from env_servers.webshop.products import Product

#: Seed of the original's shuffle, which decides every task's number.
SHUFFLE_SEED = 233
#: Price limits are multiples of ten dollars; a goal's is one of the first four above the product's price.
PRICE_LIMITS = [10.0 * step for step in range(1, 100)]


@dataclass(frozen=True)
class Goal:
    """A description of the product to buy.

    Attributes:
        asin: A product that fulfils it.
        words: The instruction without the price limit; goals with the same words are the same problem.
        options: Option values asked for.
        limit: Highest price, in dollars; None for no limit.
    """

    asin: str
    words: str
    attributes: tuple[str, ...]
    options: tuple[str, ...]
    limit: float | None

    @property
    def instruction(self) -> str:
        return self.words if self.limit is None else f"{self.words}, and price lower than {self.limit:.2f} dollars"


def price_limit(price: float, seed: str) -> float | None:
    """A limit above ``price``.
    The original draws it from the global generator, unseeded: other limits at every start."""
    above = [limit for limit in PRICE_LIMITS if limit > price][:4]
    return max(random.Random(f"webshop/limit/{seed}").sample(above, 2)) if len(above) >= 2 else None


def synthetic_goals(products: Iterable[Product], attributes: Mapping[str, Mapping[str, Any]]) -> list[Goal]:
    """One goal for each combination of options of each product that has an instruction, in the published order.

    Args:
        attributes: Content of ``items_ins_v2*.json``.
    """
    goals: list[Goal] = []
    for product in products:
        entry = attributes.get(product.asin, {})
        if entry.get("instruction") is None:
            continue
        limit = price_limit(product.price, product.asin)
        names = sorted(product.options)
        for values in itertools.product(*(product.options[name] for name in names)):
            chosen = ", and ".join(f"{name}: {value}" for name, value in zip(names, values, strict=True))
            words = f"{entry['instruction']} with {chosen}" if chosen else entry["instruction"]
            goals.append(Goal(product.asin, words, tuple(entry["instruction_attributes"]), values, limit))
    random.Random(SHUFFLE_SEED).shuffle(goals)
    return goals


def human_goals(products: Iterable[Product], instructions: Any) -> list[Goal]:
    """The goals that people wrote, in the published order.

    Args:
        instructions: Content of ``items_human_ins.json``.

    Raises:
        ValueError: It is another file.
    """
    if not isinstance(instructions, Mapping):
        raise ValueError(
            "the human goals are in items_human_ins.json, which names each instruction's product, attributes and "
            "options; this file (human_goals.json, perhaps) holds bare sentences, from which no reward can be computed"
        )
    goals: list[Goal] = []
    for product in products:
        for number, entry in enumerate(instructions.get(product.asin, ())):
            if not entry["instruction_attributes"]:
                continue
            options = entry["instruction_options"]
            options = options.values() if isinstance(options, Mapping) else options
            limit = price_limit(product.price, f"{product.asin}/{number}")
            words = entry["instruction"].strip(".")
            goals.append(Goal(product.asin, words, tuple(entry["instruction_attributes"]), tuple(options), limit))
    random.Random(SHUFFLE_SEED).shuffle(goals)
    return goals


def divide(goals: Sequence[Goal]) -> dict[str, list[int]]:
    """Numbers of the goals of ``train``, ``dev`` and ``test``: 70/15/15 % of the products.

    No product is the target in two of them. A goal whose words also stand for a product of another split is in none.
    """
    asins = sorted({goal.asin for goal in goals})
    random.Random("webshop/splits").shuffle(asins)
    first, second = round(0.70 * len(asins)), round(0.85 * len(asins))
    split_of = {
        asin: "train" if place < first else "dev" if place < second else "test" for place, asin in enumerate(asins)
    }
    splits_of_words: dict[str, set[str]] = {}
    for goal in goals:
        splits_of_words.setdefault(goal.words, set()).add(split_of[goal.asin])
    divided: dict[str, list[int]] = {"train": [], "dev": [], "test": []}
    for number, goal in enumerate(goals):
        if len(splits_of_words[goal.words]) == 1:
            divided[split_of[goal.asin]].append(number)
    return divided
