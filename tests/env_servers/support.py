"""A small environment with every fault one can ask for, and servers on loopback."""

import asyncio
import contextlib
import itertools
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, cast

import httpx
import psutil
import uvicorn
from fastapi import FastAPI
from starlette.types import ASGIApp, Receive, Scope, Send

from env_servers.app import create_app
from env_servers.auth import error_response
from env_servers.base import Environment, ExpertStep, Observation, TaskInfo, Unavailable, UnknownTask
from env_servers.observation import CallStatus
from env_servers.protocol import TOKEN_ENV, EnvironmentSpec, ErrorBody
from env_servers.serving import listen
from env_servers.sessions import Limits

ROOT = Path(__file__).parents[2]
TOKEN = "secret-of-the-tests"


@dataclass
class Count:
    total: int = 0
    log: list[str] = field(default_factory=list)
    task: str = ""


class Counter(Environment[Count]):
    """Adds numbers.
    Actions: ``add N``, ``plus N`` (carried out as ``add N``), ``status S`` (comes out so), ``end``, ``grade N`` (ends
    with the score ``share`` N) and, for faults, ``boom``, ``sleep S``, ``nan``, ``exit``.

    Args:
        noisy: Each answer carries a number that no replay repeats.
        look_up_s: Seconds that a split or an expert takes.
        parallel: What its specification says of that.
    """

    def __init__(
        self,
        fast: bool = True,
        can_fork: bool = True,
        noisy: bool = False,
        die_at_start: bool = False,
        look_up_s: float = 0.0,
        parallel: int = 0,
    ) -> None:
        self.parallel = parallel
        self.look_up_s = look_up_s
        self.fast = fast
        self.can_fork = can_fork
        self.noise = itertools.count() if noisy else None
        self.closed: list[Count] = []
        self.refusals = 0  # steps that are answered with "try again later" before the next one is carried out
        if die_at_start:
            os._exit(7)

    @cached_property
    def spec(self) -> EnvironmentSpec:
        splits = {"train": {"about": "", "train": True}, "test": {"about": "", "train": False}}
        return EnvironmentSpec.model_validate(
            {
                "name": "counter",
                "title": "Counter",
                "version": "1",
                "instruction": "Count.",
                "splits": splits,
                "reward": {"low": 0.0, "high": 100.0},
                "can_fork": self.can_fork,
                "parallel": self.parallel,
            }
        )

    def split(self, name: str) -> list[TaskInfo]:
        if name not in self.spec.splits:
            raise UnknownTask(f"no split {name}")
        time.sleep(self.look_up_s)
        return [TaskInfo(f"{name}-{i}", {"size": i, "kind": "even" if i % 2 == 0 else "odd"}) for i in range(10)]

    def reset(self, task_id: str) -> tuple[Count, Observation]:
        if not task_id.startswith(("train-", "test-")):
            raise UnknownTask(f"no task {task_id}")
        return Count(), Observation(f"task {task_id}, total 0")

    def step(self, state: Count, action: str) -> Observation:
        if self.refusals:
            self.refusals -= 1
            raise Unavailable("the counter is at lunch", "Come back at one.")
        verb, _, value = action.partition(" ")
        state.log.append(action)
        executed = f"add {value}" if verb == "plus" else ""
        verb = "add" if executed else verb
        if verb == "boom":
            raise RuntimeError("boom")
        if verb == "exit":
            os._exit(7)
        if verb == "sleep":
            time.sleep(float(value))
        if verb == "nan":
            return Observation("nan", reward=float("nan"))
        if verb == "end":
            return Observation(f"total {state.total}", reward=float(state.total), done=True)
        if verb == "grade":
            return Observation("graded", reward=float(state.total), done=True, scores={"share": float(value)})
        if verb == "status":
            return Observation(f"came out {value}", status=cast(CallStatus, value))
        if verb == "add":
            state.total += int(value)
        noise = "" if self.noise is None else f" #{next(self.noise)}"
        return Observation(f"total {state.total}{noise}", valid=verb in ("add", "sleep"), executed=executed)

    def snapshot(self, state: Count) -> dict[str, Any]:
        return {"total": state.total, "log": list(state.log)}

    def restore(self, data: dict[str, Any]) -> Count:
        if not isinstance(data.get("total"), int):
            raise ValueError("no total")
        return Count(data["total"], list(data.get("log", [])))

    def close(self, state: Count) -> None:
        self.closed.append(state)

    def expert(self, task_id: str) -> list[ExpertStep] | None:
        time.sleep(self.look_up_s)
        return [ExpertStep("It is enough.", "end")] if self.look_up_s else None


