"""Products, and the records of the official product files read into them."""

import random
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

#: Price of a product that states none, in dollars (the original's).
DEFAULT_PRICE = 100.0


@dataclass(frozen=True)
class Review:
    title: str
    score: float
    body: str


@dataclass(frozen=True)
class Product:
    """One product.

    Attributes:
        asin: Its id, ten characters.
        price: What it costs, in dollars; ``price_tag`` is what the page shows, which may be a range.
        options: Values to choose from, in lower case, by option name.
        attributes: What the reward compares with a goal's attributes; not shown unless the environment has attribute
            pages.
        query: The search under which the product was collected ("women's dresses"): its finest type.
        product_category: Its path in the shop's tree, levels separated by " › ".
    """

    asin: str
    title: str
    description: str
    features: tuple[str, ...]
    price: float
    price_tag: str
    options: Mapping[str, tuple[str, ...]]
    attributes: tuple[str, ...]
    query: str
    category: str
    product_category: str
    rating: str = "N.A."
    reviews: tuple[Review, ...] = field(default=())

    @cached_property
    def document(self) -> str:
        """The text that the search engine indexes: title, description, first feature and options."""
        options = ", and ".join(f"{name}: {', '.join(values)}" for name, values in self.options.items())
        return " ".join([self.title, self.description, *self.features[:1], options]).lower()

    @cached_property
    def texts(self) -> tuple[str, str, str]:
        """Title, features and description in lower case: where the reward looks for what is in no list."""
        return self.title.lower(), " ".join(self.features).lower(), self.description.lower()


def read_products(
    records: Iterable[Mapping[str, Any]], attributes: Mapping[str, Mapping[str, Any]]
) -> dict[str, Product]:
    """Products by asin, in the order of the file.

    Args:
        records: Entries of ``items_shuffle*.json``, as scraped or as the original post-processes them.
        attributes: Content of ``items_ins_v2*.json``.

    Raises:
        ValueError: A record lacks a field.
    """
    products: dict[str, Product] = {}
    for number, record in enumerate(records):
        try:
            asin = record["asin"]
            if asin == "nan" or len(asin) > 10 or asin in products:  # as the original: broken and repeated records
                continue
            products[asin] = _read_product(record, tuple(attributes.get(asin, {}).get("attributes", ("DUMMY_ATTR",))))
        except (KeyError, TypeError, AttributeError, ValueError) as error:
            raise ValueError(f"record {number} is not a product of WebShop: {error!r}") from error
    return products


def _read_product(record: Mapping[str, Any], attributes: tuple[str, ...]) -> Product:
    prices = _prices(record.get("pricing"))
    features = record["small_description"]
    # Where a range is given the original draws a price at every start; here the asin decides.
    price = random.Random(f"webshop/price/{record['asin']}").uniform(*prices) if len(prices) == 2 else prices[0]
    return Product(
        asin=record["asin"],
        title=record["name"],
        description=record["full_description"] or "",
        features=tuple(features) if isinstance(features, list) else (features or "",),
        price=price,
        price_tag=" to ".join(f"${value}" for value in prices),
        options=record["options"] if "options" in record else _options(record["customization_options"] or {}),
        attributes=attributes,
        query=record["query"].lower().strip(),
        category=record["category"],
        product_category=record["product_category"],
        rating=str(record.get("Rating", "N.A.")),
        reviews=tuple(_review(entry) for entry in record.get("Reviews", ())),
    )


def _prices(pricing: str | list[float] | None) -> list[float]:
    """One price or the two ends of a range."""
    if not pricing:
        return [DEFAULT_PRICE]
    if isinstance(pricing, str):
        pricing = [float(re.sub(r"[^\d.]", "", part)) for part in pricing.split("$")[1:]]
    return list(pricing[:2])


def _options(customization: Mapping[str, list[Mapping[str, Any]] | None]) -> dict[str, tuple[str, ...]]:
    return {
        name.lower(): tuple(entry["value"].strip().replace("/", " | ").lower() for entry in entries)
        for name, entries in customization.items()
        if entries is not None
    }


def _review(entry: Mapping[str, Any]) -> Review:
    score = entry["score"] if "score" in entry else entry["stars"]
    return Review(str(entry.get("title", "")), float(score), str(entry.get("body", entry.get("review", ""))))
