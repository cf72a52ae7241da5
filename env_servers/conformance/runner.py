"""Runs the checks and reports on each."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum

import httpx

from env_servers.conformance import actions, information, requests, sessions, states
from env_servers.conformance.server import Broken, NotApplicable, Server
from env_servers.conformance.subject import CheckFunction, Effort, Subject


class Outcome(StrEnum):
    PASSED = "passed"
    FAILED = "failed"
    SKIPPED = "skipped"
    """The check has nothing to look at here; the detail says why."""


@dataclass(frozen=True)
class Check:
    """The result of one check.

    Attributes:
        detail: What was looked at; for a failure, what was expected and what came; for a skip, why.
    """

    name: str
    outcome: Outcome
    detail: str
    seconds: float


def run(
    url: str,
    token: str = "",
    *,
    second_url: str = "",
    effort: Effort | None = None,
    report: Callable[[Check], None] | None = None,
) -> list[Check]:
    """All checks against the server at ``url``.

    Args:
        second_url: Another process that serves the same environment with the same options and token: what must not
            depend on the process is then checked across both.
        report: Told of each check when it is over.
    """
    effort = effort or Effort()
    server = Server(url, token, effort.timeout_s)
    subject = Subject(server, Server(second_url, token, effort.timeout_s) if second_url else None, effort)
    done = []
    for name, function in [*information.CHECKS, *states.CHECKS, *actions.CHECKS, *sessions.CHECKS, *requests.CHECKS]:
        done.append(_checked(name, function, subject))
        if report is not None:
            report(done[-1])
    return done


def _checked(name: str, function: CheckFunction, subject: Subject) -> Check:
    start = time.perf_counter()
    try:
        try:
            outcome, detail = Outcome.PASSED, function(subject)
        finally:
            for server in filter(None, (subject.server, subject.second)):
                server.close_all()
    except NotApplicable as reason:
        outcome, detail = Outcome.SKIPPED, str(reason)
    except Broken as fault:
        outcome, detail = Outcome.FAILED, str(fault)
    except httpx.HTTPError as error:
        outcome, detail = Outcome.FAILED, f"the server did not answer: {type(error).__name__}: {error}"
    return Check(name, outcome, detail, time.perf_counter() - start)
