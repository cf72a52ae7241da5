"""What the site is made of, without making it (``make docs``): its list of pages, and the check of its links."""

import importlib.util
import re
from pathlib import Path

import pytest

from tests.docs.pages import ROOT

SPEC = importlib.util.spec_from_file_location("links", ROOT / "docs/site/links.py")
assert SPEC is not None and SPEC.loader is not None
links = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(links)

INDEX = ROOT / "docs" / "index.md"


def test_every_page_is_listed_once() -> None:
    listed = re.findall(r"^- \[[^\]]+\]\(([^)#]+)\)", INDEX.read_text(encoding="utf-8"), re.MULTILINE)
    pages = {(INDEX.parent / name).resolve() for name in listed}
    assert len(pages) == len(listed)
    assert set((ROOT / "docs").glob("*.md")) - {INDEX} <= pages
    assert {page for page in pages if not page.exists()} == set()


@pytest.mark.parametrize("page", sorted((ROOT / "docs").glob("*.md")), ids=lambda page: page.stem)
def test_links_and_pictures_are_there_without_a_site(page: Path) -> None:
    """GitHub shows the same files: what a page links to is a file beside it, and an anchor is a heading of it."""
    text = re.sub(r"^```.*?^```", "", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    for name, anchor in re.findall(r"\]\(([^)#\s]*)(?:#([^)\s]+))?\)", re.sub(r"`[^`\n]*`", "", text)):
        if "://" in name:
            continue
        target = (page.parent / name).resolve() if name else page
        assert target.exists(), f"{page.name}: {name}"
        assert not anchor or anchor in _anchors(target), f"{page.name}: {target.name} has no #{anchor}"


def _anchors(page: Path) -> set[str]:
    headings = re.findall(r"^#+ (.+)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_a_broken_link_of_the_site_is_named(tmp_path: Path) -> None:
    (tmp_path / "a.html").write_text(
        '<a href="b.html#there">1</a><a href="b.html#gone">2</a><a href="https://x.org">3</a>'
    )
    (tmp_path / "b.html").write_text(
        '<h1 id="there">b</h1><img src="no.svg"><a href="#">top</a><a href="a.html?q=1">a</a>'
    )
    wrong, elsewhere = links.check(tmp_path)
    assert wrong == ["a.html: b.html has no #gone", "b.html: there is no no.svg"]
    assert elsewhere == {"https://x.org": {"a.html"}}
