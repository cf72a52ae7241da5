"""WebSocket connections that are episodes: OpenEnv gives each connection an environment of its own, and takes it away
when it closes."""

from __future__ import annotations

import asyncio
import contextlib
import json
from typing import Any

import aiohttp

from agentr.foreign import Unreadable, read
from agentr.secrets import quoted

#: Longest message of a server, in bytes.
MAX_MESSAGE_BYTES = 64 << 20
#: Seconds for a server to close.
CLOSE_S = 5.0


class Full(Exception):
    """The server has no room for another session.

    Attributes:
        most: The sessions that it has room for; None if that is not known.
    """

    def __init__(self, message: str, most: int | None) -> None:
        super().__init__(message)
        self.most = most


class Rejected(Exception):
    """The server says that an action is none: it was not carried out.

    Attributes:
        errors: What is wrong, as (field, message).
    """

    def __init__(self, errors: list[tuple[str, str]]) -> None:
        super().__init__("; ".join(f"{field}: {message}" for field, message in errors))
        self.errors = errors


class Failed(Exception):
    """The server answered with another error, or with what is no answer."""


class Line:
    """One connection. One request at a time.

    It is read all the time: a server takes a client for gone that does not answer its pings while the policy thinks.
    """

    def __init__(self, socket: aiohttp.ClientWebSocketResponse) -> None:
        self._socket = socket
        self._answers: asyncio.Queue[str | None] = asyncio.Queue()
        self._ended = "the server closed the session"
        self._reader = asyncio.create_task(self._read(), name="reading an OpenEnv session")

    @classmethod
    async def open(cls, http: aiohttp.ClientSession, url: str) -> Line:
        return cls(await http.ws_connect(f"{url}/ws", max_msg_size=MAX_MESSAGE_BYTES))

    @property
    def closed(self) -> bool:
        return self._reader.done()

    async def ask(self, kind: str, data: dict[str, Any]) -> dict[str, Any]:
        """Returns the observation after a ``reset`` or a ``step``, as ``{observation, reward, done}``.

        Raises:
            Full, Rejected, Failed: The server says no.
            aiohttp.ClientError: The connection is lost.
        """
        if not self.closed:
            with contextlib.suppress(ConnectionError):  # what it said before it hung up may be in the queue
                await self._socket.send_str(json.dumps({"type": kind, "data": data}))
        text = await self._answers.get()
        if text is None:
            self._answers.put_nowait(None)  # for whoever asks again
            raise aiohttp.ClientConnectionError(self._ended)
        try:
            answer = read(text)
            answered, content = answer["type"], answer["data"]
            if answered == "observation" and isinstance(content["observation"], dict):
                return content
            code = str(content.get("code", "")) if answered == "error" else ""
            if code == "CAPACITY_REACHED":
                raise Full(
                    quoted(content.get("message", code)),
                    most if isinstance(most := content.get("max_sessions"), int) else None,
                )
            if code == "VALIDATION_ERROR":
                raise Rejected(
                    [(".".join(map(str, e.get("loc", ()))), quoted(e.get("msg", ""))) for e in content["errors"]]
                )
        except Unreadable as error:
            raise Failed(f"{kind}: {error}") from None
        except (ValueError, LookupError, TypeError, AttributeError):
            pass
        raise Failed(f"{kind}: {quoted(text, 200)}")

    async def close(self) -> None:
        """Ends the session: once this returns, its room on the server is free, if the server is well."""
        with contextlib.suppress(ConnectionError, aiohttp.ClientError, TimeoutError):
            async with asyncio.timeout(CLOSE_S):
                if not self.closed:
                    await self._socket.send_str('{"type": "close"}')
                    await asyncio.shield(self._reader)
        self._reader.cancel()
        with contextlib.suppress(ConnectionError, aiohttp.ClientError, TimeoutError):
            async with asyncio.timeout(CLOSE_S):
                await self._socket.close()

    async def _read(self) -> None:
        try:
            async for message in self._socket:
                if message.type is aiohttp.WSMsgType.TEXT:
                    self._answers.put_nowait(message.data)
                elif message.type is aiohttp.WSMsgType.ERROR:
                    self._ended = f"what the server sent cannot be read: {quoted(message.data)}"
        finally:
            self._answers.put_nowait(None)
