"""The session table, without HTTP and with a clock of its own."""

import asyncio
import threading
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from env_servers.metrics import Metrics
from env_servers.sessions import Limits, SessionTable
from env_servers.worker import Refused
from tests.env_servers.support import Count, Counter
from tests.support import lines_run


async def until(ready: Callable[[], bool], timeout_s: float = 15.0) -> None:
    """Waits for what happens in the background; how long that takes is the machine's affair."""
    async with asyncio.timeout(timeout_s):
        while not ready():
            await asyncio.sleep(0.01)


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def run(
    test: Callable[[SessionTable, Clock, Counter], Coroutine[Any, Any, None]],
    environment: Counter | None = None,
    **limits: Any,
):
    async def main() -> None:
        clock, world = Clock(), environment or Counter()
        table = SessionTable(world, Limits(**limits), Metrics(), clock)
        await test(table, clock, world)
        await table.shutdown()

    asyncio.run(main())


def refused(status: int):
    class Expect:
        def __enter__(self) -> None:
            self.raises = pytest.raises(Refused)
            self.info = self.raises.__enter__()

        def __exit__(self, *error: Any) -> bool | None:
            handled = self.raises.__exit__(*error)
            assert self.info.value.status == status, self.info.value.error
            return handled

    return Expect()


def test_a_repeated_step_is_answered_and_not_carried_out_again():
    async def test(table: SessionTable, clock: Clock, world: Counter) -> None:
        session = await table.open("train-0")
        first = await table.step(session.id, "add 2", 0)
        assert await table.step(session.id, "add 2", 0) == first
        assert session.state.total == 2
        with refused(409):
            await table.step(session.id, "add 3", 0)  # another action is no repetition
        with refused(409):
            await table.step(session.id, "add 2", 2)
        await table.step(session.id, "end", 1)
        assert (await table.step(session.id, "end", 1)).done
        with refused(409):
            await table.step(session.id, "add 1", 2)

    run(test)


@pytest.mark.parametrize("fast", [True, False])
def test_expand_leaves_the_parent_and_keeps_twins_apart(fast: bool):
    async def test(table: SessionTable, clock: Clock, world: Counter) -> None:
        parent = await table.open("train-0")
        await table.step(parent.id, "add 1", 0)
        a, b, ended = await table.expand(parent.id, ["add 5", "add 5", "end"])
        assert a.observation == b.observation == "total 6" and a.session != b.session and ended.done
        await table.step(a.session, "add 1", 2)
        assert (await table.step(b.session, "add 0", 2)).observation == "total 6"
        assert parent.state.total == 1
        with refused(409):
            await table.expand(ended.session, ["add 1"])

    run(test, Counter(fast=fast))


def test_idle_sessions_expire_and_used_ones_do_not():
    async def test(table: SessionTable, clock: Clock, world: Counter) -> None:
        idle, used = await table.open("train-0"), await table.open("train-0")
        clock.now = 6.0
        await table.step(used.id, "add 1")
        clock.now = 11.0
        assert (table.sweep(), len(table)) == (1, 1)
        with refused(404):
            await table.step(idle.id, "add 1")
        await table.step(used.id, "add 1")

    run(test, idle_s=10.0)


def test_a_used_session_does_not_hide_an_idle_one_behind_it():
    async def test(table: SessionTable, clock: Clock, world: Counter) -> None:
        used, _idle = await table.open("train-0"), await table.open("train-0")
        clock.now = 6.0
        await table.step(used.id, "add 1")
        clock.now = 11.0
        assert (table.sweep(), table.ids()) == (1, [used.id])

    run(test, idle_s=10.0)


def test_a_session_in_use_does_not_expire():
    async def test(table: SessionTable, clock: Clock, world: Counter) -> None:
        session = await table.open("train-0")
        async with session.lock:
            clock.now = 60.0
            assert (table.sweep(), len(table)) == (0, 1)
        assert table.sweep() == 1

    run(test, idle_s=10.0)


def test_sessions_that_are_being_made_take_room():
    class Slow(Counter):
        def reset(self, task_id: str):
            assert may_go_on.wait(5)
            return super().reset(task_id)

    may_go_on = threading.Event()

    async def test(table: SessionTable, clock: Clock, world: Counter) -> None:
        making = [asyncio.ensure_future(table.open("train-0")) for _ in range(2)]
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        with refused(429):
            await table.open("train-0")
        may_go_on.set()
        await asyncio.gather(*making)
        assert len(table) == 2

    run(test, Slow(fast=False), max_sessions=2, step_timeout_s=20)


def test_ten_thousand_abandoned_sessions_are_reclaimed():
    async def test(table: SessionTable, clock: Clock, world: Counter) -> None:
        for i in range(10_000):
            clock.now = i / 10_000
            await table.open("train-0")
        with refused(429):
            await table.open("train-0")
        clock.now = 60.0
        await table.open("train-0")  # makes room by itself
        assert len(table) == 1
        await until(lambda: len(world.closed) == 10_000)

    run(test, idle_s=10.0, max_sessions=10_000)


