"""Takes the pictures of ``agentr ui``, and writes the page that shows them: ``python -m tests.docs.pictures RUNS``.

RUNS holds a run with revisions (``runs/demo``), and, for the two pages that need them, an online run and a comparison.
Every page is taken light, dark and as wide as a phone. What a page shows is chosen by rules: the tree with the most
executed revisions, the task that the last policy won or lost. A page that would scroll sideways, or that breaks, ends
the command.
"""

# pyright: reportMissingImports=false
# Playwright is in the lock of make test-ui alone.

import argparse
import io
import os
import shutil
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote

from PIL import Image
from playwright.sync_api import Browser, Page, sync_playwright

from agentr.observe.heldout import tasks
from agentr.read.run import Run
from agentr.store.layout import CONTROL
from agentr.ui.library import Library
from agentr.ui.server import listen
from agentr.ui.views.forest import forest
from agentr.ui.views.rows import dataset_view
from agentr.ui.views.run import run_page
from agentr.ui.views.tree import tree_view
from tests.ui.conftest import served

DOCS = Path(__file__).parents[2] / "docs"
SIZES = {
    "light": {"viewport": {"width": 1400, "height": 900}, "color_scheme": "light"},
    "dark": {"viewport": {"width": 1400, "height": 900}, "color_scheme": "dark"},
    "phone": {"viewport": {"width": 390, "height": 844}, "color_scheme": "light", "device_scale_factor": 2},
}
#: Trees that are looked through for the one with the most executed revisions.
LOOKED_AT = 60
INTRODUCTION = """# Every page

Made by `make pictures` from the demo, a run of GRPO and a comparison. What each page is for is in [See a \
run](see_a_run.md).
"""


class Shot(NamedTuple):
    """A page to take.

    Attributes:
        name: Of its files.
        about: What it shows, in a sentence.
        place: Its address, after the hash.
        click: What is pressed first, by its role's name; the picture waits for ``until``.
        until: A text that is there when the page is.
        scroll: What the picture begins at, as a CSS selector; the top if empty.
    """

    name: str
    title: str
    about: str
    place: str
    click: str = ""
    until: str = ""
    scroll: str = ""


def shots(library: Library) -> list[Shot]:
    """Returns the pages that can be shown of the runs of a library."""
    runs = {name: library.run(name) for name in library.runs()}
    pages = {name: run_page(name, run) for name, run in runs.items()}
    stages = {name: [line for arm in page["arms"] for line in arm["stages"]] for name, page in pages.items()}
    found = [Shot("runs", "Runs", "All runs and comparisons below a folder, with what they came to.", "")]
    searched = next(name for name in runs if any(line["step"] == "revise" for line in stages[name]))
    found += _of_a_run(searched, runs[searched], stages[searched])
    for name in runs:
        if online := next((line["name"] for line in stages[name] if line["kind"] == "rollouts"), ""):
            about = "Online training step by step: reward, entropy, staleness, groups with and without a signal."
            found.append(
                Shot(
                    "steps", "Steps of online training", about, f"run/{quote(name, '')}/steps?stage={quote(online, '')}"
                )
            )
            break
    for name in library.comparisons():
        about = "Methods side by side: paired differences to any baseline, per task, down to the runs."
        found.append(Shot("compare", "A comparison", about, f"compare/{quote(name, '')}"))
        break
    return found


def _of_a_run(name: str, run: Run, stages: list[dict[str, Any]]) -> Iterator[Shot]:
    at = f"run/{quote(name, '')}"
    revise = [line["name"] for line in stages if line["step"] == "revise"][-1]
    data = [line["name"] for line in stages if line["kind"] == "dataset"][-1]
    stage = f"stage={quote(revise, '')}"
    key, turn = _tree(run, revise)
    tree = f"{at}/tree?{stage}&key={quote(key, '')}"
    row = next(row for row in dataset_view(run, data, kind="revision", offset=0, limit=1)["rows"])
    yield Shot("run", "A run", "The claim in words, success with intervals, and what it rests on.", at)
    yield Shot(
        "time",
        "Where the time went",
        "Every stage of a run, how long it took and what it waited for.",
        at,
        scroll="#time",
    )
    yield Shot("tasks", "Tasks", "Held-out tasks by policy, those won and lost first.", f"{at}/tasks")
    yield Shot(
        "episodes",
        "Episodes",
        "A task under two policies, with the first turn that differs.",
        f"{at}/episodes?task={quote(_flip(run), '')}",
    )
    yield Shot(
        "patterns",
        "Patterns",
        "What recurs in a policy's episodes: repeated and refused actions, openings of turns.",
        f"{at}/patterns",
    )
    yield Shot(
        "forest",
        "Trees",
        "The trees of a stage, to sort, filter and search.",
        f"{at}/forest?{stage}&sort=revisions&down=1",
    )
    for view, about in (
        ("outline", "A tree as an outline, with the turn that is selected beside it."),
        ("graph", "The same tree as a graph: size is visits, colour is mean return."),
        ("icicle", "The same tree as an icicle, which ten thousand turns can be read in."),
    ):
        yield Shot(view, f"A tree: {view}", about, f"{tree}&node={turn}&view={view}")
    about = "The turns drawn in one state, with visits, value, UCT score, and their probability under every policy."
    yield Shot(
        "siblings",
        "Siblings",
        about,
        f"{tree}&node={turn}&view=outline",
        click="Probability under every policy",
        until="warm start",
        scroll="#siblings",
    )
    about = "Rows of a training set by kind, with how many of their tokens are learnt."
    yield Shot("dataset", "A training set", about, f"{at}/dataset?stage={quote(data, '')}&kind=revision")
    about = "A row: learnt tokens are marked, each has its log-probability."
    yield Shot("row", "A row", about, f"{at}/row?stage={quote(data, '')}&index={row['index']}")
    if logs := sorted(run.layout.logs.glob("*.log"), key=lambda path: (path.stat().st_size, path.name)):
        yield Shot(
            "log",
            "A log",
            "What a run wrote down, followed while it grows.",
            f"{at}/log?name={quote(logs[-1].name, '')}",
        )


