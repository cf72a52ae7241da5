from __future__ import annotations

from collections.abc import Iterator

import pytest

from agentr.config.schema import EnvConfig
from agentr.envs.server import EnvServer
from tests.players import OPTIONS


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EnvServer]:
    """A TextCraft server in a process of its own."""
    running = EnvServer(EnvConfig(options=OPTIONS), "secret", str(tmp_path_factory.mktemp("env") / "server.log"))
    yield running
    running.stop()
