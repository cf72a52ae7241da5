"""Measures environments through HTTP, and the savings of a fork against AgentGym's design, a reset and a replay of
every action.

Each environment gets a server of its own, one after the other, so that their figures are independent.
"""

import asyncio
import random
import re
import statistics
import tempfile
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from agentr.config.schema import EnvConfig, TaskSelection
from agentr.envs.client import EnvClient, Session
from agentr.envs.server import EnvServer, new_token
from agentr.errors import ConfigError
from agentr.types import Task
from env_servers.protocol import ObservedState, SessionRequest

#: Depth at which forks and replays are timed (Agent-R's MAX_DEPTH).
DEPTH = 20
#: Children of an expansion (Agent-R's N_GEN).
CHILDREN = 4
#: Tasks that are tried for a play of the whole depth.
ATTEMPTS = 8


@dataclass(frozen=True)
class Effort:
    """Effort of a measurement: seconds of stepping for each number of sessions, repetitions of the rest, sessions held
    for memory."""

    seconds: float = 2.0
    repetitions: int = 15
    held: int = 500
    sessions: int = 32


QUICK = Effort(seconds=0.1, repetitions=3, held=50, sessions=4)


@dataclass(frozen=True)
class Figures:
    """The figures of one environment, through HTTP from one client process.

    Attributes:
        depth: Actions before the state at which forks and replays are timed: 20, or as many as a task allows.
        start_s: Seconds until the server listens.
        steps_per_s: Steps a second of one session.
        steps_per_s_many: Steps a second of `Effort.sessions` sessions at the same time.
        fork_ms, replay_ms: Milliseconds of a copy of the state at ``depth``, and of a reset with ``depth`` actions.
        session_kib: Resident memory of the server for each further session.
        steps_ratio: Environment steps that reset and replay take for the children of an expansion, over those that
            forks take.
        time_ratio: The same ratio of wall-clock time.
    """

    name: str
    depth: int
    start_s: float
    steps_per_s: float
    steps_per_s_many: float
    fork_ms: float
    replay_ms: float
    session_kib: float
    steps_ratio: float
    time_ratio: float


async def measure(name: str, options: Mapping[str, Any] | None = None, effort: Effort | None = None) -> Figures:
    """Measures one environment.

    Raises:
        InfraError: Its server did not start.
        ConfigError: No task of it lasts for two actions.
    """
    effort, token = effort or Effort(), new_token()
    started = time.perf_counter()
    with tempfile.TemporaryDirectory(prefix="agentr-bench-") as logs:
        config = EnvConfig(name=name, options=dict(options or {}))
        server = await asyncio.to_thread(EnvServer, config, token, str(Path(logs) / "server.log"))
        start_s = time.perf_counter() - started
        client = EnvClient([server.url()], token, timeout_s=120.0)
        try:
            return await _measure(name, client, server.status().pid, start_s, effort)
        finally:
            await client.aclose()
            await asyncio.to_thread(server.stop)


async def _measure(name: str, client: EnvClient, pid: int, start_s: float, effort: Effort) -> Figures:
    task, actions = await _long_play(client)
    one = await _steps_per_s(client, task, actions, 1, effort.seconds)
    many = await _steps_per_s(client, task, actions, effort.sessions, effort.seconds)
    session = await _played(client, task, actions)

    async def fork() -> None:
        await _fork(client, session)

    async def replay() -> None:
        await client.close_all([await _played(client, task, actions)])

    async def expand() -> None:
        await client.close_all(await session.expand(children))

    async def expand_by_replay() -> None:
        for action in children:
            again = await _played(client, task, actions)
            await client.close_all([await again.step(action)])

    children = (actions * CHILDREN)[:CHILDREN]
    fork_s, replay_s = await _median_s(fork, effort.repetitions), await _median_s(replay, effort.repetitions)
    forked_s = await _median_s(expand, effort.repetitions)
    replayed_s = await _median_s(expand_by_replay, max(3, effort.repetitions // 3))
    before = resident_kib(pid)
    for _ in range(effort.held):
        await _fork(client, session)
    grown = resident_kib(pid) - before
    return Figures(
        name=name,
        depth=len(actions),
        start_s=start_s,
        steps_per_s=one,
        steps_per_s_many=many,
        fork_ms=1000 * fork_s,
        replay_ms=1000 * replay_s,
        session_kib=grown / effort.held,
        steps_ratio=len(actions) + 1,
        time_ratio=replayed_s / forked_s,
    )


async def _long_play(client: EnvClient) -> tuple[Task, list[str]]:
    """Returns a task, and a longest found sequence of at most ``DEPTH`` actions that does not end it."""
    spec = await client.spec()
    best: tuple[Task, list[str]] | None = None
    for seed in range(ATTEMPTS):
        (task,) = await client.tasks(TaskSelection(split=next(iter(spec.splits)), limit=1, seed=seed))
        session, rng = await client.open(task), random.Random(seed)
        while len(session.history) < DEPTH:
            suggested = await session.suggestions() or ["look"]
            following = (await session.expand([rng.choice(suggested)]))[0]
            if following.last.done:
                break
            session = following
        actions = [recorded.action for recorded in session.history]
        if best is None or len(actions) > len(best[1]):
            best = task, actions
        if len(actions) == DEPTH:
            break
    assert best is not None
    if len(best[1]) < 2:
        raise ConfigError(f"none of {ATTEMPTS} tasks of {spec.name} lasts for two random actions")
    return best


async def _steps_per_s(client: EnvClient, task: Task, actions: list[str], sessions: int, seconds: float) -> float:
    """Measures steps a second, without resets."""
    stepped, spent = 0, 0.0
    while spent < seconds:
        opened = await asyncio.gather(*(client.open(task) for _ in range(sessions)))
        start = time.perf_counter()
        await asyncio.gather(*(_play(session, actions) for session in opened))
        spent += time.perf_counter() - start
        stepped += sessions * len(actions)
        await client.close_all(opened)
    return stepped / spent


async def _played(client: EnvClient, task: Task, actions: list[str]) -> Session:
    return await _play(await client.open(task), actions)


async def _play(session: Session, actions: list[str]) -> Session:
    for action in actions:
        await session.step(action)
    return session


async def _fork(client: EnvClient, session: Session) -> ObservedState:
    remote = await session.ready()
    return await client.pool.post(remote.url, "/v1/fork", SessionRequest(session=remote.id), ObservedState)


async def _median_s(call: Callable[[], Awaitable[None]], repetitions: int) -> float:
    taken = []
    for _ in range(repetitions):
        start = time.perf_counter()
        await call()
        taken.append(time.perf_counter() - start)
    return statistics.median(taken)


def resident_kib(pid: int) -> int:
    """Returns the resident memory of a process and of its children (a Java machine), from /proc; 0 without /proc."""
    folder = Path(f"/proc/{pid}")
    try:
        status = (folder / "status").read_text(encoding="utf-8")
        children = [
            int(child) for file in folder.glob("task/*/children") for child in file.read_text(encoding="utf-8").split()
        ]
    except OSError:
        return 0
    own = re.search(r"VmRSS:\s+(\d+)", status)  # one that has ended, and is not yet waited for, has none
    return (int(own[1]) if own else 0) + sum(map(resident_kib, children))
