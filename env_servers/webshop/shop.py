"""The shop: everything that is the same for all customers. Read-only, and safe to share between threads."""

from collections.abc import Mapping

from env_servers.webshop import pages
from env_servers.webshop.goals import Goal
from env_servers.webshop.pages import BACK_TO_SEARCH, BUY, PREVIOUS, SUB_PAGES, WebShopState
from env_servers.webshop.products import Product
from env_servers.webshop.reward import plain_nouns, reward, spacy_nouns
from env_servers.webshop.search import PAGE_SIZE, SearchEngine


class Shop:
    """Products, the search for them, the pages that show them and what a purchase earns.

    Args:
        title_nouns: ``words``, or the name of a spaCy model that finds the nouns of titles for the type reward.
        show_attributes: Whether item pages have an Attributes page.

    Raises:
        RuntimeError: The spaCy model is not installed.
    """

    def __init__(self, products: Mapping[str, Product], title_nouns: str, show_attributes: bool) -> None:
        self.products = products
        self.sub_pages = SUB_PAGES if show_attributes else SUB_PAGES[:-1]
        self._listed = list(products.values())
        self._engine = SearchEngine(product.document for product in self._listed)
        self._nouns = plain_nouns if title_nouns == "words" else spacy_nouns(title_nouns)

    def hits(self, query: str) -> list[Product]:
        """The products that a search finds, best first."""
        return [self._listed[place] for place in self._engine.search(query)]

    def shown(self, state: WebShopState) -> list[Product]:
        """The products on a page of results."""
        first = (state.number - 1) * PAGE_SIZE
        return [self._listed[place] for place in self._engine.search(state.query)[first : first + PAGE_SIZE]]

    def page_count(self, query: str) -> int:
        """Pages of results of a search; one for none."""
        return pages.page_count(len(self._engine.search(query)))

    def reward(self, goal: Goal, product: Product, options: Mapping[str, str]) -> float:
        """The reward for buying ``product`` with ``options``, in [0, 1]."""
        return reward(product, options, goal, self.products[goal.asin], self._nouns)

    def text(self, state: WebShopState, goal: Goal) -> str:
        """The page as the agent reads it."""
        if state.page == "search":
            return pages.search_page(goal.instruction)
        if state.page == "results":
            hits = len(self._engine.search(state.query))
            return pages.results_page(goal.instruction, hits, state.number, self.shown(state))
        product = self.products[state.asin]
        if state.page == "item":
            return pages.item_page(goal.instruction, product, self.sub_pages)
        if state.page == "done":
            return pages.done_page(product, state.options, self.reward(goal, product, state.options))
        return pages.sub_page(goal.instruction, product, state.page)

    def buttons(self, state: WebShopState) -> list[str]:
        """Everything on the page that a click can change something with, from top to bottom, each once."""
        if state.page in ("search", "done"):
            return []
        if state.page == "results":
            heading = pages.results_buttons(len(self._engine.search(state.query)), state.number)
            return heading + [product.asin for product in self.shown(state)]
        if state.page == "item":
            values = (value for values in self.products[state.asin].options.values() for value in values)
            return list(dict.fromkeys((BACK_TO_SEARCH, PREVIOUS, *values, *self.sub_pages, BUY)))
        return [BACK_TO_SEARCH, PREVIOUS]
