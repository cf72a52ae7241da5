"""The operations on sessions: open, step, expand, fork, snapshot, restore.

Invariants, beside those of `session_store.py`:
- A session's state is touched by one call at a time (a lock for each session); sessions never share a state.
- After an exception or a passed deadline inside the environment the state is not trusted: the session is closed.
"""

import asyncio
import contextlib
import math
import time
from collections.abc import AsyncIterator, Callable, Sequence
from functools import partial
from typing import TypeVar

from env_servers.base import ExpertStep, Observation
from env_servers.observation import CallStatus, OtherAnswer
from env_servers.protocol import ObservedState, Snapshot
from env_servers.session_store import GONE, Limits, Session, SessionStore, State
from env_servers.worker import Refused, Worker

__all__ = ["Limits", "Session", "SessionTable"]

Result = TypeVar("Result")


class SessionTable(SessionStore[State]):
    """The sessions of a server with the operations on them.
    All methods run in the server's event loop and raise `Refused`."""

    async def open(
        self,
        task: str,
        session_id: str | None = None,
        expected: str | None = None,
        others: Sequence[OtherAnswer] = (),
    ) -> Session[State]:
        """A fresh session of ``task``; under ``session_id``, if given, in place of the session that has it.

        Raises:
            Refused: 404 for an unknown task, 429 for too many sessions.
        """

        def reset() -> tuple[State, Observation]:
            known = {"others": tuple(others)} if others and self._environment.spec.reorders else {}
            state, observed = self._environment.reset(task, **self._expecting(expected), **known)
            return state, _checked(observed)

        with self._room(0 if session_id in self._sessions else 1):
            state, observed = await self.worker.run("reset", reset, late=lambda made: self._free(made and made[0]))
        return self._add(self._new(state, observed, session_id=session_id))

    async def step(
        self,
        session_id: str,
        action: str,
        index: int | None = None,
        expected: str | None = None,
        *,
        past_end: bool = False,
    ) -> ObservedState:
        """Moves a session in place.

        Args:
            index: Steps taken so far, by the client's count; makes a repeated request safe (see `StepRequest.index`).
            past_end: Allow steps after the end of the episode.

        Raises:
            Refused: 409 for a wrong index or an ended episode; 404 and 410 as in ``get``; 500, 503, 504 as in
                `Worker.run`.
        """
        self._check_length(action)
        async with self._use(session_id) as session:
            if index is not None and index != session.steps:
                if index == session.steps - 1 and action == session.action:
                    return session.observed()
                raise Refused(409, f"step index {index}, but the session has taken {session.steps} steps", GONE)
            if session.last.done and not past_end:
                raise Refused(409, "the episode has ended", "Open another session.")
            observed = await self._call(session, "step", lambda: self._step(session.state, action, expected))
            session.last, session.action, session.steps = observed, action, session.steps + 1
            return session.observed()

    async def expand(self, session_id: str, actions: Sequence[str]) -> list[ObservedState]:
        """Forks a session once for each action and steps the copies; all or nothing.

        Raises:
            Refused: 409 for an ended episode or an environment that cannot fork; 404, 410, 429, 500, 503, 504.
        """
        self._check_length(*actions)
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

    async def redraw(self, session_id: str, seed: int) -> ObservedState:
        """A session in another world that fits what was observed, under a new id.

        Raises:
            Refused: 409 for an environment that draws none; 404, 410, 429, 500, 503, 504.
        """
        if not self._environment.spec.redraws:
            raise Refused(409, f"{self._environment.spec.name} draws no other worlds")
        with self._room(1):
            async with self._use(session_id) as session:
                state = await self._call(session, "redraw", partial(self._environment.redraw, session.state, seed))
                last, steps, action = session.last, session.steps, session.action
        return self._add(self._new(state, last, steps=steps, action=action)).observed()

    async def actions(self, session_id: str) -> list[str]:
        """The actions that the environment suggests in a session."""
        async with self._use(session_id) as session:
            return await self._call(session, "actions", lambda: self._environment.actions(session.state))

    async def expert(self, session_id: str) -> list[ExpertStep] | None:
        """How the expert goes on from a session; None where it cannot, or the episode is over."""
        async with self._use(session_id) as session:
            if session.last.done:
                return None
            asked = partial(self._environment.expert_from, session.state)
            return await self._call(session, "the expert", asked, self._look_ups)

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
                status=last.status,
                scores=dict(last.scores),
                asked=last.asked,
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
                f"the snapshot is of {snapshot.environment} {snapshot.version}, this server runs {spec.name} "
                f"{spec.version}",
                GONE,
            )

        def restored() -> State:
            try:
                return self._environment.restore(snapshot.state)
            except ValueError as error:
                raise Refused(422, str(error), GONE) from error

        with self._room(1):
            state = await self.worker.run("restore", restored, late=self._free)
        seen = (snapshot.observation, snapshot.reward, snapshot.done)
        observed = Observation(*seen, status=snapshot.status, scores=snapshot.scores, asked=snapshot.asked)
        return self._add(self._new(state, observed, steps=snapshot.steps)).observed()

    # within a session -------------------------------------------------------------------------------------------------

    @contextlib.asynccontextmanager
    async def _use(self, session_id: str) -> AsyncIterator[Session[State]]:
        """The session, with its lock held."""
        session = self.get(session_id)
        async with session.lock:
            if session.closed:
                raise Refused(404, "the session was closed meanwhile", GONE)
            yield session

    async def _call(
        self, session: Session[State], what: str, call: Callable[[], Result], worker: Worker | None = None
    ) -> Result:
        """A call that touches the session's state; closes the session if that cannot be trusted afterwards."""
        try:
            run = (worker or self.worker).run
            return await run(what, call, late=lambda _: self._environment.close(session.state))
        except Refused as refused:
            if refused.state_is_lost:
                self._metrics.lost.inc()
                # a call that is still running disposes of it itself
                self._remove(session, dispose=refused.status != 504)
            raise

    def _check_length(self, *actions: str) -> None:
        most = self._environment.spec.action_chars
        if any(len(action) > most for action in actions):
            raise Refused(422, f"an action may have {most} characters")

    def _free(self, state: State | None) -> None:
        if state is not None:
            self._environment.close(state)

    def _expecting(self, expected: str | None) -> dict[str, str]:
        return {} if expected is None or not self._environment.spec.reorders else {"expected": expected}

    def _step(self, state: State, action: str, expected: str | None = None) -> Observation:
        start = time.perf_counter()
        observed = _checked(self._environment.step(state, action, **self._expecting(expected)))
        self._metrics.step_seconds.observe(time.perf_counter() - start)
        self._metrics.steps.inc()
        return observed

    async def _forks(self, session: Session[State], count: int) -> list[State]:
        if not self._environment.spec.can_fork:
            raise Refused(409, f"{self._environment.spec.name} cannot fork a state", GONE)
        self._metrics.forks.inc(count)

        def copies() -> list[State]:
            made: list[State] = []
            try:
                while len(made) < count:
                    made.append(self._environment.fork(session.state))
            # whatever ended it goes on to the caller; the copies are nobody's, and some hold memory elsewhere
            except BaseException:
                for state in made:
                    self._environment.close(state)
                raise
            return made

        return await self._call(session, "fork", copies)


def _checked(observed: Observation) -> Observation:
    """The environment's answer, refused where it could not be sent.

    Raises:
        TypeError, ValueError: The environment is broken; becomes a 500.
    """
    if not isinstance(observed.observation, str):
        raise TypeError(f"the observation is {type(observed.observation).__name__}, not text")
    if not math.isfinite(observed.reward):
        raise ValueError(f"the reward is {observed.reward}")
    CallStatus(observed.status)
    if not all(0 <= score <= 1 for score in observed.scores.values()):
        raise ValueError(f"the scores are {dict(observed.scores)}, and must be from 0 to 1")
    observed.observation.encode()  # a lone surrogate cannot cross the wire
    return observed
