"""The sessions of a server: who holds which state, for how long, and in which order it changes.

Invariants:
- A session's state is touched by one call at a time (a lock for each session); sessions never share a state.
- After an exception or a passed deadline inside the environment the state is not trusted: the session is closed.
- Every session ends: closed by its client, or expired after ``idle_s`` without use. There are never more than ``max_sessions``.
- An id is ``{epoch}.{secret}``. The epoch is new with every start of a server, so an id that outlived a restart is told apart
  from one that is merely closed.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import secrets
import time
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from env_servers.base import Environment, Observed
from env_servers.metrics import Metrics
from env_servers.protocol import ObservedState, Snapshot
from env_servers.worker import Refused, Worker

State = TypeVar("State")
Result = TypeVar("Result")
_GONE = "Open a new session and replay its actions."


@dataclass(frozen=True)
class Limits:
    """What one server grants.

    Attributes:
        max_sessions: Sessions at the same time; more are refused with 429.
        idle_s: A session that nobody used for so many seconds is closed.
        step_timeout_s: Deadline of one call into the environment, for environments that are not ``fast``.
        threads: Environment calls that run at the same time, for environments that are not ``fast``.
        max_body_bytes: Largest request body. The default holds the largest ``expand`` that the protocol allows.
    """

    max_sessions: int = 20_000
    idle_s: float = 900.0
    step_timeout_s: float = 60.0
    threads: int = 16
    max_body_bytes: int = 16 << 20


@dataclass(eq=False)
class Session(Generic[State]):
    """One live state of one task.

    Attributes:
        last: What was last observed; the answer to a repeated step.
        steps: Actions since the task's start, those of the session it was forked from included.
        action: The action that led to ``last``; None where that was not a step of this session.
        used: When a request last named it, by the table's clock.
    """

    id: str
    state: State
    last: Observed
    steps: int = 0
    action: str | None = None
    used: float = 0.0
    closed: bool = False
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)

    def observed(self) -> ObservedState:
        """The session as it crosses the wire."""
        last = self.last
        return ObservedState(session=self.id, observation=last.observation, reward=last.reward, done=last.done, valid=last.valid)


class SessionTable(Generic[State]):
    """All sessions of one server. Its methods run in the server's event loop and raise `Refused`.

    Args:
        clock: Seconds; a test passes its own.
    """

    def __init__(
        self, environment: Environment[State], limits: Limits, metrics: Metrics, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.epoch = secrets.token_hex(6)
        self.worker = Worker(inline=environment.fast, timeout_s=limits.step_timeout_s, threads=limits.threads)
        self._environment = environment
        self._limits = limits
        self._metrics = metrics
        self._clock = clock
        self._sessions: OrderedDict[str, Session[State]] = OrderedDict()  # least recently used first
        self._reserved = 0
        self._disposals: set[asyncio.Task] = set()
        self._must_dispose = type(environment).close is not Environment.close

    def __len__(self) -> int:
        return len(self._sessions)

    # requests ---------------------------------------------------------------------------------------------------------

    async def open(self, task: str, session_id: str | None = None) -> Session[State]:
        """A fresh session of ``task``; under ``session_id``, if given, in place of the session that has it.

        Raises:
            Refused: 404 for an unknown task, 429 for too many sessions.
        """

        def reset() -> tuple[State, Observed]:
            state, observed = self._environment.reset(task)
            return state, _checked(observed)

        with self._room(0 if session_id in self._sessions else 1):
            state, observed = await self.worker.run("reset", reset, late=lambda made: self._free(made and made[0]))
        return self._add(self._new(state, observed, session_id=session_id))

    async def step(self, session_id: str, action: str, index: int | None = None, *, past_end: bool = False) -> ObservedState:
        """Moves a session in place.

        Args:
            index: Steps taken so far, by the client's count; makes a repeated request safe (see `StepRequest.index`).
            past_end: Allow steps after the end of the episode.

        Raises:
            Refused: 409 for a wrong index or an ended episode; 404 and 410 as in ``get``; 500, 503, 504 as in `Worker.run`.
        """
        async with self._use(session_id) as session:
            if index is not None and index != session.steps:
                if index == session.steps - 1 and action == session.action:
                    return session.observed()
                raise Refused(409, f"step index {index}, but the session has taken {session.steps} steps", _GONE)
            if session.last.done and not past_end:
                raise Refused(409, "the episode has ended", "Open another session.")
            observed = await self._call(session, "step", lambda: self._step(session.state, action))
            session.last, session.action, session.steps = observed, action, session.steps + 1
            return session.observed()

    async def expand(self, session_id: str, actions: Sequence[str]) -> list[ObservedState]:
        """Forks a session once for each action and steps the copies; all or nothing.

        Raises:
            Refused: 409 for an ended episode or an environment that cannot fork; 404, 410, 429, 500, 503, 504.
        """
        with self._room(len(actions)):
            async with self._use(session_id) as session:
                if session.last.done:
                    raise Refused(409, "the episode has ended", "Expand another session.")
                states, steps = await self._forks(session, len(actions)), session.steps + 1
            children = [self._new(s, session.last, steps=steps, action=a) for s, a in zip(states, actions, strict=True)]
            # Inline calls get no task each: this is the hot path of a tree search.
            if self.worker.inline:
                failures = [await self._advance(child) for child in children]
            else:
                failures = await asyncio.gather(*map(self._advance, children))
        for failure in failures:
            if failure is not None:
                for child in children:
                    self._remove(child)
                raise failure
        return [self._add(child).observed() for child in children]

    async def _advance(self, child: Session[State]) -> Refused | None:
        """Carries out the action of a child that nobody else knows yet."""
        try:
            child.last = await self._call(child, "step", lambda: self._step(child.state, child.action or ""))
        except Refused as refused:
            return refused
        return None

    async def fork(self, session_id: str) -> ObservedState:
        """An independent copy of a session, under a new id."""
        with self._room(1):
            async with self._use(session_id) as session:
                [state] = await self._forks(session, 1)
                last, steps, action = session.last, session.steps, session.action
        return self._add(self._new(state, last, steps=steps, action=action)).observed()

    async def snapshot(self, session_id: str) -> Snapshot:
        """The state of a session as data."""
        async with self._use(session_id) as session:
            data = await self._call(session, "snapshot", lambda: self._environment.snapshot(session.state))
            spec, last = self._environment.spec, session.last
            return Snapshot(
                environment=spec.name,
                version=spec.version,
                steps=session.steps,
                done=last.done,
                observation=last.observation,
                reward=last.reward,
                state=data,
            )

    async def restore(self, snapshot: Snapshot) -> ObservedState:
        """A new session from a snapshot, possibly of another server.

        Raises:
            Refused: 422 for a snapshot of another environment or version, or one that is damaged; 429.
        """
        spec = self._environment.spec
        if (snapshot.environment, snapshot.version) != (spec.name, spec.version):
            raise Refused(
                422,
                f"the snapshot is of {snapshot.environment} {snapshot.version}, this server runs {spec.name} {spec.version}",
                _GONE,
            )

        def restored() -> State:
            try:
                return self._environment.restore(snapshot.state)
            except ValueError as error:
                raise Refused(422, str(error), _GONE) from error

        with self._room(1):
            state = await self.worker.run("restore", restored, late=self._free)
        observed = Observed(snapshot.observation, snapshot.reward, snapshot.done)
        return self._add(self._new(state, observed, steps=snapshot.steps)).observed()

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
            Refused: 410 for an id of an earlier start of the server, 404 for one that is closed, expired or was never given out.
        """
        session = self._sessions.get(session_id)
        if session is None:
            epoch, dot, _ = session_id.partition(".")
            if dot and epoch != self.epoch:
                raise Refused(410, "the session belongs to another start of the server", _GONE)
            raise Refused(404, "no such session: it was closed, or nobody used it for too long", _GONE)
        session.used = self._clock()
        self._sessions.move_to_end(session_id)
        return session

    # life and death ---------------------------------------------------------------------------------------------------

    def sweep(self) -> int:
        """Closes the sessions that nobody used for ``idle_s``; says how many."""
        now, expired = self._clock(), 0
        for session in list(self._sessions.values()):
            if now - session.used < self._limits.idle_s:
                break
            if not session.lock.locked():
                self._remove(session)
                expired += 1
        self._metrics.expired.inc(expired)
        return expired

    async def sweep_forever(self) -> None:
        """Sweeps until cancelled."""
        while True:
            await asyncio.sleep(min(30.0, max(0.05, self._limits.idle_s / 4)))
            self.sweep()

    async def shutdown(self) -> None:
        """Closes every session and frees the threads; waits for the environment's own clean-up up to the deadline of a step."""
        self.close(list(self._sessions))
        if self._disposals:
            await asyncio.wait(self._disposals, timeout=self._limits.step_timeout_s)
        self.worker.shutdown()

    @contextlib.contextmanager
    def _room(self, wanted: int) -> Iterator[None]:
        """Holds room for sessions that are about to be made."""
        limit = self._limits.max_sessions
        if len(self) + self._reserved + wanted > limit:
            self.sweep()
        if len(self) + self._reserved + wanted > limit:
            raise Refused(
                429,
                f"{len(self)} of {limit} sessions are open and {wanted} more were asked for",
                "Close sessions that are done with, or raise --max-sessions.",
            )
        self._reserved += wanted
        try:
            yield
        finally:
            self._reserved -= wanted

    @contextlib.asynccontextmanager
    async def _use(self, session_id: str) -> AsyncIterator[Session[State]]:
        """The session, with its lock held."""
        session = self.get(session_id)
        async with session.lock:
            if session.closed:
                raise Refused(404, "the session was closed meanwhile", _GONE)
            yield session

    async def _call(self, session: Session[State], what: str, call: Callable[[], Result]) -> Result:
        """A call that touches the session's state; closes the session if that cannot be trusted afterwards."""
        try:
            return await self.worker.run(what, call, late=lambda _: self._environment.close(session.state))
        except Refused as refused:
            if refused.state_is_lost:
                self._metrics.lost.inc()
                self._remove(session, dispose=refused.status != 504)  # a call that is still running disposes of it itself
            raise

    def _free(self, state: State | None) -> None:
        if state is not None:
            self._environment.close(state)

    def _step(self, state: State, action: str) -> Observed:
        start = time.perf_counter()
        observed = _checked(self._environment.step(state, action))
        self._metrics.step_seconds.observe(time.perf_counter() - start)
        self._metrics.steps.inc()
        return observed

    async def _forks(self, session: Session[State], count: int) -> list[State]:
        if not self._environment.spec.can_fork:
            raise Refused(409, f"{self._environment.spec.name} cannot fork a state", _GONE)
        self._metrics.forks.inc(count)
        return await self._call(session, "fork", lambda: [self._environment.fork(session.state) for _ in range(count)])

    def _new(
        self, state: State, last: Observed, *, session_id: str | None = None, steps: int = 0, action: str | None = None
    ) -> Session[State]:
        return Session(session_id or f"{self.epoch}.{secrets.token_urlsafe(16)}", state, last, steps, action, self._clock())

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
            with contextlib.suppress(Refused):  # already logged, and nobody is left to tell
                await self.worker.run("close", lambda: self._environment.close(session.state))


def _checked(observed: Observed) -> Observed:
    """The environment's answer, refused where it could not be sent.

    Raises:
        TypeError, ValueError: The environment is broken; becomes a 500.
    """
    if not isinstance(observed.observation, str):
        raise TypeError(f"the observation is {type(observed.observation).__name__}, not text")
    if not math.isfinite(observed.reward):
        raise ValueError(f"the reward is {observed.reward}")
    observed.observation.encode()  # a lone surrogate cannot cross the wire
    return observed
