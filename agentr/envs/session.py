"""One live state of one task, as search sees it.

Whether a child cost a fork or a replay, and whether the server that held the state is still the same process, is
settled in here. The rule that makes it safe: a session is its history. Whenever the server's side is gone, the history
is played again on a fresh session, and every observation must be the recorded one, to the letter.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TypeVar

from agentr.envs.pool import Remote, ServerPool
from agentr.envs.transport import RequestFailed
from agentr.errors import InfraError
from agentr.types import Observation, Task
from env_servers.observation import OtherAnswer
from env_servers.protocol import (
    MAX_EXPAND,
    ActionsResponse,
    EnvironmentSpec,
    ExpandRequest,
    ExpandResponse,
    ExpertResponse,
    ObservedState,
    OpenRequest,
    RedrawRequest,
    SessionRequest,
    StepRequest,
)

Result = TypeVar("Result")

#: What becomes a space where observations are to be one line.
_SPACES = str.maketrans("\n\t", "  ")


@dataclass(frozen=True)
class Recorded:
    """An action and what the environment answered; the action that was carried out, where that is another than was
    asked for."""

    action: str
    observation: str


@dataclass(frozen=True)
class World:
    """Another world that a session goes on in: drawn after so many actions, by a seed."""

    taken: int
    seed: int


@dataclass(frozen=True)
class Exchange:
    """What is said to servers of an environment about sessions: an attempt each, and rewards come back in [0, 1].

    Attributes:
        one_line: Line breaks and tabs in answers to actions become spaces.
    """

    pool: ServerPool
    spec: EnvironmentSpec
    one_line: bool = False

    async def step(self, remote: Remote, action: str, index: int, expected: str | None = None) -> Observation:
        """Moves a session by an action, its ``index``-th; in a replay to what was observed then, where that may come
        beside others."""
        body = StepRequest(
            session=remote.id, action=action, index=index, expected=expected if self.spec.reorders else None
        )
        return self._observed(await self.pool.post(remote.url, "/v1/step", body, ObservedState))

    async def fork(self, remote: Remote, actions: Sequence[str]) -> list[tuple[Remote, Observation]]:
        """Opens a child of a session for each action."""
        answer = await self.pool.post(
            remote.url, "/v1/expand", ExpandRequest(session=remote.id, actions=[*actions]), ExpandResponse
        )
        if len(answer.children) != len(actions):
            raise InfraError(f"{remote.url} answered {len(actions)} actions with {len(answer.children)} children")
        return [(Remote(remote.url, child.session), self._observed(child)) for child in answer.children]

    async def suggestions(self, remote: Remote) -> list[str]:
        return (
            await self.pool.post(remote.url, "/v1/actions", SessionRequest(session=remote.id), ActionsResponse)
        ).actions

    async def expert(self, remote: Remote) -> list[tuple[str, str]] | None:
        asked = SessionRequest(session=remote.id)
        return (await self.pool.post(remote.url, "/v1/expert", asked, ExpertResponse)).steps

    async def redraw(self, remote: Remote, seed: int) -> Remote:
        answer = await self.pool.post(
            remote.url, "/v1/redraw", RedrawRequest(session=remote.id, seed=seed), ObservedState
        )
        return Remote(remote.url, answer.session)

    async def replay(
        self,
        task: Task,
        opening: str | None,
        history: Sequence[Recorded],
        others: Sequence[OtherAnswer],
        worlds: Sequence[World] = (),
    ) -> tuple[Remote, str, Observation, tuple[OtherAnswer, ...]]:
        """Plays a history on a fresh session, and returns that, what it saw first and last, and what other models
        answered on the way.

        Args:
            worlds: Those that it went on in.

        Raises:
            RequestFailed: The attempt failed.
            InfraError: An observation was not the recorded one.
        """
        url, index, stats = await self.pool.place(), 0, self.pool.stats
        asked = OpenRequest(task=task.id, expected=opening if self.spec.reorders else None, others=[*others])
        opened = await self.pool.post(url, "/v1/open", asked, ObservedState)
        stats.opens += 1
        remote, first = Remote(url, opened.session), opened.observation
        last = replace(self._observed(opened), observation=first)
        heard = [*_heard(last)]
        try:
            self._check(task, 0, opening, first)
            for number, recorded in enumerate(history, start=1):
                remote = await self._enter(remote, number - 1, worlds)
                if (fault := unsendable(recorded.action, self.spec.action_chars)) is not None:
                    last = Observation.failed(fault, last.reward)
                else:
                    last = await self.step(remote, recorded.action, index, recorded.observation)
                    heard += _heard(last)
                    index += 1
                self._check(task, number, recorded.observation, last.observation)
            remote = await self._enter(remote, len(history), worlds)
        except (RequestFailed, InfraError):
            self.pool.drop(remote)
            raise
        stats.steps += index
        stats.replayed_steps += index
        stats.replays += index > 0
        return remote, first, last, tuple(heard)

    async def _enter(self, remote: Remote, taken: int, worlds: Sequence[World]) -> Remote:
        """Goes over into the worlds that were drawn after so many actions."""
        for world in worlds:
            if world.taken == taken:
                left, remote = remote, await self.redraw(remote, world.seed)
                self.pool.drop(left)
        return remote

    def _check(self, task: Task, step: int, recorded: str | None, observed: str) -> None:
        if recorded is not None and recorded != observed:
            raise InfraError(
                f"{self.spec.name} did not repeat itself: task {task.id!r}, action {step}, recorded {recorded!r}, now "
                f"{observed!r}",
                hint="The environment is not deterministic, or the server runs another version or other options of it.",
            )

    def _observed(self, state: ObservedState) -> Observation:
        low, high = self.spec.reward.low, self.spec.reward.high
        reward = min(1.0, max(0.0, (state.reward - low) / (high - low)))
        text = state.observation.translate(_SPACES) if self.one_line else state.observation
        rest = (state.done, state.valid, state.executed, state.status, state.scores, state.asked, state.again)
        return Observation(text, reward, *rest)


class Session:
    """A state of a task; made by `EnvClient.open` and by ``expand``.

    Not for two ``step`` calls at the same time; any number of ``expand`` calls may run at once. All methods raise
    ``InfraError`` after the pool's retries, and where a replay does not give the recorded observations.

    Attributes:
        last: What was last observed, reward in [0, 1].
        opening: The first observation of the task.
        history: The actions since then, with their observations.
    """

    def __init__(
        self,
        exchange: Exchange,
        task: Task,
        history: tuple[Recorded, ...] = (),
        *,
        opening: str | None = None,
        others: tuple[OtherAnswer, ...] = (),
        last: Observation | None = None,
        worlds: tuple[World, ...] = (),
    ) -> None:
        self.task = task
        self.history = history
        self._exchange = exchange
        self._opening = opening
        self._others = others
        self._worlds = worlds
        self._last = last
        self._remote: Remote | None = None
        self._rebuilding = asyncio.Lock()

    def __del__(self) -> None:
        remote = getattr(self, "_remote", None)
        if remote is not None:
            self._exchange.pool.drop(remote)

    @property
    def last(self) -> Observation:
        assert self._last is not None, "EnvClient.open returns a session only once it was observed"
        return self._last

    @property
    def opening(self) -> str:
        assert self._opening is not None, "EnvClient.open returns a session only once it was observed"
        return self._opening

    @property
    def remote(self) -> Remote | None:
        """The session on a server that holds the state; None while it has to be rebuilt before use."""
        return self._remote

    async def step(self, action: str) -> Session:
        """Moves this session by one action, and returns it.

        Raises:
            ValueError: The episode has ended.
        """
        self._refuse_ended()
        fault = self._unsendable(action)
        if fault is not None:
            self._record(action, Observation.failed(fault, self.last.reward))
            return self
        index = sum(self._unsendable(recorded.action) is None for recorded in self.history)
        last = await self._on_server("a step", lambda remote: self._exchange.step(remote, action, index))
        self._exchange.pool.stats.steps += 1
        self._record(action, last)
        return self

    async def expand(self, actions: Sequence[str]) -> list[Session]:
        """A child for each action, in order; equal actions give children of their own. This session stays where it is.

        Raises:
            ValueError: The episode has ended.
        """
        self._refuse_ended()
        if not self._exchange.spec.can_fork:
            return await self._expand_by_replay(actions)
        sendable = [action for action in actions if self._unsendable(action) is None]
        answers: list[tuple[Remote, Observation]] = []
        for start in range(0, len(sendable), MAX_EXPAND):
            some = sendable[start : start + MAX_EXPAND]
            answers += await self._on_server(
                "an expansion", lambda remote, some=some: self._exchange.fork(remote, some)
            )
        self._exchange.pool.stats.steps += len(answers)
        self._exchange.pool.stats.forks += len(answers)
        remaining, children = iter(answers), [self._copy() for _ in actions]
        for child, action in zip(children, actions, strict=True):
            if (fault := self._unsendable(action)) is None:
                child._remote, last = next(remaining)
            else:  # it was not sent: the child is rebuilt when it is used
                last = Observation.failed(fault, self.last.reward)
            child._record(action, last)
        return children

    async def suggestions(self) -> list[str]:
        """Actions that the environment suggests here; empty where it has no notion of it."""
        return await self._on_server("a look at the actions", self._exchange.suggestions)

    async def expert(self) -> list[tuple[str, str]] | None:
        """How the environment's expert goes on from here, as pairs of thought and action; None where it cannot."""
        if not self._exchange.spec.guides or self.last.done:
            return None
        return await self._on_server("the expert", self._exchange.expert)

    async def redraw(self, seed: int) -> Session:
        """The same point of the episode in another world that fits all that was observed so far; equal seeds give equal
        worlds. This session stays where it is.

        Raises:
            ValueError: The environment draws no worlds.
        """
        if not self._exchange.spec.redraws:
            raise ValueError(f"{self._exchange.spec.name} draws no worlds")
        other = self._copy()
        other._worlds += (World(len(self.history), seed),)
        drawn = partial(self._exchange.redraw, seed=seed)
        other._remote = await self._on_server("another world", drawn)
        return other

    async def close(self) -> None:
        """Frees the server's side. The session may still be used: it is then rebuilt from its history."""
        await self._exchange.pool.close(_remotes([self]))

    async def ready(self) -> Remote:
        """Returns the session on a server that holds the state, rebuilt if need be.

        Raises:
            RequestFailed: The attempt failed; to be called within `ServerPool.retry`.
            InfraError: The environment did not repeat the recorded observations.
        """
        if self._remote is not None:
            return self._remote
        async with self._rebuilding:
            if self._remote is None:
                self._remote, self._opening, self._last, self._others = await self._exchange.replay(
                    self.task, self._opening, self.history, self._others, self._worlds
                )
            return self._remote

    def detach(self) -> Remote | None:
        """Gives up the session on the server and returns it."""
        remote, self._remote = self._remote, None
        return remote

    # ------------------------------------------------------------------------------------------------------------------

    async def _on_server(self, what: str, request: Callable[[Remote], Awaitable[Result]]) -> Result:
        """The answer to a request to this session, which is rebuilt before it and after a failure as often as it
        takes."""

        async def call() -> Result:
            remote = await self.ready()
            try:
                return await request(remote)
            except RequestFailed as failure:
                if failure.session_lost and self._remote is remote:  # another call may have rebuilt it meanwhile
                    self._remote = None
                raise

        return await self._exchange.pool.retry(f"{what} of task {self.task.id!r}", call)

    def _copy(self) -> Session:
        """The same history, with nothing on a server."""
        kept = {"opening": self._opening, "others": self._others, "last": self._last, "worlds": self._worlds}
        return Session(self._exchange, self.task, self.history, **kept)

    async def _expand_by_replay(self, actions: Sequence[str]) -> list[Session]:
        """Children that each play the history again, but for one, which takes over this session's state: a rollout
        without branches then never replays."""
        children = [self._copy() for _ in actions]
        heir = next(
            (child for child, action in zip(children, actions, strict=True) if self._unsendable(action) is None), None
        )
        if heir is not None:
            heir._remote = self.detach()
        results = await asyncio.gather(
            *(c.step(a) for c, a in zip(children, actions, strict=True)), return_exceptions=True
        )
        for result in results:
            if isinstance(result, BaseException):
                await self._exchange.pool.close(_remotes(children))
                raise result
        return children

    def _record(self, action: str, last: Observation) -> None:
        self._last = last
        self._others += _heard(last)
        self.history = (*self.history, Recorded(last.executed or action, last.observation))

    def _unsendable(self, action: str) -> str | None:
        return unsendable(action, self._exchange.spec.action_chars)

    def _refuse_ended(self) -> None:
        if self.last.done:
            raise ValueError(f"the episode of task {self.task.id!r} has ended: nothing can follow")


def _heard(seen: Observation) -> tuple[OtherAnswer, ...]:
    return () if seen.asked is None else seen.asked.others


def _remotes(sessions: Sequence[Session]) -> list[Remote]:
    """Takes the servers' side from sessions, to be closed."""
    return [remote for session in sessions if (remote := session.detach()) is not None]


def unsendable(action: str, most: int) -> str | None:
    """The message to the agent about an action that the server does not accept; None for an action that can be sent."""
    if len(action) > most:
        return "action too long"
    if "\0" in action or not _is_text(action):
        return "action is not text"
    return None


def _is_text(action: str) -> bool:
    try:
        action.encode()
    except UnicodeEncodeError:
        return False
    return True
