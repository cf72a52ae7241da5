"""Our client on OpenEnv's protocol: against a server that the package itself serves, and against an imitation with
faults."""

import asyncio
import contextlib
import importlib.util
import os
import socket
import subprocess
import sys
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from agentr.backoff import Backoff
from agentr.config.schema import EnvConfig, EnvProtocol, TaskSelection
from agentr.envs import pool
from agentr.envs.client import EnvClient
from agentr.envs.connect import connect
from agentr.errors import ConfigError, InfraError
from agentr.types import CallStatus, Task
from tests.env_servers.support import serving, wait_until
from tests.envs.corridor import SCHEMA, Imitation

#: An interpreter that has the package openenv. It cannot be installed beside vLLM: it needs fastmcp 3, which needs mcp
#: 1, and vLLM mcp 2.
PYTHON = os.environ.get("AGENTR_OPENENV_PYTHON", sys.executable if importlib.util.find_spec("openenv") else "")
TASK = Task("corridor", "train/1", "train")  # its goal is at 3


@pytest.fixture(autouse=True)
def short_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pool, "BACKOFF", Backoff(first_s=0.02, longest_s=0.1, jitter=0.5))


def run(
    url: str, test: Callable[[EnvClient], Coroutine[Any, Any, None]], timeout_s: float = 10.0, **options: Any
) -> None:
    async def main() -> None:
        config = EnvConfig(
            name="corridor", url=url, protocol=EnvProtocol.openenv, retries=2, timeout_s=timeout_s, options=options
        )
        client = connect(config, [url], "")
        try:
            await client.spec()
            await test(client)
        finally:
            await client.aclose()

    asyncio.run(main())


@contextlib.contextmanager
def package_server(sessions: int) -> Iterator[str]:
    """The corridor, served by the package."""
    if not PYTHON:
        pytest.skip("openenv is not installed; AGENTR_OPENENV_PYTHON names an interpreter that has it")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    script = Path(__file__).with_name("corridor.py")
    child = subprocess.Popen([PYTHON, str(script), str(port), str(sessions)], cwd="/")
    url = f"http://127.0.0.1:{port}"

    def up() -> bool:
        assert child.poll() is None, "the server ended"
        with contextlib.suppress(httpx.HTTPError):
            return httpx.get(f"{url}/health", trust_env=False).status_code == 200
        return False

    try:
        wait_until(up, "the package's server", timeout_s=60)
        yield url
    finally:
        child.kill()
        child.wait()


async def grow(client: EnvClient) -> list[str]:
    """Every node of the tree of depth 3 below the task, and what was seen there."""
    (task,) = [task for task in await client.tasks(TaskSelection(split="train", limit=20)) if task.id == "train/1"] or [
        TASK
    ]
    seen: list[str] = []
    leaves = [await client.open(task)]
    seen.append(leaves[0].last.observation)
    for _ in range(3):
        grown = await asyncio.gather(*(leaf.expand(["left", "right"]) for leaf in leaves if not leaf.last.done))
        leaves = [child for children in grown for child in children]
        seen += [f"{leaf.last.observation} {leaf.last.reward:g} {leaf.last.done}" for leaf in leaves]
    await client.close_all(leaves)
    return seen


EXPECTED = [
    "The goal is at 3, you are at 0.",
    *(f"{way}: you are at {at}. 0 False" for way, at in (("left", -1), ("right", 1))),
    *(f"{way}: you are at {at}. 0 False" for way, at in (("left", -2), ("right", 0), ("left", 0), ("right", 2))),
    *(
        f"{way}: you are at {at}. 0 False"
        for start in (-2, 0, 0)
        for way, at in (("left", start - 1), ("right", start + 1))
    ),
    "left: you are at 1. 0 False",
    "right: you are at 3. 1 True",
]


@pytest.mark.parametrize("sessions", [64, 1])
def test_a_tree_grows_on_a_server_of_the_package_with_room_for_many_sessions_and_for_one(sessions: int):
    async def test(client: EnvClient) -> None:
        spec = await client.spec()
        assert not spec.can_fork and spec.splits["train"].train and not spec.splits["test"].train
        assert await client.expert(TASK) is None
        assert await grow(client) == EXPECTED
        too_long = await (await client.open(TASK)).step("right")
        assert too_long.last.observation == "right: you are at 1."

    with package_server(sessions) as url:
        run(url, test)


def test_a_tree_grows_whatever_the_room_and_no_session_is_left():
    for most in (64, 3, 1):
        imitation = Imitation(most=most)

        async def test(client: EnvClient, imitation: Imitation = imitation) -> None:
            assert await grow(client) == EXPECTED
            wait_until(lambda: imitation.sessions == 0, "the sessions to end")
            assert client.stats.forks == 0 and client.stats.replays > 0

        with serving(imitation.app) as url:
            run(url, test)
        assert imitation.highest <= most
        assert all(reset.keys() == {"seed"} for reset in imitation.resets)


