"""The server over real HTTP: auth, limits, errors, isolation."""

import asyncio
import json
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import aiohttp
import httpx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from env_servers.protocol import MAX_ACTION_CHARS, MAX_EXPAND, ErrorBody
from tests.env_servers.support import TOKEN, Counter, child_server, counter_server, http_client, wait_until


@pytest.fixture(scope="module")
def textcraft() -> Iterator[httpx.Client]:
    with child_server("textcraft", "--option", "distractors=3") as (url, _), http_client(url) as client:
        yield client


@pytest.fixture
def counter() -> Iterator[httpx.Client]:
    with counter_server() as client:
        yield client


def error_of(response: httpx.Response, status: int) -> str:
    assert response.status_code == status, response.text
    return ErrorBody.model_validate_json(response.content).error


def open_session(client: httpx.Client, task: str = "train-0") -> str:
    return client.post("/v1/open", json={"task": task}).json()["session"]


def test_spec_split_and_expert(textcraft: httpx.Client):
    spec = textcraft.get("/v1/spec").json()
    assert spec["name"] == "textcraft" and spec["splits"]["test"]["train"] is False
    tasks = textcraft.get("/v1/splits/dev").json()["tasks"]
    assert tasks == textcraft.get("/v1/splits/dev").json()["tasks"] and tasks[0]["labels"]["depth"] >= 1
    session = open_session(textcraft, tasks[5]["id"])
    steps = textcraft.get("/v1/expert", params={"task": tasks[5]["id"]}).json()["steps"]
    answers = [
        textcraft.post("/v1/step", json={"session": session, "action": a, "index": i}).json()
        for i, (_, a) in enumerate(steps)
    ]
    assert answers[-1]["reward"] == 1.0 and answers[-1]["done"]
    assert "has ended" in error_of(textcraft.post("/v1/step", json={"session": session, "action": "inventory"}), 409)


def test_every_endpoint_but_health_wants_the_token(counter: httpx.Client):
    with http_client(str(counter.base_url), token=None) as stranger:
        assert stranger.get("/health").status_code == 200
        for method, path in [
            ("GET", "/metrics"),
            ("GET", "/v1/spec"),
            ("GET", "/v1/splits/train"),
            ("GET", "/v1/expert?task=x"),
        ]:
            assert "token" in error_of(stranger.request(method, path), 401)
        for path in ("open", "step", "expand", "fork", "snapshot", "restore", "close", "nowhere"):
            assert "token" in error_of(stranger.post(f"/v1/{path}", content=b"x" * 100_000), 401)
        for wrong in (f"Bearer {TOKEN}x", "Bearer", f"Basic {TOKEN}", "Bearer \xe9", f"bearer {TOKEN}x"):
            assert stranger.get("/v1/spec", headers={b"Authorization": wrong.encode("latin-1")}).status_code == 401


@pytest.mark.parametrize(
    ("path", "body", "status", "reason"),
    [
        ("/v1/open", b"", 422, "Field required"),
        ("/v1/open", b"{", 400, "JSON"),
        ("/v1/open", b"\xff\xfe", 400, ""),
        ("/v1/open", b"[" * 100_000, 400, ""),
        ("/v1/open", b'{"task": ' + b"9" * 5000 + b"}", 400, ""),
        ("/v1/open", b"[]", 422, "dictionary"),
        ("/v1/open", b'{"task": "nothing"}', 404, "nothing"),
        ("/v1/open", b'{"task": "train-0", "seed": 1}', 422, "seed: Extra inputs"),
        ("/v1/open", json.dumps({"task": "x" * 300}).encode(), 422, "256 characters"),
        ("/v1/open", b'{"task": "\\ud800"}', 422, ""),
        ("/v1/step", b'{"session": "a.b", "action": "add 1"}', 410, "another start"),
        ("/v1/step", b'{"session": "a", "action": "add 1"}', 404, "no such session"),
        ("/v1/step", b'{"session": "a", "action": "\\udfff"}', 422, ""),
        ("/v1/step", b'{"session": "a", "action": null}', 422, "string"),
        ("/v1/step", b'{"session": "a", "action": "x", "index": -1}', 422, "greater than"),
        ("/v1/step", json.dumps({"session": "a", "action": "x" * (MAX_ACTION_CHARS + 1)}).encode(), 422, "4096"),
        ("/v1/expand", b'{"session": "a.b", "actions": []}', 422, "at least 1"),
        ("/v1/expand", json.dumps({"session": "a.b", "actions": ["x"] * 257}).encode(), 422, "256"),
        (
            "/v1/expand",
            json.dumps({"session": "a.b", "actions": ["x", "x" * (MAX_ACTION_CHARS + 1)]}).encode(),
            422,
            "4096",
        ),
        ("/v1/close", b'{"sessions": "all"}', 422, "list"),
        ("/v1/restore", b'{"environment": "counter"}', 422, "version: Field required"),
        ("/v1/nowhere", b"{}", 404, "Not Found"),
        ("/v1/spec", b"{}", 405, "Method Not Allowed"),
    ],
)
def test_a_bad_request_is_a_4xx_with_a_reason(
    shared_counter: httpx.Client, path: str, body: bytes, status: int, reason: str
):
    response = shared_counter.post(path, content=body, headers={"Content-Type": "application/json"})
    assert reason in error_of(response, status)


