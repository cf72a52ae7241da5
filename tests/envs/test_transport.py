"""How many requests a server gets at once, and when their deadlines begin."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from agentr.envs import transport
from agentr.envs.transport import EnvStats, RequestFailed, Transport

ANSWER = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"


class Slow:
    """A server that answers each request after a while, and counts how many it had at once."""

    def __init__(self, pause_s: float) -> None:
        self.pause_s = pause_s
        self.now = self.most = self.all = 0

    async def __call__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while await reader.readline():
            while await reader.readline() != b"\r\n":
                pass
            self.now, self.all = self.now + 1, self.all + 1
            self.most = max(self.most, self.now)
            await asyncio.sleep(self.pause_s)
            self.now -= 1
            writer.write(ANSWER)


def run(slow: Slow, test: Callable[[str, Transport], Awaitable[None]], timeout_s: float) -> None:
    async def main() -> None:
        server = await asyncio.start_server(slow, "127.0.0.1", 0)
        client = Transport("", timeout_s, EnvStats())
        try:
            await test(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}", client)
        finally:
            await client.close()
            server.close()

    asyncio.run(main())


def test_those_that_wait_for_room_have_their_whole_deadline(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(transport, "AT_A_SERVER", 3)
    slow = Slow(0.5)

    async def test(url: str, client: Transport) -> None:
        # three at a time, 2.5 s in all
        answers = await asyncio.gather(*(client.exchange("GET", url, "/") for _ in range(15)))
        assert answers == [(200, b"ok")] * 15

    run(slow, test, timeout_s=2.0)
    assert (slow.most, slow.all) == (3, 15)


def test_a_server_gets_as_many_requests_about_sessions_as_it_works_on(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(transport, "AT_A_SERVER", 9)
    slow = Slow(0.2)

    async def test(url: str, client: Transport) -> None:
        client.parallel = 2
        # two at a time, 0.8 s in all
        answers = await asyncio.gather(*(client.exchange("POST", url, "/") for _ in range(8)))
        assert answers == [(200, b"ok")] * 8 and slow.most == 2
        await asyncio.gather(*(client.exchange("GET", url, "/") for _ in range(8)))
        assert slow.most == 8, "experts do not take turns with steps"

    run(slow, test, timeout_s=2.0)


def test_a_server_that_hangs_costs_one_deadline_however_many_wait_for_it(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(transport, "AT_A_SERVER", 2)
    slow = Slow(3600.0)

    async def test(url: str, client: Transport) -> None:
        failures = await asyncio.gather(*(client.exchange("GET", url, "/") for _ in range(20)), return_exceptions=True)
        assert all(
            isinstance(failure, RequestFailed) and failure.server_down and failure.session_lost for failure in failures
        )
        assert [("within 1 s" in str(failure)) for failure in failures].count(True) == 2
        slow.pause_s = 0.0
        assert await client.exchange("GET", url, "/") == (200, b"ok"), "it answers again, and is asked again"

    run(slow, test, timeout_s=1.0)
    assert slow.all == 3
