"""The coordinators of a run: they share each stage, and are started again when one dies.

A stage is divided by its tasks. All coordinators of an attempt work in one working folder, of one epoch, which the
driver took over for them; when one of them dies the others are stopped, and a new attempt goes on from the journals of
all. A tree depends on its own seed alone, so the trees are the same however many coordinators there are.
"""

import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from secrets import token_hex
from typing import Any

from agentr.cluster.failures import answer_of, cause_of
from agentr.cluster.places import Places
from agentr.cluster.roles import Role
from agentr.collect.agent import AgentSettings
from agentr.collect.coordinator import Coordinator
from agentr.collect.job import TreeJob
from agentr.collect.units import merged
from agentr.config.schema import TaskSelection
from agentr.envs.pool import Urls
from agentr.errors import InfraError
from agentr.secrets import Secret
from agentr.store.growing import GrowingForest
from agentr.store.layout import title_of
from agentr.types import Task
from env_servers.protocol import EnvironmentSpec

#: Seconds between two looks at a running stage.
POLL_S = 0.5
#: Deadline for a coordinator to come up: it imports the tokenizer's library on a busy machine.
START_TIMEOUT_S = 300.0
#: Deadline for the list of tasks.
_TASKS_S = 120.0
#: Deadline for a coordinator to report how far it is, and for one to stop.
_ANSWER_S = 10.0

Update = Callable[[dict[str, Any]], None]
"""Called with the progress of the whole stage."""


