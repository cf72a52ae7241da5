"""The shop, its goals and its reward, without HTTP."""

import gzip
import hashlib
import json
import os
import random
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from env_servers.base import Observation, UnknownTask
from env_servers.webshop import WebShop
from env_servers.webshop.expert import likely_options
from env_servers.webshop.goals import Goal, divide
from env_servers.webshop.products import read_products
from env_servers.webshop.reward import colour_of, plain_nouns, reward, similar, type_reward
from env_servers.webshop.search import SearchEngine
from tests.env_servers.support import ROOT


def digest(shop: WebShop) -> str:
    """Of every task, and of some pages, demonstrations and suggestions."""
    found = hashlib.sha256()
    for name in shop.spec.splits:
        tasks = shop.split(name)
        found.update(repr(tasks).encode())
        for task in tasks[::37]:
            state, seen = shop.reset(task.id)
            for step in shop.expert(task.id) or ():
                found.update(repr((seen, step, shop.actions(state))).encode())
                seen = shop.step(state, step.action)
    return found.hexdigest()


@pytest.fixture(scope="module")
def shop() -> WebShop:
    return WebShop()


def sample(shop: WebShop, split: str, count: int) -> list[str]:
    return [task.id for task in random.Random(split).sample(shop.split(split), count)]


# the default catalogue ------------------------------------------------------------------------------------------------


