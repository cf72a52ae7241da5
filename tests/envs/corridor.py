"""OpenEnv servers of a corridor: an imitation with every fault one can ask for, and, run as a script, a real one made
with the package.

Task ``seed`` has its goal at ``2 + seed % 3``; ``right`` and ``left`` move, whatever else there is is answered and
moves nothing.

    python tests/envs/corridor.py PORT SESSIONS      # under an interpreter that has openenv
"""

import asyncio
import sys
from dataclasses import dataclass, field
from typing import Any


@dataclass
class Corridor:
    goal: int = 0
    at: int = 0

    def reset(self, seed: int) -> tuple[str, float, bool]:
        self.goal, self.at = 2 + seed % 3, 0
        return f"The goal is at {self.goal}, you are at 0.", 0.0, False

    def step(self, message: str) -> tuple[str, float, bool]:
        self.at += {"right": 1, "left": -1}.get(message, 0)
        won = self.at == self.goal
        return f"{message}: you are at {self.at}.", float(won), won


@dataclass
class Imitation:
    """A server with the habits of OpenEnv's.

    Attributes:
        most: Sessions that it has room for.
        faults: What goes wrong with the next steps, in order: ``error``, ``odd``, ``noise``, ``hang``, ``drop``; empty
            for nothing.
        schema: What ``/schema`` answers.
        splits: Sizes of its own splits; None for a server that lists no tasks.
        wage: Reward of each step, beside that at the goal.
        stepped: Actions that were carried out, over all sessions.
    """

    most: int = 8
    faults: list[str] = field(default_factory=list)
    schema: dict[str, Any] = field(default_factory=lambda: dict(SCHEMA))
    splits: dict[str, int] | None = None
    wage: float = 0.0
    sessions: int = 0
    highest: int = 0
    opened: int = 0
    stepped: list[str] = field(default_factory=list)
    resets: list[dict[str, Any]] = field(default_factory=list)

    @property
    def app(self) -> Any:
        from fastapi import FastAPI, HTTPException, WebSocket

        app = FastAPI()

        @app.get("/schema")
        async def schema() -> Any:
            return self.schema

        @app.get("/metadata")
        async def metadata() -> Any:
            return {"name": "Corridor", "description": "Walk to the goal.", "version": "1.0.0"}

        @app.get("/list_environments")
        async def environments() -> Any:
            return ["Corridor"]

        @app.get("/Corridor/splits")
        async def splits() -> Any:
            if self.splits is None:
                raise HTTPException(501, "list_splits is not supported for this environment")
            return [{"name": name, "type": "train" if name == "train" else "validation"} for name in self.splits]

        @app.post("/Corridor/num_tasks")
        async def num_tasks(body: dict[str, Any]) -> Any:
            return {"num_tasks": (self.splits or {})[body["split"]]}

        async def session(socket: WebSocket) -> None:
            await socket.accept()
            if self.sessions >= self.most:
                told = {
                    "message": "no room",
                    "code": "CAPACITY_REACHED",
                    "active_sessions": self.sessions,
                    "max_sessions": self.most,
                }
                await socket.send_json({"type": "error", "data": told})
                await socket.close()
                return
            self.sessions += 1
            self.opened += 1
            self.highest = max(self.highest, self.sessions)
            try:
                await self._serve(socket)
            finally:
                self.sessions -= 1
            await socket.close()

        session.__annotations__["socket"] = WebSocket
        app.websocket("/ws")(session)
        return app

    async def _serve(self, socket: Any) -> None:
        from fastapi import WebSocketDisconnect

        corridor = Corridor()
        while True:
            try:
                message = await socket.receive_json()
            except WebSocketDisconnect:
                return
            if message["type"] == "close":
                return
            if message["type"] == "reset":
                self.resets.append(message["data"])
                seen = corridor.reset(message["data"].get("seed", message["data"].get("index", 0)))
            else:
                fault = self.faults.pop(0) if self.faults else ""
                if fault == "error":
                    await socket.send_json({"type": "error", "data": {"message": "boom", "code": "EXECUTION_ERROR"}})
                    continue
                if fault == "hang":
                    await asyncio.sleep(30)
                if fault == "odd":
                    await socket.send_text("what")
                    continue
                if refused := self._refused(message["data"]):
                    await socket.send_json(
                        {"type": "error", "data": {"message": "x", "code": "VALIDATION_ERROR", "errors": [refused]}}
                    )
                    continue
                seen = corridor.step(message["data"]["message"])
                self.stepped.append(message["data"]["message"])
                if fault == "drop":
                    await socket.close()
                    return
                if fault == "noise":
                    seen = ("noise", *seen[1:])
            reward = seen[1] + (self.wage if message["type"] == "step" else 0.0)
            observation = {"text": seen[0], "at": corridor.at, "metadata": {}}
            await socket.send_json(
                {"type": "observation", "data": {"observation": observation, "reward": reward, "done": seen[2]}}
            )

    def _refused(self, action: dict[str, Any]) -> dict[str, Any] | None:
        if "message" not in action:
            return {"loc": ["message"], "msg": "Field required"}
        if len(action["message"]) > 40:
            return {"loc": ["message"], "msg": "String should have at most 40 characters"}
        return {"loc": ["speed"], "msg": "Field required"} if action["message"] == "fast" else None


SCHEMA = {
    "action": {"properties": {"metadata": {"type": "object"}, "message": {"type": "string"}}, "required": ["message"]},
    "observation": {
        "properties": {"done": {}, "reward": {}, "text": {"type": "string"}, "at": {"type": "integer"}, "metadata": {}}
    },
}


def real_app(sessions: int) -> Any:
    """The corridor as the package serves it."""
    from openenv.core.env_server import Action, Environment, Observation, State, create_app  # type: ignore[import-not-found]

    class Say(Action):
        message: str

    class See(Observation):
        text: str = ""
        at: int = 0

    class World(Environment):
        SUPPORTS_CONCURRENT_SESSIONS = True

        def __init__(self) -> None:
            super().__init__()
            self.corridor = Corridor()

        def reset(self, seed: int | None = None, episode_id: str | None = None, **_: Any) -> See:
            return self.see(self.corridor.reset(seed or 0))

        def step(self, action: Say, timeout_s: float | None = None, **_: Any) -> See:
            return self.see(self.corridor.step(action.message))

        def see(self, seen: tuple[str, float, bool]) -> See:
            text, reward, done = seen
            return See(text=text, at=self.corridor.at, reward=reward, done=done)

        @property
        def state(self) -> State:
            return State()

    return create_app(World, Say, See, env_name="corridor", max_concurrent_envs=sessions)


if __name__ == "__main__":
    import uvicorn

    uvicorn.run(real_app(int(sys.argv[2])), host="127.0.0.1", port=int(sys.argv[1]), log_level="warning")
