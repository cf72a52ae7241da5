"""The supervisor of a server process: restarts, hangs, giving up, and no orphans."""

import asyncio
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from agentr.backoff import Backoff
from agentr.config.schema import EnvConfig
from agentr.envs.client import EnvClient
from agentr.envs.fleet import EnvServers
from agentr.envs.server import EnvServer, ServerState, Supervision
from agentr.errors import InfraError
from agentr.types import Task
from tests.env_servers.support import ROOT, TOKEN, http_client, running, wait_until

COUNTER = EnvConfig(name="tests.env_servers.support:Counter")
# Many strikes: on a busy machine a child that is well misses some of such quick looks.
QUICK = Supervision(
    start_timeout_s=20, poll_s=0.15, strikes=12, max_restarts=2, window_s=60, backoff=Backoff(first_s=0.01)
)


@pytest.fixture
def log(tmp_path: Path) -> str:
    return str(tmp_path / "logs" / "env-server-0.log")


def up(server: EnvServer, restarts: int | None = None) -> bool:
    status = server.status()
    return status.state is ServerState.UP and restarts in (None, status.restarts)


@pytest.mark.slow
def test_a_dead_child_is_replaced_and_then_given_up(log: str):
    server = EnvServer(COUNTER, TOKEN, log, supervision=QUICK)
    try:
        epochs = []
        for restarts in range(QUICK.max_restarts + 1):
            wait_until(lambda n=restarts: up(server, n), "the server to be back")
            status = server.status()
            epochs.append(status.epoch)
            with http_client(server.url()) as client:
                assert client.get("/health").json()["epoch"] == status.epoch
                assert client.get("/v1/spec").json()["name"] == "counter"
            os.kill(status.pid, signal.SIGKILL)
        assert len(set(epochs)) == 3
        wait_until(lambda: server.status().state is ServerState.FAILED, "the supervisor to give up")
        with pytest.raises(InfraError, match=r"given up after 2 restarts within 60 s, at last: .*status -9"):
            server.url()
    finally:
        server.stop()


def test_a_child_that_hangs_is_killed_and_replaced(log: str):
    server = EnvServer(COUNTER, TOKEN, log, supervision=QUICK)
    try:
        first = server.status().pid
        os.kill(first, signal.SIGSTOP)
        wait_until(lambda: up(server, 1), "the replacement")
        assert server.status().pid != first and not running(first)
        assert "looks at http" in server.status().error
    finally:
        server.stop()
    assert server.status().state is ServerState.STOPPED and not running(server.status().pid)


@pytest.mark.parametrize(
    ("config", "reason"),
    [
        (EnvConfig(name="textcraft", options={"colour": "red"}), "status 2.*no option colour"),
        (EnvConfig(name="tests.env_servers.support:Counter", options={"die_at_start": True}), "status 7"),
    ],
)
def test_a_child_that_cannot_start_is_an_error_with_its_log(config: EnvConfig, reason: str, log: str):
    with pytest.raises(InfraError, match=f"(?s){reason}"):
        EnvServer(config, TOKEN, log, supervision=QUICK)


@pytest.mark.parametrize("kills", [1, QUICK.max_restarts + 1])
def test_a_child_that_is_killed_while_it_starts_is_started_again_within_the_budget(
    kills: int, tmp_path: Path, log: str
):
    python, starts = tmp_path / "python", tmp_path / "starts"
    count = f"echo >> {starts}; [ $(wc -l < {starts}) -le {kills} ] && kill -9 $$"
    python.write_text(f'#!/bin/sh\n{count}\nPYTHONPATH={ROOT} exec {sys.executable} "$@"\n')
    python.chmod(0o755)
    config = EnvConfig(name=COUNTER.name, python=str(python))
    if kills > QUICK.max_restarts:
        with pytest.raises(InfraError, match=r"given up after 2 restarts within 60 s, at last: .*status -9"):
            EnvServer(config, TOKEN, log, supervision=QUICK)
        return
    server = EnvServer(config, TOKEN, log, supervision=QUICK)
    try:
        assert up(server, kills)
    finally:
        server.stop()


def test_a_child_that_never_listens_is_given_up(log: str):
    config = EnvConfig(name="textcraft", python="/bin/sleep-not-there")
    with pytest.raises(InfraError, match="cannot be started"):
        EnvServer(config, TOKEN, log, supervision=QUICK)


