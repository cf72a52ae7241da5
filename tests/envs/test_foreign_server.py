"""Whatever an environment server sends is an observation, a failure of this tree, or an error of the run: for each
protocol."""

import asyncio
import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from agentr.backoff import Backoff
from agentr.config.schema import EnvConfig, EnvProtocol
from agentr.envs import pool
from agentr.envs.client import EnvClient
from agentr.envs.connect import connect
from agentr.errors import AgentrError, InfraError
from agentr.types import Task
from env_servers.registry import load
from tests.foreign import HANG, answers, bodies, framed, raw, response

CASES = [json.loads(line) for line in Path(__file__).parents[1].joinpath("inputs/foreign_steps.jsonl").open()]
OPENING = "Crafting commands:\n\nGoal: craft bread."
STEP = {"observation": "Nothing.", "reward": 0.5, "done": False}
STATE = {"session": "s", "observation": OPENING, "reward": 0.0, "done": False}
SCHEMA = {
    "action": {"properties": {"message": {"type": "string"}}},
    "observation": {"properties": {"text": {"type": "string"}}},
}


@pytest.fixture(autouse=True)
def _short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pool, "BACKOFF", Backoff(first_s=0.001, longest_s=0.002))


def valid(protocol: str) -> Any:
    """What a good server answers to a step."""
    if protocol == "openenv":
        return {"type": "observation", "data": {"observation": {"text": "Nothing."}, "reward": 0.5, "done": False}}
    return STEP if protocol == "agentgym" else {"children": [STATE]}


class Server:
    """A server that is well but for ``step``, which is the bytes that a test puts there."""

    def __init__(self) -> None:
        self.step = b""

    def answer(self, path: str, body: bytes) -> bytes:
        if path in ("/step", "/v1/expand"):
            return self.step
        good = {
            "/v1/spec": json.loads(load("textcraft").spec.model_dump_json()),
            "/v1/open": STATE,
            "/v1/close": {"closed": 1},
            "/metadata": {"name": "odd", "description": "Odd.", "version": "1"},
            "/schema": SCHEMA,
        }
        return response(json.dumps(good.get(path, {"id": 0, "observation": OPENING})).encode())

    def message(self, kind: str) -> bytes:
        return self.step if kind == "step" else framed(json.dumps(valid("openenv")).encode())


def client(protocol: str, url: str, timeout_s: float) -> EnvClient:
    name = "odd" if protocol == "openenv" else "textcraft"
    config = EnvConfig(name=name, url=url, protocol=EnvProtocol(protocol), retries=1, timeout_s=timeout_s)
    return connect(config, [url], "")


async def looked(made: EnvClient, protocol: str) -> str | AgentrError:
    """What is seen after a step, or what is raised for it."""
    task = {"agentgym": "agentgym/0", "openenv": "train/1", "agentr": "train/0"}[protocol]
    try:
        session = await made.open(Task("odd", task, "train"))
        return (await session.expand(["look"]))[0].last.observation
    except AgentrError as error:
        return error


def seen(protocol: str, step: bytes, timeout_s: float = 5.0) -> str | AgentrError:
    server = Server()
    server.step = step

    async def main() -> str | AgentrError:
        async with raw(server.answer, server.message) as url:
            made = client(protocol, url, timeout_s)
            try:
                return await looked(made, protocol)
            finally:
                await made.aclose()

    return asyncio.run(main())


def sent(protocol: str, body: bytes) -> bytes:
    return framed(body) if protocol == "openenv" else response(body)


