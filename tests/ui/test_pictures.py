"""The pictures of ``docs/pages.md``: every page is among them, and taking them works (``make test-ui``)."""

# pyright: reportMissingImports=false
# Playwright is in the lock of make test-ui alone.

from __future__ import annotations

import re
from pathlib import Path

import pytest

from agentr.ui.library import Library
from tests.docs.pages import ROOT

PAGES = ROOT / "docs" / "pages.md"
ROUTES = ROOT / "agentr/ui/web/src/route.ts"


def test_every_page_is_shown_in_every_form() -> None:
    shown = re.findall(r"images/pages/(\w+)-(light|dark|phone)\.webp", PAGES.read_text(encoding="utf-8"))
    names = {name for name, _ in shown}
    assert len(shown) == 3 * len(names)
    routes = re.search(r"type PageName =(.*?);", ROUTES.read_text(encoding="utf-8"), re.DOTALL)
    assert routes is not None
    views = {"tree": {"outline", "graph", "icicle", "siblings"}, "run": {"run", "time"}, "unknown": set[str]()}
    for page in re.findall(r'"(\w+)"', routes[1]):
        assert views.get(page, {page}) <= names, f"docs/pages.md does not show the page {page}: make pictures"


def test_pages_are_taken_as_a_phone_shows_them(made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("playwright.sync_api", reason="make test-ui installs it")
    from playwright.sync_api import sync_playwright

    from tests.docs.pictures import page_of, served, shots, take
    from tests.ui.test_browser import CHROMIUM

    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    library = Library([made])
    found = shots(library)
    with served(library) as address, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        take(browser, address, found, tmp_path, ["phone"])
        browser.close()
    assert {f"{shot.name}-phone.webp" for shot in found} == {path.name for path in tmp_path.glob("*.webp")}
    assert {path.name for path in tmp_path.glob("*.webp")} <= set(re.findall(r"[\w-]+\.webp", page_of(found)))
