"""How our servers speak HTTP: with limits on what a connection may cost before anything has asked who it is."""

import asyncio
from typing import Any

import uvicorn
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol

#: Bytes of a request's line and headers; what is larger is refused with 400 as soon as so much has come.
MAX_HEAD_BYTES = 64 * 2**10
#: Seconds within which a request must have come as a whole, and a new connection must have asked something.
REQUEST_S = 60.0


class _InTime(H11Protocol):
    """Cuts a connection off whose request does not come to an end."""

    _deadline: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._watch()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self._watch()

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self._watch()

    def _watch(self) -> None:
        answering = self.cycle is not None and not self.cycle.more_body and not self.cycle.response_complete
        waiting = not answering and not self.transport.is_closing()
        if waiting and self._deadline is None:
            self._deadline = self.loop.call_later(REQUEST_S, self.transport.abort)
        elif not waiting and self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None


def _heard_out(app: ASGIApp) -> ASGIApp:
    """Ends a connection only when the request has come to its end.

    A refusal is sent before the body was read. If the connection were closed then, what the client still sends would be
    answered with a reset, and the client would lose the refusal.
    """

    async def heard_out(scope: Scope, receive: Receive, send: Send) -> None:
        more = scope["type"] == "http"

        async def hear() -> Message:
            nonlocal more
            message = await receive()
            more = message.get("more_body", False)
            return message

        async def tell(message: Message) -> None:
            if more and message["type"] == "http.response.body" and not message.get("more_body"):
                await send({**message, "more_body": True})
                while more:  # no longer than `REQUEST_S`
                    await hear()
                message = {"type": "http.response.body"}
            await send(message)

        await app(scope, hear, tell)

    return heard_out


def limited(app: ASGIApp, *, connections: int, **settings: Any) -> uvicorn.Config:
    """Returns uvicorn's settings for a server of ours.

    Args:
        connections: Most at a time; what comes beyond is answered with 503.
        settings: More of uvicorn's.
    """
    limits = {"h11_max_incomplete_event_size": MAX_HEAD_BYTES, "limit_concurrency": connections}
    settings |= {"http": _InTime, "ws": "none", "log_level": "warning", "access_log": False}
    return uvicorn.Config(_heard_out(app), **limits, **settings)
