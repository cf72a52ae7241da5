"""What grows trees: the environment servers of a run and its coordinators, which are started again when they die."""

import asyncio
import time
from collections.abc import Sequence
from contextlib import nullcontext, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from agentr import logs
from agentr.cluster.restarts import Restarts
from agentr.cluster.roles import Role
from agentr.collect.agent import AgentSettings
from agentr.collect.job import TreeJob
from agentr.config.schema import TaskSelection
from agentr.config.secrets import env_token, secrets_of
from agentr.envs.fleet import EnvServers
from agentr.envs.pool import Urls
from agentr.observe.progress import Update
from agentr.rounds.coordinators import CoordinatorDied, Coordinators
from agentr.rounds.ray_cluster import RayCluster, Served
from agentr.rounds.watchdog import Watchdog
from agentr.secrets import Secret
from agentr.store.layout import title_of
from agentr.types import Task
from env_servers.protocol import EnvironmentSpec

#: Longest list of what is waited for, in characters.
_LONGEST = 160
#: The environment that is a program of the user's.
PROGRAM = "program"


class Collecting:
    """Environment servers and coordinators.

    Attributes:
        servers: The run's own; None if none were started.
        model: Folder of the base model, for its tokenizer; set before a coordinator is needed.
    """

    def __init__(self, served: Served, cluster: RayCluster, watchdog: Watchdog) -> None:
        self.served = served
        self.servers: EnvServers | None = None
        self.model: Path | None = None
        self._cluster = cluster
        self._watchdog = watchdog
        self._coordinators: Coordinators | None = None
        self._spec: EnvironmentSpec | None = None
        self._played = False

    def take_over(self, served: Served) -> None:
        """Serves another run. Servers that it would start the same run on; coordinators start anew."""
        if self._coordinators is not None:
            self._coordinators.kill()
        if served.plan.config.env != self.served.plan.config.env:
            self._stop_servers()
        self.served, self._coordinators, self.model = served, None, None

    @property
    def progress(self) -> dict[str, Any] | None:
        """The coordinators' last answer; None if there was none."""
        return self._coordinators.progress if self._coordinators is not None else None

    @property
    def silent_s(self) -> float:
        """For how long the coordinators have not answered."""
        return time.monotonic() - self._coordinators.answered if self._coordinators is not None else 0.0

    def spec(self) -> EnvironmentSpec:
        """What the environment publishes about itself."""
        self._start()
        assert self._spec is not None
        return self._spec

    def tasks(self, selection: TaskSelection, *, training: bool) -> list[Task]:
        """The tasks of a selection; held-out ones are refused where ``training`` is set."""
        while True:
            try:
                return self._start().tasks(selection, training)
            except CoordinatorDied as error:
                self.served.reporter.message(
                    f"{error} died before it listed the tasks; it starts again and continues", "yellow"
                )

    def run(
        self, title: str, job: TreeJob, policy: Path | None, engines: Sequence[Any], update: Update | None = None
    ) -> dict[str, Any]:
        """Runs a job on the coordinators, shows its progress, and survives a coordinator's death.

        Args:
            policy: Checkpoint that answers.
            update: Called with the progress; by default it is shown as a task of its own.
        """
        reporter, store = self.served.reporter, self.served.store
        job = replace(
            job,
            about={"run": self.served.name, **logs.current()},
            logs=store.layout.logs if store is not None else None,
        )
        while True:
            coordinators = self._start()
            # the last ones may live on, on a machine that is cut off
            job = replace(job, epoch=self.served.next_epoch())
            with (
                self._watchdog.armed(title),
                nullcontext(update) if update is not None else reporter.task(title, "trees") as progress,
            ):
                try:
                    return coordinators.run(title, job, policy, engines, lambda now: self._progress(now, progress))
                except CoordinatorDied as error:
                    reporter.message(f"{error} died during {title_of(title)}; it starts again and continues", "yellow")

    def _progress(self, now: dict[str, Any], update: Update) -> None:
        counts = now["counts"]
        self._watchdog.feed(now["done"], now["failed"], now["skipped"], counts.get("completions", 0))
        self._cluster.gauges.collected(now)
        details = (
            f"solved {now['successes']}, calls {counts.get('calls', 0)}, tokens {counts.get('completion_tokens', 0)}"
        )
        if now["retried"]:
            details += f", retried {now['retried']}"
        if now["waiting"]:
            details += f"; waiting for {', '.join(f'{name} ({why})' for name, why in now['waiting'].items())}"[
                :_LONGEST
            ]
        if not now["total"]:
            details = "engines and coordinators get ready" + details.partition("tokens 0")[2]
        update(now["done"] + now["failed"] + now["skipped"], now["total"], details)

    def environment(self) -> tuple[Urls, Secret]:
        """Addresses and token of the environment servers: the user's, or our own."""
        env, places, folder = self.served.plan.config.env, self.served.plan.places, self.served.logs
        if env.url:
            return [env.url], env_token(env)
        if self.servers is None:
            self.servers = asyncio.run(
                EnvServers.start(
                    env,
                    str(folder),
                    host="" if self._cluster.several() else "127.0.0.1",
                    options=places.options(Role.environment, spread=True),
                    restarts=Restarts.of(places.cluster, folder),
                    run=self.served.name,
                )
            )
        return self.servers.urls, self.servers.token

    def close(self) -> None:
        self._stop_servers()
        self._coordinators = None

    def _start(self) -> Coordinators:
        plan, reporter = self.served.plan, self.served.reporter
        if self._coordinators is None:
            ray = self._cluster.connect()
            urls, token = self.environment()
            assert self.model is not None, "the coordinators need the base model's tokenizer"
            self._coordinators = Coordinators(
                ray,
                AgentSettings.of(plan.config),
                plan.places,
                urls,
                token,
                self.model,
                secrets_of(plan.config),
                self._cluster.gauges.started,
            )
        if not self._coordinators.up:
            number = plan.places.coordinators
            with reporter.task(
                f"{'coordinator' if number == 1 else f'{number} coordinators'} and environment {plan.config.env.name}"
            ):
                self._spec = self._coordinators.start()
            if not self._spec.can_fork:
                reporter.message(
                    f"        {self._spec.name} cannot copy a state: every branch is a reset and a replay, which is "
                    "checked"
                )
            if plan.config.env.name == PROGRAM and not self._played:
                with reporter.task("a task twice"), suppress(CoordinatorDied):  # the next one is asked
                    reporter.message(f"        {self._coordinators.replays()}")
                    self._played = True
        return self._coordinators

    def _stop_servers(self) -> None:
        if self.servers is not None:
            asyncio.run(self.servers.stop())
        self.servers = None
