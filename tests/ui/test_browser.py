"""The pages in a real Chromium: the questions that they are for, by clicks and by keyboard; phones, dark, hostile
texts, a growing stage.

``make test-ui`` installs what is needed; without it these tests are skipped, but where AGENTR_TEST_UI is set that is a
failure.
"""

# pyright: reportMissingImports=false
# Playwright and axe are in the lock of make test-ui alone.

import json
import os
import re
import shutil
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
import yaml

import agentr
from agentr.observe.comparison import PLAN, compare_runs, read_plan
from agentr.store.run import RunStore
from agentr.types import Outcome
from agentr.ui.library import Library
from agentr.ui.report import write_comparison, write_report
from agentr.ui.server import listen
from agentr.ui.show import show_task, show_tree
from tests.runs import measured_trees
from tests.trees import door, episode
from tests.ui.conftest import REFUSED, asked_by_program, compared, growing, lucky, retried, served

REQUIRED = bool(os.environ.get("AGENTR_TEST_UI"))
CHROMIUM = (
    os.environ.get("CHROMIUM")
    or shutil.which("chromium")
    or shutil.which("chromium-browser")
    or shutil.which("google-chrome")
    or ""
)
if not REQUIRED:
    pytest.importorskip("playwright.sync_api", reason="make test-ui installs it")
    if not CHROMIUM:
        pytest.skip("no Chromium on PATH or in $CHROMIUM", allow_module_level=True)

from axe_playwright_python.sync_playwright import Axe  # noqa: E402
from playwright.sync_api import Browser, Page, expect, sync_playwright  # noqa: E402

from tests.docs.pictures import shots, take  # noqa: E402

HOSTILE = "</script><img src=x onerror=\"document.title='taken'\">\u202egnp\0"
TREE = "tree?stage=rounds%2F01%2Frevise&key=door"


