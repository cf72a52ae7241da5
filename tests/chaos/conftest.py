"""What the chaos tests compare with: a run of online training that nobody disturbs, made once."""

from pathlib import Path

import pytest

from tests.chaos.online import started


@pytest.fixture(scope="session")
def undisturbed_online(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory of the run, finished."""
    root = tmp_path_factory.mktemp("undisturbed") / "undisturbed"
    assert started(root).wait(600) == 0, (root.parent / "log").read_text()[-3000:]
    return root