@pytest.fixture(scope="module")
def shared_counter() -> Iterator[httpx.Client]:
    with counter_server() as client:
        yield client


def test_get_of_unknown_things(shared_counter: httpx.Client):
    assert "no split" in error_of(shared_counter.get("/v1/splits/nothing"), 404)
    assert error_of(shared_counter.get("/v1/splits/%ff%00"), 404)
    assert "task" in error_of(shared_counter.get("/v1/expert"), 422)
    assert shared_counter.get("/v1/expert?task=train-0").json()["steps"] is None
    assert error_of(shared_counter.get("/docs"), 404)


def test_bodies_are_limited_announced_or_not():
    with counter_server(max_body_bytes=1000) as client:
        assert "1000 bytes" in error_of(client.post("/v1/open", content=b"x" * 1001), 413)
        headers = {"Content-Type": "application/json"}
        unannounced = client.post("/v1/open", content=iter([b"x" * 600] * 3), headers=headers)
        assert "1000 bytes" in error_of(unannounced, 413)
        assert client.post("/v1/open", content=iter([b'{"task":', b'"train-0"}']), headers=headers).status_code == 200


def test_only_what_holds_many_things_may_be_large(shared_counter: httpx.Client):
    """Whatever a body holds is parsed in the event loop. The longest action fits everywhere, however it is escaped."""
    json_ = {"Content-Type": "application/json"}
    body = {"session": "a", "action": "\U0001f600" * MAX_ACTION_CHARS}
    assert "no such session" in error_of(shared_counter.post("/v1/step", content=json.dumps(body), headers=json_), 404)
    for path in ("open", "step", "fork", "actions", "snapshot"):
        assert "131072 bytes" in error_of(
            shared_counter.post(f"/v1/{path}", content=b"[" + b"0," * 100_000 + b"0]"), 413
        )
    full = {"session": "a", "actions": [body["action"]] * MAX_EXPAND}
    assert "no such session" in error_of(
        shared_counter.post("/v1/expand", content=json.dumps(full), headers=json_), 404
    )


def test_status_and_scores_are_sent_only_where_they_say_something(counter: httpx.Client):
    plain = {"session", "observation", "reward", "done", "valid", "executed"}
    opened = counter.post("/v1/open", json={"task": "train-0"}).json()
    actions = ["add 1", "status ok", "status empty", "grade 0.5"]
    added, ok, empty, graded = counter.post(
        "/v1/expand", json={"session": opened["session"], "actions": actions}
    ).json()["children"]
    assert opened.keys() == added.keys() == ok.keys() == plain
    assert empty.keys() == {*plain, "status"} and empty["status"] == "empty"
    assert graded.keys() == {*plain, "scores"} and graded["scores"] == {"share": 0.5}
    for answer in (added, empty, graded):
        stored = counter.post("/v1/snapshot", json={"session": answer["session"]}).json()
        copies = [counter.post("/v1/restore", json=stored).json()]
        copies.append(counter.post("/v1/fork", json={"session": answer["session"]}).json())
        for copy in copies:
            assert {**copy, "session": ""} == {**answer, "session": ""}


@pytest.mark.parametrize("action", ["status odd", "grade 2", "grade -0.1", "grade nan"])
def test_a_status_or_score_that_there_is_not_is_the_environments_fault(counter: httpx.Client, action: str):
    response = counter.post("/v1/step", json={"session": open_session(counter), "action": action})
    assert "failed inside the environment" in error_of(response, 500)


def test_an_exception_in_the_environment_is_a_500_with_an_incident(
    counter: httpx.Client, caplog: pytest.LogCaptureFixture
):
    session = open_session(counter)
    error = error_of(counter.post("/v1/step", json={"session": session, "action": "boom"}), 500)
    incident = error.partition("incident ")[2].rstrip(")")
    assert incident in caplog.text and "RuntimeError: boom" in caplog.text and "RuntimeError" not in error
    assert error_of(counter.post("/v1/step", json={"session": session, "action": "add 1"}), 404)


