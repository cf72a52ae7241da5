"""docs/pages.md shows every page in every form: light, dark and as on a phone."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGES = ROOT / "docs" / "pages.md"
FORMS = ("light", "dark", "phone")


def names() -> set[str]:
    """The pages that `agentr ui` has, by its own list; a tree is shown in its three views."""
    listed = re.search(r"type PageName =\n(.*?);", (ROOT / "agentr/ui/web/src/route.ts").read_text(), re.DOTALL)
    assert listed
    found = set(re.findall(r'"(\w+)"', listed[1]))
    return found - {"unknown", "tree"} | {"outline", "graph", "icicle"}


def test_every_page_is_shown_light_dark_and_as_on_a_phone() -> None:
    shown = set(re.findall(r"\]\(images/pages/([\w-]+)\.webp\)", PAGES.read_text()))
    assert shown >= {f"{name}-{form}" for name in names() for form in FORMS}
    assert shown == {path.stem for path in (ROOT / "docs/images/pages").iterdir()}, (
        "a picture that no page shows, or a page without one"
    )
