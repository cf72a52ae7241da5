"""What the stages run on: Ray, the engines, the environment servers, the coordinator, the trainer. Each starts when it is first needed."""

from __future__ import annotations

import asyncio
import os
import secrets
import sys
import threading
import time
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import asdict
from pathlib import Path
from typing import Any, Generic, TypeVar

from agentr.collect.coordinator import Coordinator
from agentr.collect.job import TreeJob
from agentr.config.schema import Config, PolicyBackend, TaskSelection
from agentr.envs.fleet import EnvServers
from agentr.envs.pool import Urls
from agentr.errors import AgentrError, InfraError, RunError
from agentr.observe.progress import Reporter, Update
from agentr.store.layout import Checkpoint
from agentr.store.summaries import TrainSummary
from agentr.train.job import TrainJob
from agentr.train.online_job import OnlineJob
from agentr.types import Task
from env_servers.protocol import EnvironmentSpec

#: Seconds between two looks at a running stage.
POLL_S = 0.5
#: Deadline for the coordinator to come up: it imports the tokenizer's library on a busy machine.
START_TIMEOUT_S = 300.0
#: Beginning of the names of modules whose classes are sent to other processes by value: those that were read from a user's file.
BY_VALUE = "agentr_method_"
#: How often a stage is handed to a coordinator that was restarted.
COORDINATOR_ATTEMPTS = 5


T = TypeVar("T")


