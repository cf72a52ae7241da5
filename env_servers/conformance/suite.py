"""Running the checks: what they are given, and what becomes of them."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import StrEnum

import httpx

from env_servers.conformance.server import Broken, Live, NotApplicable, Server
from env_servers.protocol import EnvironmentSpec, ObservedState

#: Random play says something that no environment understands with this probability.
NONSENSE_SHARE = 0.1


class Outcome(StrEnum):
    PASSED = "passed"
    FAILED = "failed"
    SKIPPED = "skipped"
    """The check has nothing to look at here; the detail says why."""


@dataclass(frozen=True)
class Check:
    """What became of one check.

    Attributes:
        detail: What was looked at; for a failure, what was expected and what came; for a skip, why.
    """

    name: str
    outcome: Outcome
    detail: str
    seconds: float


@dataclass(frozen=True)
class Effort:
    """How much is tried.

    Attributes:
        tasks: Tasks drawn from each split.
        steps: Longest random play.
        sessions: Sessions that play at the same time.
        seed: Of the draws.
        timeout_s: Deadline of one request.
    """

    tasks: int = 2
    steps: int = 8
    sessions: int = 64
    seed: int = 0
    timeout_s: float = 120.0


@dataclass(frozen=True)
class Play:
    """Actions from the start of a task, and what was answered; ``opening`` is the answer to the reset."""

    task: str
    kind: str
    opening: ObservedState
    actions: list[str]
    answers: list[ObservedState]


@dataclass
class Subject:
    """What a check is given.

    Attributes:
        second: Another process that serves the same environment with the same options, if there is one.
    """

    server: Server
    second: Server | None
    effort: Effort
    _plays: dict[str, list[Play]] = field(default_factory=dict)

    @property
    def spec(self) -> EnvironmentSpec:
        return self.server.spec

    def sample(self) -> list[str]:
        """Task ids: the first of each split, and others drawn by the seed."""
        chosen: dict[str, None] = {}
        for name in self.spec.splits:
            ids = [task.id for task in self.server.split(name)]
            rest = random.Random(f"{self.effort.seed}/{name}").sample(ids[1:], min(len(ids[1:]), self.effort.tasks - 1))
            chosen.update(dict.fromkeys(ids[:1] + rest))
        return list(chosen)

    def plays(self, task: str) -> list[Play]:
        """A random play and, where there is an expert, the beginning of its play; each recorded once."""
        if task not in self._plays:
            made = [self._record(task, "random play", None)]
            if expert := self.server.expert(task):
                made.append(self._record(task, "expert play", [action for _, action in expert][: self.effort.steps]))
            self._plays[task] = made
        return self._plays[task]

    def _record(self, task: str, kind: str, script: list[str] | None) -> Play:
        live = self.server.open(task)
        rng = random.Random(f"{self.effort.seed}/{task}")
        play = Play(task, kind, live.last, [], [])
        while not live.last.done and len(play.actions) < (self.effort.steps if script is None else len(script)):
            action = _draw(live, rng) if script is None else script[len(play.actions)]
            play.actions.append(action)
            play.answers.append(live.step(action))
        return play


def _draw(live: Live, rng: random.Random) -> str:
    suggested = live.actions()
    if not suggested or rng.random() < NONSENSE_SHARE:
        return "xyzzy"
    return rng.choice(suggested)


#: A check returns what it looked at.
CheckFunction = Callable[[Subject], str]


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
        second_url: Another process that serves the same environment with the same options and token: what must not depend on the
            process is then checked across both.
        report: Told of each check when it is over.
    """
    from env_servers.conformance import actions, information, requests, sessions, states

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
