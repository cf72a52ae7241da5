"""AgentGym's dialect of ScienceWorld: the task apart from what there is to see, ``reward`` as what a step adds to
``score``, errors as answers. Not kept: the endpoints that show pictures or the simulator's insides, which no client of
AgentGym's asks for."""

from typing import Any

from fastapi import APIRouter

from env_servers.agentgym import DataBody, Games, errors_as_answers, shared_routes, whole, with_empty_create
from env_servers.dialect import ClientDialect
from env_servers.protocol import ObservedState

CLIENT = ClientDialect(
    reward="score",
    opening=lambda answer: f"{answer['task_description']}\n{answer['observation']}",
)


def routes(games: Games) -> APIRouter:
    async def answer(_: int, observed: ObservedState, before: float) -> dict[str, Any]:
        return {"reward": whole(observed.reward - before), "score": whole(observed.reward)}

    found = with_empty_create(shared_routes(games, answer), games)

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
