"""AgentGym's dialect of BabyAI: observations end with the available actions, ``score`` is the reward so far, errors as answers. Not kept:
``/render``, for there are no pictures here."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter

from env_servers.agentgym import ActionBody, DataBody, Games, errors_as_answers, shared_routes, whole
from env_servers.dialect import ClientDialect

CLIENT = ClientDialect(reward="score")


def routes(games: Games) -> APIRouter:
    found = shared_routes(games)

    @found.post("/create")
    @errors_as_answers
    async def create() -> Any:
        return {"id": await games.create(0)}

    @found.post("/step")
    @errors_as_answers
    async def step(body: ActionBody) -> Any:
        observed, before = await games.step(body.id, body.action)
        # A step after the end earns nothing, and the score stays.
        score = max(observed.reward, before)
        return {"observation": observed.observation, "reward": whole(observed.reward), "score": whole(score), "done": observed.done}

    @found.post("/reset")
    @errors_as_answers
    async def reset(body: DataBody) -> Any:
        session = await games.reset(body.id, body.data_idx or 0)
        return {"id": body.id, "observation": session.last.observation, "reward": 0, "score": 0, "deleted": False, "done": False}

    return found
