"""A call that goes on beside what its caller does."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Generic, TypeVar

T = TypeVar("T")


class Beside(Generic[T]):
    """A call that goes on in a thread of its own. The thread ends with the process, at the latest."""

    def __init__(self, call: Callable[[], T]) -> None:
        self._result: list[T] = []
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, args=(call,), daemon=True)
        self._thread.start()

    def _run(self, call: Callable[[], T]) -> None:
        try:
            self._result.append(call())
        except BaseException as error:  # noqa: BLE001 - raised again in the thread that asks
            self._error = error

    def ended(self) -> bool:
        """Returns whether the call has come back.

        Raises:
            BaseException: What the call raised.
        """
        if self._thread.is_alive():
            return False
        if self._error is not None:
            raise self._error
        return True

    def wait(self, timeout_s: float | None = None) -> bool:
        """Waits until the call has come back, whatever with, and returns whether it has."""
        self._thread.join(timeout_s)
        return not self._thread.is_alive()

    def result(self) -> T:
        """Waits until the call has come back, and returns its result, or raises what it raised."""
        self._thread.join()
        self.ended()
        return self._result[0]