def test_a_lost_step_is_replayed_and_never_sent_twice_to_a_state():
    imitation = Imitation()

    async def test(client: EnvClient) -> None:
        session = await client.open(TASK)
        await session.step("left")
        for count, fault in enumerate(("error", "odd", "drop"), start=1):
            imitation.faults = [fault]
            await session.step("left")
            assert session.last.observation == f"left: you are at {-1 - count}.", "every action was carried out once"
        assert client.stats.replays == 3

    with serving(imitation.app) as url:
        run(url, test)


def test_a_session_that_the_server_dropped_while_it_was_idle_is_played_again():
    imitation = Imitation(most=1)

    async def test(client: EnvClient) -> None:
        one, two = await client.open(TASK), await client.open(TASK)
        for place in (1, 2):
            for session in (one, two):
                await session.step("right")
                assert session.last.observation == f"right: you are at {place}."
        await one.step("right")
        assert one.last.done and one.last.reward == 1

    with serving(imitation.app) as url:
        run(url, test)
    assert imitation.highest == 1


def test_a_server_that_does_not_repeat_itself_is_found_out():
    imitation = Imitation()

    async def test(client: EnvClient) -> None:
        session = await client.open(TASK)
        await session.step("left")
        imitation.faults = ["error", "noise"]
        with pytest.raises(
            InfraError,
            match=r"did not repeat itself: task 'train/1', action 1, recorded 'left: you are at -1.', now 'noise'",
        ):
            await session.step("left")

    with serving(imitation.app) as url:
        run(url, test)


def test_evicted_sessions_of_a_server_that_does_not_repeat_itself_are_found_out_too():
    imitation = Imitation(most=1)

    async def test(client: EnvClient) -> None:
        session = await client.open(TASK)
        await session.step("left")
        await client.open(TASK)  # takes the room
        imitation.faults = ["noise"] * 4
        with pytest.raises(InfraError, match="did not repeat itself"):
            await session.step("left")

    with serving(imitation.app) as url:
        run(url, test)


def test_a_dead_and_a_hung_server_are_named_and_waited_for_no_longer_than_said():
    imitation = Imitation()

    async def test(client: EnvClient) -> None:
        session = await client.open(TASK)
        imitation.faults = ["hang"] * 9
        with pytest.raises(
            InfraError,
            match=r"a step of task 'train/1' failed 3 times.*step at http://127.*/ws: no answer within 0.2 s",
        ):
            await session.step("left")

    with serving(imitation.app) as url:
        run(url, test, timeout_s=0.2)

    async def dead(client: EnvClient) -> None:
        raise AssertionError("there is no server")

    with pytest.raises(InfraError, match=r"the specification failed 3 times.*Cannot connect"):
        run("http://127.0.0.1:9", dead)


def test_a_server_full_of_other_peoples_sessions_is_an_infrastructure_failure_that_says_so():
    imitation = Imitation(most=0)

    async def test(client: EnvClient) -> None:
        with pytest.raises(InfraError, match="no room for a session, and none of those that it has is ours"):
            await client.open(TASK)

    with serving(imitation.app) as url:
        run(url, test)


def test_an_action_that_the_schema_refuses_is_the_agents_fault_and_one_that_lacks_a_field_the_configurations():
    imitation = Imitation(most=1)

    async def test(client: EnvClient) -> None:
        session = await client.open(TASK)
        await session.step("right")
        await session.step("x" * 41)
        assert not session.last.valid and session.last.status is CallStatus.error
        assert session.last.observation == "String should have at most 40 characters"
        await client.open(TASK)  # takes the room: the session is played again, without the action that was refused
        await session.step("right")
        assert session.last.observation == "right: you are at 2." and len(session.history) == 3
        await session.close()  # now with it, as it is recorded
        await session.step("left")
        assert session.last.observation == "left: you are at 1."
        with pytest.raises(ConfigError, match=r"does not take the action .*speed: Field required.*env.options.action"):
            await session.step("fast")

    with serving(imitation.app) as url:
        run(url, test)


def test_the_servers_own_tasks_are_played_by_split_and_index():
    imitation = Imitation(splits={"train": 3, "hard": 2})

    async def test(client: EnvClient) -> None:
        spec = await client.spec()
        assert {name: split.train for name, split in spec.splits.items()} == {"train": True, "hard": False}
        tasks = await client.tasks(TaskSelection(split="hard"))
        assert sorted(task.id for task in tasks) == ["hard/0", "hard/1"]
        await client.open(tasks[0])
        assert imitation.resets[-1] == {"difficulty": 2, "split": "hard", "index": int(tasks[0].id[-1])}
        with pytest.raises(ConfigError, match="no task"):
            await client.open(Task("corridor", "nowhere/1", "train"))

    with serving(imitation.app) as url:
        run(url, test, tasks="server", reset={"difficulty": 2})
    with serving(Imitation().app) as url, pytest.raises(ConfigError, match=r"lists no tasks.*env.options.tasks=seeds"):
        run(url, test, tasks="server")