@pytest.mark.parametrize("fast", [True, False])
def test_an_environment_that_is_unavailable_is_a_503_with_its_hint_and_keeps_its_session(fast: bool):
    environment = Counter(fast=fast)
    with counter_server(environment) as client:
        session = open_session(client)
        environment.refusals = 2
        body = {"session": session, "action": "add 1", "index": 0}
        refused = client.post("/v1/step", json=body)
        assert error_of(refused, 503) == "the counter is at lunch" and refused.json()["hint"] == "Come back at one."
        assert refused.headers["Retry-After"] == "1"
        assert client.post("/v1/expand", json={"session": session, "actions": ["add 1"]}).status_code == 503
        assert client.post("/v1/step", json=body).json()["observation"] == "total 1"


def test_a_stuck_environment_answers_504_and_then_fails_its_health():
    with counter_server(Counter(fast=False), step_timeout_s=0.2, threads=1) as client:
        session = open_session(client)
        assert "longer than 0.2 s" in error_of(
            client.post("/v1/step", json={"session": session, "action": "sleep 1"}), 504
        )
        assert "stuck" in error_of(client.get("/health"), 503)
        assert error_of(client.post("/v1/open", json={"task": "train-0"}), 503)


def test_a_call_that_waits_for_its_turn_has_its_whole_deadline():
    """Eight sleeps of 0.25 s, one at a time: the last begins long after its deadline would have passed."""
    with (
        counter_server(Counter(fast=False, parallel=1), step_timeout_s=1.0, wait_s=30.0) as client,
        ThreadPoolExecutor(8) as pool,
    ):
        assert client.get("/v1/spec").json()["parallel"] == 1
        sessions = [open_session(client) for _ in range(8)]
        start = time.monotonic()
        steps = [pool.submit(client.post, "/v1/step", json={"session": s, "action": "sleep 0.25"}) for s in sessions]
        assert [step.result().status_code for step in steps] == [200] * 8 and time.monotonic() - start >= 2.0


def test_a_wait_for_a_turn_ends_too():
    with counter_server(Counter(fast=False, parallel=1), wait_s=0.1) as client, ThreadPoolExecutor(1) as pool:
        first, second = open_session(client), open_session(client)
        step = pool.submit(client.post, "/v1/step", json={"session": first, "action": "sleep 1"})
        time.sleep(0.3)
        assert "no thread was free for step within 0.1 s" in error_of(
            client.post("/v1/step", json={"session": second, "action": "add 1"}), 503
        )
        assert step.result().status_code == 200
        assert client.post("/v1/step", json={"session": second, "action": "add 1"}).json()["observation"] == "total 1"


@pytest.mark.parametrize("path", ["/v1/expert?task=train-0", "/v1/splits/train"])
def test_a_slow_split_or_expert_has_a_deadline_of_its_own_and_holds_up_no_step(path: str):
    with (
        counter_server(Counter(fast=False, look_up_s=0.5), step_timeout_s=0.25, threads=1) as client,
        ThreadPoolExecutor(8) as pool,
    ):
        session = open_session(client)
        slow = [pool.submit(client.get, path) for _ in range(8)]
        assert client.post("/v1/step", json={"session": session, "action": "add 1"}).status_code == 200
        assert [answer.result().status_code for answer in slow] == [200] * 8
    with counter_server(Counter(look_up_s=0.5), expert_timeout_s=0.1) as client:
        response = client.get(path)
        assert "took longer than 0.1 s" in error_of(response, 504) and "--expert-timeout-s" in response.json()["hint"]
        assert client.get("/health").status_code == 200


def test_too_many_sessions():
    with counter_server(max_sessions=2) as client:
        first, _ = open_session(client), open_session(client)
        response = client.post("/v1/open", json={"task": "train-0"})
        assert "2 of 2 sessions" in error_of(response, 429) and response.headers["retry-after"] == "1"
        assert client.post("/v1/close", json={"sessions": [first, first, "x.y"]}).json() == {"closed": 1}
        assert client.get("/health").json()["sessions"] == 1
        open_session(client)


def test_idle_sessions_are_swept_in_the_background():
    with counter_server(idle_s=0.2) as client:
        open_session(client)
        wait_until(lambda: client.get("/health").json()["sessions"] == 0, "the session to be swept")


