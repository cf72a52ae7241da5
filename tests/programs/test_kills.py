"""An environment server that is killed in each part of a program's call, with its programs: the session goes on as
undisturbed."""

import asyncio
import contextlib
import json
import os
import signal
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from agentr.config.schema import EnvConfig, TaskSelection
from agentr.envs.client import EnvClient, Session
from agentr.envs.server import EnvServer
from agentr.errors import InfraError
from env_servers.sandbox import launch

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not launch.available(), reason="programs cannot be isolated here"),
]

#: Works a while before its first call, and after each answer; says where it is by a file in its folder.
AGENT = """
import json, os, time, urllib.request

def at(place):
    with open("new", "w") as file:
        file.write(place)
    os.rename("new", "place")

def work(place):
    at(place)
    time.sleep(0.4)

messages = [dict(role="user", content="Go.")]
work("before the first call")
for number in range(3):
    body = json.dumps(dict(model="m", messages=messages)).encode()
    headers = {"Authorization": "Bearer " + os.environ["OPENAI_API_KEY"]}
    request = urllib.request.Request(os.environ["OPENAI_BASE_URL"] + "/chat/completions", body, headers)
    at(f"asks {number}")
    answer = json.load(urllib.request.urlopen(request))["choices"][0]["message"]["content"]
    work(f"behind answer {number}")
    messages += [dict(role="assistant", content=answer), dict(role="user", content=f"{number}: {answer}?")]
work("at the end")
json.dump(1.0, open("reward.json", "w"))
"""
PLACES = ("before the first call", "asks 0", "behind answer 0", "asks 2", "behind answer 2", "at the end")
#: What is observed behind each answer.
UNDISTURBED = ["0: turn 0?", "1: turn 1?", ""]


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[EnvServer]:
    monkeypatch.setenv("TMPDIR", tempfile.mkdtemp())  # a socket's path is short
    (tmp_path / "agent.py").write_text(AGENT)
    (tmp_path / "train.jsonl").write_text(json.dumps({"id": "one"}))
    options = {"command": [sys.executable, str(tmp_path / "agent.py")]}
    options |= {"tasks": {"train": str(tmp_path / "train.jsonl")}}
    server = EnvServer(EnvConfig(name="program", options=options), "secret", str(tmp_path / "server.log"))
    yield server
    server.stop()
    deadline = time.monotonic() + 10
    while left := [*running(tmp_path / "agent.py"), *Path(os.environ["TMPDIR"]).glob("agentr-programs-*")]:
        assert time.monotonic() < deadline, f"programs of killed servers, or their folders, are left: {left}"
        time.sleep(0.1)


def running(program: Path) -> list[str]:
    found = []
    for line in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            found += [line.parent.name] if str(program).encode() in line.read_bytes().split(b"\0") else []
    return found


def reached(place: str) -> bool:
    files = Path(os.environ["TMPDIR"]).glob("agentr-programs-*/*/work/place")
    return any(file.read_text() == place for file in files)


async def played(env: EnvClient) -> Session:
    (task,) = await env.tasks(TaskSelection(split="train"))
    session = await env.open(task)
    for number in range(3):
        await asyncio.sleep(0.3)  # the policy draws
        session = await session.step(f"turn {number}")
    return session


@pytest.mark.parametrize("place", PLACES)
def test_a_killed_server_is_gone_on_from(server: EnvServer, place: str) -> None:
    async def strike() -> None:
        while not reached(place):
            await asyncio.sleep(0.02)
        os.kill(server.status().pid, signal.SIGKILL)

    known = [server.url()]

    async def urls() -> list[str]:
        with contextlib.suppress(InfraError):  # none listens now
            known[:] = [server.url()]
        return known

    async def main() -> None:
        env = EnvClient(urls, "secret", timeout_s=60, retries=6)
        try:
            session, _ = await asyncio.gather(played(env), strike())
            assert [recorded.observation for recorded in session.history] == UNDISTURBED
            assert session.last.done and session.last.reward == 1.0
        finally:
            await env.aclose()

    asyncio.run(asyncio.wait_for(main(), 100))
    assert server.status().restarts == 1
