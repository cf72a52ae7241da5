"""AgentGym's dialect of TextCraft: a new game right at ``/create`` (that of ``data_idx`` = id; ``commands`` and
``goal`` are accepted and without effect, as there), errors as answers. Not kept: ``/commands`` and ``/goal``, which are
broken there. See `environment.py` for how ``data_idx`` relates to published results."""

from typing import Any

from fastapi import APIRouter
from pydantic import BaseModel

from env_servers.agentgym import DataBody, Games, errors_as_answers, shared_routes, whole
from env_servers.dialect import ClientDialect
from env_servers.protocol import ObservedState, Text

CLIENT = ClientDialect()


class CreateBody(BaseModel):
    commands: Text | None = None
    goal: Text | None = None


def routes(games: Games) -> APIRouter:
    async def answer(_: int, observed: ObservedState, before: float) -> dict[str, Any]:
        return {"reward": whole(observed.reward)}

    found = shared_routes(games, answer)

    @found.post("/create")
    @errors_as_answers
    async def create(body: CreateBody) -> Any:
        return _opened(games, await games.create())

    @found.post("/reset")
    @errors_as_answers
    async def reset(body: DataBody) -> Any:
        await games.reset(body.id, body.data_idx or 0)
        return _opened(games, body.id)

    return found


def _opened(games: Games, number: int) -> dict[str, Any]:
    return {"id": number, "observation": games.observation(number), "done": False, "reward": 0}
