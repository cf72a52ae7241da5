"""Checks the links of the built site: ``python docs/site/links.py build/docs``.

What a page links to within the site has to be there, anchors included. Addresses elsewhere are not asked for: they are
written to ``build/external_links.txt``, each with the pages that name it.
"""

import sys
from collections import defaultdict
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit


class Page(HTMLParser):
    """The anchors and the links of a page."""

    def __init__(self, file: Path) -> None:
        super().__init__()
        self.anchors: set[str] = set()
        self.links: list[str] = []
        self.feed(file.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        for name, value in attrs:
            if name in ("id", "name") and value:
                self.anchors.add(value)
            elif name in ("href", "src") and value:
                self.links.append(value)


def check(site: Path) -> tuple[list[str], dict[str, set[str]]]:
    """Returns what is wrong, and the addresses elsewhere with the pages that name them."""
    pages = {file: Page(file) for file in sorted(site.rglob("*.html")) if "_static" not in file.parts}
    wrong, elsewhere = [], defaultdict(set)
    for file, page in pages.items():
        for link in page.links:
            parts = urlsplit(link)
            if parts.scheme or parts.netloc:
                if parts.scheme in ("http", "https"):
                    elsewhere[link].add(str(file.relative_to(site)))
                continue
            target = (file.parent / unquote(parts.path)).resolve() if parts.path else file
            anchor = unquote(parts.fragment)
            if not target.exists():
                wrong.append(f"{file.relative_to(site)}: there is no {link}")
            elif anchor and target in pages and anchor not in pages[target].anchors:
                wrong.append(f"{file.relative_to(site)}: {target.relative_to(site)} has no #{anchor}")
    return wrong, dict(elsewhere)


def main(folder: str) -> int:
    site = Path(folder).resolve()
    wrong, elsewhere = check(site)
    listed = site.parent / "external_links.txt"
    listed.write_text(
        "".join(f"{link}\t{' '.join(sorted(pages))}\n" for link, pages in sorted(elsewhere.items())), encoding="utf-8"
    )
    print("\n".join(wrong), file=sys.stderr) if wrong else None
    print(f"{len(wrong)} broken links within the site; {len(elsewhere)} addresses elsewhere, not asked for: {listed}")
    return bool(wrong)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