@dataclass
class Shown:
    """A page of a server that runs, with what it asked and what went wrong in it."""

    page: Page
    address: str
    asked: list[str] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)

    def go(self, place: str) -> Page:
        self.page.goto(f"{self.address}#/{place}")
        expect(self.page.locator("h1").first).to_be_visible()
        return self.page


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    assert CHROMIUM, "no Chromium on PATH or in $CHROMIUM"
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.fixture
def address(runs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The server as ``agentr ui`` starts it, over a copy of the run."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    with listen("127.0.0.1", 0) as opened, served(runs, opened) as address:
        yield address


def open_page(browser: Browser, address: str, **context: Any) -> Shown:
    page = browser.new_context(**context).new_page()
    shown = Shown(page, address)
    page.on("request", lambda request: shown.asked.append(request.url))
    page.on("pageerror", lambda error: shown.errors.append(str(error)))
    page.on("console", lambda message: shown.errors.append(message.text) if message.type == "error" else None)
    return shown


@pytest.fixture
def shown(browser: Browser, address: str) -> Iterator[Shown]:
    shown = open_page(browser, address, viewport={"width": 1400, "height": 900})
    yield shown
    assert [url for url in shown.asked if not url.startswith((address, "data:"))] == [], "a request left"
    assert shown.errors == []
    shown.page.context.close()


# the questions --------------------------------------------------------------------------------------------------------


def test_which_tasks_got_worse_and_where_its_episodes_part(shown: Shown) -> None:
    page = shown.go("")
    page.get_by_role("link", name="first").click()
    page.get_by_role("link", name="Tasks").click()
    page.get_by_role("button", name=re.compile("lost", re.IGNORECASE)).first.click()
    page.get_by_role("link", name="c", exact=True).click()
    expect(page.get_by_text("The first turn that differs is turn 1.")).to_be_visible()
    before, after = page.locator("h2").all_inner_texts()[:2]
    assert (before, after) == ("warm start", "round 1")
    assert "Action: open" in page.inner_text("main") and "Action: wait" in page.inner_text("main")


def test_where_paths_part_what_the_verdict_was_and_what_came_of_the_splice(shown: Shown) -> None:
    page = shown.go(f"run/first/{TREE}")
    revisions = page.get_by_role("button", name=re.compile("turn 8"))
    revisions.first.click()
    expect(page.get_by_role("heading", name=re.compile("Turn 8"))).to_be_visible()
    text = page.inner_text("main")
    assert "That was wrong." in text and "executed" in text
    assert page.url.endswith("node=8") or "node=8" in page.url, "every selection has an address"


def test_what_was_tried_again_and_what_came_of_it(shown: Shown, runs: Path) -> None:
    growing(runs / "first", retried())[1].close()
    page = shown.go("run/first/tree?stage=rounds%2F02%2Fcollect&key=door")
    tried = page.locator("details.revisions")
    expect(tried.locator("summary")).to_have_text("2 episodes tried again")
    better, none = tried.locator("li").all()
    expect(better).to_contain_text(
        re.compile("retry of the end 5 keeps 1 turn earned 1 at 3.*I waited.*told: Do not wait")
    )
    expect(none).to_contain_text("drop redundant of the end 6 nothing was redundant")
    better.get_by_role("button", name="turn 3").click()
    expect(page.get_by_role("heading", name=re.compile("Turn 3"))).to_be_visible()


def test_which_rounds_were_lucky_and_in_which_trees(shown: Shown, runs: Path) -> None:
    lucky(runs / "luck")
    page = shown.go("run/luck/patterns")
    page.locator("summary", has_text="round 1").click()
    expect(page.locator("summary", has_text="round 1")).to_contain_text(re.compile("1 of 4 turns .25"))
    page.get_by_role("link", name="lucky").click()
    expect(page.get_by_role("heading", name="lucky")).to_be_visible()


def test_what_was_trained_on_and_back_to_its_turns(shown: Shown) -> None:
    page = shown.go("run/first/dataset?stage=rounds%2F01%2Fdataset")
    page.locator("main table a").first.click()
    expect(page.get_by_role("heading", name=re.compile(r"^Row \d"))).to_be_visible()
    tokens = page.locator("pre.tokens").first
    expect(tokens).to_be_visible()
    assert "on " in tokens.inner_text()
    page.get_by_role("link", name=re.compile(r"Turn \d+ in its tree")).first.click()
    expect(page.get_by_role("heading", name="door")).to_be_visible()
    assert "row=" in page.url, "the row lights its path"


def test_how_likely_a_turn_is_under_every_policy(shown: Shown) -> None:
    page = shown.go(f"run/first/{TREE}&node=2")
    page.get_by_role("button", name=re.compile("probability", re.IGNORECASE)).click()
    table = page.get_by_label("Log-probability of each turn under every policy")
    expect(table).to_be_visible(timeout=120_000)
    expect(table.get_by_role("columnheader", name="round 1")).to_be_visible(timeout=120_000)
    for name in ("base model", "warm start"):
        expect(table.get_by_role("columnheader", name=name)).to_be_visible()
    assert "unknown" not in table.inner_text()


def test_what_to_type_to_act_in_a_state(shown: Shown) -> None:
    text = shown.go(f"run/first/{TREE}&node=4").locator("main")
    expect(text).to_contain_text("agentr envs play --run")
    expect(text).to_contain_text("--tree door --turn 4")


def test_what_to_type_to_search_on_with_a_policy_of_ones_choice(shown: Shown) -> None:
    page = shown.go(f"run/first/{TREE}&node=4")
    command = page.get_by_label("search on from this state", exact=True)
    expect(command).to_contain_text("--tree door --turn 4 --policy rounds/01")
    page.get_by_role("combobox", name="Policy", exact=True).select_option("base model")
    expect(command).to_contain_text("--turn 4 --policy base")
    expect(page.get_by_role("button", name="Copy: search on from this state")).to_be_visible()


def test_where_the_time_went_and_what_recurs(shown: Shown) -> None:
    page = shown.go("run/first")
    expect(page.get_by_role("heading", name="Where the time went")).to_be_visible()
    shown.go("run/first/patterns")
    expect(page.locator("main")).to_contain_text("repeated action")
    page.locator("summary", has_text="repeated action").first.click()
    page.locator("main a:visible").first.click()
    expect(page.get_by_role("heading", name="a", exact=True)).to_be_visible()
    assert re.search(r"tree\?stage=rounds%2F0\d%2Feval&key=a", page.url)


PROGRAM = "tree?stage=rounds%2F02%2Fcollect&key=asks"


def test_what_a_program_was_given_and_asked(shown: Shown, runs: Path) -> None:
    _, store = growing(runs / "first", asked_by_program())
    store.close()
    page = shown.go(f"run/first/{PROGRAM}&node=6&view=graph")
    first, second, third, fourth, last = page.locator(".turn").all()
    expect(first.locator(".program li")).to_have_count(2)
    expect(first.locator(".program li").first).to_have_text(re.compile(r'call find \{"q": 1\}tool found 0'))
    expect(first.locator(".program li").last).to_contain_text("found 1")
    expect(second).to_contain_text("The program dropped this answer.")
    expect(third).to_contain_text("Another conversation begins.")
    expect(fourth).to_contain_text("new conversation")
    expect(fourth).to_contain_text("It goes on from turn 3.")
    expect(last).to_contain_text(REFUSED[1:])
    expect(last.locator(".chip").filter(has_text="refused")).to_have_text(["⊘ refused"])
    assert "mean" not in last.inner_text(), "what would have come of it is not known"
    texts = page.locator(".graph .node text").all_text_contents()
    assert sum(text.startswith("⊘ ") for text in texts) == 1 and "↳ title" in texts
    assert "parameters" not in page.inner_text("main"), "schemas are shown on demand"
    page.locator("summary", has_text="The task as the policy").click()
    expect(page.locator(".opening")).to_contain_text("narrowed by tool choice required")
    first.locator("summary", has_text="2 tools offered: find, now").click()
    first.locator("summary", has_text=re.compile("^now$")).click()
    expect(first.locator("pre", has_text="parameters")).to_be_visible()
    found = Axe().run(page).response["violations"]
    assert [each["id"] for each in found if each["impact"] in ("serious", "critical")] == []
    page.set_viewport_size({"width": 390, "height": 844})
    assert page.evaluate("document.documentElement.scrollWidth") <= 390


def test_by_keyboard_alone(shown: Shown) -> None:
    page = shown.go("")
    for _ in range(40):
        page.keyboard.press("Tab")
        if page.evaluate("document.activeElement.textContent") == "first":
            break
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", name="What it came to")).to_be_visible()
    shown.go(f"run/first/{TREE}&view=outline")
    page.get_by_role("tree").focus()
    for key in ("Home", "ArrowDown", "ArrowDown"):
        page.keyboard.press(key)
    expect(page.locator('[role="treeitem"][aria-selected="true"]')).to_contain_text("take key")
    assert "node=2" in page.url


# form -----------------------------------------------------------------------------------------------------------------

PLACES = (
    "",
    "run/first",
    "run/first/tasks",
    "run/first/episodes?task=c",
    "run/first/patterns",
    "run/first/forest?stage=rounds%2F01%2Fcollect",
    f"run/first/{TREE}&node=8&view=outline",
    f"run/first/{TREE}&node=8&view=graph",
    f"run/first/{TREE}&node=8&view=icicle",
    "run/first/dataset?stage=rounds%2F01%2Fdataset",
    "run/first/row?stage=rounds%2F01%2Fdataset&index=0",
)


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1400, 390])
def test_every_page_is_accessible_and_fits(browser: Browser, address: str, runs: Path, width: int, scheme: str) -> None:
    growing(runs / "first", retried())[1].close()
    lucky(runs / "luck")
    shown = open_page(browser, address, viewport={"width": width, "height": 844}, color_scheme=scheme)
    for place in (*PLACES, "run/first/tree?stage=rounds%2F02%2Fcollect&key=door", "run/luck/patterns"):
        page = shown.go(place)
        page.wait_for_load_state("networkidle")
        assert page.evaluate("document.documentElement.scrollWidth") <= width, f"{place} scrolls sideways"
        found = Axe().run(page).response["violations"]
        serious = [
            (each["id"], each["nodes"][0]["html"][:120]) for each in found if each["impact"] in ("serious", "critical")
        ]
        assert serious == [], place
    shown.page.context.close()
    assert shown.errors == []


