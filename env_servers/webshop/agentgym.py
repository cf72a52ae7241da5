"""AgentGym's dialect of WebShop: ``env_idx`` for ids, pages under the key ``state``, errors with their status.

The original has no ``/close``, which exhausts its host; here there is one. ``session_id`` N is described in
`env_servers/agentgym.py`, null takes task 0. ``/state`` says what the original means it to say.
"""

from itertools import pairwise
from typing import Any

from fastapi import APIRouter
from pydantic import BaseModel

from env_servers.agentgym import Games, IndexActionBody, IndexBody
from env_servers.dialect import ClientDialect

CLIENT = ClientDialect(
    key="env_idx",
    reset=lambda index: {"session_id": index},
    opening=lambda answer: answer[0],
    text="state",
    closes=False,
)


class ResetBody(BaseModel):
    env_idx: int
    session_id: int | None = None


def routes(games: Games) -> APIRouter:
    found = APIRouter()

    @found.post("/create")
    async def create() -> int:
        return await games.create(0)

    @found.get("/list_envs")
    async def list_envs() -> list[int]:
        return games.numbers()

    @found.post("/step")
    async def step(body: IndexActionBody) -> dict[str, Any]:
        observed, _ = await games.step(body.env_idx, body.action)
        return {"state": observed.observation, "reward": observed.reward, "done": observed.done, "info": None}

    @found.post("/reset")
    async def reset(body: ResetBody) -> list[str | None]:
        session = await games.reset(body.env_idx, body.session_id or 0)
        return [session.last.observation, None]

    @found.get("/available_actions")
    async def available_actions(env_idx: int) -> dict[str, Any]:
        suggested = await games.actions(env_idx)
        clickables = [
            action.removeprefix("click[").removesuffix("]") for action in suggested if action.startswith("click[")
        ]
        return {"has_search_bar": games.session(env_idx).state.page == "search", "clickables": clickables}

    @found.get("/instruction_text")
    async def instruction_text(env_idx: int) -> str:
        parts = games.observation(env_idx).split(" [SEP] ")
        return next((text for label, text in pairwise(parts) if label.startswith("Instruction")), "")

    @found.get("/observation")
    async def observation(env_idx: int) -> str:
        return games.observation(env_idx)

    @found.get("/state")
    async def state(env_idx: int) -> dict[str, Any]:
        return {
            "url": f"/{games.session(env_idx).state.page}",
            "html": games.observation(env_idx),
            "instruction_text": await instruction_text(env_idx),
        }

    @found.post("/close")
    async def close(body: IndexBody) -> bool:
        return games.close(body.env_idx)

    return found
