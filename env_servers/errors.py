"""The error answers of our servers: every refusal and every defect is an ``ErrorBody``, and a bad request is never a
500."""

import logging
import secrets

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException

from env_servers.auth import error_response
from env_servers.protocol import ErrorBody
from env_servers.worker import Refused

log = logging.getLogger(__name__)
#: Most validation errors that one answer lists.
MAX_LISTED_ERRORS = 5


def add_error_handlers(app: FastAPI, *, hint: str) -> None:
    """Has the app answer each error with an ``ErrorBody``.

    Args:
        hint: Where the request bodies are described, for a request that cannot be read.
    """

    @app.exception_handler(Refused)
    async def refused(_: Request, error: Refused) -> Response:
        headers = {"Retry-After": "1"} if error.status in (429, 503) else None
        return error_response(error.status, ErrorBody(error=error.error, hint=error.hint), headers)

    @app.exception_handler(RequestValidationError)
    async def malformed(_: Request, error: RequestValidationError) -> Response:
        errors = error.errors()
        listed = [f"{'.'.join(map(str, e['loc']))}: {e['msg']}" for e in errors[:MAX_LISTED_ERRORS]]
        status = 400 if any(e["type"] == "json_invalid" for e in errors) else 422
        text = "; ".join(listed).encode("utf-8", "replace").decode()  # a location may name a key that is not valid text
        return error_response(status, ErrorBody(error=text, hint=hint))

    @app.exception_handler(HTTPException)
    async def not_routed(request: Request, error: HTTPException) -> Response:
        text = f"{request.method} {request.url.path}: {error.detail}".encode("utf-8", "replace").decode()
        return error_response(error.status_code, ErrorBody(error=text), dict(error.headers or {}))

    @app.exception_handler(Exception)
    async def defect(_: Request, error: Exception) -> Response:
        incident = secrets.token_hex(6)
        log.error("incident %s: defect in the server", incident, exc_info=error)
        return error_response(500, ErrorBody(error=f"defect in the server (incident {incident})", hint="See its log."))
