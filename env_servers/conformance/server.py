"""A server under test, spoken to as any client speaks to it, with every answer checked against the wire models."""

from __future__ import annotations

import json
from functools import cached_property
from typing import Any, TypeVar

import httpx
from pydantic import BaseModel, ValidationError

from env_servers import protocol as wire

Answer = TypeVar("Answer", bound=BaseModel)
#: Characters of an answer that a failure quotes.
MAX_QUOTED = 300


class Broken(Exception):
    """A check failed: what was expected, and what came."""


class NotApplicable(Exception):
    """A check has nothing to look at: why."""


class Server:
    """One server.

    Args:
        token: Bearer token; empty for a server without one.
        timeout_s: Deadline of one request.
    """

    def __init__(self, url: str, token: str, timeout_s: float) -> None:
        self.url = url.rstrip("/")
        self.token = token
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        limits = httpx.Limits(max_connections=None)
        self.http = httpx.Client(base_url=self.url, headers=headers, timeout=timeout_s, trust_env=False, limits=limits)
        self._open: list[str] = []
        self._splits: dict[str, list[wire.TaskEntry]] = {}

    @cached_property
    def spec(self) -> wire.EnvironmentSpec:
        return self.get("/v1/spec", wire.EnvironmentSpec)

    def split(self, name: str) -> list[wire.TaskEntry]:
        """The tasks of a split; asked for once."""
        if name not in self._splits:
            answer = _read(self.http.get(f"/v1/splits/{name}", timeout=wire.EXPERT_TIMEOUT_S), wire.SplitResponse)
            require(answer.name == name, f"/v1/splits/{name} answers with split {answer.name!r}")
            self._splits[name] = answer.tasks
        return self._splits[name]

    def expert(self, task: str) -> list[tuple[str, str]] | None:
        return _read(
            self.http.get("/v1/expert", params={"task": task}, timeout=wire.EXPERT_TIMEOUT_S), wire.ExpertResponse
        ).steps

    def health(self) -> wire.Health:
        return self.get("/health", wire.Health)

    def get(self, path: str, model: type[Answer]) -> Answer:
        return _read(self.http.get(path), model)

    def post(self, path: str, body: dict[str, Any], model: type[Answer]) -> Answer:
        return _read(self.http.post(path, json=body), model)

    def open(self, task: str) -> Live:
        return self.adopt(self.post("/v1/open", {"task": task}, wire.ObservedState), 0)

    def restore(self, snapshot: dict[str, Any]) -> Live:
        return self.adopt(self.post("/v1/restore", snapshot, wire.ObservedState), snapshot["steps"])

    def adopt(self, observed: wire.ObservedState, steps: int) -> Live:
        """A session that the server says it has made; it is closed when the check is over."""
        self._open.append(observed.session)
        return Live(self, observed, steps)

    def close(self, sessions: list[str]) -> int:
        return self.post("/v1/close", {"sessions": sessions}, wire.CloseResponse).closed

    def close_all(self) -> None:
        """Closes what the last check opened."""
        sessions, self._open = self._open, []
        for start in range(0, len(sessions), 1000):
            self.close(sessions[start : start + 1000])

    def refuses(self, why: str, statuses: tuple[int, ...], response: httpx.Response) -> None:
        """Requires that a request was refused as it should be.

        Raises:
            Broken: Another status, or a body that does not say what was wrong.
        """
        shown = response.text[:MAX_QUOTED]
        wanted = " or ".join(map(str, statuses))
        require(response.status_code in statuses, f"{why}: expected {wanted}, got {response.status_code} {shown}")
        try:
            body = wire.ErrorBody.model_validate_json(response.content)
        except ValidationError:
            raise Broken(f"{why}: the body of the {response.status_code} is no error body: {shown}") from None
        require(bool(body.error), f"{why}: the {response.status_code} does not say what was wrong")


class Live:
    """A session under test.

    Attributes:
        last: What was last observed.
        steps: Actions since the start of the task.
    """

    def __init__(self, server: Server, observed: wire.ObservedState, steps: int) -> None:
        self.server = server
        self.id = observed.session
        self.last = observed
        self.steps = steps

    def step(self, action: str) -> wire.ObservedState:
        body = {"session": self.id, "action": action, "index": self.steps}
        self.last = self.server.post("/v1/step", body, wire.ObservedState)
        self.steps += 1
        require(self.last.session == self.id, f"a step of session {self.id} was answered as {self.last.session}")
        return self.last

    def fork(self) -> Live:
        fork = self.server.adopt(self.server.post("/v1/fork", {"session": self.id}, wire.ObservedState), self.steps)
        require(fork.id != self.id, "a fork has the id of its original")
        return fork

    def expand(self, actions: list[str]) -> list[Live]:
        answer = self.server.post("/v1/expand", {"session": self.id, "actions": actions}, wire.ExpandResponse)
        require(
            len(answer.children) == len(actions),
            f"{len(actions)} actions were answered with {len(answer.children)} children",
        )
        return [self.server.adopt(child, self.steps + 1) for child in answer.children]

    def actions(self) -> list[str]:
        return self.server.post("/v1/actions", {"session": self.id}, wire.ActionsResponse).actions

    def expert(self) -> list[tuple[str, str]] | None:
        asked = self.server.http.post("/v1/expert", json={"session": self.id}, timeout=wire.EXPERT_TIMEOUT_S)
        return _read(asked, wire.ExpertResponse).steps

    def redraw(self, seed: int) -> Live:
        answer = self.server.post("/v1/redraw", {"session": self.id, "seed": seed}, wire.ObservedState)
        return self.server.adopt(answer, self.steps)

    def snapshot(self) -> dict[str, Any]:
        """The snapshot as it would lie in a file whose keys are sorted, as many stores do."""
        answer = self.server.post("/v1/snapshot", {"session": self.id}, wire.Snapshot)
        return json.loads(json.dumps(answer.model_dump(), sort_keys=True))


def require(condition: bool, otherwise: str) -> None:
    """Raises `Broken` with the text unless the condition holds."""
    if not condition:
        raise Broken(otherwise)


def _read(response: httpx.Response, model: type[Answer]) -> Answer:
    request = response.request
    asked = f"{request.method} {request.url.path} {request.content[:MAX_QUOTED].decode('utf-8', 'replace')}".rstrip()
    require(
        response.status_code == 200, f"{asked}: expected 200, got {response.status_code} {response.text[:MAX_QUOTED]}"
    )
    try:
        return model.model_validate_json(response.content)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"]))
        raise Broken(f"{asked}: the answer is no {model.__name__}: {where}: {first['msg']}") from None
