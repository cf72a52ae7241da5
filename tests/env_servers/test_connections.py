"""What a connection may cost a server before anything has asked who it is."""

import contextlib
import socket
import threading
import time
from collections.abc import Iterator
from urllib.parse import urlsplit

import httpx
import pytest
import uvicorn

from env_servers import connections
from env_servers.connections import MAX_HEAD_BYTES, limited
from tests.env_servers.support import ROOT, child_server, http_client, wait_until


def connect(url: str) -> socket.socket:
    place = urlsplit(url)
    assert place.hostname and place.port
    return socket.create_connection((place.hostname, place.port), timeout=20)


def sent_before_the_end(url: str, head: bytes) -> int:
    """Sends a head that has no end until the server has enough of it; returns how much it took."""
    with connect(url) as client:
        client.sendall(head)
        sent = 0
        with contextlib.suppress(OSError):
            while sent < 100 * 2**20:
                client.sendall(b"a" * 2**16)
                sent += 2**16
        return sent


@pytest.mark.parametrize(
    "head", [b"GET /health HTTP/1.1\r\nX: ", b"GET /", b"GET /health HTTP/1.1\r\nA: b\r\nAuthorization: Bearer "]
)
def test_a_head_without_end_costs_an_environment_server_nothing(head: bytes):
    with child_server("textcraft") as (url, _), http_client(url) as client:
        assert sent_before_the_end(url, head) < 16 * 2**20  # what the system keeps for both ends
        assert client.get("/health").status_code == 200
        fits = client.get("/health", headers={"X": "a" * (MAX_HEAD_BYTES // 2)})
        assert fits.status_code == 200


def test_the_three_servers_are_limited():
    """Whoever starts a server of ours takes `limited`."""
    programs = [*(ROOT / "agentr").rglob("*.py"), *(ROOT / "env_servers").rglob("*.py")]
    assert [path.name for path in programs if "uvicorn.Config(" in path.read_text()] == ["connections.py"]


@contextlib.contextmanager
def small_server(most: int) -> Iterator[str]:
    """Answers a request at once if its path is ``/refused``, and when it was read otherwise."""

    async def app(scope, receive, send):
        while scope["path"] != "/refused" and (await receive()).get("more_body"):
            pass
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"2")]})
        await send({"type": "http.response.body", "body": b"ok"})

    listener = socket.create_server(("127.0.0.1", 0))
    server = uvicorn.Server(limited(app, connections=most, lifespan="off"))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, daemon=True)
    thread.start()
    wait_until(lambda: server.started, "the server to listen")
    try:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join(5)


WHOLE = b"GET / HTTP/1.1\r\nHost: a\r\n\r\n"


@pytest.mark.parametrize(
    "begun",
    [b"", b"GET / HT", WHOLE + b"GET", b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\nabc"],
    ids=["nothing", "half a head", "half a second head", "half a body"],
)
def test_a_connection_that_asks_nothing_whole_is_cut_off(begun: bytes, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(connections, "REQUEST_S", 0.4)
    with small_server(8) as url, connect(url) as slow:
        started = time.monotonic()
        for part in (begun[: len(WHOLE)], begun[len(WHOLE) :]) if begun.startswith(WHOLE) else (begun,):
            slow.sendall(part)
            time.sleep(0.1)
        with contextlib.suppress(ConnectionResetError):
            while slow.recv(4096):
                pass
        assert time.monotonic() - started < 20
        with httpx.Client(base_url=url, trust_env=False) as client:
            assert client.post("/", content=b"a" * 2**20).text == "ok", "bodies have limits of their own"
            time.sleep(0.6)  # a connection that rests between two requests is kept
            assert client.get("/").text == "ok"


def test_too_many_connections_are_answered_and_not_kept():
    with small_server(3) as url:
        idle = [connect(url) for _ in range(4)]
        wait_until(lambda: httpx.get(url, trust_env=False).status_code == 503, "the limit to be reached")
        for each in idle:
            each.close()
        wait_until(lambda: httpx.get(url, trust_env=False).status_code == 200, "room")


@pytest.mark.parametrize("body", [b"Content-Length: 2000000", b"Transfer-Encoding: chunked"], ids=["told", "chunked"])
@pytest.mark.parametrize("end", [b"close", b"keep-alive"])
def test_a_refusal_reaches_a_client_that_still_sends(body: bytes, end: bytes):
    """A server that closed at once would answer the rest of the body with a reset."""
    with small_server(8) as url, connect(url) as client:
        client.sendall(b"POST /refused HTTP/1.1\r\nHost: a\r\nConnection: " + end + b"\r\n" + body + b"\r\n\r\n")
        time.sleep(0.2)  # the answer is on its way
        for _ in range(20):
            part = b"a" * 100_000
            client.sendall(part if b"Length" in body else b"%x\r\n%b\r\n" % (len(part), part))
            time.sleep(0.01)
        if b"Length" not in body:
            client.sendall(b"0\r\n\r\n")
        if end == b"keep-alive":
            client.sendall(WHOLE.replace(b"Host", b"Connection: close\r\nHost"))
        heard = b""
        while part := client.recv(4096):
            heard += part
        assert heard.count(b"HTTP/1.1 200 OK") == heard.count(b"\r\n\r\nok") == (2 if end == b"keep-alive" else 1)
