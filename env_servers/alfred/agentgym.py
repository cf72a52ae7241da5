"""The routes of AgentGym's dialect of ALFWorld, which `alfworld` and `household` both speak.

``available_actions`` stand beside each observation; errors are answers. ``world_type`` is accepted and without effect:
there are texts only. The original has no ``/close``; here there is one, because a game that is closed need not wait
until it expires. ``game`` N is described in `env_servers/agentgym.py`.
"""

from typing import Any

from fastapi import APIRouter
from pydantic import BaseModel

from env_servers.agentgym import Games, errors_as_answers, shared_routes, whole, with_empty_create
from env_servers.protocol import ObservedState


class GameBody(BaseModel):
    id: int
    game: int = 0
    world_type: str = "Text"


def routes(games: Games) -> APIRouter:
    async def answer(number: int, observed: ObservedState, before: float) -> dict[str, Any]:
        return {"reward": whole(observed.reward), "available_actions": await games.actions(number)}

    found = with_empty_create(shared_routes(games, answer), games)

    @found.post("/reset")
    @errors_as_answers
    async def reset(body: GameBody) -> Any:
        session = await games.reset(body.id, body.game)
        available = await games.actions(body.id)
        # The original says "pick_and_place_simple-Book-None-Bed-301/trial_...". A made-up game has its id, less the
        # split.
        name = await games.label(body.id, "game") or session.state.task.partition("/")[2]
        return {
            "id": body.id,
            "observation": session.last.observation,
            "available_actions": available,
            "task_type": name,
        }

    @found.get("/available_actions")
    @errors_as_answers
    async def available_actions(id: int) -> Any:
        return await games.actions(id)

    return found
