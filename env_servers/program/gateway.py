"""The gateway: an HTTP server that programs take for a model's, in a thread of its own.

A program is known by its key. Its calls are kept until the environment answers them (`live.py`); whether an answer
arrived wholly is kept, too, since a client that did not get it asks again.
"""

import asyncio
import contextlib
import json
import secrets
import socket
import threading
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import uvicorn
from starlette.applications import Starlette
from starlette.requests import ClientDisconnect
from starlette.requests import Request as HttpRequest
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from env_servers.connections import limited
from env_servers.observation import Answer
from env_servers.program.calls import Asking, Call
from env_servers.program.others import Others
from env_servers.program.protocols import PROTOCOLS, chat
from env_servers.program.requests import BadRequest
from env_servers.protocol import text

#: Largest body of a call.
MAX_BODY = 8 << 20
#: What our model is called in the list of models; a call may name any.
MODEL = "agentr"


class Gateway:
    """The server. It starts with the first program, and ends with this process.

    Args:
        folder: Gets its socket, ``gateway``.
        others: The models that are not ours.
    """

    def __init__(self, folder: Path, others: Others) -> None:
        self._asking: dict[str, Asking] = {}
        self._others = others
        self.loop = asyncio.new_event_loop()
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(str(folder / "gateway"))
        (folder / "gateway").chmod(0o666)
        threading.Thread(target=self._serve, name="gateway", daemon=True).start()

    def admit(self, asking: Asking) -> str:
        """Returns the key of a program."""
        key = f"agentr-{secrets.token_urlsafe(24)}"
        self._asking[key] = asking
        return key

    def dismiss(self, key: str) -> None:
        """Forgets a program: its key is none any more."""
        self._asking.pop(key, None)

    def soon(self, call: Callable[[], Any]) -> None:
        """Calls something in the gateway's thread."""
        self.loop.call_soon_threadsafe(call)

    def _serve(self) -> None:
        asyncio.set_event_loop(self.loop)
        routes = [
            *(Route(path, self._known(self._asked), methods=["POST"]) for path in PROTOCOLS),
            Route("/v1/responses", self._sockets, methods=["GET"]),
            Route("/v1/messages/count_tokens", self._known(self._counted), methods=["POST"]),
            Route("/v1/models", self._known(self._models), methods=["GET"]),
            Route("/report", self._known(self._report), methods=["POST"]),
            Route("/v1/{path:path}", self._known(self._asked), methods=["POST"]),
            Route("/", lambda _: Response(), methods=["GET", "HEAD"]),
        ]
        app = Starlette(routes=routes, exception_handlers={404: self._unknown, 405: self._unknown})
        server = uvicorn.Server(limited(app, connections=1 << 16, timeout_keep_alive=600, lifespan="off"))
        self.loop.run_until_complete(server.serve(sockets=[self._listener]))

    def _known(
        self, handler: Callable[[Asking, HttpRequest], Awaitable[Response]]
    ) -> Callable[..., Awaitable[Response]]:
        """A handler that knows the program, and whose errors are in the provider's form."""

        async def handle(request: HttpRequest) -> Response:
            scheme, _, key = request.headers.get("authorization", "").partition(" ")
            asking = self._asking.get(key if scheme.lower() == "bearer" else request.headers.get("x-api-key", ""))
            if asking is None:
                return _refused(request, 401, "the key is none of a program that runs")
            try:
                return await handler(asking, request)
            except BadRequest as error:
                asking.refused = str(error)
                return _refused(request, 400, str(error))
            except ClientDisconnect:
                return Response()

        return handle

    async def _asked(self, asking: Asking, http: HttpRequest) -> Response:
        body = await _json(http)
        if self._others.serve(body):
            return await self._of_others(asking, http, body)
        if (wire := PROTOCOLS.get(http.url.path)) is None:
            return await self._unknown(http, None)
        call = asking.called(wire.read(body), http.headers.get("x-stainless-retry-count", "0") != "0")
        if call is None:
            return _refused(http, 410, "the episode has ended")
        answer, number = await _unless_gone(call, http)
        written = wire.written(answer, number, call.request)
        if body.get("stream"):
            return _Delivered(StreamingResponse(wire.events(written, body), media_type="text/event-stream"), call)
        return _Delivered(JSONResponse(written), call)

    async def _of_others(self, asking: Asking, http: HttpRequest, body: dict[str, Any]) -> Response:
        try:
            where = http.scope["raw_path"].decode() + f"?{http.url.query}".rstrip("?")
            answer = await self._others.answer(asking.heard, where, http.headers, body)
        except ConnectionError as error:
            asking.lost()
            return _refused(http, 503, str(error))
        return Response(answer.body, answer.status, media_type=answer.kind)

    async def _counted(self, _: Asking, http: HttpRequest) -> Response:
        """An estimate, since no tokenizer is here: the same for the same request."""
        return JSONResponse({"input_tokens": 1 + len(json.dumps(await _json(http))) // 4})

    async def _sockets(self, _: HttpRequest) -> Response:
        return Response("Responses are served by POST.", 426, {"Upgrade": "HTTP/1.1"})

    async def _models(self, _: Asking, __: HttpRequest) -> Response:
        names = (MODEL, *self._others.models)
        data = [{"id": name, "object": "model", "created": 0, "owned_by": MODEL} for name in names]
        return JSONResponse({"object": "list", "data": data})

    async def _report(self, asking: Asking, http: HttpRequest) -> Response:
        asking.reported(await _json(http))
        return JSONResponse({})

    async def _unknown(self, http: HttpRequest, _: Exception | None) -> Response:
        return _refused(http, 404, f"{http.method} {http.url.path} is not served")


class _Delivered(Response):
    """A response that notes that its last byte was sent."""

    def __init__(self, response: Response, call: Call) -> None:
        self._response, self._call = response, call

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        async def noted(message: Any) -> None:
            await send(message)
            if message["type"] == "http.response.body" and not message.get("more_body"):
                self._call.delivered = True

        await self._response(scope, receive, noted)


async def _json(http: HttpRequest) -> Any:
    parts, size = [], 0
    try:
        async for part in http.stream():
            size += len(part)
            if size > MAX_BODY:
                raise BadRequest(f"the body has more than {MAX_BODY >> 20} MiB")
            parts.append(part)
        return text(json.loads(b"".join(parts)))
    except (ValueError, RecursionError) as error:
        raise error if isinstance(error, BadRequest) else BadRequest(f"the body is no JSON: {error}") from error


async def _unless_gone(call: Call, http: HttpRequest) -> tuple[Answer, int]:
    """Waits for an answer, as long as the client does."""
    gone = asyncio.ensure_future(http.receive())  # all that can still come is that it is gone
    await asyncio.wait({call.answered, gone}, return_when=asyncio.FIRST_COMPLETED)
    if not call.answered.done():
        call.left = True
        raise ClientDisconnect
    gone.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await gone
    return call.answered.result()


def _refused(http: HttpRequest, status: int, message: str) -> Response:
    """An error in the form of the protocol that was spoken."""
    wire = next((wire for path, wire in PROTOCOLS.items() if http.url.path.startswith(path)), chat)
    return JSONResponse(wire.refusal(status, message), status)