@pytest.mark.slow
@pytest.mark.parametrize("protocol", ["agentr", "agentgym", "openenv"])
def test_whatever_a_server_sends_is_an_observation_or_a_failure_of_the_tree(protocol: str) -> None:
    whole = bodies(valid(protocol))
    frames = st.builds(framed, whole, st.sampled_from([1, 1, 1, 2, 8, 9, 3])) | st.binary(max_size=20)
    replies = frames if protocol == "openenv" else answers(valid(protocol))
    server, reached = Server(), set()
    with asyncio.Runner() as runner:
        listening = raw(server.answer, server.message)
        made = client(protocol, runner.run(listening.__aenter__()), 0.3)

        @settings(
            derandomize=True, deadline=None, max_examples=30, suppress_health_check=list(HealthCheck), database=None
        )
        @given(replies)
        def check(reply: bytes) -> None:
            server.step, began = reply, time.monotonic()
            made._transport._silent_at.clear()  # a server that did not answer the example before
            got = runner.run(looked(made, protocol))
            assert time.monotonic() - began < 8.0
            reached.add(isinstance(got, str))
            if isinstance(got, str):
                got.encode()
            else:
                assert isinstance(got, AgentrError) and "opening task" not in str(got)

        check()
        assert reached == {True, False}
        runner.run(made.aclose())
        runner.run(listening.__aexit__(None, None, None))


def foreign_steps() -> Iterator[tuple[str, bytes]]:
    """Steps that were reported, and more of their kinds, as each protocol writes them."""
    texts = [case["step"] for case in CASES]
    for change in (
        '"reward": Infinity',
        '"reward": 1e999',
        '"reward": "much"',
        '"reward": [1]',
        '"done": "perhaps"',
        '"done": [1]',
    ):
        key = change.partition(":")[0]
        texts.append(json.dumps(STEP).replace(f"{key}: {json.dumps(STEP[key.strip(chr(34))])}", change))
    for text in texts:
        yield "agentgym", text.encode()
        plain = text.replace('"observation":', '"observation": {"text":', 1)
        yield "openenv", f'{{"type": "observation", "data": {plain.replace(", ", "}, ", 1)}}}'.encode()
    yield from (
        ("agentgym", json.dumps(STEP | {"observation": odd}).encode()) for odd in (None, 7, ["a"], {"text": "x"})
    )
    yield from ((protocol, "é".encode("latin-1")) for protocol in ("agentr", "agentgym", "openenv"))
    yield "agentr", json.dumps({"children": [STATE | {"reward": float("nan")}]}).encode()
    yield "agentr", json.dumps({"children": [STATE | {"observation": None}]}).encode()
    yield "agentr", json.dumps({"children": [STATE | {"observation": "Nice \ud83d"}]}).encode()
    yield "openenv", ("[" * 100_00).encode()


@pytest.mark.parametrize(("protocol", "step"), list(foreign_steps()))
def test_an_odd_answer_fails_its_tree_with_a_sentence(protocol: str, step: bytes) -> None:
    got = seen(protocol, sent(protocol, step))
    assert type(got) is InfraError, got
    assert "cannot be read" in str(got) or "no JSON of finite numbers and whole characters" in str(got)
    assert "\n" not in str(got) and "validation error" not in str(got)


@pytest.mark.parametrize("protocol", ["agentr", "agentgym", "openenv"])
def test_good_answers_are_observed(protocol: str) -> None:
    right = OPENING if protocol == "agentr" else "Nothing."
    assert seen(protocol, sent(protocol, json.dumps(valid(protocol)).encode())) == right
    if protocol != "openenv":
        assert "no answer within 0.2 s" in str(seen(protocol, HANG, 0.2))


def specified(change: Callable[[dict[str, Any]], bytes], path: str) -> AgentrError | None:
    """What is raised for a specification of an OpenEnv server."""
    server = Server()

    def answer(asked: str, body: bytes) -> bytes:
        return change({}) if asked == path else server.answer(asked, body)

    async def main() -> AgentrError | None:
        async with raw(answer) as url:
            made = client("openenv", url, 2.0)
            try:
                await made.spec()
            except AgentrError as error:
                return error
            finally:
                await made.aclose()
        return None

    return asyncio.run(main())


@pytest.mark.parametrize("path", ["/schema", "/metadata"])
@pytest.mark.parametrize(
    "body", [b"null", b"[1]", b'{"action": {"properties": 7}, "observation": [1]}', b"NaN", b"\xff", b'"x"']
)
def test_an_odd_specification_is_an_error_with_a_sentence(path: str, body: bytes) -> None:
    found = specified(lambda _: response(body), path)
    assert found is None or isinstance(found, AgentrError)
