"""Measures how many engines coordinators keep busy: simulated engines under the real coordinators, router, journals and
environment.

*Ideal* is what the engines alone would allow (``tests.tools.bench.simulated``)::

    ideal expansions/s = min(trees in flight, engines x slots / width) / mean latency,
    mean latency = median x exp(sigma^2 / 2)

Up to `SHARED` engines share a process, each with a handle of its own, because hundreds of processes do not fit on a
small machine. What is left out: the engines' own work, a network between machines, and the training. Nothing here
asserts a time: other work on the machine counts in ``machine``.
"""

import asyncio
import math
import os
import random
import statistics
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

from agentr.cluster.places import Places
from agentr.cluster.roles import Role
from agentr.collect.agent import AgentSettings
from agentr.collect.coordinator import Coordinator
from agentr.collect.grow import Grow
from agentr.collect.job import TreeJob
from agentr.collect.units import Limits
from agentr.config.model import ModelConfig
from agentr.config.policy import PolicyConfig, SamplingConfig
from agentr.config.schema import CollectConfig, Config, EnvConfig, TaskSelection
from agentr.config.secrets import secrets_of
from agentr.envs.fleet import EnvServers
from agentr.errors import ConfigError, InfraError
from agentr.models.nano import WEIGHTS
from agentr.observe.progress import Reporter, Update
from agentr.policy.base import Policy
from agentr.policy.router import Router
from agentr.search import UCT, UCTConfig
from agentr.signals import ending_cleanly
from agentr.store.forest import Forest
from agentr.store.growing import JOURNAL, GrowingForest
from agentr.store.working import working
from agentr.types import Task
from tests.tools.bench.processes import Caller, cpus_of, ended, machine_ticks, ray_of_ones_own, resident_mb
from tests.tools.bench.scale_table import NEAR_IDEAL, Point, limit
from tests.tools.bench.simulated import SHARED, Load, OneOf, SimulatedEngine, SimulatedEngines

#: Seconds between two looks of the event loop at its clock.
_TICK_S = 0.02
#: Simulations of a tree and their depth: trees of some 25 expansions, so that trees also end and start while it is
#: measured.
_SEARCH = UCTConfig(iterations=4, max_depth=6, enough_good=0)
_START_TIMEOUT_S = 180.0


def measure(
    numbers: Sequence[int], load: Load, reporter: Reporter, folder: Path | None = None, profile: Path | None = None
) -> list[Point]:
    """Measures each number of engines by itself, and ends everything that it started.

    Args:
        folder: On which disk the journals are; None means that of the temporary files.
        profile: Where a profile of the coordinator's event loop goes (``pstats``); it makes the coordinator slower.

    Raises:
        ConfigError: A number that makes no sense.
        AgentrError: Ray, an environment server or the coordinator failed.
    """
    if not numbers or min(numbers) < 1:
        raise ConfigError(
            f"{list(numbers)} engines cannot be measured", hint="Give numbers of at least 1, such as --engines 1,8,32."
        )
    with ending_cleanly(), ray_of_ones_own(reporter) as ray:
        return [_measure(ray, engines, load, reporter, folder, profile) for engines in numbers]