def test_back_and_reload_keep_the_place(shown: Shown) -> None:
    page = shown.go("run/first")
    for place in PLACES[1:]:
        shown.go(place)
        said = page.inner_text("h1")
        page.reload()
        expect(page.locator("h1").first).to_have_text(said)
    page.go_back()
    assert page.url.endswith(PLACES[-2])


def test_a_stage_that_grows_and_is_sealed_under_the_open_page(shown: Shown, runs: Path) -> None:
    forest, store = growing(runs / "first", door())
    page = shown.go("run/first/forest?stage=rounds%2F02%2Fcollect")
    expect(page.locator("main")).to_contain_text("door")
    forest.seal()
    page.reload()
    expect(page.locator("main")).to_contain_text("door")
    store.close()


# hostile --------------------------------------------------------------------------------------------------------------


def test_texts_of_models_and_worlds_are_shown_and_never_run(shown: Shown, runs: Path) -> None:
    tree = door()
    for node in tree.nodes[1:]:
        node.text = node.observation = node.action = HOSTILE
    _, store = growing(runs / "first", tree, asked_by_program(HOSTILE, HOSTILE))
    config = runs / "first/config.yaml"
    stored = yaml.safe_load(config.read_text())
    stored["run"]["name"] = HOSTILE.replace("\0", "")
    config.write_text(yaml.safe_dump(stored))
    store.close()
    for place in (
        "",
        "run/first",
        "run/first/tree?stage=rounds%2F02%2Fcollect&key=door&node=2",
        f"run/first/{PROGRAM}&node=6&view=graph",
        "run/first/forest?stage=<b>&search=</script>",
    ):
        page = shown.go(place)
        page.wait_for_load_state("networkidle")
        for _ in range(3):  # tools, then their schemas
            page.evaluate("document.querySelectorAll('.panel details').forEach((one) => { one.open = true; })")
            page.wait_for_timeout(100)
        if PROGRAM in place:
            assert page.locator(".program pre .unseen").count() > 0 and page.locator(".program li .unseen").count() > 0
        assert page.locator("img").count() == 0 and page.title() != "taken", place
        assert "\u202e" not in page.inner_text("body") and "\0" not in page.inner_text("body"), place
    shown.errors.clear()  # the browser reports the answer 404 of the last page as an error


