"""OpenEnv's servers behind our sessions: our requests in, its WebSocket messages out.

A connection to ``/ws`` is an episode; the HTTP endpoints ``/reset`` and ``/step`` make a new environment for each
request and are of no use to an agent. No state can be copied. So the specification says ``can_fork: false``, and a
branch is a reset and a replay in which every observation must be the recorded one, to the letter.

A server has room for a few sessions (``max_concurrent_envs``, one unless its author allowed more), and a search holds
one for each leaf that may still be expanded. Where there is no more room, the connection that was idle longest is
closed, and its episode is played again, checked, when it is needed. A lost answer is never asked for again: a step
cannot be repeated there.
"""

import asyncio
import itertools
import json
import logging
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from functools import cache
from typing import Any, TypeVar, cast
from urllib.parse import quote

from aiohttp import ClientSession
from pydantic import BaseModel

from agentr.config.openenv import OpenEnvOptions
from agentr.envs.openenv_fields import Fields, fields_of
from agentr.envs.transport import EnvStats, RequestFailed, Transport, UnknownOnServer, reading
from agentr.envs.websocket import Failed, Full, Line, Rejected
from agentr.errors import ConfigError, InfraError
from agentr.foreign import read
from agentr.secrets import Secret, quoted
from env_servers import protocol as wire
from env_servers.observation import CallStatus
from env_servers.seeds import SPLITS, seed_splits

log = logging.getLogger(__name__)
Answer = TypeVar("Answer", bound=BaseModel)
Exchange = Callable[..., Awaitable[tuple[int, bytes]]]
#: Most connections to a server, whatever it has room for.
MOST = 256


@dataclass
class _Game:
    """An episode, and the connection on which it is played; none where it was given up to another one."""

    task: str
    opening: str = ""
    steps: list[tuple[str, str]] = field(default_factory=list)
    earned: float = 0.0
    line: Line | None = None


class _Server:
    """The connections to a server.

    Args:
        asked: Room for a request, as `Transport` gives it.

    Attributes:
        idle: Games that have a connection and are not at it now, the one that was used last at the end: it may go to
            another one.
    """

    def __init__(
        self, url: str, asked: Callable[..., AbstractAsyncContextManager[ClientSession]], timeout_s: float
    ) -> None:
        self._url, self._asked, self._timeout_s = url, asked, timeout_s
        self._most = MOST  # that it is known to have room for
        self._lines = 0  # open, or being opened
        self._changed = asyncio.Event()  # one got idle, or was closed
        self.idle: dict[str, _Game] = {}

    async def begin(self, game: _Game, reset: dict[str, Any]) -> dict[str, Any]:
        """Opens a connection for a game, and resets it there."""
        refused = False
        while True:
            await self._make_room(refused)
            try:
                async with (
                    self._asked("WS", self._url, f"{self._url}/ws", self._timeout_s) as http,
                    asyncio.timeout(self._timeout_s),
                ):
                    game.line = await Line.open(http, self._url)
                return await self.ask(game.line, "reset", reset)
            except Full as full:
                await self.drop(game)
                most = max(1, min(full.most or MOST, MOST))
                if most < self._most:
                    self._most = most
                    log.warning(
                        "%s has room for %d sessions (its max_concurrent_envs): states beyond them are played again "
                        "when they are needed",
                        self._url,
                        most,
                    )
                if not self._lines:
                    raise RequestFailed(
                        f"{self._url} has no room for a session, and none of those that it has is ours: {full}"
                    ) from full
                refused = True
            except BaseException:  # cancelled, too: the server keeps the place of a connection that stays open
                await self.drop(game, opened=True)
                raise

    async def _make_room(self, refused: bool) -> None:
        """Takes the room for one more connection, from the game that was idle longest if need be.

        Args:
            refused: The server had no room just now.
        """
        try:
            async with asyncio.timeout(self._timeout_s):
                while self._lines >= self._most or refused:
                    if self.idle:
                        await self.drop(self.idle.pop(next(iter(self.idle))))
                    else:
                        self._changed.clear()
                        await self._changed.wait()
                    refused = False
        except TimeoutError as error:
            raise RequestFailed(
                f"{self._url} has room for {self._most} sessions, and none became free within {self._timeout_s:g} s",
                session_lost=True,
            ) from error
        self._lines += 1

    async def ask(self, line: Line, kind: str, data: dict[str, Any]) -> dict[str, Any]:
        """The answer to a request on a connection."""
        what = f"{kind} at {self._url}/ws"
        try:
            async with self._asked("WS", self._url, what, self._timeout_s), asyncio.timeout(self._timeout_s):
                return await line.ask(kind, data)
        except Failed as failed:
            raise RequestFailed(f"{what}: {failed}", session_lost=True) from failed

    def rest(self, session: str, game: _Game) -> None:
        """A game is not played now: its connection may go to another one."""
        self.idle[session] = game
        self._changed.set()

    async def drop(self, game: _Game, *, opened: bool = False) -> None:
        """Closes a game's connection.

        Args:
            opened: Room was taken for one, whether or not it came about.
        """
        line, game.line = game.line, None
        if line is not None:
            await line.close()
        if line is not None or opened:
            self._lines -= 1
            self._changed.set()


