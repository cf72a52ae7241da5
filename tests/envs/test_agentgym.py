"""Our client on AgentGym's protocol: against our own server's dialects, and against one that behaves as the original's
do."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
from fastapi import FastAPI

from agentr.backoff import Backoff
from agentr.config.schema import EnvConfig, EnvProtocol, TaskSelection
from agentr.envs import pool
from agentr.envs.client import EnvClient
from agentr.envs.connect import connect
from agentr.errors import ConfigError, InfraError
from agentr.types import Task
from env_servers.registry import describe, load
from tests.env_servers.support import Faulty, child_server, serving

AVAILABLE = {found.name for found in describe() if found.available}


@pytest.fixture(autouse=True)
def short_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pool, "BACKOFF", Backoff(first_s=0.02, longest_s=10.0, jitter=0.5))


def run(url: str, name: str, test: Callable[[EnvClient], Coroutine[Any, Any, None]], retries: int = 2) -> None:
    async def main() -> None:
        client = connect(EnvConfig(name=name, url=url, protocol=EnvProtocol.agentgym, retries=retries), [url], "")
        try:
            await test(client)
        finally:
            await client.aclose()

    asyncio.run(main())


@pytest.mark.slow
@pytest.mark.parametrize("name", ["textcraft", "babyai"])
def test_a_tree_grows_on_agentgyms_protocol_as_on_ours(name: str):
    if name not in AVAILABLE:
        pytest.skip(f"{name} is not available here; `agentr list environments` says why")
    environment = load(name)

    async def test(client: EnvClient) -> None:
        spec = await client.spec()
        assert not spec.can_fork and set(spec.splits) == {"agentgym_train", "agentgym_test"}
        task = (await client.tasks(TaskSelection(split="agentgym_test", limit=3)))[1]
        assert task.labels == {} and await client.expert(task) is None
        plan = [step.action for step in environment.expert(task.id) or ()]
        session = await client.open(task)
        assert session.last.observation == environment.reset(task.id)[1].observation
        for action in plan:
            wrong, right = await session.expand(["xyzzy", action])
            assert wrong.last.observation != right.last.observation and not wrong.last.done
            session = right
        assert session.last.done and session.last.reward >= spec.reward.success
        assert client.stats.forks == 0 and client.stats.replays > 0

    with child_server(name, "--agentgym") as (url, _):
        run(url, name, test)


class Original:
    """A server with the habits of AgentGym's: ids are not closed, errors are answers with status 200, faults on
    request."""

    def __init__(self) -> None:
        self.games: list[int] = []
        self.faults: list[str] = []
        self.app = FastAPI()
        for path, handler in {"create": self.create, "reset": self.reset, "step": self.step}.items():
            self.app.post(f"/{path}")(handler)

    async def create(self) -> Any:
        self.games.append(0)
        return {"id": len(self.games) - 1}

    async def reset(self, body: dict[str, Any]) -> Any:
        self.games[body["id"]] = 0
        return {
            "id": body["id"],
            "observation": f"game {body['game']}",
            "available_actions": ["look"],
            "task_type": "x",
        }

    async def step(self, body: dict[str, Any]) -> Any:
        fault = self.faults.pop(0) if self.faults else ""
        if fault == "error":
            return {"error": "something is wrong"}
        self.games[body["id"]] += 1
        if fault == "odd":
            return {"observation": "what"}
        if fault == "noise":
            return {"observation": "noise", "reward": 0, "available_actions": [], "done": False}
        text = f"{body['action']} {self.games[body['id']]}"
        return {"observation": text, "reward": 0, "available_actions": ["look", body["action"]], "done": False}


@pytest.fixture
def tasks_known(monkeypatch: pytest.MonkeyPatch) -> None:
    """ALFWorld needs a download; the numbering comes from an environment that does not."""
    monkeypatch.setattr("agentr.envs.connect.load", lambda name, options: load("textcraft"))


TASK = Task("alfworld", "agentgym/7", "agentgym_test")


def test_games_that_cannot_be_closed_are_used_again(tasks_known: None):
    original = Original()

    async def test(client: EnvClient) -> None:
        for _ in range(3):
            session = await client.open(TASK)
            assert session.last.observation == "game 7" and await session.suggestions() == ["look"]
            children = await session.expand(["a", "b"])
            assert [c.last.observation for c in children] == ["a 1", "b 1"]
            assert await children[1].suggestions() == ["look", "b"]
            await client.close_all([session, *children])
        assert len(original.games) == 2

    with serving(original.app) as url:
        run(url, "alfworld", test)


def test_a_lost_step_is_replayed_and_never_sent_twice(tasks_known: None):
    original = Original()
    faulty = Faulty(original.app)

    async def test(client: EnvClient) -> None:
        session = await client.open(TASK)
        await session.step("a")
        for fault in ("error", "odd", "lost"):
            original.faults = [fault]
            faulty.plan["/step"] = ["drop"] if fault == "lost" else []
            before = session.history
            await session.step("b")
            assert session.history == (*before, session.history[-1])
            assert session.last.observation == f"b {len(session.history)}", "every action was carried out once"
        assert client.stats.replays == 3

    with serving(faulty) as url:  # type: ignore[arg-type] - any ASGI application will do
        run(url, "alfworld", test)


def test_a_server_that_does_not_repeat_itself_is_found_out(tasks_known: None):
    original = Original()

    async def test(client: EnvClient) -> None:
        session = await client.open(TASK)
        await session.step("a")
        original.faults = ["error", "noise"]
        with pytest.raises(InfraError, match="did not repeat itself"):
            await session.step("b")
        with pytest.raises(ConfigError, match="no task"):
            await client.open(Task("alfworld", "train/x", "train"))

    with serving(original.app) as url:
        run(url, "alfworld", test)


@pytest.mark.parametrize(
    ("config", "reason"),
    [
        (EnvConfig(protocol=EnvProtocol.agentgym), "env.url is empty"),
        (EnvConfig(name="household", url="http://x", protocol=EnvProtocol.agentgym), "no environment 'household'"),
        (EnvConfig(name="nothing", url="http://x", protocol=EnvProtocol.agentgym), "no environment 'nothing'"),
        (
            EnvConfig(name="textcraft", options={"x": 1}, url="http://x", protocol=EnvProtocol.agentgym),
            "not known here",
        ),
        (EnvConfig(name="searchqa", url="http://x", protocol=EnvProtocol.agentgym), "AgentGym's numbering"),
    ],
)
def test_what_cannot_be_spoken_to_is_refused(config: EnvConfig, reason: str):
    with pytest.raises(ConfigError, match=reason):
        connect(config, [config.url], "")
