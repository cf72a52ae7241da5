"""The pages of the shop as text, and what can be clicked on each.

The text is what the original's ``text`` mode, which AgentGym serves, makes of its HTML: the visible strings, joined by
" [SEP] ".
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass, field

from env_servers.webshop.products import Product
from env_servers.webshop.search import PAGE_SIZE

SEPARATOR = " [SEP] "
BACK_TO_SEARCH, NEXT, PREVIOUS, BUY = "Back to Search", "Next >", "< Prev", "Buy Now"
#: The pages behind an item page, by the button that opens each.
SUB_PAGES = ("Description", "Features", "Reviews", "Attributes")
#: Every value of ``WebShopState.page``.
PAGES = ("search", "results", "item", *SUB_PAGES, "done")


@dataclass
class WebShopState:
    """A customer's position in the shop.

    Attributes:
        task: Task id.
        page: One of ``PAGES``.
        query: Last search, in lower case; empty before the first.
        number: Page of its results, from 1.
        asin: The product that is open; empty on the search and result pages.
        options: Chosen value by option name, in the order of choice.
    """

    task: str
    page: str = "search"
    query: str = ""
    number: int = 1
    asin: str = ""
    options: dict[str, str] = field(default_factory=dict)


def page_count(hits: int) -> int:
    return max(1, -(-hits // PAGE_SIZE))


def search_page(instruction: str) -> str:
    return _join("WebShop", "Instruction:", instruction, "Search")


def results_page(instruction: str, hits: int, number: int, shown: Sequence[Product]) -> str:
    listed = (text for product in shown for text in (product.asin, product.title, product.price_tag))
    return _join(
        "Instruction:", instruction, *results_buttons(hits, number, f"Page {number} (Total results: {hits})"), *listed
    )


def results_buttons(hits: int, number: int, *heading: str) -> list[str]:
    """The buttons above a list of results; ``heading`` is the text among them."""
    turns = [PREVIOUS] * (number > 1) + [NEXT] * (number < page_count(hits))
    return [BACK_TO_SEARCH, *heading, *turns]


def item_page(instruction: str, product: Product, sub_pages: Sequence[str]) -> str:
    options = (text for name, values in product.options.items() for text in (name, *values))
    about = (product.title, f"Price: {product.price_tag}", f"Rating: {product.rating}")
    return _join("Instruction:", instruction, BACK_TO_SEARCH, PREVIOUS, *options, *about, *sub_pages, BUY)


def sub_page(instruction: str, product: Product, name: str) -> str:
    """Page ``name`` of ``SUB_PAGES``."""
    if name == "Description":
        content = [product.description or "No Description"]
    elif name == "Features":
        content = [*product.features] or ["No Features"]
    elif name == "Reviews":
        content = [
            text for review in product.reviews for text in (f'"{review.title}"', f"{review.score:g}", review.body)
        ]
        content = content or ["No reviews found"]
    else:
        content = [*product.attributes, product.category, product.query, product.product_category]
    return _join("Instruction:", instruction, BACK_TO_SEARCH, PREVIOUS, *content)


def done_page(product: Product, options: dict[str, str], reward: float) -> str:
    """The receipt. The original prints many empty fields more, meant for its crowd workers."""
    chosen = json.dumps(options, ensure_ascii=False)
    score = ("Your score (min 0.0, max 1.0)", str(round(reward, 4)))
    return _join("Thank you for shopping with us!", "Purchased", "asin", product.asin, "options", chosen, *score)


def _join(*texts: str) -> str:
    return SEPARATOR.join(text.strip() for text in texts)
