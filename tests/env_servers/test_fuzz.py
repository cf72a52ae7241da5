"""Requests made from the app's own description: whatever is sent, no answer is a 5xx, and a refusal says why.

The description is made here for that purpose; the app serves none.
"""

import itertools
from collections.abc import Iterator
from typing import Any, cast

import pytest
import schemathesis
from fastapi import FastAPI
from fastapi.routing import APIRoute
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pydantic import BaseModel
from schemathesis import Case

from env_servers.app import create_app
from env_servers.protocol import ErrorBody
from env_servers.registry import client_dialects, describe, load
from env_servers.retrieval.app import create_app as create_retrieval_app
from env_servers.retrieval.bm25 import BM25
from env_servers.retrieval.passages import fiction
from tests.env_servers.broken import Walk
from tests.env_servers.support import TOKEN, http_client, serving

APP = create_app(Walk(), token=TOKEN)
SCHEMA = schemathesis.openapi.from_dict(APP.openapi())
#: What a refusal may be: a body, a name, a state, a token, a method or a size that cannot be used.
REFUSALS = {400, 401, 404, 405, 409, 410, 413, 422}
BOUNDED = settings(max_examples=40, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with serving(APP) as url:
        yield url


def assert_sane(status: int, body: bytes) -> None:
    """Carried out, or refused with a reason."""
    assert status == 200 or status in REFUSALS, (status, body[:300])
    assert status == 200 or ErrorBody.model_validate_json(body).error


def test_every_endpoint_is_described():
    described = {path for path in APP.openapi()["paths"] if path.startswith("/v1/")}
    names = (
        "open",
        "step",
        "expand",
        "fork",
        "actions",
        "snapshot",
        "restore",
        "close",
        "spec",
        "splits/{name}",
        "expert",
        "redraw",
    )
    assert described == {f"/v1/{name}" for name in names}
    assert APP.openapi_url is None


@SCHEMA.parametrize()
@BOUNDED
def test_no_request_breaks_the_server(url: str, case: Case):
    response = case.call(base_url=url, headers={"Authorization": f"Bearer {TOKEN}"})
    assert_sane(response.status_code, response.content)


@SCHEMA.parametrize()
@settings(BOUNDED, max_examples=10)
def test_no_request_gets_in_without_the_token(url: str, case: Case):
    response = case.call(base_url=url, headers={"Authorization": "Bearer wrong"})
    assert response.status_code in ((200, 405) if case.path == "/health" else (401,))


actions = st.lists(st.sampled_from(["left", "right"]) | st.text(max_size=30), min_size=1, max_size=4)
data = st.recursive(
    st.none() | st.booleans() | st.integers(-(10**20), 10**20) | st.floats(allow_nan=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=5,
)


@pytest.mark.slow
@settings(BOUNDED, max_examples=60)
@given(
    said=actions,
    index=st.none() | st.integers(-2, 3),
    state=st.dictionaries(st.sampled_from(["goal", "at", "moves", "x"]), data),
)
def test_no_argument_breaks_a_session_that_exists(url: str, said: list[str], index: int | None, state: dict[str, Any]):
    """Ids that were drawn at random never name a session."""
    with http_client(url) as client:
        session = client.post("/v1/open", json={"task": "train-3"}).json()["session"]
        snapshot = client.post("/v1/snapshot", json={"session": session}).json()
        requests = [
            ("expand", {"actions": said}),
            ("step", {"action": said[0], "index": index}),
            ("actions", {}),
            ("fork", {}),
        ]
        for path, more in requests:
            response = client.post(f"/v1/{path}", json={"session": session, **more})
            assert_sane(response.status_code, response.content)
        response = client.post("/v1/restore", json={**snapshot, "state": {**snapshot["state"], **state}})
        assert_sane(response.status_code, response.content)
        client.post("/v1/close", json={"sessions": [session]})


#: Text that is none: halves of characters, alone, in the wrong order and among others, as JSON escapes.
HALVES = (r"\ud800", r"\udfff\ud800", r"a\ud83d b")


def served(name: str) -> FastAPI:
    """A server of everything that it speaks. Nothing is asked of the environment."""
    if name == "retrieval":
        return create_retrieval_app(BM25(fiction()), token=TOKEN)
    return create_app(load(name), token=TOKEN, agentgym=name in client_dialects())


def bodies(model: type[BaseModel]) -> Iterator[str]:
    """Bodies as JSON that would be in order, but for halves of characters in one of their texts; none of a model
    without texts."""
    kinds = {
        name: str(field.annotation) for name, field in model.model_fields.items() if name not in ("status", "scores")
    }
    texts = [name for name, kind in kinds.items() if "str" in kind]
    written = {
        name: '["x"]' if "list[" in kind else "{}" if "dict[" in kind else '"x"' if "str" in kind else "1"
        for name, kind in kinds.items()
    }
    for half, name in itertools.product(HALVES, texts):
        damaged = {
            **written,
            name: written[name].replace('"x"', f'"{half}"').replace("{}", f'{{"x": [{{"y": "{half}"}}]}}'),
        }
        yield "{" + ", ".join(f'"{name}": {value}' for name, value in damaged.items()) + "}"
    if texts and model.model_config.get("extra") == "forbid":
        yield '{"\\ud800": 1}'


@pytest.mark.parametrize(
    "name", [*(found.name for found in describe() if found.available and found.name != "program"), "retrieval"]
)
def test_text_that_is_none_is_refused_by_every_server(name: str):
    app, tried = served(name), 0
    with serving(app) as url, http_client(url) as client:
        for route in app.routes:
            if isinstance(route, APIRoute) and route.body_field is not None:
                for body in bodies(cast(type[BaseModel], route.body_field.field_info.annotation)):
                    answer = client.post(route.path, content=body, headers={"Content-Type": "application/json"})
                    assert answer.status_code == 422, (route.path, body, answer.text)
                    assert "unicode" in ErrorBody.model_validate_json(answer.content).error or "\\ud800" in body
                    tried += 1
        for path in ("/v1/splits/%ED%A0%80", "/v1/expert?task=%ED%A0%80", "/%ED%A0%80", "/observation?id=%ED%A0%80"):
            answer = client.get(path)
            assert_sane(answer.status_code, answer.content)
    assert tried > 5
