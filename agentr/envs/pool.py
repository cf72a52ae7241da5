"""The servers of one environment: which one a session goes to, and what happens to a request that fails."""

import asyncio
import inspect
import time
from collections import Counter, deque
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from pydantic import BaseModel

from agentr.backoff import Backoff
from agentr.envs.transport import Answer, EnvStats, RequestFailed, Transport
from agentr.errors import InfraError
from env_servers.protocol import CloseRequest, CloseResponse

Result = TypeVar("Result")
Urls = Callable[[], list[str] | Awaitable[list[str]]] | list[str]
#: For how long the list of servers is believed, and a server that did not answer is avoided.
SERVERS_TTL_S = 5.0
#: Most sessions in one close request.
CLOSE_BATCH = 5_000
#: Sessions that are not needed any more are closed after so many seconds, with all others of that time: a request for
#: each takes longer.
FREE_S = 0.2
#: Sessions dropped by the garbage collector that are closed together.
DROPPED_BATCH = 500
#: Pauses between attempts. A killed server is back after 1-3 s.
BACKOFF = Backoff(first_s=0.5, longest_s=10.0, jitter=0.5)


@dataclass(frozen=True)
class Remote:
    """A session on a server."""

    url: str
    id: str


class ServerPool:
    """Places sessions on servers, sends requests, and retries them. Belongs to the event loop that first uses it.

    Args:
        urls: Base URLs of servers of the same environment and options, or a (possibly async) function that says which
            are up now.
        transport: Sends the requests.
        stats: Counts what is done; shared with the transport.
        retries: Attempts after the first.
    """

    def __init__(self, urls: Urls, transport: Transport, stats: EnvStats, retries: int) -> None:
        self.stats = stats
        self.causes: Counter[str] = Counter()
        self._urls = urls
        self._transport = transport
        self._retries = retries
        self._servers: list[str] = []
        self._servers_until = 0.0
        self._down_until: dict[str, float] = {}
        self._turn = 0
        self._dropped: deque[Remote] = deque()
        self._closing: asyncio.Task[None] | None = None

    def drop(self, remote: Remote) -> None:
        """Notes a session that nobody can use any more. Called by the garbage collector, in any thread."""
        self._dropped.append(remote)

    def free(self, remotes: Sequence[Remote]) -> None:
        """Closes sessions soon, see ``close``."""
        self._dropped.extend(remotes)
        self._close_soon(FREE_S)

    def _close_soon(self, after_s: float) -> None:
        if self._dropped and (self._closing is None or self._closing.done()):
            self._closing = asyncio.create_task(self._close_dropped(after_s), name="closing sessions")

    async def _close_dropped(self, after_s: float) -> None:
        await asyncio.sleep(after_s)
        while self._dropped:
            await self.close(self._take_dropped())

    async def retry(self, what: str, call: Callable[[], Awaitable[Result]]) -> Result:
        """The result of ``call``, which is attempted again while it raises ``RequestFailed``.

        Args:
            what: Named in the error.

        Raises:
            InfraError: The last attempt failed too; names the server, the request and what was waited for.
        """
        if len(self._dropped) >= DROPPED_BATCH:
            self._close_soon(0.0)
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
                self.causes[failure.cause] += 1
                if failure.wait:
                    await asyncio.sleep(BACKOFF.pause_s(attempt))
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

    async def get(
        self, what: str, path: str, answer: type[Answer], timeout_s: float | None = None, **query: str
    ) -> Answer:
        """Answers a request that any server can answer, see `Transport.get`; retried as in ``retry``."""

        async def call() -> Answer:
            url = await self.place()
            try:
                return await self._transport.get(url, path, answer, timeout_s=timeout_s, **query)
            except RequestFailed as failure:
                self._note(url, failure)
                raise

        return await self.retry(what, call)

    async def close(self, remotes: Sequence[Remote]) -> None:
        """Frees sessions, as far as their servers can be reached: what is missed there expires."""
        by_url: dict[str, list[str]] = {}
        for remote in remotes:
            by_url.setdefault(remote.url, []).append(remote.id)
        for url, ids in by_url.items():
            for start in range(0, len(ids), CLOSE_BATCH):
                try:
                    await self.post(
                        url, "/v1/close", CloseRequest(sessions=ids[start : start + CLOSE_BATCH]), CloseResponse
                    )
                except (RequestFailed, InfraError):
                    break

    async def aclose(self) -> None:
        """Closes the dropped sessions, then the connections.
        Sessions that are still held stay open until they expire."""
        if self._closing is not None:
            await self._closing
        await self.close(self._take_dropped())
        await self._transport.close()

    def _take_dropped(self) -> list[Remote]:
        return [self._dropped.popleft() for _ in range(len(self._dropped))]

    def _note(self, url: str, failure: RequestFailed) -> None:
        if failure.server_down:
            self._down_until[url] = time.monotonic() + SERVERS_TTL_S
            self._servers_until = 0.0