class OpenEnvTransport(Transport):
    """Answers our requests with what an OpenEnv server says.

    Args:
        name: What the environment is called in tasks and trees.
    """

    def __init__(
        self, options: OpenEnvOptions, name: str, token: str | Secret, timeout_s: float, stats: EnvStats
    ) -> None:
        super().__init__(token, timeout_s, stats)
        self._options = options
        self._name = name
        self._fields: Fields  # a client asks for the specification before it opens anything
        self._spec: wire.EnvironmentSpec | None = None
        self._sizes: dict[str, int] = {}  # of the server's own splits
        self._games: dict[str, _Game] = {}
        self._numbers = itertools.count()
        self._server = cache(lambda url: _Server(url, self._asked, timeout_s))

    async def get(
        self, url: str, path: str, answer: type[Answer], *, timeout_s: float | None = None, **query: str
    ) -> Answer:
        if path == "/v1/spec":
            return cast(Answer, await self._specification(url))
        if path == "/v1/expert":
            return cast(Answer, wire.ExpertResponse(task=query["task"], steps=None))
        name = path.removeprefix("/v1/splits/")
        seeds = range(self._sizes[name]) if self._options.tasks == "server" else self._options.seeds[name]
        return cast(
            Answer, wire.SplitResponse(name=name, tasks=[wire.TaskEntry(id=f"{name}/{seed}") for seed in seeds])
        )

    async def post(self, url: str, path: str, body: BaseModel, answer: type[Answer]) -> Answer:
        match body:
            case wire.OpenRequest():
                done = await self._open(url, body)
            case wire.StepRequest():
                done = await self._step(url, body)
            case wire.CloseRequest():
                for session in body.sessions:
                    await self._end(url, session)
                done = wire.CloseResponse(closed=len(body.sessions))
            case wire.SessionRequest() if path == "/v1/actions":
                done = wire.ActionsResponse(actions=[])
            case _:
                raise AssertionError(f"OpenEnv's servers have nothing like {path}, and can_fork is false")
        return cast(Answer, done)

    async def close(self) -> None:
        await asyncio.gather(*(game.line.close() for game in self._games.values() if game.line is not None))
        await super().close()

    # what there is ----------------------------------------------------------------------------------------------------

    async def _specification(self, url: str) -> wire.EnvironmentSpec:
        if self._spec is None:
            options = self._options
            schema = await _json(self.exchange, "GET", url, "/schema")
            about = await _json(self.exchange, "GET", url, "/metadata")
            self._fields = reading("/schema", schema, lambda: fields_of(options, schema, url))
            title = str(about.get("name") or self._name)
            self._spec = wire.EnvironmentSpec(
                name=self._name,
                title=title,
                version=str(about.get("version") or "1"),
                instruction=options.instruction
                or _instruction(str(about.get("description") or title), options.action_format),
                acknowledgement="",
                action_format=options.action_format,
                splits=await self._splits(url) if options.tasks == "server" else seed_splits(options.seeds),
                reward=wire.RewardScale(low=options.low, high=options.high, success=options.success),
                step_limit=options.step_limit,
                can_fork=False,
                source=f"The OpenEnv server at {url}.",
            )
        return self._spec

    async def _splits(self, url: str) -> dict[str, wire.Split]:
        """The server's own splits, whose sizes are noted."""
        names = await _json(self.exchange, "GET", url, "/list_environments", of=object)
        at = f"/{quote(str(names[0]))}" if isinstance(names, list) and names else ""
        found: dict[str, wire.Split] = {}
        for split in await _json(self.exchange, "GET", url, f"{at}/splits", of=list):
            name, kind = reading("/splits", split, lambda split=split: (str(split["name"]), split.get("type")))
            sized = await _json(self.exchange, "POST", url, f"{at}/num_tasks", data=json.dumps({"split": name}))
            self._sizes[name] = reading("/num_tasks", sized, lambda sized=sized: int(sized["num_tasks"]))
            found[name] = wire.Split(about=f"{self._sizes[name]} tasks of the server's", train=kind == "train")
        return found

    def _reset(self, task: str) -> dict[str, Any]:
        """The arguments of ``reset`` for a task."""
        split, _, number = task.rpartition("/")
        if split not in (self._sizes if self._options.tasks == "server" else SPLITS) or not number.isdecimal():
            raise UnknownOnServer(
                f"{self._name} has no task {task!r}", hint="Its tasks are a split and a number, such as train/17."
            )
        named = {"split": split, "index": int(number)} if self._options.tasks == "server" else {"seed": int(number)}
        return {**self._options.reset, **named}

    # episodes ---------------------------------------------------------------------------------------------------------

    async def _open(self, url: str, body: wire.OpenRequest) -> wire.ObservedState:
        game, session = _Game(body.task), str(next(self._numbers))
        answer = await self._server(url).begin(game, self._reset(game.task))
        observed = self._observed(session, game, answer)
        game.opening = observed.observation
        self._games[session] = game
        self._server(url).rest(session, game)
        return observed

    async def _step(self, url: str, body: wire.StepRequest) -> wire.ObservedState:
        game = self._games.get(body.session)
        if game is None:
            raise RequestFailed(f"{url}: the session is closed", session_lost=True, wait=False)
        self._server(url).idle.pop(body.session, None)
        try:
            if game.line is None or game.line.closed:
                await self._again(url, game)
            answer = await self._move(url, game, body.action)
        except Rejected as rejected:
            self._server(url).rest(body.session, game)
            return _refused(url, body, self._fields, game.earned, rejected)
        except RequestFailed as failure:
            # Whether it was carried out is not known, and there is no asking.
            await self._end(url, body.session)
            raise RequestFailed(
                str(failure), session_lost=True, server_down=failure.server_down, wait=failure.wait
            ) from failure
        except BaseException:  # cancelled, too: an answer may still be on its way, and the next question would get it
            await self._end(url, body.session)
            raise
        observed = self._observed(body.session, game, answer)
        game.steps.append((body.action, observed.observation))
        self._server(url).rest(body.session, game)
        return observed

    async def _move(self, url: str, game: _Game, action: str) -> dict[str, Any]:
        assert game.line is not None, "it was begun"
        return await self._server(url).ask(game.line, "step", self._fields.compose(action))

    async def _again(self, url: str, game: _Game) -> None:
        """Plays an episode again that lost its connection.
        If it is not the same again, it is lost: our session then says how."""
        await self._server(url).drop(game)
        game.earned = 0.0
        self._stats.replays += 1
        answer = await self._server(url).begin(game, self._reset(game.task))
        for number, (action, recorded) in enumerate([("", game.opening), *game.steps]):
            if number:
                answer = await self._move(url, game, action)
                self._stats.steps += 1
                self._stats.replayed_steps += 1
            text = self._observed("", game, answer).observation
            if text != recorded:
                raise RequestFailed(
                    f"{url} did not repeat task {game.task!r}: action {number} was {recorded!r}, is {text!r}",
                    session_lost=True,
                )

    def _observed(self, session: str, game: _Game, answer: dict[str, Any]) -> wire.ObservedState:
        earned = game.earned if self._options.returns == "sum" else 0.0

        def observed() -> wire.ObservedState:
            text, reward = self._fields.read(answer["observation"]), earned + float(answer.get("reward") or 0.0)
            return wire.ObservedState(
                session=session, observation=text, reward=reward, done=answer.get("done") or False
            )

        seen = reading("a step", answer, observed)
        game.earned = seen.reward
        return seen

    async def _end(self, url: str, session: str) -> None:
        self._server(url).idle.pop(session, None)
        game = self._games.pop(session, None)
        if game is not None:
            await self._server(url).drop(game)


