"""What the stages run on: Ray, the engines, the environment servers, the coordinators, the trainer. Each starts when it is first needed."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, TypeVar

from agentr import logs
from agentr.cluster.causes import Cause
from agentr.cluster.connect import connect, joined, leave
from agentr.cluster.draining import Draining
from agentr.cluster.failures import cause_of
from agentr.cluster.node_watch import Lookouts
from agentr.cluster.nodes import ClusterNode, nodes
from agentr.cluster.preflight import preflight
from agentr.cluster.restarts import Restarts
from agentr.cluster.roles import Role, booked, matches, options, selector, sleeping
from agentr.collect.job import TreeJob
from agentr.config.policy import PolicyBackend
from agentr.config.schema import Config, TaskSelection
from agentr.config.secrets import env_token
from agentr.config.training import Share
from agentr.envs.fleet import EnvServers
from agentr.envs.pool import Urls
from agentr.errors import RunError
from agentr.observe.progress import Reporter, Update
from agentr.observe.troubles import tell
from agentr.rounds.background import Beside
from agentr.rounds.coordinators import POLL_S, CoordinatorDied, Coordinators
from agentr.rounds.diagnosis import Parts, diagnose
from agentr.rounds.run_metrics import Gauges
from agentr.rounds.watchdog import Watchdog
from agentr.secrets import Secret
from agentr.store.layout import Checkpoint, Layout, title_of
from agentr.store.run import RunStore
from agentr.store.summaries import TrainSummary
from agentr.store.working import ALONE
from agentr.train.checks import AwaitedTraining
from agentr.train.job import TrainJob
from agentr.train.online_job import OnlineJob
from agentr.types import Task
from env_servers.protocol import EnvironmentSpec

T = TypeVar("T", bound=TrainJob)

#: Seconds without any progress after which a run ends, with what was found and how to go on; longer than the longest step.
END_S = 7200.0
#: Longest list of what is waited for, in characters.
_LONGEST = 160


class Services:
    """The running parts of an experiment, or of one experiment after another (`take_over`).

    Args:
        logs: Folder for the logs of child processes.

    Attributes:
        model: Folder of the base model, for its tokenizer; set before the coordinator is needed.
        engines_early: Whether engines may start beside a training, for the evaluation that follows it. A whole experiment sets this, a
            stage by itself does not.
    """

    def __init__(self, config: Config, logs: Path, reporter: Reporter) -> None:
        self.config = config
        self.logs = logs
        self.reporter = reporter
        self.model: Path | None = None
        self.engines_early = False
        self.gauges = Gauges()
        self._ray: Any = None
        self._servers: EnvServers | None = None
        self._coordinators: Coordinators | None = None
        self._engines: dict[int, Any] = {}
        self._spec: EnvironmentSpec | None = None
        self._next_epoch: Callable[[], str] = lambda: ALONE
        self._run_dir: Path | None = None
        self._known: list[ClusterNode] = []
        self._training: AwaitedTraining | None = None
        self._online = False
        self._lookouts = Lookouts()
        self._draining: Draining | None = None
        self._event: Callable[..., None] = lambda kind, **about: None
        self.watchdog = Watchdog(config.watchdog.after_s, lambda: diagnose(self._parts()), self._stands_still, END_S, self._give_up)

    # what stages call ---------------------------------------------------------------------------------------------------

    def check(self) -> None:
        """Joins the cluster, and checks that it has what the run needs.

        Raises:
            ConfigError: It has not; says what is missing where, and the settings to change.
        """
        self._start_ray()

    def spec(self) -> EnvironmentSpec:
        """What the environment publishes about itself."""
        self._start_coordinators()
        assert self._spec is not None
        return self._spec

    def tasks(self, selection: TaskSelection, *, training: bool) -> list[Task]:
        """The tasks of a selection; held-out ones are refused where ``training`` is set."""
        while True:
            try:
                return self._start_coordinators().tasks(selection, training)
            except CoordinatorDied as error:
                self.reporter.say(f"{error} died before it listed the tasks; it starts again and continues", "yellow")

    def run_job(self, title: str, job: TreeJob, policy: Checkpoint | None, update: Update | None = None) -> dict[str, Any]:
        """Runs a job on the coordinators, shows its progress, and survives a coordinator's death.

        Args:
            update: Is told the progress; by default it is shown as a task of its own.
        """
        engines = self.engines(policy.path) if policy is not None else []
        path = policy.path if policy is not None else None
        while True:
            coordinators = self._start_coordinators()
            job = replace(job, epoch=self._next_epoch())  # the last ones may live on, on a machine that is cut off
            about = {"run": self.config.run.name, **logs.current()}
            job = replace(job, about=about, logs=Layout(self._run_dir).logs if self._run_dir else None)
            with self.watchdog.armed(title), nullcontext(update) if update is not None else self.reporter.task(title, "trees") as told:
                try:
                    return coordinators.run(title, job, path, engines, lambda now: self._told(now, told))
                except CoordinatorDied as error:
                    self.reporter.say(f"{error} died during {title_of(title)}; it starts again and continues", "yellow")

    def _told(self, now: dict[str, Any], update: Update) -> None:
        self.watchdog.tell(now["done"], now["failed"], now["skipped"], now["counts"].get("completions", 0))
        self.gauges.collected(now)
        calls = now["counts"].get("calls", 0)
        tokens = now["counts"].get("completion_tokens", 0)
        details = f"solved {now['successes']}, calls {calls}, tokens {tokens}"
        if now["retried"]:
            details += f", retried {now['retried']}"
        if now["waiting"]:
            details += f"; waiting for {', '.join(f'{name} ({why})' for name, why in now['waiting'].items())}"[:_LONGEST]
        if not now["total"]:
            details = "engines and coordinators get ready" + details.partition("tokens 0")[2]
        update(now["done"] + now["failed"] + now["skipped"], now["total"], details)

    def train(self, jobs: list[TrainJob], title: str) -> list[TrainSummary]:
        """Trains a chain of jobs and returns their results. Engines on the same accelerators make room first."""
        from agentr.train.checkpoints import saved_steps
        from agentr.train.launch import train_many

        self._start_ray()
        jobs = self._placed(*jobs)
        if self.config.trainer.use_gpu and self.config.trainer.share is Share.time:
            self._make_room()
        elif self.engines_early and self.model is not None:
            # Overlap the two start-ups: each spends most of its time importing, on one core.
            self.engines(self.model)
        with self.watchdog.armed(title), self.reporter.task(title, "optimiser steps") as update:
            # In a thread of its own: in the main one, Ray Train would end the process at a signal that is this process's to handle.
            self._training = AwaitedTraining(jobs[0], "no optimiser step was finished yet")
            named = {job.name: job for job in jobs}
            job, step = jobs[0], 0

            def follow(line: dict[str, Any]) -> None:
                nonlocal job, step
                job, step, steps = named[line["job"]], line.get("step", 0), line.get("steps", 0)
                self.watchdog.tell(line.get("job"), step)
                self.gauges.trained(line)
                self._training = AwaitedTraining(job, f"the last optimiser step was {step} of {steps}")
                update(step, steps, f"loss {line.get('loss', float('nan')):.3g}")

            try:
                training = Beside(lambda: train_many(jobs, follow))
                while not training.wait(POLL_S):
                    pass
                results = training.result()
            except (KeyboardInterrupt, SystemExit):
                saved = saved_steps(job.checkpoints)
                lost = f"optimiser steps {saved + 1} to {step} are lost" if step > saved else "nothing is lost"
                self.reporter.say(
                    f"{job.title}: stopped; {lost}, it goes on after optimiser step {saved} (train.checkpoint_every)", "yellow"
                )
                raise
            finally:
                self._training = None
        return [TrainSummary.read(asdict(result)) for result in results]

    def train_beside(self, job: OnlineJob) -> Beside[TrainSummary]:
        """Starts an online training, which goes on beside what the caller does."""
        from agentr.train.launch import train

        self._start_ray()
        (placed,) = self._placed(job)
        return Beside(lambda: TrainSummary.read(asdict(train(placed, self.gauges.trained))))

    def _placed(self, *jobs: T) -> list[T]:
        """Gives jobs of one attempt their places."""
        epoch, labels, watch_s = self._next_epoch(), selector(self.config, Role.trainer), self.config.watchdog.after_s / 2
        _, gpus = booked(self.config, self._gpus(), self._online)
        return [replace(job, epoch=epoch, nodes=labels, gpus=gpus, watch_s=watch_s) for job in jobs]

    def sleep_engines(self) -> None:
        """Lets engines free their GPUs for an online training, where they take turns; asked for weights, they wake.

        Raises:
            AgentrError: An engine could not. One that died has freed its memory, too.
        """
        from ray.exceptions import ActorDiedError, ActorUnavailableError, RayError

        if not sleeping(self.config, self._gpus(), self._online):
            return
        for number, engine in self._engines.items():
            try:
                self._ray.get(engine.sleep.remote(), timeout=self.config.policy.timeout_s)
            except (ActorDiedError, ActorUnavailableError):
                self.reporter.say(f"rollout-{number} died before the training of this online step; it starts again", "yellow")
            except RayError as error:
                raise cause_of(error, f"rollout-{number}") from error

    def _gpus(self) -> float:
        return self._start_ray().cluster_resources().get("GPU", 0)

    @contextmanager
    def awaiting(self, job: TrainJob, what: str) -> Iterator[None]:
        """Watches a training that goes on beside, while the block waits for something of it."""
        self._training = AwaitedTraining(job, f"{what} are not there")
        try:
            with self.watchdog.armed(f"{job.title}: {what}"):
                yield
        finally:
            self._training = None

    def machines(self) -> int:
        """How many machines the cluster has."""
        return sum(node["Alive"] for node in self._start_ray().nodes())

    def take_over(self, config: Config, store: RunStore, online: bool = False) -> None:
        """Serves the experiment of ``config`` from here on. What it would start the same runs on; the coordinator starts anew.

        Args:
            online: Whether one of its methods trains while the engines are up.
        """
        before, self.config = self.config, config
        was_online, self._online = self._online, online
        self._next_epoch, self._run_dir, self._event = store.lease.next_epoch, store.root, store.event
        store.told = self.gauges.event
        self.watchdog.after_s = config.watchdog.after_s
        self.model, self.engines_early = None, False
        if self._ray is None:
            return
        if config.cluster != before.cluster:
            self.close()
            return
        self.gauges.start(config.run.name)
        if self._coordinators is not None:
            self._coordinators.kill()
            self._coordinators = None
        if config.env != before.env:
            self._stop_servers()
        if (config.model, config.policy, config.trainer.share, online) != (before.model, before.policy, before.trainer.share, was_online):
            self._stop_engines()

    def close(self, *, keep_logs: bool = False) -> None:
        """Ends everything that was started here; for ``keep_logs`` see `agentr.cluster.connect.leave`."""
        if self._ray is None:
            return
        self.watchdog.close()
        self.gauges.close()
        if self._draining is not None:
            self._draining.close()
        self._stop_servers()
        self._stop_engines()
        leave(self._ray, keep_logs=keep_logs)
        self._ray = self._coordinators = None
        self._lookouts = Lookouts()

    # starting -----------------------------------------------------------------------------------------------------------

    def _start_ray(self) -> Any:
        if self._ray is None:
            with self.reporter.task("Ray"):
                self._ray = connect(self.config)
            self.gauges.start(self.config.run.name)
            self._check_cluster()
            if joined(self.config):
                self._draining = Draining(self.config, lambda text: self.reporter.say(text, "yellow"), self._noted)
        return self._ray

    def _check_cluster(self) -> None:
        """Checks that the cluster has what the run needs, before anything is started on it."""
        if self._run_dir is None:  # parts by themselves: a measurement, a test
            return
        here = joined(self.config)
        with self.reporter.task("checking the cluster") if here else nullcontext():
            report = preflight(self.config, self._run_dir, here, self.reporter.say)
        for note in report.notes if here else ():
            self.reporter.say(f"        {note}", "yellow")
        report.require()
        self._known = report.there
        self._lookouts.post(report.there)

    def _start_coordinators(self) -> Coordinators:
        if self._coordinators is None:
            ray = self._start_ray()
            urls, token = self.environment()
            if self.model is None:
                raise RunError("the coordinator needs the base model's tokenizer, and no model was resolved yet")
            self._coordinators = Coordinators(ray, self.config, urls, token, self.model, self.gauges.started)
        if not self._coordinators.up:
            number = self.config.collect.coordinators
            with self.reporter.task(f"{'coordinator' if number == 1 else f'{number} coordinators'} and environment {self.config.env.name}"):
                self._spec = self._coordinators.start()
            if not self._spec.can_fork:
                self.reporter.say(f"        {self._spec.name} cannot copy a state: every branch is a reset and a replay, which is checked")
        return self._coordinators

    def environment(self) -> tuple[Urls, Secret]:
        """Addresses and token of the environment servers: the user's, or our own."""
        env = self.config.env
        if env.url:
            return [env.url], env_token(env)
        if self._servers is None:
            self._start_ray()
            several = joined(self.config) and (len(nodes()) > 1 or self.config.cluster.wait_s > 0)
            self._servers = asyncio.run(
                EnvServers.start(
                    env,
                    str(self.logs),
                    host="" if several else "127.0.0.1",
                    options=options(self.config, Role.environment, spread=True),
                    restarts=Restarts.of(self.config.cluster, self.logs),
                    run=self.config.run.name,
                )
            )
        return self._servers.urls, self._servers.token

    def engines(self, checkpoint: Path) -> list[Any]:
        """Handles of the engines' actors, started with ``checkpoint`` if none run; none where an API is the policy."""
        if self.config.policy.backend is PolicyBackend.openai:
            return []
        missing = [number for number in range(self.config.policy.engines) if number not in self._engines]
        if missing:
            self._start_ray()  # before anything imports Ray: it reads its environment then
            from agentr.policy.actor import start_engines

            with self.reporter.task(f"{self.config.policy.engines} vLLM engine(s)"):
                self._engines |= start_engines(self.config, checkpoint, missing, self.logs, online=self._online)
        return [self._engines[number] for number in sorted(self._engines)]

    def _stop_servers(self) -> None:
        if self._servers is not None:
            asyncio.run(self._servers.stop())
        self._servers = None

    def _stop_engines(self) -> None:
        for engine in self._engines.values():
            self._ray.kill(engine)
        self._engines = {}

    def _make_room(self) -> None:
        """Ends as many engines as the trainer needs GPUs of, on nodes where it may run. The others stay up."""
        labels = selector(self.config, Role.trainer)
        there = {node.id: node.gpus for node in nodes() if matches(node.labels, labels)}
        on = {number: self._node_of(engine) for number, engine in self._engines.items()}
        near = [number for number, node in on.items() if node is None or node in there]
        size = self.config.policy.tensor_parallel_size
        free = sum(there.values()) - size * len(near)
        while near and free < self.config.trainer.workers:
            self._ray.kill(self._engines.pop(near.pop()))
            free += size

    def _node_of(self, engine: Any) -> str | None:
        """The node that an engine is on; None if it is not up."""
        try:
            return self._ray.get(engine.node.remote(), timeout=10.0)
        except self._ray.exceptions.RayError:
            return None

    # watching -----------------------------------------------------------------------------------------------------------

    def _parts(self) -> Parts:
        """What the watchdog may ask."""
        coordinators = self._coordinators
        progress = coordinators.progress if coordinators is not None else None
        collecting = coordinators is not None and progress is not None and not self._training
        return Parts(
            config=self.config,
            run_dir=self._run_dir or self.logs,
            engines={f"rollout-{number}": engine for number, engine in self._engines.items()} if collecting else {},
            servers=self._servers if collecting else None,
            env_url=self.config.env.url if collecting else "",
            progress=progress,
            silent_s=time.monotonic() - coordinators.answered if coordinators is not None and collecting else 0.0,
            training=self._training,
            known=self._known,
            lookouts=self._lookouts,
        )

    def _stands_still(self, title: str, causes: list[Cause], since: str) -> None:
        tell(self.reporter, self._event, title, causes, since)

    def _give_up(self, title: str, seconds: float) -> None:
        """Ends the run as a signal does: what is finished is kept, and the way on is said."""
        self.reporter.say(f"{title_of(title)} did not move for {seconds:.0f} s : the run ends", "red")
        self._noted("gave_up", title=title, seconds=round(seconds))
        os.kill(os.getpid(), signal.SIGTERM)

    def _noted(self, kind: str, **about: Any) -> None:
        """Notes an event in the run that is worked on now, if that can still be noted."""
        with suppress(RunError):
            self._event(kind, **about)
