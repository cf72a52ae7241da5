"""A server on loopback whose bytes are a test's, and ways in which servers of others are wrong."""

import asyncio
import base64
import gzip
import hashlib
import json
import zlib
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any

from hypothesis import strategies as st

#: Nothing is sent, and the connection stays open.
HANG = b"hang"


@asynccontextmanager
async def raw(
    answer: Callable[[str, bytes], bytes], message: Callable[[str], bytes] = lambda text: b""
) -> AsyncIterator[str]:
    """Gives the address of a server that sends what ``answer`` says to a path and a body, and what ``message`` says on
    a WebSocket."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError, asyncio.IncompleteReadError):
            head = await reader.readuntil(b"\r\n\r\n")
            fields = {
                k.lower(): v for k, _, v in (line.partition(": ") for line in head.decode("latin-1").split("\r\n"))
            }
            path = head.split(b" ")[1].decode()
            if "sec-websocket-key" in fields:
                await talk(reader, writer, fields["sec-websocket-key"])
            else:
                reply = answer(path, await reader.readexactly(int(fields.get("content-length", 0))))
                if reply == HANG:
                    await asyncio.sleep(60)
                writer.write(reply)
                await writer.drain()
        writer.close()

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, key: str) -> None:
        accept = base64.b64encode(hashlib.sha1(f"{key}258EAFA5-E914-47DA-95CA-C5AB0DC85B11".encode()).digest())
        writer.write(
            b"HTTP/1.1 101 Switching\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: "
            + accept
            + b"\r\n\r\n"
        )
        while True:
            kind, length = await reader.readexactly(2)
            size = int.from_bytes(await reader.readexactly(2), "big") if length & 127 == 126 else length & 127
            mask = await reader.readexactly(4)
            data = bytes(c ^ mask[i % 4] for i, c in enumerate(await reader.readexactly(size)))
            if kind & 15 != 1 or (said := json.loads(data)["type"]) == "close":
                return
            writer.write(message(said))
            await writer.drain()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    finally:
        server.close()


def framed(text: bytes, kind: int = 1) -> bytes:
    """A message of a WebSocket."""
    size = bytes([len(text)]) if len(text) < 126 else b"\x7e" + len(text).to_bytes(2, "big")
    return bytes([0x80 | kind]) + size + text


def response(body: bytes, status: int = 200, *headers: bytes, length: int | None = None) -> bytes:
    """A whole answer in HTTP."""
    sized = b"Content-Length: %d" % (len(body) if length is None else length)
    return b"\r\n".join(
        [
            b"HTTP/1.1 %d What" % status,
            sized,
            b"Content-Type: application/json",
            b"Connection: close",
            *headers,
            b"",
            body,
        ]
    )


TEXTS = st.text(max_size=8) | st.sampled_from(["\ud83d", "Nice \udc00", "\0", "12.0", "NaN", "stop", "x" * 5000])
LEAVES = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | TEXTS
    | st.sampled_from([float("nan"), float("inf"), -1, 10**400])
)
VALUES = st.recursive(
    LEAVES, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3), max_leaves=4
)


@st.composite
def spoiled(draw: st.DrawFn, valid: Any) -> Any:
    """A valid answer with one place in it that holds anything, or nothing."""
    if isinstance(valid, dict | list) and valid and draw(st.integers(0, 5)):
        keys = list(valid) if isinstance(valid, dict) else range(len(valid))
        key = draw(st.sampled_from(keys))
        if not draw(st.integers(0, 7)):
            return {k: v for k, v in valid.items() if k != key} if isinstance(valid, dict) else []
        made = valid.copy()
        made[key] = draw(spoiled(valid[key]))
        return made
    return draw(VALUES)


@st.composite
def bodies(draw: st.DrawFn, valid: Any) -> bytes:
    """Bytes for a valid answer: spoiled, in another encoding, cut off, or any."""
    text = json.dumps(draw(st.just(valid) | spoiled(valid)), ensure_ascii=draw(st.booleans()))
    data = text.encode(draw(st.sampled_from(["utf-8", "utf-8", "utf-16", "utf-8-sig"])), "surrogatepass")
    return draw(
        st.one_of(
            st.just(data), st.just(data), st.just(data[: draw(st.integers(0, len(data)))]), st.binary(max_size=30)
        )
    )


@st.composite
def answers(
    draw: st.DrawFn,
    valid: Any,
    statuses: tuple[int, ...] = (200, 200, 200, 200, 204, 302, 400, 401, 404, 413, 429, 500),
) -> bytes:
    """All that a server sends to one request."""
    body, status = draw(bodies(valid)), draw(st.sampled_from(statuses))
    how = draw(
        st.sampled_from(
            [
                "plain",
                "plain",
                "gzip",
                "deflate",
                "no gzip",
                "no br",
                "half a gzip",
                "chunks",
                "bad chunks",
                "long",
                "noise",
            ]
        )
    )
    match how:
        case "gzip":
            return response(gzip.compress(body), status, b"Content-Encoding: gzip")
        case "deflate":
            return response(zlib.compress(body), status, b"Content-Encoding: deflate")
        case "no gzip" | "no br":
            return response(body, status, b"Content-Encoding: " + how[3:].encode())
        case "half a gzip":
            return response(gzip.compress(body)[:-9], status, b"Content-Encoding: gzip")
        case "chunks" | "bad chunks":
            chunk = b"%x\r\n%b\r\n" % (len(body) + 7 * (how == "bad chunks"), body) if body else b""
            return b"HTTP/1.1 %d What\r\nTransfer-Encoding: chunked\r\n\r\n" % status + chunk + b"0\r\n\r\n"
        case "long":
            return response(body, status, length=len(body) + 50)
        case "noise":
            return draw(st.binary(max_size=40))
    return response(
        body, status, b"Retry-After: " + draw(st.sampled_from([b"0", b"-1", b"nan", b"soon", b"Mon, 99 Foo"]))
    )
