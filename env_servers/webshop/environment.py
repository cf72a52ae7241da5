"""WebShop: find a product in an online shop by searching and clicking, choose its options and buy it."""

import re
from functools import cached_property
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from env_servers.base import Environment, ExpertStep, Observation, Requirement, TaskInfo, UnknownTask
from env_servers.observation import CallStatus
from env_servers.protocol import EnvironmentSpec
from env_servers.webshop import official
from env_servers.webshop.catalogue import generate
from env_servers.webshop.expert import demonstrate, keywords
from env_servers.webshop.goals import Goal, divide
from env_servers.webshop.pages import BACK_TO_SEARCH, BUY, NEXT, PAGES, PREVIOUS, SUB_PAGES, WebShopState

#: Packages beyond the core dependencies, by the module that each provides.
PACKAGES = {"Stemmer": "PyStemmer", "rapidfuzz": "rapidfuzz"}
INSTALL = "pip install 'agentr[webshop]'"
#: Products up to which a search takes well under a millisecond.
FAST_PRODUCTS = 10_000
#: WebShop's own division of the human goals.
HUMAN_SPLITS = {"human_train": slice(1500, None), "human_dev": slice(500, 1500), "human_test": slice(0, 500)}


class WebShop(Environment[WebShopState]):
    """The environment.

    Without options it runs on a catalogue that it generates (see `catalogue.py`); the official product files are
    options. Task ids say which goal of the list in use is posed:

    - ``goal/N``: goal N, for any catalogue; splits ``train``, ``dev`` and ``test``, which share no target product.
    - ``agentgym/N``: AgentGym's and Agent-R's numbering, where the official 1,000 products with their 6,910 synthetic
      goals are loaded. N is the same goal as in published trajectories, but for the price limit, which the original
      draws anew at every start. Agent-R's two lists share no goal, but most target products of the test list are
      targets of the training list too (label ``product``).
    - ``human/N``: WebShop's numbering of the goals that people wrote.

    Known faults of the original that are not repeated: prices and price limits from an unseeded generator; words in a
    search that make it sample products at random, list a category or crash (``<r>``, ``<a>``, ``<c>``, ``<q>``); an
    empty observation after a reset; options that cannot be clicked because they hold a bracket, or because another
    option has the same value; a reward above 1 (see `reward.py`). Kept: a search is possible on every page, and what is
    not possible returns the same page.

    Args:
        products: Official product file (``items_shuffle_1000.json`` or ``items_shuffle.json``; also as .jsonl, each
            also as .gz).
        attributes: Official attribute file of these products (``items_ins_v2_1000.json`` or ``items_ins_v2.json``).
        human_goals: Official ``items_human_ins.json``; its goals replace the synthetic ones.
        agentgym_train: Agent-R's ``webshop_train_clean.json``, which makes the split ``agentgym_train``.
        agentgym_test: Agent-R's ``webshop_test.json``, which makes the split ``agentgym_test``.
        title_nouns: How titles are compared for the type reward: ``words``, or the name of a spaCy model that finds the
            nouns, which takes tens of milliseconds for each new title (the original's is ``en_core_web_lg``). Against
            spaCy's small model ``words`` gave the same type reward for 93 % of 5,000 hits of searches and 97.5 % of
            products drawn at random.
        show_attributes: Whether item pages have an Attributes page (the original's ``show_attrs``).
    """

    folder = Path(__file__).parent

    def __init__(
        self,
        products: str | None = None,
        attributes: str | None = None,
        human_goals: str | None = None,
        agentgym_train: str | None = None,
        agentgym_test: str | None = None,
        title_nouns: str = "words",
        show_attributes: bool = False,
    ) -> None:
        if missing := [package for module, package in PACKAGES.items() if find_spec(module) is None]:
            raise RuntimeError(f"WebShop needs the packages {', '.join(missing)}: {INSTALL}")
        from env_servers.webshop.shop import Shop  # here, not above: needs those packages

        if products is not None:
            catalogue, self._goals = official.load_shop(products, attributes, human_goals)
        elif attributes or human_goals or agentgym_train or agentgym_test:
            raise ValueError("attributes, human_goals, agentgym_train and agentgym_test go with the option products")
        else:
            catalogue, self._goals = generate()
        self._shop = Shop(catalogue, title_nouns, show_attributes)
        self.fast = len(catalogue) <= FAST_PRODUCTS and title_nouns == "words"
        self._families = ["goal"]
        self._splits = {name: [f"goal/{number}" for number in numbers] for name, numbers in divide(self._goals).items()}
        if human_goals:
            self._families.append("human")
            ids = [f"human/{number}" for number in range(len(self._goals))]
            self._splits |= {name: ids[part] for name, part in HUMAN_SPLITS.items()}
        elif official.has_published_numbering(self._goals):
            self._families.append("agentgym")
        for name, path in {"agentgym_train": agentgym_train, "agentgym_test": agentgym_test}.items():
            if path and "agentgym" not in self._families:
                raise ValueError(
                    f"{name} counts in the synthetic goals of the official 1,000 products: {official.WHERE}"
                )
            if path:
                self._splits[name] = [f"agentgym/{number}" for number in official.read_numbers(path)]

    @classmethod
    def requirements(cls) -> list[Requirement]:
        packages = [
            Requirement(f"package {name}", find_spec(module) is not None, INSTALL) for module, name in PACKAGES.items()
        ]
        files = (
            f"{official.WHERE}; pass the files' paths as the options products, attributes and human_goals, which check "
            "them"
        )
        spacy = "pip install spacy && python -m spacy download en_core_web_lg; pass title_nouns=en_core_web_lg"
        return [
            *packages,
            Requirement("the official product files", False, files, optional=True),
            Requirement("spaCy, for the nouns of titles", find_spec("spacy") is not None, spacy, optional=True),
        ]

    # tasks ------------------------------------------------------------------------------------------------------------

    @cached_property
    def spec(self) -> EnvironmentSpec:
        """The specification, with the splits that the files in use provide."""
        full = super().spec
        return full.model_copy(
            update={"splits": {name: split for name, split in full.splits.items() if name in self._splits}}
        )

    def split(self, name: str) -> list[TaskInfo]:
        if name in self._splits:
            return [self._info(task) for task in self._splits[name]]
        options = {"agentgym": f"products, attributes and {name}", "human": "products, attributes and human_goals"}
        needed = next(
            (f"; it needs the options {what}" for family, what in options.items() if name.startswith(f"{family}_")), ""
        )
        raise UnknownTask(f"WebShop has no split {name!r} here{needed}; it has {', '.join(self._splits)}")

    def _info(self, task: str) -> TaskInfo:
        goal = self._goal(task)
        counts = {"attributes": len(goal.attributes), "options": len(goal.options)}
        category = self._shop.products[goal.asin].category
        return TaskInfo(task, {"category": category, **counts, "product": goal.asin, "goal": goal.words})

    def _goal(self, task: str) -> Goal:
        match = re.fullmatch(r"([a-z]+)/(0|[1-9][0-9]{0,8})", task)
        if match and match[1] in self._families and int(match[2]) < len(self._goals):
            return self._goals[int(match[2])]
        known = " and ".join(f"{family}/N" for family in self._families)
        raise UnknownTask(
            f"WebShop has no task {task!r} here; it has {known} with N up to {len(self._goals) - 1} (see /splits)"
        )

    # the state machine ------------------------------------------------------------------------------------------------

    def reset(self, task_id: str) -> tuple[WebShopState, Observation]:
        state = WebShopState(task_id)
        return state, Observation(self._shop.text(state, self._goal(task_id)))

    def step(self, state: WebShopState, action: str) -> Observation:
        goal = self._goal(state.task)
        was_done = state.page == "done"
        match = re.fullmatch(r"(search|click)\[(.+)\]", action.strip())
        valid = match is not None and not was_done and self._act(state, match[1], match[2].strip().lower())
        done = state.page == "done"
        reward = (
            self._shop.reward(goal, self._shop.products[state.asin], state.options) if done and not was_done else 0.0
        )
        return Observation(self._shop.text(state, goal), reward, done, valid, status=self._status(state, valid))

    def _status(self, state: WebShopState, valid: bool) -> CallStatus:
        """How an action came out that led to ``state``; a page of results without a product is empty."""
        if not valid:
            return CallStatus.error
        return CallStatus.empty if state.page == "results" and not self._shop.shown(state) else CallStatus.ok

    def _act(self, state: WebShopState, verb: str, text: str) -> bool:
        """Searches for or clicks ``text``; False, and nothing changed, where that is not possible."""
        if verb == "search":
            if text:
                _go(state, "results", query=text)
            return bool(text)
        if state.page != "search" and text == BACK_TO_SEARCH.lower():
            _go(state, "search")
            return True
        if state.page == "results":
            return self._click_result(state, text)
        if state.page == "item":
            return self._click_item(state, text)
        if state.page in SUB_PAGES and text == PREVIOUS.lower():
            state.page = "item"
            return True
        return False

    def _click_result(self, state: WebShopState, text: str) -> bool:
        turns = {PREVIOUS.lower(): state.number - 1, NEXT.lower(): state.number + 1}
        if text in turns and 1 <= turns[text] <= self._shop.page_count(state.query):
            state.number = turns[text]
        elif asin := next((product.asin for product in self._shop.shown(state) if product.asin.lower() == text), ""):
            state.page, state.asin = "item", asin
        else:
            return False
        return True

    def _click_item(self, state: WebShopState, text: str) -> bool:
        opened = {name.lower(): name for name in self._shop.sub_pages} | {BUY.lower(): "done"}
        names = [name for name, values in self._shop.products[state.asin].options.items() if text in values]
        if names:  # a value under two names: a click that is repeated chooses it under the other one too
            name = next((name for name in names if state.options.get(name) != text), names[0])
            state.options[name] = text
        elif text == PREVIOUS.lower():
            _go(state, "results", state.query, state.number)
        elif text in opened:
            state.page = opened[text]
        else:
            return False
        return True

    def actions(self, state: WebShopState) -> list[str]:
        if state.page == "search":
            words = keywords(self._goal(state.task).words)
            return list(dict.fromkeys(f"search[{' '.join(some)}]" for some in (words, words[:4], words[-4:])))
        return [f"click[{button}]" for button in self._shop.buttons(state)]

    # copies -----------------------------------------------------------------------------------------------------------

    def fork(self, state: WebShopState) -> WebShopState:
        return WebShopState(state.task, state.page, state.query, state.number, state.asin, dict(state.options))

    def snapshot(self, state: WebShopState) -> dict[str, Any]:
        """The options as pairs in the order of choice: who stores an object may sort its keys."""
        return {
            **vars(state),
            "options": [list(pair) for pair in state.options.items()],
            "goal": self._goal(state.task).instruction,
        }

    def restore(self, data: dict[str, Any]) -> WebShopState:
        try:
            options = dict(data["options"])  # once it was an object
            state = WebShopState(data["task"], data["page"], data["query"], data["number"], data["asin"], options)
            self._check(state, data["goal"])
        except (KeyError, TypeError, AttributeError, ValueError) as error:
            raise ValueError(f"not a WebShop snapshot: {error}") from error
        return state

    def _check(self, state: WebShopState, instruction: str) -> None:
        if self._goal(state.task).instruction != instruction:
            raise ValueError("its goal is of another catalogue")
        if state.page not in PAGES or not isinstance(state.query, str) or type(state.number) is not int:
            raise ValueError("no such page")
        if state.page == "search":
            placed = not state.query and state.number == 1
        else:
            placed = bool(state.query) and 1 <= state.number <= self._shop.page_count(state.query)
        if state.page in ("search", "results"):
            placed = placed and not state.asin and not state.options
        else:
            values = self._shop.products[state.asin].options
            placed = placed and all(value in values[name] for name, value in state.options.items())
        if not placed:
            raise ValueError("page, search, product and options disagree")

    def expert(self, task_id: str) -> list[ExpertStep] | None:
        goal = self._goal(task_id)
        target = self._shop.products[goal.asin]
        return demonstrate(
            goal, target, self._shop.hits, lambda product, options: self._shop.reward(goal, product, options)
        )


def _go(state: WebShopState, page: str, query: str = "", number: int = 1) -> None:
    """Moves to a page without an open product; the shop forgets the options then."""
    state.page, state.query, state.number, state.asin, state.options = page, query, number, "", {}
