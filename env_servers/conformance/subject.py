"""The subject of the checks: the servers under test, and recorded plays of their tasks."""

import random
from collections.abc import Callable
from dataclasses import dataclass, field

from env_servers.conformance.server import Live, Server
from env_servers.protocol import EnvironmentSpec, ObservedState

#: Random play says something that no environment understands with this probability.
NONSENSE_SHARE = 0.1


@dataclass(frozen=True)
class Effort:
    """The extent of a run of the suite.

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
    """The input of a check: servers, effort, and recorded plays.

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
