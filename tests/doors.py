"""The example of ``docs/add_an_environment.md``, from the files that the page shows."""

import re
from pathlib import Path

from tests.env_servers.support import ROOT

PAGE = ROOT / "docs" / "add_an_environment.md"


def write_doors(folder: Path) -> None:
    """Writes the package ``doors`` into a folder."""
    files = re.findall(
        r"^`([\w./]+)`:\n\n```\w+\n(.*?)^```$", PAGE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL
    )
    assert {name for name, _ in files} == {"doors/spec.yaml", "doors/__init__.py"}
    for name, text in files:
        path = folder / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text, encoding="utf-8")