class Faulty:
    """ASGI middleware that spoils the next requests to a path: ``error`` (500 before the call), ``hang``, ``drop``
    (carried out, but the connection ends without an answer), ``junk`` (an answer that is none)."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app
        self.plan: dict[str, list[str]] = {}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        faults = self.plan.get(scope.get("path", ""), [])
        fault = faults.pop(0) if faults else ""
        if fault == "error":
            await error_response(500, ErrorBody(error="spoiled"))(scope, receive, send)
        elif fault == "busy":
            await error_response(503, ErrorBody(error="busy"))(scope, receive, send)
        elif fault == "junk":
            await error_response(200, ErrorBody(error="this is no answer"))(scope, receive, send)
        elif fault == "hang":
            await asyncio.sleep(30)
        elif fault == "drop":

            async def nothing(message: Any) -> None:
                pass

            await self.app(scope, receive, nothing)
            # Without a word the server would answer 500 in the application's place; a promise that is not kept ends the
            # connection.
            await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"100")]})
        else:
            await self.app(scope, receive, send)


@contextlib.contextmanager
def serving(app: FastAPI) -> Iterator[str]:
    """The URL of an app in a thread of this process."""
    listener = listen("127.0.0.1", 0)
    server = uvicorn.Server(uvicorn.Config(app, log_level="critical", access_log=False, timeout_graceful_shutdown=1))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, daemon=True)
    thread.start()
    wait_until(lambda: server.started, "the server to listen")
    try:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join(5)


@contextlib.contextmanager
def counter_server(environment: Counter | None = None, **limits: Any) -> Iterator[httpx.Client]:
    """A client of a server of ``Counter`` with the right token."""
    app = create_app(environment or Counter(), token=TOKEN, limits=Limits(**limits))
    with serving(app) as url, http_client(url) as client:
        yield client


def http_client(url: str, token: str | None = TOKEN) -> httpx.Client:
    headers = {} if token is None else {"Authorization": f"Bearer {token}"}
    return httpx.Client(base_url=url, headers=headers, timeout=20, trust_env=False)


@contextlib.contextmanager
def child_server(
    *arguments: str, token: str | None = TOKEN, hash_seed: str = "0"
) -> Iterator[tuple[str, subprocess.Popen]]:
    """``python -m env_servers serve ..``: its URL and its process."""
    environ = {**os.environ, "PYTHONHASHSEED": hash_seed, "PYTHONPATH": str(ROOT)}
    environ.pop(TOKEN_ENV, None)
    if token is not None:
        environ[TOKEN_ENV] = token
    command = [sys.executable, "-m", "env_servers", "serve", *arguments]
    child = subprocess.Popen(command, env=environ, stdout=subprocess.PIPE, cwd=ROOT)
    try:
        assert child.stdout is not None
        line = json.loads(child.stdout.readline())
        assert line["pid"] == child.pid
        yield line["url"], child
    finally:
        child.kill()
        child.wait()


def wait_until(ready: Any, what: str, timeout_s: float = 15.0) -> None:
    deadline = time.monotonic() + timeout_s
    while not ready():
        assert time.monotonic() < deadline, f"waited {timeout_s} s for {what}"
        time.sleep(0.01)


def running(pid: int) -> bool:
    """Returns whether a process runs; one that has ended and that nobody waited for does not."""
    try:
        return psutil.Process(pid).status() not in (psutil.STATUS_ZOMBIE, psutil.STATUS_DEAD)
    except psutil.NoSuchProcess:
        return False
