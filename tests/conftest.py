"""Fixtures that more than one package uses."""

from __future__ import annotations

import contextlib
import os
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, settings

from tests.support import own_ray

if TYPE_CHECKING:
    from agentr.envs.server import EnvServer

# The same examples every time, and nothing that a busy machine could fail.
settings.register_profile("agentr", derandomize=True, deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("agentr")

#: Seconds of the processor from which a test is slow. Not of the clock, which says more about what else runs.
SLOW_S = 2.0

#: Most of ScienceWorld's time in tests is the start of its virtual machines, and half of that their optimising
#: compiler.
os.environ.setdefault("JAVA_TOOL_OPTIONS", "-XX:TieredStopAtLevel=1")


@pytest.fixture(scope="session", autouse=True)
def _state(tmp_path_factory: pytest.TempPathFactory) -> None:
    """The user's own state folder learns nothing of tests."""
    os.environ["XDG_STATE_HOME"] = str(tmp_path_factory.mktemp("state"))


@pytest.fixture(scope="session")
def ray_session() -> Iterator[None]:
    """`own_ray`, shared by all tests that need Ray here: a process can hold one. Name actors uniquely."""
    with own_ray():
        yield


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EnvServer]:
    """A TextCraft server in a process of its own, with ``tests.players.OPTIONS`` and the token ``secret``."""
    from agentr.config.schema import EnvConfig
    from agentr.envs.server import EnvServer
    from tests.players import OPTIONS

    running = EnvServer(EnvConfig(options=OPTIONS), "secret", str(tmp_path_factory.mktemp("env") / "server.log"))
    yield running
    running.stop()


@pytest.fixture(scope="session")
def process_group() -> Iterator[None]:
    """A group of one. It stays for the session, because DeepSpeed keeps hold of the first group that it meets."""
    import torch.distributed as dist

    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    yield
    dist.destroy_process_group()


@pytest.fixture(scope="module")
def one_process(process_group: None) -> Iterator[None]:
    """Makes this process a worker group of one, without Ray."""
    import torch

    from agentr.train.worker import prepare_process

    before, threads = dict(os.environ), torch.get_num_threads()
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    os.environ.update(
        RANK="0", WORLD_SIZE="1", LOCAL_RANK="0", LOCAL_WORLD_SIZE="1", MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port)
    )
    prepare_process(use_gpu=False, threads=1)
    yield
    torch.set_num_threads(threads)
    os.environ.clear()
    os.environ.update(before)


@pytest.fixture(scope="session")
def start(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The checkpoint that trainings start from: a random model of two layers."""
    from tests.support import tiny_model

    return tiny_model(tmp_path_factory.mktemp("start") / "model")


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """Real data sets beside the repository, which are not part of it; tests that need them are skipped where they are
    not there."""
    folder = Path(__file__).parents[2] / "shared" / "data"
    if not folder.is_dir():
        pytest.skip(f"the data sets of {folder} are not here")
    return folder


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--by-hand", action="store_true", help="also run the tests marked by_hand")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Iterator[None]:
    before = _processor_s()
    try:
        return (yield)
    finally:
        item.user_properties.append(("processor_s", _processor_s() - before))


def _processor_s() -> float:
    """Seconds that this process and all below it have had of the processor, those included that have ended."""
    ticks, processes = 0, [str(os.getpid())]
    while processes:
        place = Path("/proc") / processes.pop()
        with contextlib.suppress(OSError):  # it has ended by now
            ticks += sum(int(field) for field in (place / "stat").read_text().rpartition(")")[2].split()[11:15])
            for task in (place / "task").iterdir():
                processes += (task / "children").read_text().split()
    return ticks / os.sysconf("SC_CLK_TCK")


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Says which tests have become slow and are not marked so.
    It only says it: a test must not fail by the machine that it runs on."""
    for report in terminalreporter.getreports("passed"):
        seconds = dict(report.user_properties).get("processor_s", 0.0)
        if seconds > SLOW_S and not {"slow", "cluster", "chaos"} & set(report.keywords):
            terminalreporter.write_line(
                f"{report.nodeid} took {seconds:.1f} s of the processor: make it faster, or mark it slow"
            )


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """The long ones last, so that what fails soon fails soon; in several processes (``-n``) first, so that all have
    work to the end."""
    for item in items:
        if item.get_closest_marker("by_hand") and not config.getoption("--by-hand"):
            item.add_marker(pytest.mark.skip(reason="minutes long: say --by-hand"))
    items.sort(key=_length, reverse="PYTEST_XDIST_WORKER" in os.environ)


def _length(item: pytest.Item) -> tuple[bool, bool, bool]:
    """Whether it kills whole runs, makes whole runs (or installs other libraries), or starts Ray, vLLM or DeepSpeed."""
    kind, file = item.path.parent.name, item.path.name
    long = kind in ("jobs", "bench") or file == "test_agents.py"
    return kind == "chaos", long, item.get_closest_marker("cluster") is not None
