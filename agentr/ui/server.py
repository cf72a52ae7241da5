"""Serves the page and its answers: GET alone, to known hosts alone, with nothing of what a run says able to run in a
browser.

A run's texts come from models and environments and may be hostile. They leave as JSON only, the page shows them as text
only, and the Content-Security-Policy lets no other script run and nothing leave.
"""

import hmac
import ipaddress
import mimetypes
import socket
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import urlsplit

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from agentr.errors import AgentrError, DataError, RunError
from agentr.observe.heldout import patterns, tasks
from agentr.observe.problems import problem_of
from agentr.secrets import Secret, SecretKind
from agentr.ui.library import Library
from agentr.ui.probe import Prober
from agentr.ui.show import STATIC
from agentr.ui.texts import as_json
from agentr.ui.views.compare import compare
from agentr.ui.views.forest import forest
from agentr.ui.views.home import home
from agentr.ui.views.rows import dataset_view, row_view
from agentr.ui.views.run import log, run_page, state
from agentr.ui.views.steps import steps
from agentr.ui.views.tree import tree_view, turns_view

_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
_HEADERS = {
    "Content-Security-Policy": _POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}
#: Cookie that carries the token, once the page was opened with ``?token=``.
COOKIE = "agentr_token"

#: Most lines of an answer.
PAGE = 200

Answer = Callable[[Library, "Query"], Any]


class Query:
    """The parameters of a question."""

    def __init__(self, given: Any) -> None:
        self._given = given

    def text(self, name: str, default: str | None = None) -> str:
        """Returns a parameter.

        Raises:
            DataError: It is missing and has no default.
        """
        found = self._given.get(name, default)
        if found is None:
            raise DataError(f"the parameter {name!r} is missing", hint="agentr/ui/api.py lists the questions.")
        return found

    def number(self, name: str, default: int | None = None) -> int:
        """Returns a parameter that is a whole number.

        Raises:
            DataError: It is missing or no number.
        """
        found = self.text(name, None if default is None else str(default))
        try:
            return int(found)
        except ValueError:
            raise DataError(f"the parameter {name!r} is no whole number: {found[:40]!r}") from None

    def numbers(self, name: str) -> list[int]:
        """Returns a parameter that is a list of whole numbers, ``3,4``.

        Raises:
            DataError: It is missing or something else.
        """
        try:
            return [int(part) for part in self.text(name).split(",") if part]
        except ValueError:
            raise DataError(f"the parameter {name!r} is no list of whole numbers") from None


def answers(prober: Prober) -> dict[str, Answer]:
    """Returns what answers each question, by its name in the address."""
    return {
        "home": lambda library, _: home(library),
        "state": lambda library, q: state(library.run(q.text("run"))),
        "run": lambda library, q: run_page(q.text("run"), library.run(q.text("run"))),
        "tasks": lambda library, q: tasks(library.run(q.text("run"))),
        "patterns": lambda library, q: patterns(library.run(q.text("run"))),
        "steps": lambda library, q: steps(library.run(q.text("run")), q.text("stage")),
        "forest": lambda library, q: forest(
            library.run(q.text("run")),
            q.text("stage"),
            sort=q.text("sort", "key"),
            down=bool(q.number("down", 0)),
            search=q.text("search", ""),
            only=q.text("only", ""),
            step=q.number("step") if q.text("step", "") else None,
            offset=max(0, q.number("offset", 0)),
            limit=min(PAGE, max(1, q.number("limit", 100))),
        ),
        "tree": lambda library, q: tree_view(library.run(q.text("run")), q.text("stage"), q.text("key")),
        "turns": lambda library, q: turns_view(
            library.run(q.text("run")), q.text("stage"), q.text("key"), q.numbers("nodes"), bool(q.number("whole", 0))
        ),
        "probe": lambda library, q: prober.ask(
            library.run(q.text("run")), q.text("stage"), q.text("key", ""), q.number("at")
        ),
        "dataset": lambda library, q: dataset_view(
            library.run(q.text("run")),
            q.text("stage"),
            kind=q.text("kind", ""),
            offset=max(0, q.number("offset", 0)),
            limit=min(PAGE, max(1, q.number("limit", 100))),
        ),
        "row": lambda library, q: row_view(library.run(q.text("run")), q.text("stage"), q.number("index")),
        "compare": lambda library, q: compare(q.text("run"), library.comparison(q.text("run")), library.id_of),
        "log": lambda library, q: log(library.run(q.text("run")), q.text("name"), q.number("end", -1)),
    }


