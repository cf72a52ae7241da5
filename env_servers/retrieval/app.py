"""The service: ET-Agent's retrieval protocol over any retriever.

- ``GET /health`` -> ``{"status": "ok", "retrievers": {"total": int, "available": int}}``, the threads for searches and
  how many are idle.
- ``POST /search`` ``{"query": str, "top_n": int = 10, "return_score": bool = false}`` -> ``[{"id": str, "contents":
  str}, ..]``, where the first line of ``contents`` is the title; with ``return_score`` ``[documents, scores]``.
- ``POST /batch_search``, ``query`` being a list -> a list of such lists; with ``return_score``
  ``[[documents, ..], [scores, ..]]``.

An empty query is a 400. A search that could not be carried out is a 503, one that took too long a 504, with an
``ErrorBody``.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Annotated, Any, TypeVar

from fastapi import FastAPI, Response
from pydantic import BaseModel, ConfigDict, Field

from env_servers.auth import AuthMiddleware
from env_servers.errors import add_error_handlers
from env_servers.metrics import Metrics
from env_servers.retrieval.base import Passage, RetrievalFailure, Retriever
from env_servers.worker import Refused, Worker

Result = TypeVar("Result")
#: Most passages for a query, queries in a batch, and characters of a query.
MAX_TOP_N = 1000
MAX_BATCH = 1024
MAX_QUERY_CHARS = 8192
#: Largest request body, in bytes.
MAX_BODY = 16 << 20


class _Options(BaseModel):
    model_config = ConfigDict(extra="forbid")

    top_n: int = Field(10, ge=1, le=MAX_TOP_N)
    return_score: bool = False


class Query(_Options):
    query: str = Field(max_length=MAX_QUERY_CHARS)


class Batch(_Options):
    query: list[Annotated[str, Field(max_length=MAX_QUERY_CHARS)]] = Field(max_length=MAX_BATCH)


class Pool:
    """Searches in threads with a deadline, or inline for a fast retriever.

    Attributes:
        busy: Searches that run or wait for a thread.
    """

    def __init__(self, retriever: Retriever, *, timeout_s: float, threads: int) -> None:
        self.worker = Worker(
            inline=retriever.fast,
            timeout_s=timeout_s,
            threads=threads,
            hint="Try again later, or start it with a longer --timeout-s (python -m env_servers.retrieval).",
        )
        self.busy = 0

    @property
    def available(self) -> int:
        return max(0, self.worker.threads - self.busy - self.worker.stuck)

    async def run(self, call: Callable[[], Result], *, inline: bool = True) -> Result:
        def search() -> Result:
            try:
                return call()
            except RetrievalFailure as error:
                raise Refused(503, str(error), "Try again later.") from error

        self.busy += 1
        try:
            return await (self.worker.run("search", search) if inline else self.worker.run_in_thread("search", search))
        finally:
            self.busy -= 1


def create_app(retriever: Retriever, *, token: str | None, timeout_s: float = 60.0, threads: int = 16) -> FastAPI:
    """The server of one retriever.

    Args:
        token: Bearer token that every endpoint but ``/health`` asks for; None lets everybody in.
        timeout_s: Deadline of a request's searches.
        threads: Searches at the same time.
    """
    pool = Pool(retriever, timeout_s=timeout_s, threads=threads)
    metrics = Metrics()
    metrics.gauge("idle_retrievers", "Threads for searches that are idle", lambda: pool.available)

    @contextlib.asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        yield
        await asyncio.to_thread(pool.worker.shutdown)

    app = FastAPI(title=f"Retrieval: {retriever.name}", lifespan=lifespan, openapi_url=None)

    @app.get("/health")
    async def health() -> dict[str, Any]:
        return {"status": "ok", "retrievers": {"total": pool.worker.threads, "available": pool.available}}

    @app.get("/metrics")
    async def metrics_text() -> Response:
        return Response(metrics.text(), media_type="text/plain; version=0.0.4")

    @app.post("/search")
    async def search(body: Query) -> list[Any]:
        _check([body.query])
        found = await pool.run(lambda: retriever.search(body.query, body.top_n))
        return [_documents(found), _scores(found)] if body.return_score else _documents(found)

    @app.post("/batch_search")
    async def batch_search(body: Batch) -> list[Any]:
        _check(body.query)
        found = await pool.run(lambda: retriever.search_many(body.query, body.top_n), inline=False)
        documents = [_documents(passages) for passages in found]
        return [documents, [_scores(passages) for passages in found]] if body.return_score else documents

    add_error_handlers(app, hint="See env_servers/retrieval/app.py for the request bodies.")
    app.add_middleware(
        AuthMiddleware,
        token=token,
        open_paths={"/health"},
        max_body_bytes=MAX_BODY,
        large_paths={"/batch_search"},
        metrics=metrics,
    )
    return app


def _check(queries: Sequence[str]) -> None:
    for i, query in enumerate(queries):
        if not query.strip():
            raise Refused(
                400, f"query {i} is empty" if len(queries) > 1 else "the query is empty", "Send at least one word."
            )


def _documents(passages: Sequence[Passage]) -> list[dict[str, str]]:
    return [{"id": passage.id, "contents": passage.contents} for passage in passages]


def _scores(passages: Sequence[Passage]) -> list[float]:
    return [passage.score for passage in passages]
