"""Fixtures that more than one package uses."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from agentr.envs.server import EnvServer

#: Most of ScienceWorld's time in tests is the start of its virtual machines, and half of that their optimising compiler.
os.environ.setdefault("JAVA_TOOL_OPTIONS", "-XX:TieredStopAtLevel=1")


@pytest.fixture(scope="session")
def ray_session() -> Iterator[None]:
    """A private Ray on this machine: 4 logical CPUs, no dashboard, no token (it is on loopback), its files in a short temporary path
    (Unix sockets allow 107 characters). Shared by all tests that need Ray here: a process can hold one.
    Name actors uniquely."""
    import ray

    saved = {key: os.environ.get(key) for key in ("RAY_AUTH_MODE", "RAY_raylet_start_wait_time_s")}
    os.environ.update(RAY_AUTH_MODE="disabled", RAY_raylet_start_wait_time_s="180")
    folder = tempfile.mkdtemp(prefix="r", dir="/tmp")
    ray.init(
        address="local",
        num_cpus=4,
        include_dashboard=False,
        log_to_driver=False,
        object_store_memory=100 * 2**20,
        _temp_dir=folder,
    )
    yield
    ray.shutdown()
    shutil.rmtree(folder, ignore_errors=True)
    for key, value in saved.items():
        if value is None:
            os.environ.pop(key, None)
        else:
            os.environ[key] = value


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EnvServer]:
    """A TextCraft server in a process of its own, with ``tests.players.OPTIONS`` and the token ``secret``."""
    from agentr.config.schema import EnvConfig
    from agentr.envs.server import EnvServer
    from tests.players import OPTIONS

    running = EnvServer(EnvConfig(options=OPTIONS), "secret", str(tmp_path_factory.mktemp("env") / "server.log"))
    yield running
    running.stop()


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """Real data sets beside the repository, which are not part of it; tests that need them are skipped where they are not there."""
    folder = Path(__file__).parents[2] / "shared" / "data"
    if not folder.is_dir():
        pytest.skip(f"the data sets of {folder} are not here")
    return folder


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--slow", action="store_true", help="also run the tests marked slow")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """The long ones last, so that what fails soon fails soon; in several processes (``-n``) first, so that all have work to the end."""
    for item in items:
        if item.get_closest_marker("slow") and not config.getoption("--slow"):
            item.add_marker(pytest.mark.skip(reason="slow: say --slow"))
    items.sort(key=_length, reverse="PYTEST_XDIST_WORKER" in os.environ)


def _length(item: pytest.Item) -> tuple[bool, bool, bool]:
    """Whether it kills whole runs, makes whole runs, or starts Ray, vLLM or DeepSpeed."""
    kind = item.path.parent.name
    return kind == "chaos", kind in ("jobs", "bench"), item.get_closest_marker("cluster") is not None
