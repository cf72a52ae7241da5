"""A small run as the pages see it, made without Ray: trees with revisions, their dataset, a training, two evaluations."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

from agentr.ui.library import Library
from agentr.ui.server import app
from tests.runs import small
from tests.support import tiny_model

ORIGIN = "http://127.0.0.1:8300"

Ask = Callable[..., Any]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run in a folder of runs; tests that change it take a copy."""
    folder = tmp_path_factory.mktemp("runs")
    small(folder / "first", tiny_model(tmp_path_factory.mktemp("model")))
    return folder


@pytest.fixture
def runs(made: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(made, tmp_path / "runs"))


@pytest.fixture
def ask(made: Path) -> Ask:
    """Asks the server of the unchanged run: ``ask("tree", stage=..., key=...)`` returns the answer."""
    return asking(made)


def asking(folder: Path, run: str = "first") -> Ask:
    client = TestClient(app(Library([folder]), "127.0.0.1", 8300), base_url=ORIGIN)

    def ask(name: str, status: int = 200, **query: Any) -> Any:
        response = client.get(f"/api/{name}", params={"run": run, **query})
        assert response.status_code == status, response.text
        return response.json()

    return ask
