"""The run that the disturbed ones are compared with."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.chaos.driver import DEMO, SMALL, start


@pytest.fixture(scope="session")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run directory of the small run."""
    root = tmp_path_factory.mktemp("undisturbed") / "run"
    driver = start(DEMO, root, root.parent / "log", SMALL)
    assert driver.wait(1200) == 0, (root.parent / "log").read_text()[-3000:]
    return root