def _measure(ray: Any, engines: int, load: Load, reporter: Reporter, disk: Path | None, profile: Path | None) -> Point:
    title = f"{engines} engine{'s' if engines > 1 else ''}"
    with ExitStack() as stack, reporter.task(title) as update:
        folder = Path(
            stack.enter_context(
                tempfile.TemporaryDirectory(prefix="agentr-bench-", dir=disk, ignore_cleanup_errors=True)
            )
        )
        config = _config(engines, load)
        update(0, load.seconds, "starting")
        servers = asyncio.run(
            EnvServers.start(config.env, str(folder), options=Places.of(config).options(Role.environment))
        )
        stack.callback(lambda: asyncio.run(servers.stop()))
        actors, handles = _start_engines(ray, config, engines, load)
        for actor in actors:
            stack.callback(ray.kill, actor)
        how = Places.of(config).options(Role.coordinator) | {"max_restarts": 0, "max_concurrency": 64}
        start = ray.remote(MeasuredCoordinator).options(**how).remote
        arguments = (AgentSettings.of(config), servers.urls, servers.token, WEIGHTS, secrets_of(config))
        call = Caller(ray)
        coordinators = [start(load, profile, *arguments) for _ in range(load.coordinators)]
        end = [stack.enter_context(ended(ray, coordinator)) for coordinator in coordinators]
        call.each(coordinators, "ready", timeout_s=_START_TIMEOUT_S)
        pids = {
            "coordinator": call.each(coordinators, "pid"),
            "environment": [status.pid for status in asyncio.run(servers.status())],
            "engines": call.each(actors, "pid", timeout_s=_START_TIMEOUT_S),
        }
        tasks = _tasks(call(coordinators[0].tasks, TaskSelection(split="train", seed=load.seed), True), engines, load)
        trees = load.in_flight(engines)
        job = TreeJob(
            folder=folder / "trees",
            tasks=tuple(tasks),
            seed=load.seed,
            policy="simulated",
            work=Grow(UCT(replace(_SEARCH, width=load.width))),
            sampling=config.collect.sampling,
            limits=Limits(in_flight=trees),
        )
        GrowingForest(job.folder)  # a driver takes the stage over before coordinators join it
        parts = job.divided(load.coordinators)
        running = [
            coordinator.run.remote(part, WEIGHTS, handles)
            for coordinator, part in zip(coordinators, parts, strict=True)
        ]
        _warm_up(call, coordinators, running, trees, load, update)
        if profile is not None:
            call(coordinators[0].profile, True)
        before, cpus, machine = call.each(coordinators, "look"), cpus_of(pids), machine_ticks()
        started = time.monotonic()
        while (passed := time.monotonic() - started) < load.seconds:
            update(round(passed), load.seconds, "s measured")
            call.watch(running)
            call.each(coordinators, "progress")
        after, cpus_after, machine_after = call.each(coordinators, "look"), cpus_of(pids), machine_ticks()
        memory = sum(map(resident_mb, pids["coordinator"]))
        if profile is not None:
            call(coordinators[0].profile, False)
        for each in end:
            each()
        return _point(
            engines=engines,
            load=load,
            processes=len(actors),
            servers=len(servers.actors),
            before=before,
            after=after,
            cpus={kind: [b - a for a, b in zip(cpus[kind], cpus_after[kind], strict=True)] for kind in pids},
            machine=(machine_after[0] - machine[0]) / max(1e-9, machine_after[1] - machine[1]),
            memory=memory,
            stored=_stored(folder / "trees"),
        )


