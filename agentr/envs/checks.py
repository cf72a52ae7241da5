"""How environment servers are that do not get on: dead, hung, full, overloaded."""

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, cast

from agentr.cluster.causes import Cause, CauseKind
from agentr.envs.fleet import CALL_TIMEOUT_S, EnvServers
from agentr.envs.server import ServerState, ServerStatus

#: Seconds within which a server says that it is well.
ANSWER_S = 10.0
#: Seconds for which a server counts as full after it refused a session: clients come back within less.
REFUSED_S = 60.0
_MORE = "Raise env.servers, or lower collect.in_flight."


def check_servers(servers: EnvServers | None, url: str = "") -> Iterator[Cause]:
    """Yields what is wrong with environment servers.

    Args:
        servers: Our own, or None.
        url: The user's, or nothing.
    """
    actors = servers.actors if servers is not None else []
    with ThreadPoolExecutor(max(1, min(16, len(actors)))) as pool:
        for causes in pool.map(
            lambda each: list(_supervised(f"environment server {each[0]}", each[1])), enumerate(actors)
        ):
            yield from causes
    if url:
        yield from _served(f"the environment server {url}", url.rstrip("/"), "Start it again.")


def _supervised(name: str, actor: Any) -> Iterator[Cause]:
    import ray
    from ray.exceptions import RayError

    try:
        status: ServerStatus = cast("Any", ray.get(actor.status.remote(), timeout=CALL_TIMEOUT_S))
    except RayError as error:
        yield Cause(
            CauseKind.server_dead,
            f"the supervisor of {name} does not answer",
            type(error).__name__,
            "Is its node alive?",
        )
        return
    if status.state is not ServerState.UP:
        what = "is being started again" if status.state is ServerState.STARTING else "was given up"
        yield Cause(
            CauseKind.server_dead,
            f"{name} {what}",
            status.error or f"{status.restarts} restarts",
            "See its log in the run's logs/.",
        )
        return
    yield from _served(name, status.url, "It is ended and started again soon.")


def _served(name: str, url: str, hint: str) -> Iterator[Cause]:
    import httpx

    started = time.monotonic()
    try:
        answer = httpx.get(f"{url}/health", timeout=ANSWER_S, trust_env=False)
    except httpx.TimeoutException:
        yield Cause(CauseKind.server_hung, f"{name} hangs", f"{url}/health does not answer within {ANSWER_S:g} s", hint)
        return
    except httpx.HTTPError as error:
        yield Cause(CauseKind.server_dead, f"{name} is dead", f"{url}/health: {type(error).__name__}: {error}", hint)
        return
    seconds, said = time.monotonic() - started, _json(answer)
    if answer.status_code == 503:
        yield Cause(
            CauseKind.server_hung,
            f"{name} hangs",
            str(said.get("error", answer.status_code)),
            "See its log for what it called last.",
        )
    refused_s = said.get("refused_s")
    if refused_s is not None and refused_s < REFUSED_S:
        evidence = (
            f"{said['sessions']} of {said['max_sessions']} sessions are open, and it refused one {refused_s:.0f} s ago"
        )
        yield Cause(CauseKind.server_full, f"{name} is full", evidence, _MORE)
    if seconds > ANSWER_S / 3:
        yield Cause(CauseKind.server_overloaded, f"{name} is overloaded", f"{url}/health took {seconds:.1f} s", _MORE)


def _json(answer: Any) -> dict[str, Any]:
    """The status of our own servers; those that speak another protocol have none."""
    try:
        found = answer.json()
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}
