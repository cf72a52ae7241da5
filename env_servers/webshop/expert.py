"""WebShop's expert: searches for the words of the instruction, buys the first product found that fulfils all of it.

It sees what the page does not show, the reward of each purchase, and so opens no product in vain; but it searches,
reads and chooses as a customer would, so that its steps can be learned from. Where no search for the instruction's
words finds a product that fulfils it, it searches for the title of the product that the goal was made from.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from env_servers.base import ExpertStep
from env_servers.webshop.goals import Goal
from env_servers.webshop.pages import BUY, NEXT, PREVIOUS
from env_servers.webshop.products import Product
from env_servers.webshop.search import PAGE_SIZE, STOP_WORDS

#: Words of an instruction that say nothing about the product.
_FILLERS = frozenset(
    (
        "i i'm im am me my we you find show get buy want need looking look like would please some that which has have"
    ).split()
)
#: Characters of a title that a thought quotes.
QUOTED = 60

#: Reward of buying a product with some options.
Score = Callable[[Product, dict[str, str]], float]


@dataclass(frozen=True)
class Find:
    """A product that fulfils the goal: the search that finds it, its place among the hits, the options to choose."""

    query: str
    rank: int
    product: Product
    options: dict[str, str]


def keywords(instruction: str) -> list[str]:
    """The words of an instruction that are worth searching for, in order, each once."""
    words = re.findall(r"[^\s,;:!?()\[\]]+", instruction.lower())
    return list(dict.fromkeys(word for word in words if word not in STOP_WORDS and word not in _FILLERS))


def demonstrate(
    goal: Goal, target: Product, search: Callable[[str], Sequence[Product]], score: Score
) -> list[ExpertStep] | None:
    """Steps that earn the full reward, or None where neither search finds a product that does.

    Args:
        target: The product that the goal was made from.
        search: The products that the shop finds, best first.
    """
    find = next(_finds(goal, target, search, score), None)
    return None if find is None else list(_steps(goal, find))


def _finds(goal: Goal, target: Product, search: Callable[[str], Sequence[Product]], score: Score) -> Iterator[Find]:
    query = " ".join(keywords(goal.words))
    for rank, product in enumerate(search(query) if query else ()):
        options = _named_options(goal, product)
        if product is target and (likely := likely_options(goal, target, score)) is not None:
            yield Find(query, rank, target, likely)
        elif len(options) == len(goal.options) and score(product, options) == 1:
            yield Find(query, rank, product, options)
    query = re.sub(r"\s+", " ", target.title).strip().lower()
    hits = search(query) if query else ()
    if target in hits and (likely := likely_options(goal, target, score)) is not None:
        yield Find(query, hits.index(target), target, likely)


def _named_options(goal: Goal, product: Product) -> dict[str, str]:
    """The values that the goal asks for, where the product has them."""
    named = {
        name: next((value for value in values if value in goal.options), None)
        for name, values in product.options.items()
    }
    return {name: value for name, value in named.items() if value is not None}


def likely_options(goal: Goal, target: Product, score: Score) -> dict[str, str] | None:
    """Options of ``target`` that earn the full reward, or None.

    What people wrote may differ from what the page says ("navy" for "dark navy"). Then whatever raises the reward is
    taken; each option counts for itself, so that this finds the best choice.
    """
    chosen = _named_options(goal, target)
    best = score(target, chosen)
    for name, values in target.options.items() if best < 1 else ():
        for value in values if name not in chosen else ():
            if (raised := score(target, {**chosen, name: value})) > best:
                chosen[name], best = value, raised
                break
    return chosen if best == 1 else None


def _steps(goal: Goal, find: Find) -> Iterator[ExpertStep]:
    asked = ", ".join((*goal.attributes, *goal.options))
    yield ExpertStep(
        f"I need a product with: {asked}. I search for the words that describe it.", f"search[{find.query}]"
    )
    for _ in range(find.rank // PAGE_SIZE):
        yield ExpertStep("I see nothing here that fits everything. I look at the next page.", f"click[{NEXT}]")
    title = find.product.title.strip()
    title = title if len(title) <= QUOTED else title[:QUOTED].rsplit(" ", 1)[0] + "..."
    yield ExpertStep(f'{find.product.asin}, "{title}", may be what I need. I open it.', f"click[{find.product.asin}]")
    yield from _reading(goal, find.product)
    for name, value in find.options.items():
        yield ExpertStep(f"The instruction asks for this {name}: {value}.", f"click[{value}]")
    price = (
        f"{find.product.price_tag} is within {goal.limit:.2f} dollars"
        if goal.limit
        else f"The price is {find.product.price_tag}"
    )
    yield ExpertStep(f"{price} and everything that was asked for is chosen. I buy it.", f"click[{BUY}]")


def _reading(goal: Goal, product: Product) -> Iterator[ExpertStep]:
    """A look at the features, where they name what the title does not."""
    title, features, _ = product.texts
    named = [attribute for attribute in goal.attributes if attribute not in title and attribute in features]
    if named:
        yield ExpertStep(f"The title does not say {' or '.join(named)}. I read the features.", "click[Features]")
        yield ExpertStep(f"The features name {' and '.join(named)}. I go back to the product.", f"click[{PREVIOUS}]")
