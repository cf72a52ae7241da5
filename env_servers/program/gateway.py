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
from env_servers.program.requests import BadRequest, message_of, read_chat
from env_servers.protocol import text

#: Largest body of a call.
MAX_BODY = 8 << 20
#: What the only model of the list is called; a call may name any.
MODEL = "agentr"


class Gateway:
    """The server. It starts with the first program, and ends with this process.

    Args:
        folder: Gets its socket, ``gateway``.
    """

    def __init__(self, folder: Path) -> None:
        self._asking: dict[str, Asking] = {}
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
            Route("/v1/chat/completions", self._known(self._chat), methods=["POST"]),
            Route("/v1/models", self._known(self._models), methods=["GET"]),
            Route("/report", self._known(self._report), methods=["POST"]),
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
                return _error(401, "the key is none of a program that runs", "authentication_error")
            try:
                return await handler(asking, request)
            except BadRequest as error:
                return _error(400, str(error))
            except ClientDisconnect:
                return Response()

        return handle

    async def _chat(self, asking: Asking, http: HttpRequest) -> Response:
        body = await _json(http)
        call = asking.called(read_chat(body), http.headers.get("x-stainless-retry-count", "0") != "0")
        if call is None:
            return _error(410, "the episode has ended", "not_found_error")
        answer, number = await _unless_gone(call, http)
        written = _completion(answer, number, call.request.model)
        if body.get("stream"):
            options = body.get("stream_options")
            usage = isinstance(options, dict) and bool(options.get("include_usage"))
            return _Delivered(StreamingResponse(_chunks(written, usage), media_type="text/event-stream"), call)
        return _Delivered(JSONResponse(written), call)

    async def _models(self, _: Asking, __: HttpRequest) -> Response:
        return JSONResponse(
            {"object": "list", "data": [{"id": MODEL, "object": "model", "created": 0, "owned_by": MODEL}]}
        )

    async def _report(self, asking: Asking, http: HttpRequest) -> Response:
        asking.reported(await _json(http))
        return JSONResponse({})

    async def _unknown(self, http: HttpRequest, _: Exception) -> Response:
        return _error(404, f"{http.method} {http.url.path} is not served", "not_found_error")


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


def _error(status: int, message: str, kind: str = "invalid_request_error") -> Response:
    return JSONResponse({"error": {"message": message, "type": kind, "param": None, "code": None}}, status)


def _completion(answer: Answer, number: int, model: str) -> dict[str, Any]:
    calls = [
        {"id": call["id"], "type": "function", "function": {"name": call["name"], "arguments": call["arguments"]}}
        for call in message_of(answer, number).get("calls", ())
    ]
    message = {"role": "assistant", "content": answer.content or (None if calls else ""), "refusal": None}
    prompt, turn = answer.usage
    return {
        "id": f"chatcmpl-{number:05}",
        "object": "chat.completion",
        "created": 0,
        "model": model,
        "choices": [
            {
                "index": 0,
                "message": {**message, **({"tool_calls": calls} if calls else {})},
                "logprobs": None,
                "finish_reason": "tool_calls" if calls and answer.finish == "stop" else answer.finish,
            }
        ],
        "usage": {"prompt_tokens": prompt, "completion_tokens": turn, "total_tokens": prompt + turn},
    }


def _chunks(written: dict[str, Any], usage: bool) -> Any:
    """Yields a completion as the events of a stream."""
    (choice,) = written["choices"]
    message = choice["message"]
    about = {key: written[key] for key in ("id", "created", "model")} | {"object": "chat.completion.chunk"}
    calls = [{"index": n, **call} for n, call in enumerate(message.get("tool_calls", ()))]
    deltas = [
        {"role": "assistant", "content": message["content"] or ""},
        *({"tool_calls": [call]} for call in calls),
        {},
    ]
    for n, delta in enumerate(deltas):
        finish = choice["finish_reason"] if n == len(deltas) - 1 else None
        chunk = {**about, "choices": [{"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}]}
        yield f"data: {json.dumps(chunk)}\n\n"
    if usage:
        yield f"data: {json.dumps({**about, 'choices': [], 'usage': written['usage']})}\n\n"
    yield "data: [DONE]\n\n"