class Coordinators:
    """``collect.coordinators`` actors.

    Args:
        ray: The module, connected.
        model: Folder of the base model, for its tokenizer.
        secrets: Values of the environment variables that the configuration names.
        started: Called with the name of each that is started.

    Attributes:
        progress: Of the stage that is running, of all coordinators together; None if there was none yet.
        answered: When all of them last said how far they are, in seconds of ``time.monotonic``.
    """

    def __init__(
        self,
        ray: Any,
        settings: AgentSettings,
        places: Places,
        urls: Urls,
        token: Secret,
        model: Path,
        secrets: Mapping[str, Secret],
        started: Callable[[str], None] = lambda name: None,
    ) -> None:
        self._ray = ray
        self._places = places
        self._args = (settings, urls, token, model, secrets)
        self._started = started
        self._actors: dict[int, Any] = {}
        self._deaths: deque[float] = deque()
        self.progress: dict[str, Any] | None = None
        self.answered = time.monotonic()

    @property
    def up(self) -> bool:
        """Whether none is missing."""
        return len(self._actors) == self._places.coordinators

    def start(self) -> EnvironmentSpec:
        """Starts those that do not run, and returns the environment's specification once all are up."""
        from ray.exceptions import ActorDiedError, ActorUnavailableError

        wanted = self._places.coordinators
        # Started again from here, with an epoch of their own, and not by Ray.
        how = self._places.options(Role.coordinator, spread=wanted > 1) | {"max_restarts": 0, "max_concurrency": 64}
        for number in range(wanted):
            if number not in self._actors:
                name = f"coordinator-{number}-{token_hex(3)}"
                self._actors[number] = (
                    self._ray.remote(Coordinator).options(name=name, **how).remote(*self._args, number)
                )
                self._started(f"coordinator-{number}")
        try:
            specs = [
                answer_of(self._ray, actor.ready.remote(), "the coordinator", START_TIMEOUT_S)
                for actor in self._actors.values()
            ]
        except (ActorDiedError, ActorUnavailableError) as error:  # its node died while it started
            self.kill()
            self._count_death("its start", error)
            return self.start()
        except BaseException:  # also when interrupted: nothing that was started is left
            self.kill()
            raise
        return specs[0]

    def tasks(self, selection: TaskSelection, training: bool) -> list[Task]:
        """The tasks of a selection, from one that is up (`Coordinator.tasks`).

        Raises:
            CoordinatorDied: It did. It may be tried again.
        """
        number = min(self._actors)
        try:
            return self._result(number, self._actors[number].tasks.remote(selection, training), _TASKS_S)
        except CoordinatorDied as error:
            self._count_death("the list of tasks", error)
            raise

    def replays(self) -> str:
        """Whether a program that is the environment repeats itself, from one that is up.

        Raises:
            CoordinatorDied: It did.
        """
        number = min(self._actors)
        return self._result(number, self._actors[number].replays.remote(), START_TIMEOUT_S)

    def kill(self) -> None:
        for actor in self._actors.values():
            self._ray.kill(actor)
        self._actors = {}

    def run(
        self, title: str, job: TreeJob, policy: Path | None, engines: Sequence[Any], update: Update
    ) -> dict[str, Any]:
        """Runs one attempt at a job, and returns its progress.

        Args:
            job: With the epoch of the attempt.

        Raises:
            CoordinatorDied: One of them did. It may be tried again, with another epoch.
            RunError: Too many units failed. AgentrError in general: with what was wrong.
        """
        taken = GrowingForest(job.folder, epoch=job.epoch)
        parts = job.divided(len(self._actors))
        calls = {
            n: self._actors[n].run.remote(part, policy, engines)
            for n, part in zip(sorted(self._actors), parts, strict=False)
        }
        try:
            progress = self._watch(calls, update)
        except BaseException as error:  # also when interrupted: the others must not go on
            self._stop(calls.values())
            if isinstance(error, CoordinatorDied):
                self._count_death(title, error)
            raise
        job.limits.check(progress["failed"], len(job.tasks), progress["last_error"])
        return {name: value for name, value in progress.items() if name != "waiting"} | {"regrown": taken.damaged}

    def _watch(self, calls: dict[int, Any], update: Update) -> dict[str, Any]:
        latest: dict[int, dict[str, Any]] = {}
        left = dict(calls)
        self.progress, self.answered = {}, time.monotonic()
        while left:
            ended = self._ray.wait(list(left.values()), timeout=POLL_S)[0]
            for number in [number for number, call in left.items() if call in ended]:
                latest[number] = self._result(number, left.pop(number), 60.0)
            if self._ask(left, latest):
                self.answered = time.monotonic()
            if len(latest) == len(calls):
                self.progress = merged(list(latest.values()))
                update(self.progress)
        return merged(list(latest.values()))

    def _ask(self, left: dict[int, Any], latest: dict[int, dict[str, Any]]) -> bool:
        """Asks those that run how far they are, and returns whether all have answered."""
        asked = {number: self._actors[number].progress.remote() for number in left}
        if not asked:
            return True
        answers, late = self._ray.wait(list(asked.values()), num_returns=len(asked), timeout=_ANSWER_S)
        for number, call in asked.items():
            if call in answers:
                latest[number] = self._result(number, call, _ANSWER_S)
        return not late

    def _result(self, number: int, call: Any, timeout_s: float) -> Any:
        from ray.exceptions import ActorDiedError, ActorUnavailableError

        try:
            return answer_of(self._ray, call, "the coordinator", timeout_s)
        except (ActorDiedError, ActorUnavailableError) as error:
            self._ray.kill(self._actors.pop(number))
            raise CoordinatorDied(f"coordinator {number}: {cause_of(error, 'it').message}") from error

    def _stop(self, calls: Any) -> None:
        """Ends calls. What runs on is fenced by the next epoch."""
        for call in calls:
            self._ray.cancel(call)
        self._ray.wait(list(calls), num_returns=len(calls), timeout=_ANSWER_S)

    def _count_death(self, title: str, error: Exception) -> None:
        """Counts a death; raises if there were too many within the window."""
        cluster, now = self._places.cluster, time.monotonic()
        self._deaths.append(now)
        while now - self._deaths[0] > cluster.restart_window_s:
            self._deaths.popleft()
        if len(self._deaths) > cluster.actor_restarts * self._places.coordinators:
            hint = "cluster.actor_restarts and cluster.restart_window_s set how often it is started again."
            many = f"coordinators died {len(self._deaths)} times within {cluster.restart_window_s:g} s"
            raise InfraError(f"{many}, at last during {title_of(title)}: {error}", hint=hint) from error


class CoordinatorDied(Exception):
    """A coordinator is gone; says which, and why."""
