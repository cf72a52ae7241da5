"""An engine as a Ray actor, and the router's handle on it.

The actor imports torch only in its constructor, after the environment is set. A restart runs the constructor again
with its first arguments, so an engine may come back with old weights: each request names the weights that must
answer, and the router reloads an engine that holds others.
"""

import asyncio
import os
import secrets
import threading
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import ray
from ray.exceptions import ActorDiedError, RayError, RayTaskError

from agentr.cluster import metrics, push
from agentr.cluster.failures import cause_of, in_constructor
from agentr.cluster.places import Places
from agentr.cluster.restarts import Restarts
from agentr.cluster.roles import Role
from agentr.config.model import ModelConfig
from agentr.config.policy import PolicyBackend, PolicyConfig
from agentr.errors import ConfigError, EngineLost, InfraError, ModelError
from agentr.policy import wire
from agentr.policy.base import Engine, EngineHealth, GenerateRequest, PolicyStats
from agentr.types import Completion

_WATCH_S = 2.0


def start_engine(checkpoint: str, model: ModelConfig, policy: PolicyConfig, sleeps: bool = False) -> Engine:
    """Starts an engine of the configured backend in this process. To add a backend, add its case here.

    Args:
        sleeps: Whether it is to free its memory between requests (`Engine.sleep`).

    Raises:
        ConfigError: The backend is a remote API, without engines to start; or it cannot sleep here.
        ModelError: The engine cannot load the model.
    """
    match policy.backend:
        case PolicyBackend.vllm:
            from agentr.policy.vllm_engine import VLLMEngine

            return VLLMEngine(checkpoint, model, policy, sleeps)
        case PolicyBackend.openai:
            raise ConfigError("policy.backend is openai, which runs elsewhere and has no engines to start.")


class EngineActor:
    """A Ray actor around one engine. If the engine dies or hangs, the process ends and Ray restarts it.

    Args:
        checkpoint: Model folder to start with.
        restarts: Counts how often it is started.
        run, name: Of the run and of the engine, for its metrics.
        sleeps: See ``start_engine``.
    """

    def __init__(
        self,
        checkpoint: str,
        model: ModelConfig,
        policy: PolicyConfig,
        restarts: Restarts | None = None,
        run: str = "",
        name: str = "",
        sleeps: bool = False,
    ) -> None:
        self._restarts = restarts.count() if restarts is not None else 0
        self._engine = start_engine(checkpoint, model, policy, sleeps)
        self._pusher = push.start(run, name, self._samples)
        threading.Thread(target=self._watch, name="engine-watch", daemon=True).start()

    @ray.method(concurrency_group="generate")
    async def generate(self, call: bytes) -> bytes:
        """See `Engine.generate`; call and answer are packed by ``agentr.policy.wire``."""
        return wire.pack_answer(await self._engine.generate(*wire.unpack_call(call)))

    @ray.method(concurrency_group="control")
    async def load(self, checkpoint: str) -> None:
        """See `Engine.load`."""
        await self._engine.load(checkpoint)

    @ray.method(concurrency_group="control")
    async def sleep(self) -> None:
        """See `Engine.sleep`."""
        await self._engine.sleep()

    @ray.method(concurrency_group="control")
    async def health(self) -> EngineHealth:
        """See `Engine.health`."""
        return await self._engine.health()

    @ray.method(concurrency_group="control")
    async def stats(self) -> PolicyStats:
        """See `Engine.stats`."""
        return await self._engine.stats()

    @ray.method(concurrency_group="control")
    async def pid(self) -> int:
        """Returns the process id, for tests that kill the process."""
        return os.getpid()

    @ray.method(concurrency_group="control")
    async def node(self) -> str:
        """Returns the id of the node that it is on."""
        return ray.get_runtime_context().get_node_id()

    def _samples(self) -> Iterator[metrics.MetricSample]:
        """The summary of the engine now; that it died says its silence."""
        # neither waits for anything
        health, stats = asyncio.run(self._engine.health()), asyncio.run(self._engine.stats())
        yield metrics.MetricSample(metrics.RESTARTS, self._restarts)
        yield metrics.MetricSample(metrics.ENGINE_SEQUENCES, health.running)
        yield metrics.MetricSample(metrics.ENGINE_QUEUED, health.queued)
        yield metrics.MetricSample(metrics.ENGINE_STEP, health.stalled_s)
        yield metrics.MetricSample(metrics.ENGINE_BUSY, stats.busy_s)
        missed = health.prefix_queries - health.prefix_hits
        yield from metrics.by_label(metrics.ENGINE_PREFIX, yes=health.prefix_hits, no=missed)

    def _watch(self) -> None:
        while True:
            time.sleep(_WATCH_S)
            try:
                self._engine.check()
            except InfraError:
                time.sleep(_WATCH_S)  # the failed calls' answers leave first
                os._exit(1)  # ray.actor.exit_actor() would count as intended, without a restart


