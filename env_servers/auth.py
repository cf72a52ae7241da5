"""ASGI middleware that checks the bearer token and the size of each request's body, and counts requests."""

import hmac
import time
from collections.abc import Collection

from starlette.exceptions import HTTPException
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from env_servers.metrics import Metrics
from env_servers.protocol import ErrorBody

#: Largest body, in bytes, of a request that holds no list: room for the longest action, however it is escaped.
SMALL_BODY = 128 << 10


class AuthMiddleware:
    """Refuses requests without the token and bodies that are too large; counts all requests.

    Args:
        token: What ``Authorization: Bearer`` must carry; None lets everybody in.
        open_paths: Paths that need no token.
        max_body_bytes: Larger bodies are refused with 413, announced or not.
        large_paths: Paths whose bodies may be so large; those of all others have `SMALL_BODY`. A body is parsed in the
            event loop, where nothing else moves meanwhile.
    """

    def __init__(
        self,
        app: ASGIApp,
        *,
        token: str | None,
        open_paths: Collection[str],
        max_body_bytes: int,
        large_paths: Collection[str],
        metrics: Metrics,
    ) -> None:
        self._app = app
        self._expected = None if token is None else f"Bearer {token}".encode()
        self._open = frozenset(open_paths)
        self._max = max_body_bytes
        self._large = frozenset(large_paths)
        self._metrics = metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        start = time.perf_counter()

        async def counted_send(message: Message) -> None:
            if message["type"] == "http.response.start":
                endpoint = getattr(scope.get("route"), "path", "none")
                self._metrics.requests.labels(endpoint, str(message["status"])).inc()
                self._metrics.request_seconds.labels(endpoint).observe(time.perf_counter() - start)
            await send(message)

        headers = dict(scope["headers"])
        most = self._max if scope["path"] in self._large else min(self._max, SMALL_BODY)
        if not self._may_enter(scope["path"], headers.get(b"authorization", b"")):
            body = ErrorBody(error="missing or wrong bearer token", hint="Send 'Authorization: Bearer <token>'.")
            answer = error_response(401, body, {"WWW-Authenticate": "Bearer"})
        elif (length := headers.get(b"content-length", b"0")).isdigit() and int(length[:20]) > most:
            answer = error_response(413, _too_large(most))
        else:
            answer = self._app
            receive = _limited(receive, most)
        await answer(scope, receive, counted_send)

    def _may_enter(self, path: str, authorization: bytes) -> bool:
        return self._expected is None or path in self._open or hmac.compare_digest(authorization, self._expected)


def _too_large(most: int) -> ErrorBody:
    return ErrorBody(error=f"the body has more than {most} bytes", hint="Send fewer actions in a request.")


def _limited(receive: Receive, most: int) -> Receive:
    """Counts the body as it arrives, for requests that do not announce its length."""
    received = 0

    async def limited() -> Message:
        nonlocal received
        message = await receive()
        received += len(message.get("body", b""))
        if received > most:
            raise HTTPException(413, _too_large(most).error)
        return message

    return limited


def error_response(status: int, body: ErrorBody, headers: dict[str, str] | None = None) -> Response:
    """An answer that carries an ``ErrorBody``."""
    return Response(body.model_dump_json(), status, headers, media_type="application/json")
