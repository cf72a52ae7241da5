"""The store of a server's sessions: creation, lookup, expiry, disposal.

Invariants:
- Every session ends: closed by its client, or expired after ``idle_s`` without use. There are never more than
  ``max_sessions``.
- An id is ``{epoch}.{secret}``. The epoch is new with every start of a server, so an id that outlived a restart is not
  taken for one that is merely closed.
- The environment frees each state once, after the last call that touches it.
"""

import asyncio
import contextlib
import secrets
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from env_servers.base import Environment, Observation
from env_servers.metrics import Metrics
from env_servers.protocol import EXPERT_TIMEOUT_S, ObservedState
from env_servers.worker import NoSuchSession, Refused, Worker

State = TypeVar("State")
Result = TypeVar("Result")
#: Splits and experts that are worked on at the same time. They have threads of their own, so that slow ones do not hold
#: up the steps.
LOOK_UP_THREADS = 4
#: The hint for a session that is gone.
GONE = "Open a new session and replay its actions."


@dataclass(frozen=True)
class Limits:
    """Limits of one server.

    Attributes:
        max_sessions: Sessions at the same time; more are refused with 429.
        idle_s: A session that nobody used for so many seconds is closed.
        step_timeout_s: Deadline of one call into the environment, for environments that are not ``fast``.
        expert_timeout_s: Deadline of a split or an expert, in every environment.
        wait_s: How long a call may wait for its turn before that deadline begins.
        threads: Environment calls that run at the same time, for environments that are not ``fast``; no more than the
            specification says of calls that go on in parallel.
        max_body_bytes: Largest request body. The default holds the largest ``expand`` that the protocol allows.
    """

    max_sessions: int = 20_000
    idle_s: float = 900.0
    step_timeout_s: float = 60.0
    wait_s: float = 300.0
    expert_timeout_s: float = EXPERT_TIMEOUT_S
    threads: int = 16
    max_body_bytes: int = 16 << 20


@dataclass(eq=False)
class Session(Generic[State]):
    """One live state of one task.

    Attributes:
        last: What was last observed; the answer to a repeated step.
        steps: Actions since the task's start, those of the session it was forked from included.
        action: The action that led to ``last``; None where that was not a step of this session.
        used: When a request last named it, by the store's clock.
    """

    id: str
    state: State
    last: Observation
    steps: int = 0
    action: str | None = None
    used: float = 0.0
    closed: bool = False
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)

    def observed(self) -> ObservedState:
        """The session as it crosses the wire."""
        return ObservedState(session=self.id, **vars(self.last))


