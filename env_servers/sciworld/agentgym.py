"""AgentGym's dialect of ScienceWorld: the task apart from what there is to see, ``reward`` as what a step adds to ``score``, errors as
answers. Not kept: the endpoints that show pictures or the simulator's insides, which no client of AgentGym's asks for."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter

from env_servers.agentgym import ActionBody, DataBody, Games, errors_as_answers, shared_routes, whole
from env_servers.dialect import ClientDialect

CLIENT = ClientDialect(
    reward="score",
    opening=lambda answer: f"{answer['task_description']}\n{answer['observation']}",
)


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
        return {
            "observation": observed.observation,
            "reward": whole(observed.reward - before),
            "score": whole(observed.reward),
            "done": observed.done,
        }

    @found.post("/reset")
    @errors_as_answers
    async def reset(body: DataBody) -> Any:
        session = await games.reset(body.id, body.data_idx or 0)
        state = session.state
        return {
            "id": body.id,
            "task_name": state.problem.task,
            "var_num": state.problem.variation,
            "task_description": state.description,
            "observation": session.last.observation.removeprefix(f"{state.description}\n"),
            "reward": 0,
            "score": 0,
            "deleted": False,
            "done": False,
        }

    @found.get("/task_description")
    @errors_as_answers
    async def task_description(id: int) -> Any:
        return games.session(id).state.description

    return found
