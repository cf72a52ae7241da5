"""The routes of AgentGym's dialect of ALFWorld, which `alfworld` and `household` both speak.

``available_actions`` stand beside each observation; errors are answers. ``world_type`` is accepted and without effect: there are texts
only. The original has no ``/close``; here there is one, because a game that is closed need not wait until it expires. ``game`` N is
described in `env_servers/agentgym.py`.
"""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter
from pydantic import BaseModel

from env_servers.agentgym import ActionBody, Games, errors_as_answers, shared_routes, whole


class GameBody(BaseModel):
    id: int
    game: int = 0
    world_type: str = "Text"


def routes(games: Games) -> APIRouter:
    found = shared_routes(games)

    @found.post("/create")
    @errors_as_answers
    async def create() -> Any:
        return {"id": await games.create(0)}

    @found.post("/step")
    @errors_as_answers
    async def step(body: ActionBody) -> Any:
        observed, _ = await games.step(body.id, body.action)
        return {
            "observation": observed.observation,
            "reward": whole(observed.reward),
            "available_actions": await games.actions(body.id),
            "done": observed.done,
        }

    @found.post("/reset")
    @errors_as_answers
    async def reset(body: GameBody) -> Any:
        session = await games.reset(body.id, body.game)
        available = await games.actions(body.id)
        # The original says "pick_and_place_simple-Book-None-Bed-301/trial_...". A made-up game has its id, less the split.
        name = await games.label(body.id, "game") or session.state.task.partition("/")[2]
        return {"id": body.id, "observation": session.last.observation, "available_actions": available, "task_type": name}

    @found.get("/available_actions")
    @errors_as_answers
    async def available_actions(id: int) -> Any:
        return await games.actions(id)

    @found.get("/detail")
    @errors_as_answers
    async def detail(id: int) -> Any:
        last = games.session(id).last
        return {"observation": last.observation, "reward": whole(last.reward), "done": last.done, "deleted": False}

    return found
