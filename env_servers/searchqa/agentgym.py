"""AgentGym's dialect of SearchQA: the action is the agent's whole text with its tags, ``id`` is the question, errors
with their status."""

from typing import Any

from fastapi import APIRouter
from pydantic import BaseModel

from env_servers.agentgym import Games, IndexActionBody, IndexBody
from env_servers.dialect import ClientDialect

CLIENT = ClientDialect(
    key="env_idx",
    create=lambda: {"id": 0},
    reset=lambda index: {"id": index},
    opening=lambda answer: answer,
)


class CreateBody(BaseModel):
    id: int = 0


class ResetBody(BaseModel):
    env_idx: int
    id: int = 0


def routes(games: Games) -> APIRouter:
    found = APIRouter()

    @found.post("/create")
    async def create(body: CreateBody) -> int:
        return await games.create(body.id)

    @found.post("/step")
    async def step(body: IndexActionBody) -> dict[str, Any]:
        observed, _ = await games.step(body.env_idx, body.action)
        return {"observation": observed.observation, "reward": observed.reward, "done": observed.done, "info": None}

    @found.post("/reset")
    async def reset(body: ResetBody) -> str:
        return (await games.reset(body.env_idx, body.id)).last.observation

    @found.get("/observation")
    async def observation(env_idx: int) -> str:
        return games.observation(env_idx)

    @found.post("/close")
    async def close(body: IndexBody) -> bool:
        return games.close(body.env_idx)

    return found