def test_refusing_takes_no_longer_however_many_sessions_there_are():
    """A full server that looked at all of them did not answer its supervisor for seconds, and was killed."""
    took = {}

    def refusal(sessions: int) -> None:
        async def test(table: SessionTable, clock: Clock, world: Counter) -> None:
            for _ in range(sessions):
                await table.open("train-0")

            def another() -> None:
                with refused(429):
                    table.open("train-0").send(None)

            another()
            took[sessions] = lines_run(another)

        run(test, idle_s=10.0, max_sessions=sessions)

    refusal(20)
    refusal(2_000)
    assert took[2_000] == took[20], took


def test_room_is_all_or_nothing():
    async def test(table: SessionTable, clock: Clock, world: Counter) -> None:
        session = await table.open("train-0")
        with refused(429):
            await table.expand(session.id, ["add 1"] * 4)
        assert len(table) == 1
        assert len(await table.expand(session.id, ["add 1"] * 3)) == 3
        assert table.close([session.id, session.id + "x", "other.epoch"]) == 1
        await table.open("train-0")

    run(test, max_sessions=4)


def test_an_exception_closes_the_session_and_frees_its_state():
    async def test(table: SessionTable, clock: Clock, world: Counter) -> None:
        session = await table.open("train-0")
        children = await table.expand(session.id, ["add 1", "add 2"])
        with refused(500):
            await table.expand(session.id, ["add 1", "boom", "add 1"])
        assert len(table) == 3, "the parent was not touched, and no child of a failed expansion stays"
        with refused(500):
            await table.step(session.id, "nan")
        with refused(404):
            await table.step(session.id, "add 1")
        await until(lambda: len(world.closed) == 4)
        assert session.state in world.closed
        assert (await table.step(children[0].session, "add 1")).observation == "total 2"

    run(test)


def test_a_step_past_its_deadline_is_given_up_and_cleaned_up_later():
    async def test(table: SessionTable, clock: Clock, world: Counter) -> None:
        slow, other = await table.open("train-0"), await table.open("train-0")
        with refused(504):
            await table.step(slow.id, "sleep 0.4")
        assert table.worker.stuck == 1
        await table.step(other.id, "add 1")
        with refused(404):
            await table.step(slow.id, "add 1")
        await until(lambda: table.worker.stuck == 0 and bool(world.closed))
        assert world.closed == [slow.state]

    run(test, Counter(fast=False), step_timeout_s=0.15, threads=2)


def test_no_free_thread_leaves_the_session_as_it_was():
    async def test(table: SessionTable, clock: Clock, world: Counter) -> None:
        slow, other = await table.open("train-0"), await table.open("train-0")
        first = asyncio.ensure_future(table.step(slow.id, "sleep 0.5"))
        await asyncio.sleep(0.01)
        with refused(503):
            await table.step(other.id, "add 1", 0)
        with refused(504):
            await first
        await until(lambda: table.worker.stuck == 0)
        assert (await table.step(other.id, "add 1", 0)).observation == "total 1"

    run(test, Counter(fast=False), step_timeout_s=0.2, wait_s=0.1, threads=1)


def test_one_call_at_a_time_in_a_session():
    class Watched(Counter):
        inside = 0
        worst = 0

        def step(self, state: Count, action: str):
            with lock:
                self.inside += 1
                self.worst = max(self.worst, self.inside)
            answer = super().step(state, action)
            with lock:
                self.inside -= 1
            return answer

    lock = threading.Lock()

    async def test(table: SessionTable, clock: Clock, world: Counter) -> None:
        session = await table.open("train-0")
        answers = await asyncio.gather(*(table.step(session.id, "sleep 0.01") for _ in range(10)))
        assert len(answers) == 10 and session.steps == 10
        assert isinstance(world, Watched) and world.worst == 1

    run(test, Watched(fast=False))


def test_closed_while_it_waited():
    async def test(table: SessionTable, clock: Clock, world: Counter) -> None:
        session = await table.open("train-0")
        first = asyncio.ensure_future(table.step(session.id, "sleep 0.1"))
        second = asyncio.ensure_future(table.step(session.id, "add 1"))
        await asyncio.sleep(0.02)
        assert table.close([session.id]) == 1
        assert (await first).valid
        with refused(404):
            await second
        await until(lambda: bool(world.closed))
        assert world.closed == [session.state]

    run(test, Counter(fast=False))


def test_ids_of_another_start_are_gone():
    async def test(table: SessionTable, clock: Clock, world: Counter) -> None:
        for session_id, status in ((f"0123.{'x' * 22}", 410), (f"{table.epoch}.x", 404), ("", 404), ("no-dot", 404)):
            with refused(status):
                await table.step(session_id, "add 1")

    run(test)
