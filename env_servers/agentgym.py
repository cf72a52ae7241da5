"""The server's side of AgentGym's protocol, so that its clients and whatever was built on them can play here unchanged.

Each of its environments has a dialect of its own: the paths, keys and meanings are in the environment's folder
(``agentgym.py``, a function ``routes``), and what they share is here. The client's side of a dialect is in
`dialect.py`.

Kept everywhere: integer ids counted from 0, steps past the end, no token in its clients. Not kept: games that live for
ever (an idle one expires; its id is then "not valid"), ids that are given out twice, one process for each game.

``data_idx`` N (also called ``session_id``, ``game`` and ``id``) is the task ``agentgym/N`` where the environment has
that numbering; where it does not, N counts through the tasks of its splits in the order of the specification.
"""

import itertools
from collections.abc import Awaitable, Callable, Coroutine
from functools import wraps
from typing import Annotated, Any

from fastapi import APIRouter
from fastapi.routing import APIRoute
from pydantic import BaseModel, Field

from env_servers.base import Environment, TaskInfo
from env_servers.protocol import MAX_ACTION_CHARS, ObservedState
from env_servers.registry import dialect_module
from env_servers.sessions import Session, SessionTable
from env_servers.worker import NoSuchSession, Refused

Handler = Callable[..., Coroutine[Any, Any, Any]]


class NoDialect(ValueError):
    """AgentGym has no such environment, so there is nothing that its clients could speak."""


class Games:
    """Integer ids over a session table. A game's session has a fixed name, so there is nothing else to keep."""

    def __init__(self, environment: Environment, table: SessionTable) -> None:
        self.title = environment.spec.title
        self._environment = environment
        self._table = table
        self._ids = itertools.count()
        self._listed: dict[str, TaskInfo] = {}

    async def create(self, index: int | None = None) -> int:
        """A new id, and at once a game of task ``index`` under it; None takes the task whose index is the id."""
        number = next(self._ids)
        await self._start(number, number if index is None else index)
        return number

    async def reset(self, number: int, index: int) -> Session:
        """Task ``index`` in place of the game.

        Raises:
            Refused: 404 for an id that is not valid, or no such task.
        """
        self.session(number)
        return await self._start(number, index)

    async def step(self, number: int, action: str) -> tuple[ObservedState, float]:
        """Carries out an action; returns the answer and the reward before it."""
        before = self.session(number).last.reward
        return await self._table.step(self._name(number), action, past_end=True), before

    async def actions(self, number: int) -> list[str]:
        return await self._table.actions(self._name(number))

    async def label(self, number: int, name: str) -> str:
        """A label of the game's task; empty where the task has none, or is of no split."""
        task = (await self._tasks()).get(self.session(number).state.task)
        return "" if task is None else str(task.labels.get(name, ""))

    def session(self, number: int) -> Session:
        return self._table.get(self._name(number))

    def observation(self, number: int) -> str:
        return self.session(number).last.observation

    def close(self, number: int) -> bool:
        return self._table.close([self._name(number)]) == 1

    def numbers(self) -> list[int]:
        """The ids of the games that there are."""
        start = self._name("")
        return sorted(int(name.removeprefix(start)) for name in self._table.ids() if name.startswith(start))

    async def _start(self, number: int, index: int) -> Session:
        try:
            return await self._table.open(f"agentgym/{index}", self._name(number))
        except Refused as refused:
            if refused.status != 404:
                raise
            tasks = list(await self._tasks())
            if not 0 <= index < len(tasks) or tasks[0].startswith("agentgym/"):
                raise
            return await self._table.open(tasks[index], self._name(number))

    async def _tasks(self) -> dict[str, TaskInfo]:
        """Every task once, in the order of the splits; those in AgentGym's numbering alone where there are any."""
        if not self._listed:
            self._listed = await self._table.look_up("the splits", self._list)
        return self._listed

    def _list(self) -> dict[str, TaskInfo]:
        splits = self._environment.spec.splits
        # Splits with AgentGym's name come first and hold all of its tasks; to list the others may mean to read
        # thousands of files.
        for names in ([name for name in splits if name.startswith("agentgym")], list(splits)):
            found = {task.id: task for name in names for task in self._environment.split(name)}
            if numbered := {id: task for id, task in found.items() if id.startswith("agentgym/")}:
                return numbered
        return found

    def _name(self, number: int | str) -> str:
        return f"{self._table.epoch}.agentgym-{number}"


#: What an agent does: AgentGym's environments know no longer actions.
Action = Annotated[str, Field(max_length=MAX_ACTION_CHARS)]


class IdBody(BaseModel):
    id: int


class ActionBody(BaseModel):
    id: int
    action: Action


class DataBody(BaseModel):
    id: int
    data_idx: int | None = 0


class IndexBody(BaseModel):
    env_idx: int


class IndexActionBody(BaseModel):
    env_idx: int
    action: Action


def router(environment: Environment, table: SessionTable) -> APIRouter:
    """The endpoints of an environment's dialect, at the root as in the original.

    Raises:
        NoDialect: The environment has none.
    """
    module = dialect_module(type(environment))
    if module is None:
        raise NoDialect(f"{environment.spec.name} is no environment of AgentGym's; serve it without --agentgym")
    games = Games(environment, table)
    routes: APIRouter = module.routes(games)

    @routes.get("/")
    async def hello() -> str:
        return f"This is environment {games.title}."

    return routes


def paths(routes: APIRouter) -> set[str]:
    """The paths of a dialect."""
    return {route.path for route in routes.routes if isinstance(route, APIRoute)}


def shared_routes(games: Games, answer: Callable[[int, ObservedState, float], Awaitable[dict[str, Any]]]) -> APIRouter:
    """Makes the routes common to the dialects that answer errors as text and call an id ``id``; a dialect adds its own.

    Args:
        answer: What ``/step`` answers beside ``observation`` and ``done``, from the id, what was observed and the
            reward before it.
    """
    found = APIRouter()

    @found.post("/step")
    @errors_as_answers
    async def step(body: ActionBody) -> Any:
        observed, before = await games.step(body.id, body.action)
        return {"observation": observed.observation, "done": observed.done, **await answer(body.id, observed, before)}

    @found.get("/observation")
    @errors_as_answers
    async def observation(id: int) -> Any:
        return games.observation(id)

    @found.get("/detail")
    @errors_as_answers
    async def detail(id: int) -> Any:
        last = games.session(id).last
        return {"observation": last.observation, "reward": whole(last.reward), "done": last.done, "deleted": False}

    @found.post("/close")
    async def close(body: IdBody) -> bool:
        return games.close(body.id)

    return found


def with_empty_create(found: APIRouter, games: Games) -> APIRouter:
    """Adds a ``/create`` without a body, which starts task 0."""

    @found.post("/create")
    @errors_as_answers
    async def create() -> Any:
        return {"id": await games.create(0)}

    return found


def errors_as_answers(handler: Handler) -> Handler:
    """Most of AgentGym's servers answer an error with status 200 and ``{"error": ...}``."""

    @wraps(handler)
    async def answering(**arguments: Any) -> Any:
        try:
            return await handler(**arguments)
        except Refused as refused:
            given = arguments.get("id", getattr(arguments.get("body"), "id", None))
            missing = isinstance(refused, NoSuchSession)
            return {"error": f"The id {given} is not valid." if missing else refused.error}

    return answering


def whole(reward: float) -> int | float:
    """A reward as the originals write it: integers without a point."""
    return int(reward) if reward.is_integer() else reward