@pytest.mark.skipif(sys.platform != "linux", reason="needs prctl")
def test_the_child_dies_with_a_killed_supervisor(log: str):
    script = (
        "import sys, time\n"
        "from agentr.config.schema import EnvConfig\n"
        "from agentr.envs.server import EnvServer\n"
        "server = EnvServer(EnvConfig(), 'token', sys.argv[1])\n"
        "print(server.status().pid, flush=True); time.sleep(60)\n"
    )
    parent = subprocess.Popen(
        [sys.executable, "-c", script, log],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        text=True,
    )
    assert parent.stdout is not None
    child = int(parent.stdout.readline())
    assert running(child)
    assert "token" not in Path(f"/proc/{child}/cmdline").read_text().replace("\0", " ")
    parent.kill()
    parent.wait()
    wait_until(lambda: not running(child), "the server to die")


@pytest.mark.slow
def test_a_client_plays_on_while_a_server_is_replaced(log: str):
    server = EnvServer(COUNTER, TOKEN, log, supervision=QUICK)

    def urls() -> list[str]:
        return [server.url()] if up(server) else []

    async def main() -> None:
        client = EnvClient(urls, TOKEN, retries=8)  # a server is a new process, which takes its time on a busy machine
        session = await client.open(Task("counter", "train-0", "train"))
        for total in range(1, 7):
            if total in (3, 5):
                os.kill(server.status().pid, signal.SIGKILL)
            assert (await session.step("add 1")).last.observation == f"total {total}"
        assert client.stats.replays == 2 and client.stats.replayed_steps == 2 + 4
        await client.aclose()

    try:
        asyncio.run(main())
    finally:
        server.stop()


@pytest.mark.cluster
def test_a_fleet_of_actors(tmp_path: Path, ray_session: None):
    import ray

    async def main() -> list[int]:
        config = EnvConfig(name="textcraft", options={"distractors": 3}, servers=2)
        servers = await EnvServers.start(config, str(tmp_path), supervision=Supervision(poll_s=0.3))
        elsewhere = ray.get(ray.put(servers))
        client = EnvClient(elsewhere.urls, elsewhere.token)
        before = await servers.status()
        sessions = [await client.open(Task("textcraft", "stick@0", "train")) for _ in range(4)]
        for status in before:
            os.kill(status.pid, signal.SIGKILL)
        children = await asyncio.gather(*(session.expand(["get 2 bamboo"]) for session in sessions))
        assert all(child.last.observation == "Got 2 bamboo" for [child] in children)
        gone = {status.epoch for status in before}
        for _ in range(200):  # a server that no session came to again is missed by its supervisor alone
            after = await servers.status()
            if not gone & {status.epoch for status in after}:
                break
            await asyncio.sleep(0.1)
        assert not gone & {status.epoch for status in after}
        os.kill(after[0].pid, signal.SIGKILL)
        ray.kill(servers.actors[0])
        wait_until(lambda: not running(after[0].pid), "the child of the killed actor to be gone")
        assert await servers.urls() == [after[1].url]
        await client.aclose()
        await servers.stop()
        with pytest.raises(InfraError, match="no environment server is left"):
            await servers.urls()
        return [status.pid for status in after]

    for pid in asyncio.run(main()):
        wait_until(lambda p=pid: not running(p), "the servers to end")


def test_a_supervisor_reports_what_its_server_counts(log: str):
    server = EnvServer(COUNTER, TOKEN, log, supervision=QUICK, number=3)

    def said() -> dict[tuple[str, ...], float]:
        return {
            (sample.metric.name.removeprefix("agentr_"), *sample.labels.values()): sample.value
            for sample in server._samples()
        }

    async def play() -> None:
        client = EnvClient([server.url()], TOKEN)
        session = await client.open(Task("counter", "train-0", "train"))
        await session.expand(["add 1", "add 2"])
        await client.aclose()

    try:
        assert said()["env_sessions",] == 0
        asyncio.run(play())
        now = said()
        assert now["env_server_up",] == 1 and now["restarts",] == now["restarts", "supervisor-3"] == 0
        assert now["env_steps_total",] == now["env_step_seconds_bucket_total", "+Inf"] == 2
        assert now["env_sessions",] >= 1 and now["env_sessions_opened_total",] >= 3
        assert now["env_requests_total", "200"] >= 3 and now["env_sessions_ended_total", "lost"] == 0
        os.kill(server.status().pid, signal.SIGKILL)
        wait_until(lambda: up(server, 1), "the server to be back")
        assert said()["restarts",] == 1
        os.kill(server.status().pid, signal.SIGSTOP)
        now = said()
        assert now["env_server_up",] == 0 and ("env_sessions",) not in now
    finally:
        server.stop()
