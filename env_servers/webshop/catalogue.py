"""The default catalogue: products, and goals that they fulfil, made from the word lists in `catalogue.yaml`.

960 products in 24 ranges of goods and 2,880 goals, always the same. As in the official data, products of a range share
attributes and options, so that a goal is found by reading, not by its type alone; about half of a product's attributes
are only on its Features page.
"""

import random
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from env_servers.webshop.goals import Goal, price_limit
from env_servers.webshop.products import Product, Review

PRODUCTS_PER_RANGE = 40
GOALS_PER_PRODUCT = 3
#: How an attribute is said: "is machine washable", "with a hood", "for cold days".
KINDS = ("is", "with", "for")
#: How many attributes of each kind a product has, and most that a goal asks for.
ATTRIBUTES = {"is": 3, "with": 2, "for": 1}
MAX_ASKED = 4
#: Least and most values of an option that a product offers.
VALUES = (3, 6)
ASIN_CHARS = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ"

Attributes = Mapping[str, list[str]]


def generate() -> tuple[dict[str, Product], list[Goal]]:
    """Products by asin, and goals; no two goals have the same words."""
    with (Path(__file__).parent / "catalogue.yaml").open(encoding="utf-8") as file:
        words = yaml.load(file, getattr(yaml, "CSafeLoader", yaml.SafeLoader))
    products: dict[str, Product] = {}
    goals: dict[str, Goal] = {}
    for goods in words["ranges"]:
        for number in range(PRODUCTS_PER_RANGE):
            rng = random.Random(f"webshop/catalogue/{goods['query']}/{number}")
            attributes = {kind: rng.sample(goods[kind], count) for kind, count in ATTRIBUTES.items()}
            product = _product(rng, words, goods, attributes)
            products[product.asin] = product
            for goal in (_goal(rng, words["requests"], product, attributes) for _ in range(GOALS_PER_PRODUCT)):
                goals.setdefault(goal.words, goal)
    return products, list(goals.values())


def _product(rng: random.Random, words: Mapping[str, Any], goods: Mapping[str, Any], attributes: Attributes) -> Product:
    brand, noun, style = rng.choice(words["brands"]), rng.choice(goods["nouns"]), rng.choice(goods["styles"])
    first = {kind: values[0] for kind, values in attributes.items()}
    shown = {kind: rng.choice(values) for kind, values in attributes.items()}
    about = {"brand": brand, "noun": noun, "query": goods["query"]}
    features = [
        rng.choice(words["features"][kind]).format(attribute=value, Attribute=value.capitalize())
        for kind, values in attributes.items()
        for value in values
    ]
    features.append(rng.choice(words["features"]["service"]))
    rng.shuffle(features)
    reviews = [
        Review(review["title"], review["score"], review["body"].format(**about, **shown))
        for review in rng.sample(words["reviews"], rng.randrange(4))
    ]
    price = rng.randrange(*goods["price"]) + rng.choice([0.49, 0.95, 0.99])
    return Product(
        asin="B0" + "".join(rng.choices(ASIN_CHARS, k=8)),
        title=(
            f"{brand} {style} {noun.title()}, {first['is'].title()}, {rng.choice(['With', 'Featuring'])} "
            f"{first['with'].title()}"
        ),
        description=rng.choice(words["descriptions"]).format(**about, **shown),
        features=tuple(features),
        price=price,
        price_tag=f"${price}",
        options={name: _some(rng, values) for name, values in goods["options"].items()},
        attributes=tuple(value for values in attributes.values() for value in values),
        query=goods["query"],
        category=goods["category"],
        product_category=goods["path"],
        rating=f"{sum(r.score for r in reviews) / len(reviews):.1f}" if reviews else "N.A.",
        reviews=tuple(reviews),
    )


def _some(rng: random.Random, values: list[str]) -> tuple[str, ...]:
    """A few of the values, in their order."""
    chosen = rng.sample(range(len(values)), min(len(values), rng.randint(*VALUES)))
    return tuple(values[place] for place in sorted(chosen))


def _goal(rng: random.Random, requests: list[str], product: Product, attributes: Attributes) -> Goal:
    """A request for some of a product's attributes and, mostly, one value of each option."""
    own = [(kind, value) for kind, values in attributes.items() for value in values]
    asked = rng.sample(own, rng.randint(1, MAX_ASKED))
    said = {kind: " and ".join(value for k, value in asked if k == kind) for kind in KINDS}
    names = rng.sample(list(product.options), rng.choice([len(product.options)] * 3 + [1, 0]))
    options = {name: rng.choice(product.options[name]) for name in product.options if name in names}
    text = f"{rng.choice(requests)} {said['is']} {product.query}".replace("  ", " ")
    text += f" with {said['with']}" if said["with"] else ""
    text += f" for {said['for']}" if said["for"] else ""
    text += "".join(f", {name}: {value}" for name, value in options.items())
    values = tuple(value for _, value in asked)
    return Goal(
        product.asin, text, values, tuple(options.values()), price_limit(product.price, f"{product.asin}/{text}")
    )