def app(library: Library, host: str, port: int, token: str | Secret = "", names: Collection[str] = ()) -> Starlette:
    """Returns the application.

    Args:
        host: Address that it listens at; beyond loopback a token is needed.
        token: Asked for with every request, as ``?token=`` once and as a cookie from then on; empty asks for none.
        names: By which it may be asked besides this machine's own, with a port (``NAME:PORT``) or under any.

    Raises:
        DataError: The address is beyond loopback, and there is no token.
    """
    word = Secret(SecretKind.PAGES, "AGENTR_UI_TOKEN", token)
    if not word and not is_loopback(host):
        raise DataError(
            f"{host} can be reached from other machines", hint="Give a token with --token, or listen at 127.0.0.1."
        )
    asked = answers(Prober())

    def answered(name: str, query: Query) -> str:
        if name not in asked:
            raise DataError(f"there is no question {name!r}", hint=f"Those are: {', '.join(asked)}.")
        return as_json(asked[name](library, query))

    async def api(request: Request) -> Response:
        try:
            text, status = (
                await run_in_threadpool(answered, request.path_params["name"], Query(request.query_params)),
                200,
            )
        except Exception as error:  # noqa: BLE001 - whatever it is, the page says it and the server goes on
            text, status = as_json({"error": problem_of(error)}), 404 if isinstance(error, AgentrError) else 500
        return Response(text, status, media_type="application/json", headers=_HEADERS)

    async def page(request: Request) -> Response:
        name = request.path_params.get("name") or "index.html"
        if name not in {path.name for path in STATIC.iterdir()}:
            return PlainTextResponse("not found", 404, headers=_HEADERS)
        kind = mimetypes.guess_type(name)[0] or "application/octet-stream"
        response = Response((STATIC / name).read_bytes(), media_type=kind, headers=_HEADERS)
        if word and request.query_params.get("token"):
            response.set_cookie(COOKIE, word.reveal(), httponly=True, samesite="strict")
        return response

    routes = [
        Route("/api/{name}", api, methods=["GET"]),
        Route("/", page, methods=["GET"]),
        Route("/{name}", page, methods=["GET"]),
    ]
    return Starlette(routes=routes, middleware=[Middleware(Closed, host=host, port=port, token=word, names=names)])


@contextmanager
def listen(host: str, port: int) -> Iterator[socket.socket]:
    """Opens the socket that the server listens at.

    Raises:
        RunError: The port is taken, or the address is not this machine's.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as opened:
        opened.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            opened.bind((host, port))
            opened.listen()  # who opens the address before the server runs waits for it
        except OSError as error:
            hint = "Give another one with --port, or 0 for a free one."
            raise RunError(f"cannot listen at {host}:{port}: {error.strerror or error}", hint=hint) from error
        yield opened


class Closed:
    """Lets through what a browser asks for its user: GET, a known host, no other origin, and the token if there is one.

    Any page of the web may let its own name lead to this machine; so only names of this machine are known, those that
    were given, and the address at which a request came in.
    """

    def __init__(self, app: ASGIApp, host: str, port: int, token: Secret, names: Collection[str] = ()) -> None:
        self._app = app
        self._port = port
        self._beyond = not is_loopback(host)
        self._mine = {written(host).lower()}
        if self._beyond:
            self._mine |= {socket.gethostname().lower(), socket.getfqdn().lower()}
        if not self._beyond or is_any(host):
            self._mine |= {"localhost", "127.0.0.1", "[::1]"}
        self._given = {name.lower() for name in names}
        self._token = token

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        request = Request(scope)
        problem = self._refused(request)
        if problem:
            await PlainTextResponse(problem[1], problem[0], headers=_HEADERS)(scope, receive, send)
        else:
            await self._app(scope, receive, send)

    def _refused(self, request: Request) -> tuple[int, str] | None:
        if request.method != "GET":
            return 405, "These pages only show: GET is all they answer."
        host = request.headers.get("host", "")
        if not self._knows(host.lower(), request.scope.get("server")):
            return (
                421,
                (
                    f"This server does not know itself as {host[:100]!r}. If that is right, start it with --allow-host "
                    f"{host[:100]!r}."
                ),
            )
        origin = request.headers.get("origin")
        if origin is not None and urlsplit(origin).netloc != host:
            return 403, "Another site asked for this."
        if request.headers.get("sec-fetch-site", "none") not in ("none", "same-origin"):
            return 403, "Another site asked for this."
        if self._token:
            given = request.query_params.get("token") or request.cookies.get(COOKIE, "")
            if not hmac.compare_digest(given.encode(), self._token.reveal().encode()):
                return 401, "Open the address that agentr ui printed, with the token in it."
        return None

    def _knows(self, host: str, came_in_at: tuple[str, int] | None) -> bool:
        name, port = (host, "80") if ":" not in host or host.endswith("]") else host.rsplit(":", 1)
        if {host, name} & self._given:
            return True
        if port != str(self._port):
            return False
        return name in self._mine or (self._beyond and came_in_at is not None and name == _numbers(came_in_at[0]))


def _numbers(address: str) -> str:
    """Returns an address in numbers as a browser writes it; empty for a name."""
    try:
        found = ipaddress.ip_address(address)
    except ValueError:
        return ""
    return written(str(getattr(found, "ipv4_mapped", None) or found))


def is_any(host: str) -> bool:
    """Whether a server that listens at an address listens at all of this machine's."""
    return host in ("0.0.0.0", "::")


def written(host: str) -> str:
    """Returns a host as addresses have it: IPv6 in brackets."""
    return f"[{host}]" if ":" in host else host


def is_loopback(host: str) -> bool:
    """Whether an address can be reached from this machine alone."""
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