class MeasuredCoordinator(Coordinator):
    """The coordinator, with a look at its own event loop. Engines that are given by their numbers are made in its own
    process."""

    def __init__(self, load: Load, profile: Path | None, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._load = load
        self._profile = profile
        self._lags: list[float] = []

    async def run(self, job: TreeJob, policy: Path | None, engines: Sequence[Any]) -> dict[str, Any]:
        """See `Coordinator.run`."""
        watching = asyncio.create_task(self._watch())
        try:
            return await super().run(job, policy, engines)
        finally:
            watching.cancel()

    async def look(self) -> dict[str, Any]:
        """Returns its clock, CPU time and costs so far, and the lags of the event loop since the last look."""
        lags, self._lags = self._lags, []
        spent = self._progress.spent()
        return {
            "clock": time.monotonic(),
            "cpu": time.process_time(),
            "loop": time.thread_time(),
            "lags": lags,
            "calls": spent.calls,
            "prompt_tokens": spent.prompt_tokens,
            "growing": len(self._progress.growing),
            "retried": self._meter.causes,
        }

    async def profile(self, on: bool) -> None:
        """Starts a profile of this event loop's thread, in its CPU time, or ends and writes it."""
        import cProfile

        if on:
            self._profiler = cProfile.Profile(time.thread_time)
            self._profiler.enable()
        else:
            self._profiler.disable()
            self._profiler.dump_stats(str(self._profile))

    async def pid(self) -> int:
        """Returns the process id."""
        return os.getpid()

    async def _watch(self) -> None:
        while True:
            before = time.monotonic()
            await asyncio.sleep(_TICK_S)
            self._lags.append(time.monotonic() - before - _TICK_S)

    async def _ready_policy(self, checkpoint: Path | None, engines: Sequence[Any]) -> Policy:
        if not engines or not isinstance(engines[0], int):
            return await super()._ready_policy(checkpoint, engines)
        router = Router([SimulatedEngine(self._load, number) for number in engines], self.settings.policy)
        self._policy = router
        await router.load(str(checkpoint))
        return router


def _point(
    *,
    engines: int,
    load: Load,
    processes: int,
    servers: int,
    before: list[dict[str, Any]],
    after: list[dict[str, Any]],
    cpus: dict[str, list[float]],
    machine: float,
    memory: float,
    stored: tuple[int, int],
) -> Point:
    then, now = _summed(before), _summed(after)
    seconds, expansions = after[0]["clock"] - before[0]["clock"], now["calls"] - then["calls"]
    if not expansions:
        raise InfraError(f"no expansion in {seconds:.0f} s", hint="Give more --seconds, or a shorter --latency.")
    cpus = {**cpus, "coordinator": [b["cpu"] - a["cpu"] for a, b in zip(before, after, strict=True)]}
    core = {kind: max(spent, default=0.0) / seconds for kind, spent in cpus.items()}
    each = {kind: 1000 * sum(spent) / expansions for kind, spent in cpus.items()}
    lags = sorted(lag for each in after for lag in each["lags"]) or [math.nan]
    share = expansions / seconds / load.ideal(engines)
    return Point(
        engines=engines,
        processes=processes,
        servers=servers,
        trees=load.in_flight(engines),
        growing=then["growing"],
        seconds=seconds,
        expansions=expansions,
        prompt_tokens=(now["prompt_tokens"] - then["prompt_tokens"]) / expansions,
        per_s=expansions / seconds,
        ideal=load.ideal(engines),
        share=share,
        coordinator_ms=each["coordinator"],
        loop_ms=1000 * (now["loop"] - then["loop"]) / expansions,
        environment_ms=each["environment"],
        engines_ms=each["engines"],
        coordinator_core=core["coordinator"],
        environment_core=core["environment"],
        engines_core=core["engines"],
        machine=machine,
        lag_p50_ms=1000 * statistics.median(lags),
        lag_p99_ms=1000 * lags[int(0.99 * (len(lags) - 1))],
        coordinator_mb=memory,
        journaled=stored[0],
        finished=stored[1],
        total=now["calls"],
        retried=now["retried"],
        limit=limit(
            share,
            coordinator=core["coordinator"],
            late=statistics.median(lags) / load.mean_s,
            environment=core["environment"],
            engines=core["engines"],
            machine=machine,
            growing=then["growing"] / load.in_flight(engines),
        ),
    )


def _summed(looks: Sequence[dict[str, Any]]) -> dict[str, Any]:
    summed = {name: sum(look[name] for look in looks) for name in ("calls", "prompt_tokens", "growing", "loop")}
    return {**summed, "retried": dict(sum((look["retried"] for look in looks), Counter()))}


def _config(engines: int, load: Load) -> Config:
    """Returns a configuration in which no turn is cut off and no call waits in an engine."""
    context = 16_384 + 2 * (_SEARCH.max_depth + 2) * load.tokens
    return Config(
        model=ModelConfig(max_model_len=context),
        env=EnvConfig(name="textcraft", servers=load.env_servers(engines)),
        policy=PolicyConfig(engines=engines, max_num_seqs=load.calls, timeout_s=max(300.0, 20 * load.mean_s)),
        collect=CollectConfig(sampling=SamplingConfig(max_tokens=load.tokens)),
    )


def _start_engines(ray: Any, config: Config, engines: int, load: Load) -> tuple[list[Any], list[Any]]:
    """Returns the actors, and what the coordinator is given: a handle for each engine, or its number."""
    if load.in_process:
        return [], list(range(engines))
    actors, handles = [], []
    for first in range(0, engines, SHARED):
        numbers = range(first, min(first + SHARED, engines))
        how = Places.of(config).options(Role.engine) | {
            "max_restarts": 0,
            "max_concurrency": len(numbers) * load.calls + 8,
        }
        actor = ray.remote(SimulatedEngines).options(**how).remote(load, numbers)
        actors.append(actor)
        handles += [OneOf(actor, number) for number in numbers]
    return actors, handles


def _tasks(known: Sequence[Task], engines: int, load: Load) -> list[Task]:
    """Returns tasks enough for the window and the time before it: goals of the training split, with any number of
    seeds."""
    # A tree takes at least one simulation down to its deepest turn.
    fastest = min(load.ideal(engines), 2_000.0) * (load.seconds + load.warm_s + 30.0) / (_SEARCH.max_depth + 1)
    goals = sorted({task.id.partition("@")[0] for task in known})
    made = [
        Task(known[0].env, f"{goal}@{seed}", "train")
        for seed in range(math.ceil((load.in_flight(engines) + fastest) / len(goals)))
        for goal in goals
    ]
    random.Random(load.seed).shuffle(made)
    return made


def _warm_up(
    call: Caller, coordinators: Sequence[Any], running: Sequence[Any], trees: int, load: Load, update: Update
) -> None:
    """Waits until nearly all trees have begun, and then for two latencies more."""
    deadline = time.monotonic() + load.warm_s
    while time.monotonic() < deadline:
        call.watch(running)
        growing = sum(look["growing"] for look in call.each(coordinators, "look"))
        update(0, load.seconds, f"{growing:,} of {trees:,} trees in flight")
        if growing >= NEAR_IDEAL * trees:
            break
    settled = time.monotonic() + 2 * load.mean_s
    while time.monotonic() < settled:
        call.watch(running)


def _stored(folder: Path) -> tuple[int, int]:
    """Returns the expansions that are on disk, and the finished trees."""
    forest, work = Forest(folder), working(folder)
    assert work is not None, "the coordinator works in a folder of its own"
    growing = sum(path.read_bytes().count(b"\n") for path in (work / JOURNAL).glob("*.jsonl"))
    finished = [tree.cost.calls for tree in forest]
    return growing + sum(finished), len(finished)