def _tree(run: Run, stage: str) -> tuple[str, int]:
    """The tree with the most executed revisions, among those with the most pairs, and the first turn judged bad of the
    first of them."""
    rows = forest(run, stage, sort="revisions", down=True, search="", only="", step=None, offset=0, limit=LOOKED_AT)[
        "rows"
    ]
    trees = [tree_view(run, stage, row["key"]) for row in rows]
    best = max(trees, key=lambda tree: (sum(each["end"] >= 0 for each in tree["revisions"]), tree["key"]))
    return best["key"], next(each["transition"] for each in best["revisions"] if each["end"] >= 0)


def _flip(run: Run) -> str:
    """The first task that the last policy won, and the first policy did not."""
    found = tasks(run)
    last = max(place for place, policy in enumerate(found["policies"]) if policy["title"] != CONTROL.title)
    lines = [line for line in found["tasks"] if None not in (line["scores"][0], line["scores"][last])]
    return max(lines, key=lambda line: line["scores"][last] - line["scores"][0])["key"]


def take(browser: Browser, address: str, found: list[Shot], folder: Path, forms: Iterable[str] = SIZES) -> None:
    """Takes each page in each form, as WebP.

    Raises:
        SystemExit: A page breaks, or scrolls sideways.
    """
    folder.mkdir(parents=True, exist_ok=True)
    for form in forms:
        page = browser.new_context(**SIZES[form]).new_page()
        wrong: list[str] = []
        page.on("pageerror", lambda error, wrong=wrong: wrong.append(str(error)))
        for shot in found:
            _open(page, address, shot)
            if page.evaluate("document.documentElement.scrollWidth > innerWidth") or wrong:
                sys.exit(f"{shot.name} ({form}): {wrong[0] if wrong else 'the page scrolls sideways'}")
            picture = Image.open(io.BytesIO(page.screenshot()))
            picture.save(folder / f"{shot.name}-{form}.webp", quality=60, method=6)
            print(f"{shot.name} {form}")


def _open(page: Page, address: str, shot: Shot) -> None:
    page.goto("about:blank")
    page.goto(f"{address}#/{shot.place}")
    page.locator("h1").first.wait_for()
    page.wait_for_load_state("networkidle")
    if shot.click:
        page.get_by_role("button", name=shot.click).click()
    if shot.until:
        page.get_by_role("columnheader", name=shot.until).wait_for(timeout=600_000)
    if shot.scroll:
        page.locator(shot.scroll).scroll_into_view_if_needed()
        page.evaluate("selector => document.querySelector(selector).scrollIntoView()", shot.scroll)


def page_of(found: list[Shot]) -> str:
    """Returns the page that shows them, as Markdown."""
    parts = [INTRODUCTION]
    for shot in found:
        light, dark, phone = (f"![{shot.title}, {form}](images/pages/{shot.name}-{form}.webp)" for form in SIZES)
        parts.append(
            f"## {shot.title}\n\n{shot.about}\n\n| light | dark | phone |\n| --- | --- | --- |\n"
            f"| {light} | {dark} | {phone} |\n"
        )
    return "\n".join(parts)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("runs", type=Path)
    parser.add_argument("--out", type=Path, default=DOCS, help="folder of pages.md and images/pages")
    given = parser.parse_args()
    chromium = os.environ.get("CHROMIUM") or shutil.which("chromium")
    if not chromium:
        sys.exit("no Chromium on PATH or in $CHROMIUM")
    library = Library([given.runs])
    found = shots(library)
    with listen("127.0.0.1", 0) as opened, served(given.runs, opened) as address, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        take(browser, address, found, given.out / "images" / "pages")
        browser.close()
    (given.out / "pages.md").write_text(page_of(found), encoding="utf-8")


if __name__ == "__main__":
    main()
