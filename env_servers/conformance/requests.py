"""Checks of requests that must be refused, each with a reason."""

from __future__ import annotations

import json

import httpx

from env_servers.conformance.server import NotApplicable, require
from env_servers.conformance.subject import CheckFunction, Subject
from env_servers.protocol import MAX_ACTION_CHARS, MAX_EXPAND

#: Endpoints that need the token, with a method.
GUARDED = [
    ("GET", "/v1/spec"),
    ("GET", "/v1/splits/train"),
    ("GET", "/v1/expert?task=x"),
    *(("POST", f"/v1/{name}") for name in ("open", "step", "expand", "fork", "actions", "snapshot", "restore", "close", "nowhere")),
]


def token(subject: Subject) -> str:
    server = subject.server
    if not server.token:
        raise NotApplicable("no token was given")
    with httpx.Client(base_url=server.url, trust_env=False, timeout=subject.effort.timeout_s) as stranger:
        for method, path in GUARDED:
            for wrong in (None, f"Bearer {server.token}x", f"Basic {server.token}", "Bearer"):
                headers = {} if wrong is None else {"Authorization": wrong}
                why = f"{method} {path} with {'no' if wrong is None else 'a wrong'} token"
                server.refuses(why, (401,), stranger.request(method, path, headers=headers))
        require(stranger.get("/health").status_code == 200, "/health asks for a token, which a supervisor does not have")
    return f"{len(GUARDED)} endpoints"


def unknown_names(subject: Subject) -> str:
    server = subject.server
    for task in ("", "nothing", "../../etc/passwd", "\n", "agentgym/x", "x" * 256, "\u202e"):
        server.refuses(f"the unknown task {task[:20]!r}", (404,), server.http.post("/v1/open", json={"task": task}))
        server.refuses(f"an expert for the unknown task {task[:20]!r}", (404,), server.http.get("/v1/expert", params={"task": task}))
    for split in ("nothing", "%00", "%ff"):
        server.refuses(f"the unknown split {split!r}", (404,), server.http.get(f"/v1/splits/{split}"))
    return "7 tasks and 3 splits that there are not"


def malformed(subject: Subject) -> str:
    server = subject.server
    live = server.open(subject.sample()[0])
    known = {"session": live.id}
    bodies: list[tuple[str, str, bytes, tuple[int, ...]]] = [
        ("no JSON", "/v1/open", b"{", (400,)),
        ("bytes that are no text", "/v1/open", b"\xff\xfe", (400,)),
        ("brackets without end", "/v1/open", b"[" * 100_000, (400,)),
        ("a list in place of an object", "/v1/open", b"[]", (422,)),
        ("no task", "/v1/open", b"{}", (422,)),
        ("a task id that is too long", "/v1/open", json.dumps({"task": "x" * 257}).encode(), (422,)),
        ("an unknown key", "/v1/open", b'{"task": "x", "seed": 1}', (422,)),
        ("an action that is too long", "/v1/step", json.dumps({**known, "action": "x" * (MAX_ACTION_CHARS + 1)}).encode(), (422,)),
        (
            "a child by an action that is too long",
            "/v1/expand",
            json.dumps({**known, "actions": ["x" * (MAX_ACTION_CHARS + 1)]}).encode(),
            (422,),
        ),
        ("an action that is no text", "/v1/step", json.dumps({**known, "action": 1}).encode(), (422,)),
        ("half a character", "/v1/step", json.dumps({**known, "action": "\ud800"}).encode(), (422,)),
        ("half a character among actions", "/v1/expand", json.dumps({**known, "actions": ["x", "\ud800"]}).encode(), (422,)),
        ("half a character in a task id", "/v1/open", json.dumps({"task": "\udc00"}).encode(), (422,)),
        ("a negative index", "/v1/step", json.dumps({**known, "action": "x", "index": -1}).encode(), (422,)),
        ("no actions", "/v1/expand", json.dumps({**known, "actions": []}).encode(), (422,)),
        ("too many actions", "/v1/expand", json.dumps({**known, "actions": ["x"] * (MAX_EXPAND + 1)}).encode(), (422,)),
        ("too many ids", "/v1/close", json.dumps({"sessions": ["x"] * 10_001}).encode(), (422,)),
        ("half a snapshot", "/v1/restore", b'{"environment": "x"}', (422,)),
        ("an endpoint that there is not", "/v1/nowhere", b"{}", (404,)),
        ("the wrong method", "/v1/spec", b"{}", (405,)),
    ]
    headers = {"Content-Type": "application/json"}
    for why, path, body, statuses in bodies:
        server.refuses(why, statuses, server.http.post(path, content=body, headers=headers))
    status = server.announce("/v1/open", 1 << 40)
    require(status == 413, f"a body of a terabyte is announced: expected 413, got {status}")
    require(not live.step("xyzzy").done, "the session did not survive requests that were refused")
    return f"{len(bodies) + 1} requests"


CHECKS: list[tuple[str, CheckFunction]] = [
    ("only the token opens the door", token),
    ("unknown tasks and splits are refused", unknown_names),
    ("malformed and oversize requests are refused", malformed),
]
