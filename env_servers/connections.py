"""How our servers speak HTTP: with limits on what a connection may cost before anything has asked who it is."""

import asyncio
from typing import Any

import uvicorn
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


def limited(app: Any, *, connections: int, **settings: Any) -> uvicorn.Config:
    """Returns uvicorn's settings for a server of ours.

    Args:
        connections: Most at a time; what comes beyond is answered with 503.
        settings: More of uvicorn's.
    """
    limits = {"h11_max_incomplete_event_size": MAX_HEAD_BYTES, "limit_concurrency": connections}
    return uvicorn.Config(app, http=_InTime, ws="none", log_level="warning", access_log=False, **limits, **settings)
