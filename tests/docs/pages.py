"""Pages with parts that a script makes: each stands in a fenced block below a comment ``<!-- made: NAME -->``."""

import re
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).parents[2]
PART = re.compile(r"(^<!-- made: (?P<name>.+?) -->\n\n?```\w*\n)(?P<text>.*?)(^```$)", re.MULTILINE | re.DOTALL)
#: Longest line of a page, but for tables, links and data.
WIDTH = 110


def parts(page: Path) -> list[str]:
    """Returns the names of a page's parts, in order."""
    return [found["name"] for found in PART.finditer(page.read_text(encoding="utf-8"))]


def refreshed(page: Path, make: Callable[[str], str]) -> str:
    """Returns a page with all its parts made anew.

    Args:
        make: Makes the part of a name.
    """
    return PART.sub(
        lambda found: f"{found[1]}{make(found['name']).rstrip()}\n{found[4]}", page.read_text(encoding="utf-8")
    )