def test_files_open_from_disk_without_a_request(browser: Browser, made: Path, tmp_path: Path) -> None:
    run = agentr.open(made / "first")
    for name, text, said in (
        ("tree", show_tree(run, "rounds/01/revise", "door"), "door"),
        ("task", show_task(run, "c"), "first turn that differs"),
    ):
        path = tmp_path / f"{name}.html"
        path.write_text(text, encoding="utf-8")
        shown = open_page(browser, path.as_uri())
        shown.page.goto(path.as_uri())
        expect(shown.page.locator("main")).to_contain_text(said)
        assert shown.asked == [path.as_uri()] and shown.errors == []
        shown.page.context.close()


# what cannot be read --------------------------------------------------------------------------------------------------


def test_what_cannot_be_read_is_a_sentence_and_the_rest_is_shown(shown: Shown, runs: Path) -> None:
    run = runs / "first"
    (run / "rounds/01/eval/evaluation.json").write_text("{")
    (run / "rounds/01/dataset/rows.parquet").write_bytes(b"PAR1")
    (run / "rounds/01/collect/trees/00000.parquet").write_bytes(b"PAR1")
    for place, said, rest in (
        ("run/first", "The results cannot be read", "Configuration"),
        ("run/first/tasks", "The evaluation of round 1 cannot be read", "Not measured under both"),
        (f"run/first/{TREE}&node=4", "rows.parquet is damaged", "Time passes."),
        ("run/first/forest?stage=rounds%2F01%2Fcollect", "", "t1"),
    ):
        page = shown.go(place)
        expect(page.locator("main")).to_contain_text(rest)
        assert said in " ".join(page.get_by_role("alert").all_inner_texts()), place
    page.goto(f"{shown.address}#/run/first/tree?stage=rounds%2F01%2Fcollect&key=t1")
    expect(page.get_by_role("alert")).to_contain_text("trees/00000.parquet is damaged")
    shutil.rmtree(run)
    page.goto(f"{shown.address}#/run/first/patterns")
    expect(page.get_by_role("alert")).to_contain_text("runs/first holds no run: there is no such folder.")
    page.goto(f"{shown.address}#/")
    expect(page.get_by_role("heading", name="Runs", level=1)).to_be_visible()
    shown.errors.clear()  # the browser reports answers 404


def test_a_server_that_is_gone_is_said(browser: Browser, runs: Path) -> None:
    with listen("127.0.0.1", 0) as opened, served(runs, opened) as address:
        shown = open_page(browser, address)
        page = shown.go("run/first")
    page.get_by_role("link", name="Patterns").click()
    expect(page.get_by_role("alert")).to_contain_text("The server does not answer.")
    page.context.close()