def test_rewards_add_up_or_the_last_one_counts():
    imitation = Imitation(wage=0.5)
    earned = {}
    for returns in ("sum", "last"):

        async def test(client: EnvClient, returns: str = returns) -> None:
            session = await client.open(Task("corridor", "train/0", "train"))
            await session.step("right")
            await session.close()  # what was earned before it is played again counts once
            await session.step("right")
            earned[returns] = session.last.reward

        with serving(imitation.app) as url:
            run(url, test, returns=returns, low=0.0, high=2.0)
    assert earned == {"sum": 1.0, "last": 0.75}


def schema(action: dict[str, Any], required: list[str], **observation: str) -> dict[str, Any]:
    seen = {"properties": {name: {"type": kind} for name, kind in observation.items()}}
    return {
        "action": {"properties": {n: {"type": k} for n, k in action.items()}, "required": required},
        "observation": seen,
    }


@pytest.mark.parametrize(
    ("published", "options", "reason"),
    [
        (
            schema({"row": "integer"}, [], text="string"),
            {},
            "which field of an action.*its fields are row.*env.options.action_field",
        ),
        (schema({"a": "string", "b": "string"}, [], text="string"), {}, "its text fields are a, b"),
        (
            schema({"message": "string", "row": "integer"}, ["message", "row"], text="string"),
            {},
            "also needs row.*env.options.action",
        ),
        (
            SCHEMA,
            {"action_field": "massage"},
            "has no field 'massage'. Set env.options.action_field to one of its own: message",
        ),
        (SCHEMA, {"action": {"x": 1}}, "has no field 'x'"),
        (SCHEMA, {"observation_field": ["text", "y"]}, "an observation of .* has no field 'y'"),
        (
            schema({"message": "string"}, [], board="array"),
            {},
            "which field of an observation.*env.options.observation_field",
        ),
    ],
)
def test_fields_that_cannot_be_told_are_asked_for_with_what_there_is(
    published: dict[str, Any], options: dict[str, Any], reason: str
):
    async def test(client: EnvClient) -> None:
        raise AssertionError("it has no specification")

    with serving(Imitation(schema=published).app) as url, pytest.raises(ConfigError, match=reason):
        run(url, test, **options)


def test_a_server_of_another_protocol_is_recognised():
    from fastapi import FastAPI

    async def test(client: EnvClient) -> None:
        raise AssertionError("it has no specification")

    with serving(FastAPI()) as url, pytest.raises(ConfigError, match=r"GET .*/schema: 404.*Is it an OpenEnv server"):
        run(url, test)


def test_text_goes_into_and_comes_out_of_nested_fields():
    from agentr.config.openenv import openenv_options
    from agentr.envs.openenv_fields import fields_of

    options = openenv_options(
        {
            "action": {"type": "call_tool", "tool_name": "echo", "arguments": {"loud": True}},
            "action_field": "arguments.message",
            "observation_field": ["result.content.0.text", "error", "tries"],
        }
    )
    fields = fields_of(options, {"action": {"properties": {"metadata": {}}}}, "http://x")
    assert fields.compose("hi") == {
        "type": "call_tool",
        "tool_name": "echo",
        "arguments": {"loud": True, "message": "hi"},
    }
    assert options.action["arguments"] == {"loud": True}, "the options are as they were"
    assert fields.read({"result": {"content": [{"text": "HI"}]}, "error": None, "tries": 2}) == "HI\n2"


@pytest.mark.parametrize(
    ("config", "reason"),
    [
        (EnvConfig(protocol=EnvProtocol.openenv), "env.protocol is openenv, and env.url is empty"),
        (
            EnvConfig(protocol=EnvProtocol.openenv, url="http://x", options={"actoin_field": "x"}),
            "Did you mean 'action_field'",
        ),
        (
            EnvConfig(protocol=EnvProtocol.openenv, url="http://x", options={"train": [0, 10], "test": [5, 20]}),
            "share the seeds 5 to 9",
        ),
        (EnvConfig(protocol=EnvProtocol.openenv, url="http://x", options={"returns": "mean"}), "sum, last"),
        (EnvConfig(protocol=EnvProtocol.openenv, url="http://x", options={"low": 1, "high": 1}), "must be below"),
        (EnvConfig(protocol=EnvProtocol.openenv, url="http://x", options={"step_limit": "x"}), "whole number"),
    ],
)
def test_what_cannot_be_spoken_to_is_refused(config: EnvConfig, reason: str):
    with pytest.raises(ConfigError, match=reason):
        connect(config, [config.url], "")
