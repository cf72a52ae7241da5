"""The HTTP face of one environment. Endpoints, bodies and ids are described in `protocol.py`.

Ours live under ``/v1``, because AgentGym's protocol (`agentgym.py`, optional) has its own ``/step`` and ``/close`` at
the root. Every error is a 4xx or 5xx with an ``ErrorBody``; a bad request is never a 500. FastAPI's pages of
documentation are not served.
"""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator

from fastapi import APIRouter, FastAPI, Response
from pydantic import BaseModel

from env_servers import agentgym as agentgym_protocol
from env_servers import protocol as wire
from env_servers.auth import AuthMiddleware
from env_servers.base import Environment, ExpertStep
from env_servers.errors import add_error_handlers
from env_servers.metrics import Metrics
from env_servers.sessions import Limits, SessionTable
from env_servers.worker import Refused

#: Requests that hold lists or states. Other bodies hold an action at most.
LARGE_PATHS = frozenset({"/v1/expand", "/v1/restore", "/v1/close"})


def create_app(
    environment: Environment,
    *,
    token: str | None,
    limits: Limits | None = None,
    agentgym: bool = False,
    agentgym_needs_token: bool = True,
) -> FastAPI:
    """The server of one environment; ``app.state.sessions`` is its session table.

    Args:
        token: Bearer token that every endpoint but ``/health`` asks for; None lets everybody in, which only a server
            that is bound to loopback may do (`serving.py` sees to that).
        agentgym: Also speak AgentGym's protocol, at the root.
        agentgym_needs_token: AgentGym's own client sends no token. False admits it; for loopback only.

    Raises:
        NoDialect: AgentGym has no such environment.
    """
    limits = limits or Limits()
    metrics = Metrics()
    table = SessionTable(environment, limits, metrics)
    metrics.gauge("sessions", "Open sessions", lambda: len(table))
    metrics.gauge("stuck_calls", "Environment calls that passed their deadline and still run", lambda: table.stuck)

    @contextlib.asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        sweeper = asyncio.create_task(table.sweep_forever())
        yield
        sweeper.cancel()
        await table.shutdown()
        environment.stop()

    app = FastAPI(title=environment.spec.title, lifespan=lifespan, openapi_url=None)
    app.state.sessions = table
    app.include_router(_service(environment, table, metrics))
    app.include_router(_information(environment, table), prefix="/v1")
    app.include_router(_sessions(table), prefix="/v1")
    open_paths = {"/health"}
    if agentgym:
        dialect = agentgym_protocol.router(environment, table)
        app.include_router(dialect)
        if not agentgym_needs_token:
            open_paths |= agentgym_protocol.paths(dialect)
    add_error_handlers(app, hint="See env_servers/protocol.py for the request bodies.")
    app.add_middleware(
        AuthMiddleware,
        token=token,
        open_paths=open_paths,
        max_body_bytes=limits.max_body_bytes,
        large_paths=LARGE_PATHS | ({"/v1/step"} if environment.spec.action_chars > wire.MAX_ACTION_CHARS else set()),
        metrics=metrics,
    )
    return app


def _service(environment: Environment, table: SessionTable, metrics: Metrics) -> APIRouter:
    """Routes for supervisors and monitors: health and metrics."""
    routes = APIRouter()
    started = time.monotonic()

    @routes.get("/health")
    async def health() -> Response:
        worker = table.worker
        if worker.stuck >= worker.threads:
            raise Refused(503, f"all {worker.threads} threads are stuck in the environment", "Restart the server.")
        uptime = time.monotonic() - started
        return _json(
            wire.Health(
                name=environment.spec.name,
                epoch=table.epoch,
                sessions=len(table),
                uptime_s=uptime,
                max_sessions=table.max_sessions,
                refused_s=table.refused_s,
            )
        )

    @routes.get("/metrics")
    async def metrics_text() -> Response:
        return Response(metrics.text(), media_type="text/plain; version=0.0.4")

    return routes


def _information(environment: Environment, table: SessionTable) -> APIRouter:
    """Routes without a session: specification, splits, expert. The last two may be slow even in a fast environment."""
    routes = APIRouter()
    listed: dict[str, Response] = {}

    @routes.get("/spec")
    async def spec() -> Response:
        return _json(environment.spec)

    @routes.get("/splits/{name}")
    async def split(name: str) -> Response:
        if name not in listed:
            tasks = await table.look_up(f"split {name!r}", lambda: environment.split(name))
            entries = [wire.TaskEntry(id=task.id, labels=task.labels) for task in tasks]
            listed[name] = _json(wire.SplitResponse(name=name, tasks=entries))
        return listed[name]

    @routes.get("/expert")
    async def expert(task: str) -> Response:
        return _demonstrated(task, await table.look_up(f"the expert for {task!r}", lambda: environment.expert(task)))

    return routes


def _sessions(table: SessionTable) -> APIRouter:
    routes = APIRouter()

    @routes.post("/open")
    async def open_session(body: wire.OpenRequest) -> Response:
        return _json((await table.open(body.task, expected=body.expected, others=body.others)).observed())

    @routes.post("/step")
    async def step(body: wire.StepRequest) -> Response:
        return _json(await table.step(body.session, body.action, body.index, body.expected))

    @routes.post("/expand")
    async def expand(body: wire.ExpandRequest) -> Response:
        return _json(wire.ExpandResponse(children=await table.expand(body.session, body.actions)))

    @routes.post("/fork")
    async def fork(body: wire.SessionRequest) -> Response:
        return _json(await table.fork(body.session))

    @routes.post("/actions")
    async def actions(body: wire.SessionRequest) -> Response:
        return _json(wire.ActionsResponse(actions=await table.actions(body.session)))

    @routes.post("/expert")
    async def expert(body: wire.SessionRequest) -> Response:
        return _demonstrated("", await table.expert(body.session))

    @routes.post("/redraw")
    async def redraw(body: wire.RedrawRequest) -> Response:
        return _json(await table.redraw(body.session, body.seed))

    @routes.post("/snapshot")
    async def snapshot(body: wire.SessionRequest) -> Response:
        return _json(await table.snapshot(body.session))

    @routes.post("/restore")
    async def restore(body: wire.Snapshot) -> Response:
        return _json(await table.restore(body))

    @routes.post("/close")
    async def close(body: wire.CloseRequest) -> Response:
        return _json(wire.CloseResponse(closed=table.close(body.sessions)))

    return routes


def _demonstrated(task: str, steps: list[ExpertStep] | None) -> Response:
    pairs = None if steps is None else [(step.thought, step.action) for step in steps]
    return _json(wire.ExpertResponse(task=task, steps=pairs))


def _json(model: BaseModel) -> Response:
    """Serialised by pydantic in one go; FastAPI's own way validates the answer a second time."""
    return Response(model.model_dump_json(), media_type="application/json")