def test_names_that_hide_or_reverse_text_are_named(shown: Shown, runs: Path) -> None:
    name = "gnp.\u202eexe<img src=x onerror=\"document.title='taken'\">"
    (runs / "first").rename(runs / name)
    tree = door()
    tree.task = replace(tree.task, id=HOSTILE, labels={HOSTILE: HOSTILE})
    forest, store = growing(runs / name, tree)
    store.close()
    (forest.work / "failures.jsonl").write_text(json.dumps({"key": HOSTILE, "reason": HOSTILE}) + "\n")
    run = quote(name, safe="")
    for place in (
        "",
        f"run/{run}",
        f"run/{run}/forest?stage=rounds%2F02%2Fcollect",
        f"run/{run}/tree?stage=rounds%2F02%2Fcollect&key={quote(tree.task.key)}",
    ):
        page = shown.go(place)
        page.wait_for_load_state("networkidle")
        text = page.inner_text("body") + page.title() + " ".join(page.locator("option").all_inner_texts())
        assert "\u202e" not in text and "\0" not in text and "U+202E" in text, place
        assert page.locator("img").count() == 0 and page.title() != "taken", place


# a comparison, files, curves ------------------------------------------------------------------------------------------


def test_a_comparison_leads_to_both_episodes_of_a_seed(shown: Shown, runs: Path) -> None:
    compared(runs)
    page = shown.go("compare/compared?baseline=base")
    begun = page.get_by_role("region", name="From bad beginnings").locator("tbody tr")
    expect(begun.first).to_contain_text(re.compile("a refusal.*base"))
    expect(begun.last).to_contain_text(re.compile("other.*[+]100"))
    row = page.get_by_label("Tasks by method").get_by_role("row", name=re.compile("^c "))
    expect(row.get_by_role("link")).to_have_count(2)
    row.get_by_role("link", name="Seed 1: 100 % under base, 0 % under other").click()
    expect(page.get_by_text("The first turn that differs is turn 1.")).to_be_visible()
    before, after = page.locator("h2").all_inner_texts()[:2]
    assert (before, after) == ("round 1 of compared/base/seed-1", "round 1 of compared/other/seed-1")
    page.get_by_role("button", name="Swap").click()
    expect(page.locator("h2").first).to_have_text("round 1 of compared/other/seed-1")
    page.get_by_label("From").select_option("warm start")
    expect(page.locator("h2").first).to_have_text("warm start of compared/other/seed-1")
    expect(page.get_by_text("Both episodes are the same.")).to_be_visible()


def test_a_row_lights_its_path_in_a_file(browser: Browser, made: Path, tmp_path: Path) -> None:
    path = tmp_path / "tree.html"
    path.write_text(show_tree(agentr.open(made / "first"), "rounds/01/revise", "door"), encoding="utf-8")
    shown = open_page(browser, path.as_uri(), viewport={"width": 1400, "height": 900})
    page = shown.page
    page.goto(f"{path.as_uri()}#/run/run/tree?stage=rounds%2F01%2Frevise&key=door&view=outline")
    page.get_by_role("combobox", name="Rows").select_option(label="row 1: revision (rounds/01/dataset)")
    outline = page.get_by_role("tree")
    expect(outline.locator(".line.lit")).to_have_count(5)
    expect(outline.locator(".line.learnt")).to_have_count(2)
    assert outline.locator(".line.dim").count() == 4
    expect(page.locator(".turn.learnt")).to_have_count(2)
    expect(page.locator(".turn").first).to_contain_text("context")
    page.get_by_label("Show").select_option("tokens")
    expect(page.locator("pre.tokens .token.learnt")).to_have_count(2)
    assert page.locator("pre.tokens .token:not(.learnt)").count() > 0
    assert shown.asked == [path.as_uri()] and shown.errors == []
    page.context.close()


def test_points_of_curves_are_reached_by_keyboard(shown: Shown) -> None:
    page = shown.go("run/first")
    curve = page.get_by_role("slider", name=re.compile("loss by optimiser step"))
    curve.focus()
    expect(curve).to_have_attribute("aria-valuetext", "step 1: warm start 2.50; round 1 2.50")
    page.keyboard.press("ArrowRight")
    expect(curve).to_have_attribute("aria-valuetext", "step 2: warm start 0.500; round 1 0.500")
    page.keyboard.press("End")
    page.keyboard.press("Home")
    expect(curve).to_have_attribute("aria-valuenow", "1")


#: Pages of a report, and what stands in them.
HELD = (
    "run/run",
    "run/run/tasks",
    "run/run/patterns",
    "run/run/forest?stage=rounds%2F01%2Feval",
    "run/run/dataset?stage=rounds%2F01%2Fdataset",
)