class RayEngine:
    """An `EngineHandle` on an `EngineActor`. Translates Ray's errors, and passes a cancellation on to the actor."""

    def __init__(self, actor: Any, name: str) -> None:
        self.actor = actor
        self.name = name
        self._generate = actor.generate  # Ray makes a method anew each time that it is asked for

    async def generate(self, request: GenerateRequest, checkpoint: str) -> list[Completion]:
        return wire.unpack_answer(await self._call(self._generate.remote(wire.pack_call(request, checkpoint))))

    async def load(self, checkpoint: str) -> None:
        await self._call(self.actor.load.remote(checkpoint))

    async def health(self) -> EngineHealth:
        return await self._call(self.actor.health.remote())

    async def _call(self, reference: Any) -> Any:
        try:
            return await reference
        except asyncio.CancelledError:
            ray.cancel(reference)
            raise
        except RayTaskError as error:
            raise cause_of(error, self.name) from error
        except ActorDiedError as error:
            if not in_constructor(error):
                raise EngineLost(f"{self.name} is gone, and is not started again") from error
            cause = cause_of(error, self.name)
            if isinstance(cause, EngineLost):
                raise cause from None
            raise ModelError(f"{self.name} could not start: {cause.message}", hint=cause.hint) from None
        except RayError as error:
            raise InfraError(f"{self.name} is gone: {type(error).__name__}") from error


def engine_name(index: int) -> str:
    """Returns the name of an engine in errors and statistics."""
    return f"rollout-{index}"


def start_engines(
    places: Places,
    model: ModelConfig,
    run: str,
    checkpoint: Path | str,
    numbers: Iterable[int],
    logs: Path | None = None,
) -> dict[int, Any]:
    """Starts actors on the Ray cluster of this process and returns them by number. Does not wait for them.

    On GPUs an engine takes what ``booked`` says, on one node. On CPUs engines are spread over the nodes.

    Args:
        run: Its name, for metrics.
        numbers: Which of the ``policy.engines``.
        logs: Folder in which starts are counted; None for no limit.
    """
    there = ray.cluster_resources().get("GPU", 0)
    on_gpu = places.engines_on_gpu(there)
    how = places.options(Role.engine, gpus=places.booked(there)[0] if on_gpu else 0, spread=not on_gpu)
    how["max_concurrency"] = 512
    restarts = Restarts.of(places.cluster, logs) if logs is not None else None
    remote: Any = ray.remote  # its overloads do not know concurrency_groups
    engine = remote(concurrency_groups={"control": 8, "generate": 512})(EngineActor)
    # Ray frees the name of a killed actor some time later, and other runs may use the same cluster
    life = secrets.token_hex(3)
    engines = {}
    for number in numbers:
        name = engine_name(number)
        counted = restarts.named(name, life) if restarts is not None else None
        engines[number] = engine.options(name=f"{name}-{life}", **how).remote(
            str(checkpoint), model, places.policy, counted, run, name, sleeps=places.sleeping(there)
        )
    return engines