def test_the_same_shop_whatever_the_hash_seed(shop: WebShop):
    code = "from tests.env_servers.test_webshop import WebShop, digest; print(digest(WebShop()))"
    seed = "2" if os.environ.get("PYTHONHASHSEED") == "1" else "1"
    environ = {**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": str(ROOT)}
    other = subprocess.run([sys.executable, "-c", code], env=environ, check=True, capture_output=True, text=True).stdout
    assert other.strip() == digest(shop)


def test_the_expert_earns_the_full_reward_with_what_is_on_the_pages(shop: WebShop):
    for split in shop.spec.splits:
        for task in sample(shop, split, 100):
            state, _ = shop.reset(task)
            steps = shop.expert(task)
            assert steps and len(steps) <= shop.spec.step_limit
            assert steps[0].action.startswith("search[") and all(step.thought for step in steps)
            answers = []
            for number, step in enumerate(steps):
                assert number == 0 or step.action in shop.actions(state)
                answers.append(shop.step(state, step.action))
            assert (answers[-1].reward, answers[-1].done) == (1.0, True), f"{task}: {answers[-1]}"
            assert all(answer.valid for answer in answers) and not any(
                answer.done or answer.reward for answer in answers[:-1]
            )


def test_splits_share_no_goal_and_no_product(shop: WebShop):
    tasks = {name: shop.split(name) for name in ("train", "dev", "test")}
    assert sum(map(len, tasks.values())) > 2500 and min(map(len, tasks.values())) > 400
    for label in (shop.spec.identity, "product"):
        train, dev, test = ({task.labels[label] for task in tasks[name]} for name in ("train", "dev", "test"))
        assert train and dev and test and not train & dev and not train & test and not dev & test
    labels = [task.labels for task in tasks["train"]]
    assert {row["attributes"] for row in labels} == {1, 2, 3, 4} and {row["options"] for row in labels} >= {0, 1, 2}
    assert len({row["category"] for row in labels}) >= 6


def test_a_split_that_needs_files_says_which(shop: WebShop):
    assert list(shop.spec.splits) == ["train", "dev", "test"]
    with pytest.raises(UnknownTask, match="products, attributes and agentgym_test"):
        shop.split("agentgym_test")
    with pytest.raises(UnknownTask, match="it has train, dev, test"):
        shop.split("nothing")


@pytest.mark.parametrize(
    "task", ["", "goal", "goal/", "goal/-1", "goal/x", "goal/017", "goal/999999", "agentgym/1", "human/1", "goal/1\n"]
)
def test_an_unknown_task_is_named(shop: WebShop, task: str):
    with pytest.raises(UnknownTask):
        shop.reset(task)


def play(shop: WebShop, task: str, seed: int) -> list[str]:
    """Random sensible actions with junk and new searches between them."""
    rng = random.Random(seed)
    state, _ = shop.reset(task)
    played = []
    for _ in range(rng.randrange(1, 14)):
        action = rng.choice([*shop.actions(state) * 2, "search[red lamp]", "click[nothing]", "look", "search[zzzz]"])
        played.append(action)
        if shop.step(state, action).done:
            break
    return played


def test_a_fork_is_a_replay_and_independent(shop: WebShop):
    for seed, task in enumerate(sample(shop, "train", 60)):
        prefix, rest = play(shop, task, seed), play(shop, task, seed + 1000)
        state, _ = shop.reset(task)
        replayed, _ = shop.reset(task)
        assert [shop.step(state, action) for action in prefix] == [shop.step(replayed, action) for action in prefix]
        before = shop.snapshot(state)
        fork = shop.fork(state)
        assert shop.snapshot(fork) == shop.snapshot(replayed) == before
        assert [shop.step(fork, action) for action in rest] == [shop.step(replayed, action) for action in rest]
        assert shop.snapshot(state) == before, "the fork moved its parent"


def test_a_snapshot_restores_to_the_same_play(shop: WebShop):
    other = WebShop()
    for seed, task in enumerate(sample(shop, "dev", 40)):
        state, _ = shop.reset(task)
        for action in play(shop, task, seed):
            shop.step(state, action)
        copy = other.restore(json.loads(json.dumps(shop.snapshot(state))))
        rest = play(shop, task, seed + 1000)
        assert [other.step(copy, action) for action in rest] == [shop.step(state, action) for action in rest]


@pytest.mark.parametrize(
    "damage",
    [
        {"task": "goal/1"},
        {"page": "shelf"},
        {"page": "search"},
        {"page": "results"},
        {"query": ""},
        {"query": 3},
        {"number": 0},
        {"number": 9},
        {"number": True},
        {"asin": "B000000000"},
        {"options": {"colour": "red"}},
        {"options": {"size": "as big as a house"}},
        {"options": None},
    ],
)
def test_a_damaged_snapshot_is_refused(shop: WebShop, damage: dict):
    state, _ = shop.reset("goal/0")
    for step in (shop.expert("goal/0") or [])[:2]:
        shop.step(state, step.action)
    whole = shop.snapshot(state)
    assert shop.snapshot(shop.restore(whole)) == whole and whole["page"] == "item"
    with pytest.raises(ValueError, match="not a WebShop snapshot"):
        shop.restore({**whole, **damage})
    with pytest.raises(ValueError, match="not a WebShop snapshot"):
        shop.restore({key: value for key, value in whole.items() if key not in damage})


words = st.sampled_from(
    ["search[", "click[", "]", "red", "Buy Now", "< Prev", "<r>", "<a>", "[", "\n", "Next >", "lamp", "Thought:"]
)


@settings(max_examples=200, deadline=None)
@given(actions=st.lists(st.one_of(st.text(max_size=30), st.lists(words, max_size=6).map("".join)), max_size=8))
def test_any_text_is_an_action(shop: WebShop, actions: list[str]):
    state, _ = shop.reset("goal/5")
    for action in actions:
        before = shop.snapshot(state)
        answer = shop.step(state, action)
        assert answer.observation and 0 <= answer.reward <= 1
        assert answer.valid or shop.snapshot(state) == before
    assert shop.snapshot(shop.restore(shop.snapshot(state))) == shop.snapshot(state)


# pages, on a small shop in the official file format -------------------------------------------------------------------


def record(number: int, **changes: object) -> dict:
    return {
        "asin": f"B{number:09}",
        "name": f"Plain Mug {number}",
        "full_description": "A mug of clay.",
        "small_description": ["holds tea ", "lead free"],
        "pricing": "$12.50",
        "images": ["x.jpg"],
        "product_category": "Home › Kitchen › Mugs",
        "category": "kitchen",
        "query": "Mugs ",
        "customization_options": {
            "Color": [{"value": "Dark/Blue "}, {"value": "red [matt]"}],
            "size": [{"value": "red [matt]"}],
            "x": None,
        },
        **changes,
    }


@pytest.fixture
def files(tmp_path: Path) -> dict[str, Any]:
    """Official files of twelve mugs; the first has an instruction."""
    mugs = [record(number) for number in range(11)]
    mugs += [
        record(
            11,
            name="Teapot",
            pricing="$1,005.00 to $1,030.25",
            customization_options="",
            small_description=[],
            full_description="",
        ),
        record(0),
    ]
    attributes = {
        "B000000000": {
            "attributes": ["lead free"],
            "instruction": "Find me lead free mugs",
            "instruction_attributes": ["lead free"],
        },
    }
    human = {
        "B000000000": [
            {"instruction": "a red mug.", "instruction_attributes": ["lead free"], "instruction_options": ["matt red"]},
            {"instruction": "any mug", "instruction_attributes": [], "instruction_options": []},
        ]
    }
    (tmp_path / "items.json").write_text(json.dumps(mugs))
    (tmp_path / "attributes.json").write_text(json.dumps(attributes))
    (tmp_path / "human.json").write_text(json.dumps(human))
    with gzip.open(tmp_path / "items.jsonl.gz", "wt") as file:
        file.writelines(json.dumps(mug) + "\n" for mug in mugs)
    return {"products": str(tmp_path / "items.json"), "attributes": str(tmp_path / "attributes.json")}


def walk(shop: WebShop, task: str, *actions: str) -> list[str]:
    """The observations after each action, all of which must be valid."""
    state, first = shop.reset(task)
    answers = [shop.step(state, action) for action in actions]
    assert all(answer.valid for answer in answers)
    return [first.observation, *(answer.observation for answer in answers)]


def test_pages_read_as_the_official_text_mode(files: dict[str, Any]):
    shop = WebShop(**files, show_attributes=True)
    asked = shop.reset("goal/0")[1].observation.split(" [SEP] ")[2]
    assert asked.startswith("Find me lead free mugs with color: ") and asked.endswith(" dollars")
    head = f"Instruction: [SEP] {asked} [SEP] Back to Search [SEP] "
    mug = lambda number: f"B{number:09} [SEP] Plain Mug {number} [SEP] $12.5"  # noqa: E731
    item = (
        f"{head}< Prev [SEP] color [SEP] dark | blue [SEP] red [matt] [SEP] size [SEP] red [matt] [SEP] "
        "Plain Mug 0 [SEP] Price: $12.5 [SEP] Rating: N.A. [SEP] Description [SEP] Features [SEP] Reviews [SEP] "
        "Attributes [SEP] Buy Now"
    )
    first = f"{head}Page 1 (Total results: 11) [SEP] Next > [SEP] " + " [SEP] ".join(
        mug(number) for number in range(10)
    )
    seen = walk(
        shop,
        "goal/0",
        *("search[Mugs]", "click[Next >]", "click[< prev]", "click[b000000000]", "click[Description]", "click[< Prev]"),
        *("click[Features]", "click[< Prev]", "click[Reviews]", "click[< Prev]", "click[Attributes]", "click[< Prev]"),
        *("click[< Prev]", "click[Back to Search]"),
    )
    start = f"WebShop [SEP] Instruction: [SEP] {asked} [SEP] Search"
    second = f"{head}Page 2 (Total results: 11) [SEP] < Prev [SEP] {mug(10)}"
    below = [
        *(f"{head}< Prev [SEP] A mug of clay.", item, f"{head}< Prev [SEP] holds tea [SEP] lead free", item),
        *(f"{head}< Prev [SEP] No reviews found", item),
        *(f"{head}< Prev [SEP] lead free [SEP] kitchen [SEP] mugs [SEP] Home › Kitchen › Mugs", item),
    ]
    assert seen == [start, first, second, first, item, *below, first, start]


def test_options_with_brackets_and_the_same_value_twice_can_be_chosen(files: dict[str, Any]):
    shop = WebShop(**files)
    state, _ = shop.reset("goal/0")
    for action in ("search[mug]", "click[B000000000]", "click[red [matt]]", "click[Red [Matt]]"):
        assert shop.step(state, action).valid
    assert state.options == {"color": "red [matt]", "size": "red [matt]"}
    shop.step(state, "click[dark | blue]")
    assert state.options["color"] == "dark | blue"
    answer = shop.step(state, "click[buy now]")
    assert answer.done and answer.reward > 0.6
    again = shop.step(state, "search[mug]")
    assert (again.valid, again.done, again.reward) == (False, True, 0.0), "nothing happens after the purchase"


def test_chosen_options_are_stored_in_the_order_of_choice(files: dict[str, Any]):
    shop = WebShop(**files)
    state, _ = shop.reset("goal/0")
    for action in ("search[mug]", "click[B000000000]", "click[red [matt]]", "click[red [matt]]", "click[dark | blue]"):
        shop.step(state, action)
    state.options = dict(reversed(state.options.items()))
    stored = shop.snapshot(state)
    copies = [
        shop.restore(json.loads(json.dumps(stored, sort_keys=True))),
        shop.restore({**stored, "options": dict(stored["options"])}),
    ]
    bought = shop.step(state, "click[buy now]").observation
    assert bought.index('"size"') < bought.index('"color"') and all(
        shop.step(copy, "click[buy now]").observation == bought for copy in copies
    )


def test_what_cannot_be_done_returns_the_same_page(files: dict[str, Any]):
    shop = WebShop(**files)
    state, start = shop.reset("goal/0")
    for action in (
        "",
        "click[Buy Now]",
        "click[Search]",
        "click[B000000000]",
        "search[]",
        "search[ ]",
        "Search[mug]",
        "buy it",
    ):
        answer = shop.step(state, action)
        assert (answer.observation, answer.valid, answer.status) == (start.observation, False, "error")
    page = shop.step(state, "search[mug]")
    for action in ("click[< Prev]", "click[B000000010]", "click[Buy Now]", "click[dark | blue]"):
        assert shop.step(state, action) == Observation.failed(page.observation)
    nothing = shop.step(state, "search[<r>]")
    assert "Total results: 0" in nothing.observation, "no hidden operators"
    assert (page.status, nothing.status, nothing.valid) == ("ok", "empty", True)


def test_official_files_in_each_form_are_the_same_shop(files: dict[str, Any]):
    first = WebShop(**files)
    second = WebShop(**{**files, "products": files["products"].replace(".json", ".jsonl.gz")})
    assert [first.split(name) for name in first.spec.splits] == [second.split(name) for name in second.spec.splits]
    with pytest.raises(UnknownTask, match="it has goal/N with N up to 1"):
        first.reset("agentgym/1")
    products = read_products([record(11, pricing="$1,005.00 to $1,030.25"), record(3, pricing=None)], {})
    assert products["B000000011"].price_tag == "$1005.0 to $1030.25" and 1005 <= products["B000000011"].price <= 1030.25
    assert products["B000000003"].price_tag == "$100.0" and products["B000000003"].attributes == ("DUMMY_ATTR",)


def test_human_goals(files: dict[str, Any]):
    shop = WebShop(**files, human_goals=files["products"].replace("items", "human"))
    assert [task.id for task in shop.split("human_test")] == ["human/0"] and shop.split("human_train") == []
    assert "a red mug, and price lower than" in shop.reset("human/0")[1].observation, (
        "one goal, as the other has no attributes"
    )
    steps = shop.expert("human/0")
    assert steps and "click[red [matt]]" in [step.action for step in steps], "the option that people call 'matt red'"


def test_files_that_do_not_fit_are_refused(files: dict[str, Any], tmp_path: Path):
    (tmp_path / "sentences.json").write_text('["i need a mug"]')
    (tmp_path / "broken.json").write_text("[{")
    (tmp_path / "ids.json").write_text('[{"item_id": "webshop_0"}]')
    cases = [
        ({"attributes": files["attributes"]}, "go with the option products"),
        ({"products": files["products"]}, "needs the option attributes"),
        ({**files, "products": "/nowhere/items.json"}, "no file /nowhere/items.json.*princeton-nlp/WebShop"),
        ({**files, "products": str(tmp_path / "broken.json")}, "cannot be read"),
        ({**files, "products": str(tmp_path / "ids.json")}, "record 0 is not a product"),
        ({**files, "human_goals": str(tmp_path / "sentences.json")}, "items_human_ins.json"),
        ({**files, "agentgym_test": str(tmp_path / "ids.json")}, "official 1,000 products"),
    ]
    for options, message in cases:
        with pytest.raises(ValueError, match=message):
            WebShop(**options)
    with pytest.raises(RuntimeError, match="spacy download no_such_model"):
        WebShop(title_nouns="no_such_model")


def test_a_problem_is_in_one_split_only():
    """Goals with the same words are one problem: if their products are of two splits, it is in none."""
    own = [Goal(f"B{number:09}", f"mug {number}", (), (), None) for number in range(20)]
    whole = divide(own)
    assert {name: len(numbers) for name, numbers in whole.items()} == {"train": 14, "dev": 3, "test": 3}
    trained, tested = whole["train"][0], whole["test"][0]
    one, other = replace(own[trained], words="any mug"), replace(own[tested], words="any mug")
    again = Goal(own[trained].asin, "a mug of clay", (), (), None)
    divided = divide([*own, one, other, again, replace(again, limit=20.0)])
    assert divided["test"] == whole["test"] and divided["dev"] == whole["dev"]
    assert divided["train"] == [*whole["train"], 22, 23], "the same words for one product are no harm"


# search and reward ----------------------------------------------------------------------------------------------------


def test_search_ranks_by_rare_words_and_stems():
    engine = SearchEngine(["a red lamp", "red lamps and red shades", "the women's shoe", "blue lamp", "nothing of it"])
    assert engine.search("LAMP") == (0, 3, 1), "short documents first, ties in document order"
    assert engine.search("woman's shoes")[0] == 2 and engine.search("women")[0] == 2
    assert engine.search("red blue")[0] == 3, "the rarer word counts more"
    assert engine.search("the of and") == engine.search("zzz") == engine.search("") == ()


def test_the_reward_formula():
    products = read_products(
        [
            record(
                0,
                customization_options={
                    "color": [{"value": "navy blue"}],
                    "size": [{"value": "large"}, {"value": "x-large"}],
                },
            ),
            record(
                1,
                name="Clay Mug",
                query="cups",
                product_category="Garden",
                small_description=["glazed"],
                full_description="",
            ),
            record(2, name="Steel Fork", query="cutlery", product_category="Garden", pricing="$300"),
        ],
        {"B000000000": {"attributes": ["lead free", "dishwasher safe"]}},
    )
    mug, clay, fork = products.values()
    goal = Goal(mug.asin, "", ("dishwasher safe", "lead free", "gold rim"), ("light navy", "large"), 50.0)

    def score(product, options):
        return reward(product, options, goal, mug, plain_nouns)

    assert score(mug, {}) == pytest.approx(3 / 6), "two attributes and the price"
    assert score(mug, {"size": "large"}) == pytest.approx(4 / 6)
    assert score(mug, {"size": "x-large"}) == pytest.approx(3 / 6), "sizes must be equal"
    assert score(mug, {"color": "light olive", "size": "large"}) == pytest.approx(5 / 6), (
        "both colours are known as light"
    )
    assert score(mug, {"color": "navy blue"}) == pytest.approx(3 / 6), (
        "the wanted colour is known as light, this one as blue"
    )
    assert score(clay, {}) == pytest.approx(1 / 6), "no attribute; the titles share one of two words"
    assert score(fork, {}) == 0, "no word in common"
    assert type_reward(clay, mug, lambda title: tuple("abcdef") if title == mug.title else ("a",)) == 0.5
    assert type_reward(mug, clay, lambda title: tuple("abcdefghijkl") if title == clay.title else ("a",)) == 0.1
    assert reward(fork, {}, goal, fork, plain_nouns) == pytest.approx(1 / 6), (
        "lead free is in the features; too expensive"
    )
    exact = Goal(mug.asin, "", ("lead free",), (), mug.price)
    assert reward(mug, {}, exact, mug, plain_nouns) == 1, "a price at the limit keeps to it"
    generous = Goal(mug.asin, "", ("lead free",), ("large",), None)
    assert reward(mug, {"size": "large", "color": "clay"}, generous, mug, plain_nouns) == 1, (
        "capped, though more matches than asked"
    )
    assert likely_options(
        generous, mug, lambda product, options: reward(product, options, generous, mug, plain_nouns)
    ) == {"size": "large"}


def test_phrases_are_compared_as_thefuzz_does():
    assert similar("Machine Washable!", "washable machine") and similar("café latte", "caf latte")
    assert (
        similar("black", "black leather")
        and not similar("black", "blue")
        and not similar("", "")
        and not similar("!!", "??")
    )
    assert (colour_of("black forest"), colour_of("violet lavender"), colour_of("webshop")) == (
        "black",
        "lavender",
        "webshop",
    )


# the official products ------------------------------------------------------------------------------------------------


def test_the_official_products_pose_the_published_tasks(shared_data: Path):
    folder, splits = shared_data / "webshop", shared_data / "splits"
    files: dict[str, Any] = {
        "products": str(folder / "products_1000.jsonl.gz"),
        "attributes": str(folder / "items_ins_v2_1000.json"),
    }
    ids: dict[str, Any] = {
        f"agentgym_{part}": str(splits / f"agentr_webshop_{part}.json") for part in ("train", "test")
    }
    shop = WebShop(**files, **ids)
    shop.reset("agentgym/6909")
    with pytest.raises(UnknownTask, match="up to 6909"):
        shop.reset("agentgym/6910")
    published = {  # from trajectories that others published with their task numbers
        0: 'double sided, machine washable decorative pillows with printing technology with size: 28" x 28"',
        3: "dual band streaming media players with quad core",
        6: (
            "men's shorts with elastic waist, classic fit, short sleeve for gym workout with color: navy, and size: "
            "x-large"
        ),
    }
    for number, asked in published.items():
        assert (
            f"Instruction: [SEP] Find me {asked}, and price lower than "
            in shop.reset(f"agentgym/{number}")[1].observation
        )
    train, test = shop.split("agentgym_train"), shop.split("agentgym_test")
    assert (len(train), len(test)) == (3930, 200)
    assert not {task.labels["goal"] for task in train} & {task.labels["goal"] for task in test}
    for task in sample(shop, "agentgym_train", 40) + sample(shop, "test", 40):
        state, _ = shop.reset(task)
        answers = [shop.step(state, step.action) for step in shop.expert(task) or ()]
        assert answers and answers[-1].done and answers[-1].reward == 1, task
    with pytest.raises(ValueError, match="bare sentences"):
        WebShop(**files, human_goals=str(folder / "human_goals.json"))