def test_a_snapshot_goes_on_in_another_process(textcraft: httpx.Client):
    task = "oak sign@3"
    steps = [action for _, action in textcraft.get("/v1/expert", params={"task": task}).json()["steps"]]
    here = open_session(textcraft, task)
    for action in steps[:3]:
        textcraft.post("/v1/step", json={"session": here, "action": action})
    snapshot = textcraft.post("/v1/snapshot", json={"session": here}).json()
    with (
        child_server("textcraft", "--option", "distractors=3", hash_seed="7") as (url, _),
        http_client(url) as elsewhere,
    ):
        there = elsewhere.post("/v1/restore", json=snapshot).json()
        for index, action in enumerate(steps[3:], start=3):
            body = {"action": action, "index": index}
            a = textcraft.post("/v1/step", json={"session": here, **body}).json()
            b = elsewhere.post("/v1/step", json={"session": there["session"], **body}).json()
            assert {**a, "session": ""} == {**b, "session": ""}
        assert b["done"]
        assert "another start" in error_of(
            elsewhere.post("/v1/step", json={"session": here, "action": "inventory"}), 410
        )
        damaged = {**snapshot, "state": {**snapshot["state"], "inventory": {"minecraft:gold": -1}}}
        assert "not a TextCraft snapshot" in error_of(elsewhere.post("/v1/restore", json=damaged), 422)
        assert "version" in snapshot and error_of(elsewhere.post("/v1/restore", json={**snapshot, "version": "0"}), 422)


def test_sixty_four_sessions_at_once_do_not_mix(shared_counter: httpx.Client):
    async def main() -> None:
        async with aiohttp.ClientSession(
            str(shared_counter.base_url), headers={"Authorization": f"Bearer {TOKEN}"}
        ) as http:

            async def post(path: str, body: dict) -> dict:
                async with http.post(path, json=body) as response:
                    assert response.status == 200, await response.text()
                    return await response.json()

            async def episode(number: int) -> None:
                session = (await post("/v1/open", {"task": "train-0"}))["session"]
                for index in range(1, 11):
                    body = {"session": session, "action": f"add {number}", "index": index - 1}
                    assert (await post("/v1/step", body))["observation"] == f"total {number * index}"
                children = (await post("/v1/expand", {"session": session, "actions": ["add 1", f"add {number}"]}))[
                    "children"
                ]
                assert [c["observation"] for c in children] == [f"total {number * 10 + 1}", f"total {number * 11}"]
                assert (await post("/v1/close", {"sessions": [session, *(c["session"] for c in children)]}))[
                    "closed"
                ] == 3

            await asyncio.gather(*map(episode, range(64)))

    asyncio.run(main())
    assert shared_counter.get("/health").json()["sessions"] == 0


def test_metrics_count_what_was_done(counter: httpx.Client):
    session = open_session(counter)
    counter.post("/v1/expand", json={"session": session, "actions": ["add 1", "add 2", "add 3"]})
    counter.post("/v1/step", json={"session": session, "action": "add 1"})
    text = counter.get("/metrics").text
    for line in ("env_sessions 4.0", "env_steps_total 4.0", "env_forks_total 3.0", "env_sessions_opened_total 4.0"):
        assert line in text.splitlines()
    assert 'env_requests_total{endpoint="/v1/expand",status="200"} 1.0' in text


def test_an_environment_that_cannot_fork_says_so():
    with counter_server(Counter(can_fork=False)) as client:
        session = open_session(client)
        for path, more in (("fork", {}), ("expand", {"actions": ["add 1"]})):
            assert "cannot fork" in error_of(client.post(f"/v1/{path}", json={"session": session, **more}), 409)


@pytest.mark.slow
@settings(max_examples=150, deadline=None)
@given(actions=st.lists(st.text(max_size=60), min_size=1, max_size=4))
def test_junk_actions_never_break_the_server(textcraft: httpx.Client, actions: list[str]):
    session = open_session(textcraft, "stick@0")
    children = textcraft.post("/v1/expand", json={"session": session, "actions": actions})
    assert children.status_code == 200, children.text
    for action in actions:
        assert textcraft.post("/v1/step", json={"session": session, "action": action}).status_code == 200
    textcraft.post("/v1/close", json={"sessions": [session, *(c["session"] for c in children.json()["children"])]})


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=10),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)
keys = st.sampled_from(["session", "sessions", "action", "actions", "index", "task", "state", "steps", "done", "x"])
paths = st.sampled_from(["open", "step", "expand", "fork", "snapshot", "restore", "close"])


@settings(max_examples=200, deadline=None)
@given(path=paths, body=st.dictionaries(keys, json_values, max_size=5))
def test_junk_bodies_never_break_the_server(textcraft: httpx.Client, path: str, body: dict):
    response = textcraft.post(f"/v1/{path}", content=json.dumps(body), headers={"Content-Type": "application/json"})
    assert response.status_code in (200, 400, 404, 409, 410, 422), response.text
    assert response.status_code == 200 or ErrorBody.model_validate_json(response.content).error
