"""Calls that go on beside what their caller does, or beside one another."""

import asyncio
import threading
from collections.abc import Callable, Coroutine, Iterable
from concurrent.futures import Future, wait
from typing import Any, Generic, TypeVar

T = TypeVar("T")


async def together(calls: Iterable[Coroutine[Any, Any, T]]) -> list[T]:
    """Returns what each call comes to, in their order. If one fails, the others are cancelled, and its error is
    raised."""
    try:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(call) for call in calls]
    except BaseExceptionGroup as failed:
        raise failed.exceptions[0] from failed
    return [task.result() for task in tasks]


class Beside(Generic[T]):
    """A call that goes on in a thread of its own.
    The thread ends with the process, at the latest, which those of an executor do not."""

    def __init__(self, call: Callable[[], T]) -> None:
        self._made: Future[T] = Future()
        threading.Thread(target=self._run, args=(call,), daemon=True).start()

    def _run(self, call: Callable[[], T]) -> None:
        try:
            self._made.set_result(call())
        except BaseException as error:  # noqa: BLE001 - raised again in the thread that asks
            self._made.set_exception(error)

    def ended(self) -> bool:
        """Returns whether the call has come back.

        Raises:
            BaseException: What the call raised.
        """
        if not self._made.done():
            return False
        self._made.result()
        return True

    def wait(self, timeout_s: float | None = None) -> bool:
        """Waits until the call has come back, whatever with, and returns whether it has."""
        return bool(wait([self._made], timeout_s).done)

    def result(self) -> T:
        """Waits until the call has come back, and returns its result, or raises what it raised."""
        return self._made.result()
