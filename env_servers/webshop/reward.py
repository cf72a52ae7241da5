"""WebShop's reward: how well a purchase fulfils a goal (Yao et al. 2022, section 3.2, and the published
implementation).

    reward = type * (attribute matches + option matches + [price <= limit]) / (attributes asked + options asked + 1)

The published code may count an option that nobody asked for and so exceed 1; here the reward is capped at 1.
"""

import importlib
import re
from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache

from rapidfuzz import fuzz, utils

from env_servers.webshop.goals import Goal
from env_servers.webshop.products import Product
from env_servers.webshop.search import STOP_WORDS

#: Similarity above which two phrases are the same, in percent.
SAME = 85
#: The published list of colours by which an option value is known: the first that is part of the value stands for it
#: ("light navy" is "light").
COLOURS = """alabaster apricot aqua ash asphalt azure banana beige black blue blush bordeaux bronze brown burgundy \
camel camo caramel
champagne charcoal cheetah chestnut chocolate christmas coffee cognac copper coral cranberry cream crystal dark denim \
eggplant elephant
espresso fuchsia gold granite grape graphite grass gray green grey heather indigo ivory ivy khaki lavender lemon \
leopard light lilac lime
magenta maroon mauve merlot midnight mint mocha multicolor mushroom mustard natural navy nude olive orange peach \
pewter pink plum purple
rainbow red rose royal rust sand sapphire seashell silver skull slate steel stone stonewash sunflower tan taupe teal \
tiger turquoise violet
walnut wheat white wine yellow""".split()
#: Options whose values must be equal, not only similar.
EXACT_OPTIONS = ("size",)

_NOT_ASCII = dict.fromkeys(range(128, 256))  # as thefuzz: the upper half of Latin-1, and nothing beyond

#: The nouns of a title, in lower case, with repetitions.
Nouns = Callable[[str], tuple[str, ...]]


def reward(product: Product, options: Mapping[str, str], goal: Goal, target: Product, nouns: Nouns) -> float:
    """The reward of buying ``product`` with ``options``, in [0, 1].

    Args:
        options: Chosen value by option name.
        target: The product that the goal was made from; only its type counts.
    """
    matches = sum(_has_attribute(product, attribute) for attribute in goal.attributes)
    matches += _option_matches(product, options, goal.options)
    matches += goal.limit is None or product.price <= goal.limit
    fulfilled = matches / (len(goal.attributes) + len(goal.options) + 1)
    return min(1.0, type_reward(product, target, nouns) * fulfilled)


def type_reward(product: Product, target: Product, nouns: Nouns) -> float:
    """1 for the same kind of product, down to 0 where the titles have no noun in common."""
    wanted = nouns(target.title)
    overlap = len(set(wanted) & set(nouns(product.title))) / len(wanted) if wanted else 0.2
    if overlap == 0:
        return 0.0
    if overlap < 0.1:
        return 0.1
    same_branch = len(_levels(product) & _levels(target)) >= 2
    return 1.0 if product.query == target.query or same_branch or overlap > 0.2 else 0.5


def _levels(product: Product) -> set[str]:
    return {level.strip() for level in product.product_category.split("›")}


def _has_attribute(product: Product, attribute: str) -> bool:
    return any(similar(own, attribute) for own in product.attributes) or any(
        attribute in text for text in product.texts
    )


def _option_matches(product: Product, options: Mapping[str, str], wanted: Iterable[str]) -> int:
    wanted = [colour_of(value) for value in wanted]
    matches = 0
    for name, value in options.items():
        value = colour_of(value)
        found = value in wanted if name in EXACT_OPTIONS else any(similar(other, value) for other in wanted)
        matches += found or any(value in text for text in product.texts)
    return matches


def colour_of(value: str) -> str:
    """The colour that an option value names, or the value itself."""
    return next((colour for colour in COLOURS if colour in value), value)


@lru_cache(65536)
def similar(first: str, second: str) -> bool:
    """Checks whether two phrases have nearly the same words: ``thefuzz.fuzz.token_set_ratio`` above 85, with its
    clean-up and rounding."""
    return round(fuzz.token_set_ratio(_clean(first), _clean(second))) > SAME


def _clean(phrase: str) -> str:
    return utils.default_process(phrase.translate(_NOT_ASCII))


@lru_cache(65536)
def plain_nouns(title: str) -> tuple[str, ...]:
    """Every word but stop words and numbers: stands in for the nouns that the original has spaCy find."""
    return tuple(word for word in re.findall(r"[^\W\d_]{2,}", title.lower()) if word not in STOP_WORDS)


def spacy_nouns(model: str) -> Nouns:
    """The nouns that a spaCy model finds, remembered for each title.

    Raises:
        RuntimeError: spaCy or the model is not installed.
    """
    try:
        parse = importlib.import_module("spacy").load(model)
    except (ImportError, OSError) as error:
        raise RuntimeError(
            f"title_nouns={model!r} needs spaCy and that model: pip install spacy && python -m spacy download {model} "
            f"({error})"
        ) from error

    @lru_cache(65536)
    def nouns(title: str) -> tuple[str, ...]:
        return tuple(token.text.lower() for token in parse(title) if token.pos_ in ("NOUN", "PROPN"))

    return nouns
