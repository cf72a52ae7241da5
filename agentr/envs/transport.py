"""One HTTP request to an environment server, and what its failure means for the session.

aiohttp and not httpx: with 64 requests in flight it measured 560-950 requests/s against 58-76.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from typing import Any, TypeVar

import aiohttp
from aiohttp.http_exceptions import HttpProcessingError
from pydantic import BaseModel, ValidationError

from agentr.errors import ConfigError, InfraError
from agentr.foreign import MOST_BYTES, Unreadable
from agentr.secrets import Secret, SecretKind, quoted
from env_servers.protocol import TOKEN_ENV, ErrorBody

Answer = TypeVar("Answer", bound=BaseModel)
Made = TypeVar("Made")
#: Most requests at a server at the same time, unless its specification says a smaller number. Others wait, before their
#: deadline begins: an event loop with thousands of them comes seconds late to each, and a server with thousands to
#: answer does not answer its supervisor.
AT_A_SERVER = 128


@dataclass
class EnvStats:
    """Counters of a client since its start.

    Attributes:
        opens: Sessions opened, those for replays included.
        steps: Actions that a server carried out: new ones, and ``replayed_steps``.
        forks: Children that cost a fork.
        replays: Times that a session was rebuilt from its history.
        seconds: Time spent waiting for answers, summed over requests.
    """

    requests: int = 0
    retries: int = 0
    opens: int = 0
    steps: int = 0
    forks: int = 0
    replays: int = 0
    replayed_steps: int = 0
    seconds: float = 0.0

    def __add__(self, other: EnvStats) -> EnvStats:
        return EnvStats(*(a + b for a, b in zip(vars(self).values(), vars(other).values(), strict=True)))

    def __sub__(self, other: EnvStats) -> EnvStats:
        return EnvStats(*(a - b for a, b in zip(vars(self).values(), vars(other).values(), strict=True)))


class RequestFailed(Exception):
    """A request had no useful answer; it may be tried again.

    Attributes:
        session_lost: The session named in the request is gone or cannot be trusted.
        server_down: Nobody answered; prefer another server for a while.
        wait: Whether to wait before the next attempt.
    """

    def __init__(
        self, message: str, *, session_lost: bool = False, server_down: bool = False, wait: bool = True
    ) -> None:
        super().__init__(message)
        self.session_lost = session_lost
        self.server_down = server_down
        self.wait = wait

    @property
    def cause(self) -> str:
        """What it is counted under."""
        return "server_down" if self.server_down else "session_lost" if self.session_lost else "server_busy"


class UnknownOnServer(ConfigError):
    """The server has no such task or split."""


def reading(what: str, answer: object, make: Callable[[], Made]) -> Made:
    """Makes one of ours of a stranger's answer. Whatever is wrong with it becomes an error that says it.

    Raises:
        RequestFailed: It cannot be read; the session cannot be trusted.
    """
    try:
        return make()
    except Unreadable as error:
        why = str(error)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        why = f"{'.'.join(map(str, first['loc']))}: {first['msg']}: {quoted(answer, 200)}"
    except (LookupError, TypeError, ValueError, AttributeError, ArithmeticError) as error:
        why = f"{type(error).__name__}: {quoted(error, 120)}: {quoted(answer, 200)}"
    raise RequestFailed(f"the answer to {what} cannot be read: {why}", session_lost=True)


class Transport:
    """Sends requests. Belongs to the event loop that first uses it.

    Args:
        token: Bearer token; empty for a server without one.
        timeout_s: Deadline of one request.

    Attributes:
        parallel: Most requests about sessions at a server at the same time, as `EnvironmentSpec.parallel` says; 0 for
            no such limit. Experts and splits are worked on beside them.
    """

    def __init__(self, token: str | Secret, timeout_s: float, stats: EnvStats) -> None:
        self._headers = Secret(SecretKind.ENVIRONMENT, TOKEN_ENV, token).bearer()
        self._timeout_s = timeout_s
        self._stats = stats
        self._http: aiohttp.ClientSession | None = None
        self.parallel = 0
        self._room: dict[tuple[str, str], asyncio.Semaphore] = {}
        self._silent_at: dict[str, float] = {}

    async def get(
        self, url: str, path: str, answer: type[Answer], *, timeout_s: float | None = None, **query: str
    ) -> Answer:
        """As ``post``, for what needs no body.

        Args:
            timeout_s: Deadline of this request, in place of the usual one.
        """
        return await self._request("GET", url, path, answer, timeout_s=timeout_s, params=query)

    async def post(self, url: str, path: str, body: BaseModel, answer: type[Answer]) -> Answer:
        """The answer of ``url`` + ``path``.

        Raises:
            RequestFailed: Trying again may help.
            UnknownOnServer: There is no such task or split.
            InfraError: The server refuses the request for good: wrong token, or a request that it does not understand.
        """
        return await self._request("POST", url, path, answer, data=body.model_dump_json())

    async def close(self) -> None:
        if self._http is not None:
            await self._http.close()

    async def _request(self, method: str, url: str, path: str, answer: type[Answer], **content: Any) -> Answer:
        status, data = await self.exchange(method, url, path, **content)
        what = f"{method} {url}{path}"
        if status != 200:
            raise _failure(what, status, data, path)
        return reading(f"{what}, which should be {answer.__name__},", data, lambda: answer.model_validate_json(data))

    async def exchange(
        self, method: str, url: str, path: str, *, timeout_s: float | None = None, **content: Any
    ) -> tuple[int, bytes]:
        """Status and body of the answer to one request, whatever they are.

        Args:
            timeout_s: Deadline of this request, in place of the usual one.

        Raises:
            RequestFailed: There was no answer.
        """
        deadline_s = timeout_s or self._timeout_s
        async with self._asked(method, url, f"{method} {url}{path}", deadline_s) as http:
            timeout = aiohttp.ClientTimeout(total=deadline_s)
            async with http.request(
                method, f"{url}{path}", allow_redirects=False, timeout=timeout, **content
            ) as response:
                data = await response.content.read(MOST_BYTES + 1)
                while len(data) <= MOST_BYTES and (more := await response.content.read(MOST_BYTES + 1 - len(data))):
                    data += more
                if len(data) > MOST_BYTES:
                    raise RequestFailed(
                        f"{method} {url}{path}: an answer of more than {MOST_BYTES >> 20} MiB", session_lost=True
                    )
                return response.status, data

    @contextlib.asynccontextmanager
    async def _asked(self, method: str, url: str, what: str, deadline_s: float) -> AsyncIterator[aiohttp.ClientSession]:
        """Room at a server for one request, which is counted; what becomes of it is a `RequestFailed` that says
        ``what`` was asked."""
        if self._http is None:
            # A limit of the connector's own would hide a request's wait inside its deadline.
            connector = aiohttp.TCPConnector(limit=0, keepalive_timeout=30)
            headers = {**self._headers, "Content-Type": "application/json"}
            self._http = aiohttp.ClientSession(
                connector=connector, headers=headers, cookie_jar=aiohttp.DummyCookieJar()
            )
        came = time.perf_counter()
        most = min(AT_A_SERVER, self.parallel or AT_A_SERVER) if method == "POST" else AT_A_SERVER
        async with self._room.setdefault((method, url), asyncio.Semaphore(most)):
            # so that a server that hangs costs one deadline, however many wait for it
            if self._silent_at.get(url, came) > came:
                raise RequestFailed(
                    f"{what}: the server did not answer those before it", session_lost=True, server_down=True
                )
            self._stats.requests += 1
            start = time.perf_counter()
            try:
                yield self._http
            except TimeoutError as error:
                self._silent_at[url] = time.perf_counter()
                message = f"{what}: no answer within {deadline_s:g} s"
                raise RequestFailed(message, session_lost=True, server_down=True) from error
            except aiohttp.ClientConnectorError as error:
                raise RequestFailed(f"{what}: {quoted(error)}", session_lost=True, server_down=True) from None
            except (aiohttp.ClientError, HttpProcessingError, OSError, ValueError) as error:
                raise RequestFailed(f"{what}: connection lost ({type(error).__name__}: {quoted(error)})") from None
            finally:
                self._stats.seconds += time.perf_counter() - start


#: Endpoints whose 404 is about the session, not about a task or split.
SESSION_PATHS = frozenset({"/v1/step", "/v1/expand", "/v1/fork", "/v1/actions", "/v1/snapshot"})
#: Endpoints that are about no session, so that what took too long there would take as long again.
LOOK_UP_PATHS = ("/v1/expert", "/v1/splits/")


def _failure(what: str, status: int, data: bytes, path: str) -> Exception:
    """Translates a status other than 200 into an exception."""
    try:
        body = ErrorBody.model_validate_json(data)
    except ValidationError:
        body = ErrorBody(error=data.decode("utf-8", "replace"))
    message = f"{what}: {status} {quoted(body.error)}"
    if status == 410 or (status == 404 and path in SESSION_PATHS):
        return RequestFailed(message, session_lost=True, wait=False)
    if status in (429, 503):
        return RequestFailed(message)
    if status == 504 and path.startswith(LOOK_UP_PATHS):
        return InfraError(message, hint=quoted(body.hint))
    if status >= 500:
        return RequestFailed(message, session_lost=True)
    if status == 404:
        return UnknownOnServer(message, hint=quoted(body.hint))
    if status == 401:
        return InfraError(message, hint="Check the token that the client and the server were given.")
    return InfraError(message, hint=quoted(body.hint))