class Beside(Generic[T]):
    """A call that goes on in a thread of its own. The thread ends with the process, at the latest."""

    def __init__(self, call: Callable[[], T]) -> None:
        self._result: list[T] = []
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, args=(call,), daemon=True)
        self._thread.start()

    def _run(self, call: Callable[[], T]) -> None:
        try:
            self._result.append(call())
        except BaseException as error:  # noqa: BLE001 - raised again in the thread that asks
            self._error = error

    def ended(self) -> bool:
        """Returns whether the call has come back.

        Raises:
            BaseException: What the call raised.
        """
        if self._thread.is_alive():
            return False
        if self._error is not None:
            raise self._error
        return True

    def wait(self, timeout_s: float | None = None) -> bool:
        """Waits until the call has come back, whatever with, and returns whether it has."""
        self._thread.join(timeout_s)
        return not self._thread.is_alive()

    def result(self) -> T:
        """Waits until the call has come back, and returns its result, or raises what it raised."""
        self._thread.join()
        self.ended()
        return self._result[0]


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
        self._ray: Any = None
        self._servers: EnvServers | None = None
        self._coordinator: Any = None
        self._engines: list[Any] = []
        self._spec: EnvironmentSpec | None = None

    # what stages call ---------------------------------------------------------------------------------------------------

    def spec(self) -> EnvironmentSpec:
        """What the environment publishes about itself."""
        self._start_coordinator()
        assert self._spec is not None
        return self._spec

    def tasks(self, selection: TaskSelection, *, training: bool) -> list[Task]:
        """The tasks of a selection; held-out ones are refused where ``training`` is set."""
        return self._call(self._start_coordinator().tasks.remote(selection, training), "the list of tasks", 120.0)

    def run_job(self, title: str, job: TreeJob, policy: Checkpoint | None, update: Update | None = None) -> dict[str, Any]:
        """Runs a job on the coordinator, shows its progress, and survives the coordinator's death.

        Args:
            update: Is told the progress; by default it is shown as a task of its own.
        """
        from ray.exceptions import ActorDiedError, ActorUnavailableError

        engines = self.engines(policy.path) if policy is not None else []
        path = policy.path if policy is not None else None
        for attempt in range(COORDINATOR_ATTEMPTS):
            coordinator = self._start_coordinator()
            try:
                with nullcontext(update) if update is not None else self.reporter.task(title) as told:
                    return self._watch(coordinator, coordinator.run.remote(job, path, engines), told)
            except (ActorDiedError, ActorUnavailableError) as error:
                if attempt == COORDINATOR_ATTEMPTS - 1:
                    raise InfraError(f"the coordinator died {COORDINATOR_ATTEMPTS} times during {title}: {error}") from error
                self.reporter.say(f"the coordinator died during {title}; it starts again and continues", "yellow")
                self._coordinator = None
        raise AssertionError("unreachable")

    def train(self, jobs: list[TrainJob], title: str) -> list[TrainSummary]:
        """Trains a chain of jobs and returns their results. Engines on the same accelerators make room first."""
        from agentr.train.launch import train_many

        self._start_ray()
        if self.config.trainer.use_gpu:
            self._stop_engines()
        elif self.engines_early and self.model is not None:
            # Overlap the two start-ups: each spends most of its time importing, on one core.
            self.engines(self.model)
        with self.reporter.task(title) as update:
            results = train_many(jobs, lambda m: update(m.get("step", 0), m.get("steps", 0), f"loss {m.get('loss', float('nan')):.3f}"))
        return [TrainSummary.read(asdict(result)) for result in results]

    def train_beside(self, job: OnlineJob) -> Beside[TrainSummary]:
        """Starts an online training, which goes on beside what the caller does."""
        from agentr.train.launch import train

        self._start_ray()
        return Beside(lambda: TrainSummary.read(asdict(train(job))))

    def machines(self) -> int:
        """How many machines the cluster has."""
        return sum(node["Alive"] for node in self._start_ray().nodes())

    def take_over(self, config: Config) -> None:
        """Serves the experiment of ``config`` from here on. What it would start the same runs on; the coordinator starts anew."""
        before, self.config = self.config, config
        self.model, self.engines_early = None, False
        if self._ray is None:
            return
        if config.cluster != before.cluster:
            self.close()
            return
        if self._coordinator is not None:
            self._ray.kill(self._coordinator)
            self._coordinator = None
        if config.env != before.env:
            self._stop_servers()
        if (config.model, config.policy) != (before.model, before.policy):
            self._stop_engines()

    def close(self) -> None:
        """Ends everything that was started here."""
        if self._ray is None:
            return
        self._stop_servers()
        self._stop_engines()
        self._ray.shutdown()
        self._ray = self._coordinator = None

    # starting -----------------------------------------------------------------------------------------------------------

    def _start_ray(self) -> Any:
        if self._ray is None:
            with self.reporter.task("Ray"):
                self._ray = connect(self.config)
        return self._ray

    def _start_coordinator(self) -> Any:
        if self._coordinator is None:
            ray = self._start_ray()
            urls, token = self.environment()
            if self.model is None:
                raise RunError("the coordinator needs the base model's tokenizer, and no model was resolved yet")
            with self.reporter.task(f"coordinator and environment {self.config.env.name}"):
                options = {"num_cpus": 0, "max_concurrency": 64, "name": f"coordinator-{secrets.token_hex(3)}"}
                actor = ray.remote(Coordinator).options(**options)
                self._coordinator = actor.remote(self.config, urls, token, self.model)
                self._spec = self._call(self._coordinator.ready.remote(), "the coordinator", START_TIMEOUT_S)
        return self._coordinator

    def environment(self) -> tuple[Urls, str]:
        """Addresses and token of the environment servers: the user's, or our own."""
        env = self.config.env
        if env.url:
            return [env.url], os.environ.get(env.token_env, "") if env.token_env else ""
        if self._servers is None:
            self._servers = asyncio.run(EnvServers.start(env, str(self.logs)))
        return self._servers.urls, self._servers.token

    def engines(self, checkpoint: Path) -> list[Any]:
        """Handles of the engines' actors, started with ``checkpoint`` if none run; none where an API is the policy."""
        if self.config.policy.backend is PolicyBackend.openai:
            return []
        if not self._engines:
            self._start_ray()  # before anything imports Ray: it reads its environment then
            from agentr.policy.actor import start_engines

            with self.reporter.task(f"{self.config.policy.engines} vLLM engine(s)"):
                self._engines = start_engines(self.config, checkpoint)
        return self._engines

    def _stop_servers(self) -> None:
        if self._servers is not None:
            asyncio.run(self._servers.stop())
        self._servers = None

    def _stop_engines(self) -> None:
        for engine in self._engines:
            self._ray.kill(engine)
        self._engines = []

    # waiting ------------------------------------------------------------------------------------------------------------

    def _watch(self, coordinator: Any, running: Any, update: Any) -> dict[str, Any]:
        while not self._ray.wait([running], timeout=POLL_S)[0]:
            try:
                now = self._ray.get(coordinator.progress.remote(), timeout=10.0)
            except self._ray.exceptions.GetTimeoutError:
                continue
            calls = now["counts"].get("calls", 0)
            tokens = now["counts"].get("completion_tokens", 0)
            details = f"solved {now['successes']}, calls {calls}, tokens {tokens}" + (
                f", retried {now['retried']}" if now["retried"] else ""
            )
            update(now["done"] + now["failed"] + now["skipped"], now["total"], details)
        return self._call(running, "the stage", 60.0)

    def _call(self, ref: Any, what: str, timeout_s: float) -> Any:
        """The result of a remote call; our own errors come back as themselves, not as Ray's wrapper."""
        started = time.monotonic()
        try:
            return self._ray.get(ref, timeout=timeout_s)
        except self._ray.exceptions.RayTaskError as error:
            cause = error.cause
            raise cause if isinstance(cause, AgentrError) else error from None
        except self._ray.exceptions.GetTimeoutError as error:
            raise InfraError(f"{what} did not answer within {time.monotonic() - started:.0f} s") from error


