"""Calls into an environment: inline for a fast one, in threads with a deadline for any other.

Whatever goes wrong in there leaves as a ``Refused``, which is also what the rest of the server raises for a request
that it does not carry out: one exception type, one body (`protocol.ErrorBody`).
"""

import asyncio
import logging
import secrets
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

from env_servers.base import Failed, Unavailable, UnknownTask

log = logging.getLogger(__name__)
Result = TypeVar("Result")


class Refused(Exception):
    """A request was not carried out; becomes the HTTP answer.

    Args:
        status: HTTP status code.
        error: What was wrong.
        hint: What to do about it.
    """

    def __init__(self, status: int, error: str, hint: str = "") -> None:
        super().__init__(error)
        self.status = status
        self.error = error
        self.hint = hint

    @property
    def state_is_lost(self) -> bool:
        """Whether the call stopped half-way (exception or deadline): its state cannot be trusted then."""
        return self.status in (500, 504)


class NoSuchSession(Refused):
    """The session was closed, expired, or was never given out."""

    def __init__(self, error: str, hint: str) -> None:
        super().__init__(404, error, hint)


class Worker:
    """Runs environment calls without blocking the event loop for long.

    A call that passes its deadline cannot be stopped: its thread stays busy until it returns, and ``stuck`` counts it.
    When all threads are stuck nothing moves any more, which ``/health`` reports so that a supervisor restarts the
    process.

    Args:
        inline: Call directly, without threads and deadline (`Environment.fast`).
        timeout_s: Deadline of one call, from when a thread takes it.
        threads: Calls that may run at the same time.
        wait_s: How long a call may wait for a free thread; None for as long as ``timeout_s``. Threads are given in the
            order of asking.
        hint: What to do about a call that passed its deadline.
    """

    def __init__(
        self,
        *,
        inline: bool,
        timeout_s: float,
        threads: int,
        wait_s: float | None = None,
        hint: str = "The session was closed; open another one.",
    ) -> None:
        self.inline = inline
        self.timeout_s = timeout_s
        self.threads = threads
        self.wait_s = timeout_s if wait_s is None else wait_s
        self.stuck = 0
        self._free = asyncio.Semaphore(threads)
        self._hint = hint
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix="environment")

    async def run(
        self, what: str, call: Callable[[], Result], late: Callable[[Result | None], object] | None = None
    ) -> Result:
        """The result of ``call``.

        Args:
            what: Name of the call for messages.
            late: Called in the thread if the call ends only after its deadline, with its result, or None if it failed:
                frees what nobody waits for any more.

        Raises:
            Refused: 404 for an unknown task, 500 with an id for an exception inside the environment (logged under that
                id), 503 if the environment is unavailable, no thread became free in time or all are stuck, 504 if the
                call took longer than the deadline.
        """
        if self.inline:
            return guarded(what, call)
        return await self.run_in_thread(what, call, late)

    async def run_in_thread(
        self, what: str, call: Callable[[], Result], late: Callable[[Result | None], object] | None = None
    ) -> Result:
        """As ``run``, never inline."""
        if self.stuck >= self.threads:
            raise Refused(503, f"all {self.threads} threads are stuck in the environment", "Restart the server.")
        try:
            async with asyncio.timeout(self.wait_s):
                await self._free.acquire()
        except TimeoutError as error:
            raise Refused(503, f"no thread was free for {what} within {self.wait_s:g} s", "Try again later.") from error
        job = self._pool.submit(guarded, what, call)
        waiter = asyncio.wrap_future(job)
        waiter.add_done_callback(lambda _: self._free.release())
        done, _ = await asyncio.wait({waiter}, timeout=self.timeout_s)
        if done:
            return waiter.result()
        self.stuck += 1
        waiter.add_done_callback(self._returned_late)
        if late is not None:
            job.add_done_callback(lambda job: guarded(f"clean-up after {what}", lambda: late(_result_or_none(job))))
        raise Refused(504, f"{what} took longer than {self.timeout_s:g} s", self._hint)

    def _returned_late(self, waiter: asyncio.Future) -> None:
        self.stuck -= 1
        if (error := waiter.exception()) is not None:
            log.warning("a call failed after its deadline: %s", error)

    def shutdown(self) -> None:
        """Takes no more calls; those that run are not waited for."""
        self._pool.shutdown(wait=False, cancel_futures=True)


def guarded(what: str, call: Callable[[], Result]) -> Result:
    """``call()``, with its exceptions turned into ``Refused``; see `Worker.run`."""
    try:
        return call()
    except Refused:
        raise
    except UnknownTask as error:
        raise Refused(404, str(error)) from error
    except Unavailable as error:
        raise Refused(503, error.reason, error.hint) from error
    except Failed as error:
        raise Refused(500, error.reason, error.hint) from error
    except Exception as error:
        incident = secrets.token_hex(6)
        log.exception("incident %s: %s failed inside the environment", incident, what)
        raise Refused(
            500, f"{what} failed inside the environment (incident {incident})", "See the server's log."
        ) from error


def _result_or_none(job: Future[Result]) -> Result | None:
    return None if job.exception() is not None else job.result()