def _instruction(description: str, action_format: str) -> str:
    """The first message where the options give none."""
    if action_format != "react":
        return description
    return (
        f"{description}\nEach turn, answer with one thought and one action:\n"
        "Thought: what you see, and what to do next\nAction: the action"
    )


async def _json(exchange: Exchange, method: str, url: str, path: str, of: type = dict, **content: Any) -> Any:
    status, data = await exchange(method, url, path, **content)
    what = f"{method} {url}{path}: {status} {quoted(data, 200)}"
    if status in (401, 403):
        raise InfraError(what, hint="Check env.token_env.")
    if status == 501:
        raise ConfigError(f"{url} lists no tasks of its own ({what})", hint="Set env.options.tasks=seeds.")
    if status == 404:
        raise ConfigError(
            what, hint="Is it an OpenEnv server, of openenv 0.2 or later? Those before have no sessions and no /schema."
        )
    if status == 200 and isinstance(found := reading(f"{method} {url}{path}", data, lambda: read(data)), of):
        return found
    raise RequestFailed(what)


def _refused(url: str, body: wire.StepRequest, fields: Fields, earned: float, rejected: Rejected) -> wire.ObservedState:
    """The answer to an action that the server's schema does not take: the agent's fault where it is about the agent's
    text."""
    if other := [f"{name}: {why}" for name, why in rejected.errors if name.partition(".")[0] != fields.action[0]]:
        hint = "See its /schema, and set env.options.action and env.options.action_field."
        raise ConfigError(
            f"{url} does not take the action {fields.compose(body.action)}: {'; '.join(other)}", hint=hint
        )
    text = "; ".join(why for _, why in rejected.errors)
    return wire.ObservedState(
        session=body.session, observation=text, reward=earned, done=False, valid=False, status=CallStatus.error
    )
