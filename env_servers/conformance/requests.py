"""Checks of requests that must be refused, each with a reason.

That our own server refuses malformed and oversize ones is schemathesis's to check (`tests/env_servers/test_fuzz.py`).
"""

import httpx

from env_servers.conformance.server import NotApplicable, require
from env_servers.conformance.subject import CheckFunction, Subject

#: Endpoints that need the token, with a method.
GUARDED = [
    ("GET", "/v1/spec"),
    ("GET", "/v1/splits/train"),
    ("GET", "/v1/expert?task=x"),
    *(
        ("POST", f"/v1/{name}")
        for name in ("open", "step", "expand", "fork", "actions", "snapshot", "restore", "close", "nowhere")
    ),
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
        require(
            stranger.get("/health").status_code == 200, "/health asks for a token, which a supervisor does not have"
        )
    return f"{len(GUARDED)} endpoints"


def unknown_names(subject: Subject) -> str:
    server = subject.server
    for task in ("", "nothing", "../../etc/passwd", "\n", "agentgym/x", "x" * 256, "\u202e"):
        server.refuses(f"the unknown task {task[:20]!r}", (404,), server.http.post("/v1/open", json={"task": task}))
        server.refuses(
            f"an expert for the unknown task {task[:20]!r}",
            (404,),
            server.http.get("/v1/expert", params={"task": task}),
        )
    for split in ("nothing", "%00", "%ff"):
        server.refuses(f"the unknown split {split!r}", (404,), server.http.get(f"/v1/splits/{split}"))
    return "7 tasks and 3 splits that there are not"


CHECKS: list[tuple[str, CheckFunction]] = [
    ("only the token opens the door", token),
    ("unknown tasks and splits are refused", unknown_names),
]