def test_a_report_opened_from_disk_has_the_counts_of_the_server(
    browser: Browser, shown: Shown, runs: Path, tmp_path: Path
) -> None:
    write_report(agentr.open(runs / "first"), tmp_path)
    path = tmp_path / "report.html"
    assert path.stat().st_size < 5_000_000
    file = open_page(browser, path.as_uri(), viewport={"width": 1400, "height": 900})
    for place in HELD:
        texts = []
        for opened, name in ((shown, place.replace("run/run", "run/first")), (file, place)):
            page = opened.go(name)
            expect(page.locator("main .scroll table").first).to_be_visible()
            cells = page.locator("main td, main th, main .about .pair, main h2, main li").all_inner_texts()
            texts.append(
                [text for cell in cells if (text := re.sub(r"\s*[↑↓]", "", cell)) and not text.startswith("folder")]
            )
        assert texts[0] == texts[1] and len(texts[0]) > 5, place
    page = file.page
    page.get_by_role("link", name="Overview").click()
    page.get_by_role("link", name="a row that was trained on: revision").click()
    expect(page.locator("pre.tokens .token.learnt").first).to_be_visible()
    page.get_by_role("link", name="Tasks").click()
    page.get_by_role("button", name=re.compile("lost", re.IGNORECASE)).first.click()
    page.get_by_role("link", name="c", exact=True).click()
    expect(page.get_by_text("The first turn that differs is turn 1.")).to_be_visible()
    assert page.get_by_role("link", name="Logs").count() == 0
    assert {url.partition("#")[0] for url in file.asked} == {path.as_uri()} and file.errors == []
    page.context.close()


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1400, 390])
def test_reports_and_comparisons_are_accessible_and_fit(browser: Browser, runs: Path, width: int, scheme: str) -> None:
    """Also where names and turns are hostile, and one is a long word."""
    folder = compared(runs)
    (folder / "other").rename(folder / ("<b>" * 9))
    (folder / PLAN).write_text((folder / PLAN).read_text().replace('"other"', f'"{"<b>" * 9}"'))
    write_comparison(compare_runs(read_plan(folder), {f"{HOSTILE}{'x' * 200}": f"no space left: {'y' * 300}"}), folder)
    tree = episode("a", ["x" * 400, HOSTILE], 1.0, Outcome.SUCCESS, 1)
    tree.nodes[2].text = tree.nodes[2].observation = HOSTILE
    store = RunStore(runs / "first")
    store.stages.set_aside("rounds/01/eval")
    store.take()
    measured_trees(store, "rounds/01/eval", [tree])
    store.close()
    write_report(agentr.open(runs / "first"))
    for path, places in (
        (runs / "first/report.html", ["", "#/run/run/tree?stage=rounds%2F01%2Feval&key=a&view=outline&node=2"]),
        (folder / "comparison.html", [""]),
    ):
        shown = open_page(browser, path.as_uri(), viewport={"width": width, "height": 844}, color_scheme=scheme)
        for place in places:
            shown.page.goto(path.as_uri() + place)
            expect(shown.page.locator("h1").first).to_be_visible()
            assert shown.page.evaluate("document.documentElement.scrollWidth") <= width, (
                f"{path.name}{place} scrolls sideways"
            )
            paper = shown.page.evaluate("getComputedStyle(document.body).backgroundColor")
            assert (sum(map(int, re.findall(r"\d+", paper))) < 200) is (scheme == "dark"), paper
            found = Axe().run(shown.page).response["violations"]
            assert [
                (each["id"], each["nodes"][0]["html"][:120])
                for each in found
                if each["impact"] in ("serious", "critical")
            ] == []
            said = shown.page.inner_text("body") + shown.page.title()
            assert shown.page.locator("img").count() == 0 and "\u202e" not in said and "\0" not in said
        assert "U+202E" in said and shown.errors == [], path.name
        assert {url.partition("#")[0] for url in shown.asked} == {path.as_uri()}
        shown.page.context.close()


def test_pictures_of_all_pages_are_taken(browser: Browser, runs: Path, tmp_path: Path) -> None:
    """As ``make pictures`` chooses them, of a small run and a comparison; only that of the siblings needs policies with
    weights."""
    compared(runs)
    found = [shot for shot in shots(Library([runs])) if not shot.click]
    with listen("127.0.0.1", 0) as opened, served(runs, opened) as address:
        take(browser, address, found, tmp_path, ["phone"])
    names = {
        "runs",
        "run",
        "time",
        "tasks",
        "episodes",
        "patterns",
        "forest",
        "outline",
        "graph",
        "icicle",
        "dataset",
        "row",
        "compare",
    }
    assert {path.name for path in tmp_path.glob("*.webp")} >= {f"{name}-phone.webp" for name in names}