class SessionStore(Generic[State]):
    """The sessions of one server, least recently used first.
    Its methods run in the server's event loop and raise `Refused`.

    Args:
        clock: Seconds; a test passes its own.
    """

    def __init__(
        self,
        environment: Environment[State],
        limits: Limits,
        metrics: Metrics,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.epoch = secrets.token_hex(6)
        threads = min(limits.threads, environment.spec.parallel or limits.threads)
        self.worker = Worker(
            inline=environment.fast, timeout_s=limits.step_timeout_s, threads=threads, wait_s=limits.wait_s
        )
        self._look_ups = Worker(
            inline=False,
            timeout_s=limits.expert_timeout_s,
            threads=LOOK_UP_THREADS,
            hint=(
                "It may need more time: 'python -m env_servers serve' takes --expert-timeout-s; the client's deadline "
                "is env.timeout_s."
            ),
        )
        self._environment = environment
        self._limits = limits
        self._metrics = metrics
        self._clock = clock
        self._sessions: OrderedDict[str, Session[State]] = OrderedDict()  # least recently used first
        self._reserved = 0
        self._refused: float | None = None
        self._disposals: set[asyncio.Task] = set()
        self._must_dispose = type(environment).close is not Environment.close

    def __len__(self) -> int:
        return len(self._sessions)

    @property
    def stuck(self) -> int:
        """Calls into the environment that passed their deadline and still run."""
        return self.worker.stuck + self._look_ups.stuck

    @property
    def max_sessions(self) -> int:
        return self._limits.max_sessions

    @property
    def refused_s(self) -> float | None:
        """Seconds since a session was refused because there was no room; None if none was."""
        return None if self._refused is None else self._clock() - self._refused

    async def look_up(self, what: str, call: Callable[[], Result]) -> Result:
        """Runs a call that touches no session (a split, an expert); raises as `Worker.run` does."""
        return await self._look_ups.run(what, call)

    def close(self, session_ids: Sequence[str]) -> int:
        """Closes those of the sessions that exist, and says how many: to close twice is no error."""
        found = [session for i in dict.fromkeys(session_ids) if (session := self._sessions.get(i)) is not None]
        for session in found:
            self._remove(session)
        self._metrics.closed.inc(len(found))
        return len(found)

    def get(self, session_id: str) -> Session[State]:
        """A session, now counted as used.

        Raises:
            Refused: 410 for an id of an earlier start of the server, 404 for one that is closed, expired or was never
                given out.
        """
        session = self._sessions.get(session_id)
        if session is None:
            epoch, dot, _ = session_id.partition(".")
            if dot and epoch != self.epoch:
                raise Refused(410, "the session belongs to another start of the server", GONE)
            raise NoSuchSession("no such session: it was closed, or nobody used it for too long", GONE)
        session.used = self._clock()
        self._sessions.move_to_end(session_id)
        return session

    def ids(self) -> list[str]:
        """The ids of all sessions."""
        return list(self._sessions)

    def sweep(self) -> int:
        """Closes the sessions that nobody used for ``idle_s``; says how many."""
        now, expired = self._clock(), []
        for (
            session
            # in the order of their use: a look at those that are in use would take a full server's time
        ) in self._sessions.values():
            if now - session.used < self._limits.idle_s:
                break
            if not session.lock.locked():
                expired.append(session)
        for session in expired:
            self._remove(session)
        self._metrics.expired.inc(len(expired))
        return len(expired)

    async def sweep_forever(self) -> None:
        """Sweeps until cancelled."""
        while True:
            await asyncio.sleep(min(30.0, max(0.05, self._limits.idle_s / 4)))
            self.sweep()

    async def shutdown(self) -> None:
        """Closes every session and frees the threads; waits for the environment's own clean-up up to the deadline of a
        step."""
        self.close(list(self._sessions))
        if self._disposals:
            await asyncio.wait(self._disposals, timeout=self._limits.step_timeout_s)
        self.worker.shutdown()
        self._look_ups.shutdown()

    @contextlib.contextmanager
    def _room(self, wanted: int) -> Iterator[None]:
        """Holds room for sessions that are about to be made."""
        limit = self._limits.max_sessions
        if len(self) + self._reserved + wanted > limit:
            self.sweep()
        if len(self) + self._reserved + wanted > limit:
            self._refused = self._clock()
            raise Refused(
                429,
                f"{len(self)} of {limit} sessions are open and {wanted} more were asked for",
                "Close sessions that are done with, or hold more: 'python -m env_servers serve' takes --max-sessions.",
            )
        self._reserved += wanted
        try:
            yield
        finally:
            self._reserved -= wanted

    def _new(
        self,
        state: State,
        last: Observation,
        *,
        session_id: str | None = None,
        steps: int = 0,
        action: str | None = None,
    ) -> Session[State]:
        return Session(
            session_id or f"{self.epoch}.{secrets.token_urlsafe(16)}", state, last, steps, action, self._clock()
        )

    def _add(self, session: Session[State]) -> Session[State]:
        """Makes a session known, in place of one with the same id."""
        if (replaced := self._sessions.get(session.id)) is not None:
            self._remove(replaced)
        self._sessions[session.id] = session
        self._metrics.opened.inc()
        return session

    def _remove(self, session: Session[State], *, dispose: bool = True) -> None:
        """Forgets a session and has the environment free its state, once."""
        self._sessions.pop(session.id, None)
        if dispose and self._must_dispose and not session.closed:
            task = asyncio.ensure_future(self._dispose(session))
            self._disposals.add(task)
            task.add_done_callback(self._disposals.discard)
        session.closed = True

    async def _dispose(self, session: Session[State]) -> None:
        async with session.lock:
            with contextlib.suppress(Refused):  # already logged, and nobody is left to answer
                await self.worker.run("close", lambda: self._environment.close(session.state))
