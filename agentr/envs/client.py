"""The client of the environment servers: tasks, experts and sessions, over any number of servers of one environment."""

from __future__ import annotations

import asyncio
import inspect
import time
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

from pydantic import BaseModel

from agentr.config.schema import TaskSelection
from agentr.envs.selection import select
from agentr.envs.session import Recorded, Remote, Session
from agentr.envs.transport import Answer, EnvStats, RequestFailed, Transport, back_off
from agentr.errors import ConfigError, InfraError
from agentr.types import Task
from env_servers.protocol import EXPERT_TIMEOUT_S, CloseRequest, CloseResponse, EnvironmentSpec, ExpertResponse, SplitResponse

__all__ = ["EnvClient", "EnvStats", "Recorded", "Session"]

Result = TypeVar("Result")
Urls = Callable[[], list[str] | Awaitable[list[str]]] | list[str]
#: For how long the list of servers is believed, and a server that did not answer is avoided.
SERVERS_TTL_S = 5.0
#: Most sessions in one close request.
CLOSE_BATCH = 5_000
#: Dropped sessions that are closed together.
DROPPED_BATCH = 500


class EnvClient:
    """Access to one environment. One for each process and event loop; safe for any number of coroutines.

    Sessions are placed on the servers in turn. A session stays where it was opened, and so do its forks; when its server dies
    it is rebuilt on another one.

    Args:
        urls: Base URLs of servers of the same environment and options, or a (possibly async) function that says which are up now.
        token: Bearer token of the servers; empty for none.
        timeout_s: Deadline of one request.
        expert_timeout_s: Deadline of a request for a split or an expert. The default is a little more than a server's own deadline, so
            that it is the server that says what took so long.
        retries: Attempts after the first. With waits of about 0.5, 1, 2, .. s between them, 4 outlast the restart of a server.
        transport: Makes what speaks to the servers, from token, deadline and counters; another one for another protocol.
    """

    def __init__(
        self,
        urls: Urls,
        token: str,
        *,
        timeout_s: float = 30.0,
        expert_timeout_s: float = EXPERT_TIMEOUT_S + 10.0,
        retries: int = 4,
        transport: Callable[[str, float, EnvStats], Transport] = Transport,
    ) -> None:
        self.stats = EnvStats()
        self._urls = urls
        self._transport = transport(token, timeout_s, self.stats)
        self._expert_timeout_s = expert_timeout_s
        self._retries = retries
        self._spec: EnvironmentSpec | None = None
        self._splits: dict[str, list[Task]] = {}
        self._servers: list[str] = []
        self._servers_until = 0.0
        self._down_until: dict[str, float] = {}
        self._turn = 0
        self._dropped: deque[Remote] = deque()
        self._closing: asyncio.Task[None] | None = None

    async def spec(self) -> EnvironmentSpec:
        """What the environment publishes about itself; asked for once.

        Raises:
            InfraError: No server answered, or it refused the token.
        """
        if self._spec is None:
            self._spec = await self._get("the specification", "/v1/spec", EnvironmentSpec)
            if self._spec.reward.high <= self._spec.reward.low:
                reward = self._spec.reward
                raise ConfigError(f"the reward scale of {self._spec.name} is empty: {reward.low} to {reward.high}")
        return self._spec

    async def tasks(self, selection: TaskSelection) -> list[Task]:
        """The tasks of a split that pass the selection's filters, in its seeded order, up to its limit.

        Raises:
            ConfigError: Unknown split or label, or filters that no task passes.
            InfraError: No server answered.
        """
        return select(await self._split(selection.split), selection)

    async def held_out(self) -> dict[str, str]:
        """Every task id of the splits that are not for training, with the name of its split: for `splits.assert_trainable`."""
        spec = await self.spec()
        names = [name for name, split in spec.splits.items() if not split.train]
        return {task.id: name for name in names for task in await self._split(name)}

    async def expert(self, task: Task) -> list[tuple[str, str]] | None:
        """A demonstration as pairs of thought and action, or None where the environment has no expert for the task.

        Raises:
            ConfigError: The environment has no such task.
            InfraError: No server answered, or the expert took longer than the server's deadline.
        """
        what = f"the expert for task {task.id!r}"
        answer = await self._get(what, "/v1/expert", ExpertResponse, self._expert_timeout_s, task=task.id)
        return answer.steps

    async def open(self, task: Task, actions: Sequence[Recorded] = (), *, opening: str | None = None) -> Session:
        """A session of the task, after the recorded actions if there are any.

        Args:
            actions: Played one after the other; each must give the recorded observation.
            opening: The first observation of the task, if it was recorded too.

        Raises:
            ConfigError: The environment has no such task.
            InfraError: No server answered, or an observation was not the recorded one; names the task, the step and both texts.
        """
        session = Session(self, await self.spec(), task, tuple(actions), opening=opening)
        await self.retry(f"opening task {task.id!r}", session.ready)
        return session

    async def close_all(self, sessions: Sequence[Session]) -> None:
        """Frees the servers' side of the sessions, as far as the servers can be reached: what is missed there expires.

        Sessions that are garbage-collected unclosed are closed too, some hundreds at a time.
        """
        await self._close([remote for session in sessions if (remote := session.detach()) is not None])

    async def aclose(self) -> None:
        """Closes the dropped sessions, then the connections. Sessions that are still held stay open until they expire."""
        if self._closing is not None:
            await self._closing
        await self._close(self._take_dropped())
        await self._transport.close()

    # for sessions -----------------------------------------------------------------------------------------------------

    def drop(self, remote: Remote) -> None:
        """Notes a session that nobody can use any more. Called by the garbage collector, in any thread."""
        self._dropped.append(remote)

    async def retry(self, what: str, call: Callable[[], Awaitable[Result]]) -> Result:
        """The result of ``call``, which is attempted again while it raises ``RequestFailed``.

        Args:
            what: Named in the error.

        Raises:
            InfraError: The last attempt failed too; names the server, the request and what was waited for.
        """
        if len(self._dropped) >= DROPPED_BATCH and (self._closing is None or self._closing.done()):
            self._closing = asyncio.create_task(self._close(self._take_dropped()))
        for attempt in range(self._retries + 1):
            try:
                return await call()
            except RequestFailed as failure:
                if attempt == self._retries:
                    raise InfraError(
                        f"{what} failed {attempt + 1} times, at last with: {failure}",
                        hint="See the log of the environment server.",
                    ) from failure
                self.stats.retries += 1
                if failure.wait:
                    await back_off(attempt)
        raise AssertionError("the last attempt returns or raises")

    async def post(self, url: str, path: str, body: BaseModel, answer: type[Answer]) -> Answer:
        """One attempt at a request, see `Transport.post`; a server that does not answer is avoided for a while."""
        try:
            return await self._transport.post(url, path, body, answer)
        except RequestFailed as failure:
            self._note(url, failure)
            raise

    async def place(self) -> str:
        """The server for the next session.

        Raises:
            RequestFailed: No server is up now.
        """
        now = time.monotonic()
        if now >= self._servers_until:
            found = self._urls() if callable(self._urls) else self._urls
            self._servers = [url.rstrip("/") for url in (await found if inspect.isawaitable(found) else found)]
            self._servers_until = time.monotonic() + SERVERS_TTL_S
        if not self._servers:
            self._servers_until = 0.0
            raise RequestFailed("no environment server is up")
        up = [url for url in self._servers if self._down_until.get(url, 0.0) <= now] or self._servers
        self._turn += 1
        return up[self._turn % len(up)]

    # ------------------------------------------------------------------------------------------------------------------

    async def _close(self, remotes: Sequence[Remote]) -> None:
        by_url: dict[str, list[str]] = {}
        for remote in remotes:
            by_url.setdefault(remote.url, []).append(remote.id)
        for url, ids in by_url.items():
            for start in range(0, len(ids), CLOSE_BATCH):
                try:
                    await self.post(url, "/v1/close", CloseRequest(sessions=ids[start : start + CLOSE_BATCH]), CloseResponse)
                except (RequestFailed, InfraError):
                    break

    def _take_dropped(self) -> list[Remote]:
        return [self._dropped.popleft() for _ in range(len(self._dropped))]

    def _note(self, url: str, failure: RequestFailed) -> None:
        if failure.server_down:
            self._down_until[url] = time.monotonic() + SERVERS_TTL_S
            self._servers_until = 0.0

    async def _get(self, what: str, path: str, answer: type[Answer], timeout_s: float | None = None, **query: str) -> Answer:
        async def call() -> Answer:
            url = await self.place()
            try:
                return await self._transport.get(url, path, answer, timeout_s=timeout_s, **query)
            except RequestFailed as failure:
                self._note(url, failure)
                raise

        return await self.retry(what, call)

    async def _split(self, name: str) -> list[Task]:
        spec = await self.spec()
        if name not in spec.splits:
            raise ConfigError(f"{spec.name} has no split {name!r}", hint=f"It has: {', '.join(spec.splits)}.")
        if name not in self._splits:
            listed = await self._get(f"split {name!r}", f"/v1/splits/{name}", SplitResponse, self._expert_timeout_s)
            self._splits[name] = [Task(spec.name, entry.id, name, dict(entry.labels)) for entry in listed.tasks]
        return self._splits[name]