def connect(config: Config) -> Any:
    """Joins a Ray cluster or starts one on this machine, and returns the ``ray`` module.

    A local cluster gets a token of its own, so that nobody else on the machine's network can use it. On a cluster that is joined the
    user's own ``RAY_AUTH_MODE`` and token apply.

    Raises:
        InfraError: The cluster cannot be joined; says what to check.
    """
    address = config.cluster.address or os.environ.get("RAY_ADDRESS", "")
    if not address:
        # Ray reads these once, when it is imported.
        os.environ["RAY_AUTH_MODE"] = "token"
        os.environ.setdefault("RAY_AUTH_TOKEN", secrets.token_hex(32))
        os.environ.setdefault("RAY_raylet_start_wait_time_s", "180")
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    import ray

    send_by_value()
    quiet = {"log_to_driver": False, "configure_logging": True, "logging_level": "ERROR", "namespace": "agentr"}
    if not address:
        _start_here(ray, config, quiet)
        return ray
    try:
        ray.init(address=address, **quiet)
    except ConnectionError as error:
        hint = "Is it up? If it uses token authentication, set RAY_AUTH_MODE=token and RAY_AUTH_TOKEN (or RAY_AUTH_TOKEN_PATH) here too."
        raise InfraError(f"the Ray cluster at {address!r} cannot be joined: {error}", hint=hint) from error
    return ray


def send_by_value() -> None:
    """Makes Ray send what is defined in users' files by value. Called once Ray may be imported: it reads its environment then."""
    import ray.cloudpickle

    for name, module in list(sys.modules.items()):
        if name.startswith(BY_VALUE):
            ray.cloudpickle.register_pickle_by_value(module)


def _start_here(ray: Any, config: Config, quiet: dict[str, Any], attempts: int = 2) -> None:
    """Starts Ray on this machine. A start that fails is tried again: beside another one that starts, or on a busy machine, it may."""
    for left in reversed(range(attempts)):
        try:
            ray.init(
                address="local",
                num_cpus=max(config.cluster.cpus or (os.cpu_count() or 1), 2),
                include_dashboard=config.cluster.dashboard,
                object_store_memory=config.cluster.object_store_mib * 2**20,
                **quiet,
            )
            return
        except Exception as error:  # Ray raises no type of its own here
            ray.shutdown()
            if not left:
                hint = "Is the machine overloaded, or short of memory or disk? Ray's logs are in /tmp/ray/session_latest/logs."
                raise InfraError(f"Ray did not start on this machine: {error}", hint=hint) from error
