"""AgentGym's dialect of BabyAI: observations end with the available actions, ``score`` is the reward so far, errors as
answers. Not kept: ``/render``, for there are no pictures here."""

from typing import Any

from fastapi import APIRouter

from env_servers.agentgym import DataBody, Games, errors_as_answers, shared_routes, whole, with_empty_create
from env_servers.dialect import ClientDialect
from env_servers.protocol import ObservedState

CLIENT = ClientDialect(reward="score")


def routes(games: Games) -> APIRouter:
    async def answer(_: int, observed: ObservedState, before: float) -> dict[str, Any]:
        # A step after the end earns nothing, and the score stays.
        return {"reward": whole(observed.reward), "score": whole(max(observed.reward, before))}

    found = with_empty_create(shared_routes(games, answer), games)

    @found.post("/reset")
    @errors_as_answers
    async def reset(body: DataBody) -> Any:
        session = await games.reset(body.id, body.data_idx or 0)
        return {
            "id": body.id,
            "observation": session.last.observation,
            "reward": 0,
            "score": 0,
            "deleted": False,
            "done": False,
        }

    return found
