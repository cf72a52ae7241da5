"""AgentGym's wire protocol for TextCraft, so that its client and whatever was built on it can play here unchanged.

Kept from the original: paths, keys, integer ids counted from 0, errors as HTTP 200 with ``{"error": ...}``, a new game right at
``/create`` (that of ``data_idx`` = id; ``commands`` and ``goal`` are accepted and without effect, as there), steps past the end.
Not kept: games that live for ever (an idle one expires; its id is then "not valid"), ``/commands`` and ``/goal`` (broken there).
``data_idx`` N is the task ``agentgym/N``; see `textcraft/environment.py` for how N relates to published results.
"""

from __future__ import annotations

import itertools
from typing import Any

from fastapi import APIRouter
from pydantic import BaseModel

from env_servers.protocol import MAX_ACTION_CHARS
from env_servers.sessions import SessionTable
from env_servers.worker import Refused

#: Paths of this protocol.
PATHS = frozenset({"/", "/create", "/step", "/reset", "/close", "/observation", "/detail"})


class CreateBody(BaseModel):
    commands: str | None = None
    goal: str | None = None


class StepBody(BaseModel):
    id: int
    action: str


class ResetBody(BaseModel):
    id: int
    data_idx: int | None = 0


class IdBody(BaseModel):
    id: int


class Games:
    """AgentGym's integer ids over a session table. A game's session has a fixed name, so there is nothing else to keep."""

    def __init__(self, table: SessionTable) -> None:
        self._table = table
        self._ids = itertools.count()

    async def create(self) -> dict[str, Any]:
        number = next(self._ids)
        return await self._start(number, number)

    async def reset(self, number: int, data_idx: int) -> dict[str, Any]:
        self._table.get(self._session(number))
        return await self._start(number, data_idx)

    async def step(self, number: int, action: str) -> dict[str, Any]:
        if len(action) > MAX_ACTION_CHARS:
            raise Refused(422, f"the action has more than {MAX_ACTION_CHARS} characters")
        observed = await self._table.step(self._session(number), action, past_end=True)
        return {"observation": observed.observation, "reward": _number(observed.reward), "done": observed.done}

    def detail(self, number: int) -> dict[str, Any]:
        last = self._table.get(self._session(number)).last
        return {"observation": last.observation, "done": last.done, "reward": _number(last.reward), "deleted": False}

    def close(self, number: int) -> bool:
        return self._table.close([self._session(number)]) == 1

    async def _start(self, number: int, data_idx: int) -> dict[str, Any]:
        session = await self._table.open(f"agentgym/{data_idx}", self._session(number))
        return {"id": number, "observation": session.last.observation, "done": False, "reward": 0}

    def _session(self, number: int) -> str:
        return f"{self._table.epoch}.agentgym-{number}"


def router(title: str, table: SessionTable) -> APIRouter:
    """The endpoints, at the root as in the original."""
    routes = APIRouter()
    games = Games(table)

    @routes.get("/")
    async def hello() -> str:
        return f"This is environment {title}."

    @routes.post("/create")
    async def create(body: CreateBody) -> dict[str, Any]:
        try:
            return await games.create()
        except Refused as refused:
            return _error(refused)

    @routes.post("/step")
    async def step(body: StepBody) -> dict[str, Any]:
        try:
            return await games.step(body.id, body.action)
        except Refused as refused:
            return _error(refused, body.id)

    @routes.post("/reset")
    async def reset(body: ResetBody) -> dict[str, Any]:
        try:
            return await games.reset(body.id, body.data_idx or 0)
        except Refused as refused:
            return _error(refused, body.id)

    @routes.post("/close")
    async def close(body: IdBody) -> bool:
        return games.close(body.id)

    @routes.get("/observation")
    async def observation(id: int) -> str | dict[str, Any]:
        try:
            return games.detail(id)["observation"]
        except Refused as refused:
            return _error(refused, id)

    @routes.get("/detail")
    async def detail(id: int) -> dict[str, Any]:
        try:
            return games.detail(id)
        except Refused as refused:
            return _error(refused, id)

    return routes


def _error(refused: Refused, number: int | None = None) -> dict[str, Any]:
    """An error as the original reports it."""
    missing = refused.error.startswith("no such session")
    return {"error": f"The id {number} is not valid." if missing else refused.error}


def _number(reward: float) -> int | float:
    """Rewards are integers there."""
    return int(reward) if reward.is_integer() else reward
