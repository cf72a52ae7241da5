"""Measures how many engines a coordinator keeps busy: simulated engines under the real coordinator, router, journals and environment.

A simulated engine waits instead of computing. It answers ``slots / width`` calls at a time (``width`` sequences each), each after one draw
of a lognormal latency, with turns whose action the environment carries out. So *ideal* is what the engines alone would allow::

    ideal expansions/s = min(trees in flight, engines x slots / width) / mean latency,   mean latency = median x exp(sigma^2 / 2)

Up to `SHARED` engines share a process, each with a handle of its own, because hundreds of processes do not fit on a small machine. What is
left out: the engines' own work, a network between machines, and the training. Nothing here asserts a time: other work on the machine
counts in ``machine``.
"""

from __future__ import annotations

import asyncio
import math
import os
import random
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from agentr.cluster.connect import connect, joined
from agentr.cluster.failures import cause_of
from agentr.cluster.roles import Role, options
from agentr.collect.coordinator import Coordinator
from agentr.collect.grow import Grow
from agentr.collect.job import TreeJob
from agentr.collect.units import Limits
from agentr.config.schema import CollectConfig, Config, EnvConfig, ModelConfig, PolicyConfig, SamplingConfig, TaskSelection
from agentr.config.secrets import Secrets
from agentr.envs.fleet import EnvServers
from agentr.errors import ConfigError, InfraError, StaleWeights
from agentr.launch.run import ending_cleanly
from agentr.models.nano import WEIGHTS
from agentr.observe.progress import Reporter, Update
from agentr.policy.base import EngineHealth, GenerateRequest, Policy
from agentr.policy.router import Router
from agentr.search import UCT, UCTConfig
from agentr.store.forest import Forest
from agentr.store.growing import JOURNAL
from agentr.store.working import working
from agentr.types import Completion, FinishReason, Task

#: Most simulated engines in one process.
SHARED = 32
#: Seconds between two looks at the running stage, as in ``agentr.rounds.services``.
POLL_S = 0.5
#: A process that computes for more than this share of a core has no room left: one event loop has one core.
BUSY = 0.85
#: Share of the ideal from which on the engines are what limits.
NEAR_IDEAL = 0.9
#: Median lag of the event loop, as a share of the mean latency, from which on the coordinator is late wherever its time goes: on a full
#: machine it may wait for a core without taking one.
LATE = 0.05
#: Seconds between two looks of the event loop at its clock.
_TICK_S = 0.02
#: Different turns that a process of engines draws from: making one takes longer than sending it.
_TURNS = 256
#: Simulations of a tree and their depth: trees of some 25 expansions, so that trees also end and start while it is measured.
_SEARCH = UCTConfig(iterations=4, max_depth=6, enough_good=0)
_START_TIMEOUT_S = 180.0


@dataclass(frozen=True, kw_only=True)
class Load:
    """What the engines do, and for how long they are watched.

    Attributes:
        latency_s: Median of the time until a call is answered; the distribution is lognormal.
        sigma: Standard deviation of its logarithm.
        slots: Sequences that an engine decodes together.
        width: Sequences of a call.
        tokens: Length of a turn.
        trees: Trees in flight; 0 means as many as the engines can answer at the same time.
        servers: Environment servers; 0 means one for each 8 engines, at most 4.
        in_process: The engines are in the coordinator's process: no Ray call to an engine.
        seconds: Length of the measured window, for each number of engines.
        warm_s: Longest wait for all trees to be in flight before it.
        seed: Of the tasks, latencies and turns.
    """

    latency_s: float = 2.0
    sigma: float = 0.3
    slots: int = 128
    width: int = 4
    tokens: int = 116
    trees: int = 0
    servers: int = 0
    in_process: bool = False
    seconds: float = 20.0
    warm_s: float = 30.0
    seed: int = 0

    def __post_init__(self) -> None:
        if self.slots < self.width:
            raise ConfigError(f"{self.slots} slots have no room for a call of {self.width} sequences", hint="Give --slots >= --width.")
        if self.latency_s <= 0 or self.sigma < 0 or self.seconds <= 0:
            raise ConfigError("a latency and a duration above 0, and a sigma that is not negative, are needed")

    @property
    def calls(self) -> int:
        """Calls that an engine answers at the same time."""
        return self.slots // self.width

    @property
    def mean_s(self) -> float:
        """Mean latency."""
        return self.latency_s * math.exp(self.sigma**2 / 2)

    def in_flight(self, engines: int) -> int:
        """Returns the number of trees in flight."""
        return self.trees or engines * self.calls

    def ideal(self, engines: int) -> float:
        """Returns the expansions a second that the engines alone would allow."""
        return min(self.in_flight(engines), engines * self.calls) / self.mean_s

    def env_servers(self, engines: int) -> int:
        """Returns the number of environment servers."""
        return self.servers or min(4, math.ceil(engines / 8))


@dataclass(frozen=True, kw_only=True)
class Point:
    """The figures of one number of engines, over the measured window.

    Attributes:
        processes: Processes that the engines are in; 0 if they are in the coordinator's.
        trees, growing: Trees that were to be in flight, and that were when the window began.
        prompt_tokens: Mean length of a prompt.
        per_s, ideal, share: Expansions a second, those that the engines alone would allow, and the one over the other.
        coordinator_ms, environment_ms, engines_ms: Milliseconds of CPU for an expansion, over all processes of that kind.
        loop_ms: Those of the coordinator that its event loop's thread took; the rest are Ray's threads.
        coordinator_core, environment_core, engines_core: Share of a core that the busiest process of that kind took.
        machine: Share of all cores of this machine that was busy, other work included.
        lag_p50_ms, lag_p99_ms: By how much the coordinator's event loop woke too late.
        coordinator_mb: Resident memory of the coordinator at the end.
        journaled: Expansions on disk when the coordinator was ended, in journals and in finished trees.
        finished: Finished trees among them.
        total: Expansions that the coordinator had counted at the end of the window, those before it included.
        limit: What limits, in words.
    """

    engines: int
    processes: int
    servers: int
    trees: int
    growing: int
    seconds: float
    expansions: int
    prompt_tokens: float
    per_s: float
    ideal: float
    share: float
    coordinator_ms: float
    loop_ms: float
    environment_ms: float
    engines_ms: float
    coordinator_core: float
    environment_core: float
    engines_core: float
    machine: float
    lag_p50_ms: float
    lag_p99_ms: float
    coordinator_mb: float
    journaled: int
    finished: int
    total: int
    limit: str


def measure(numbers: Sequence[int], load: Load, reporter: Reporter, folder: Path | None = None, profile: Path | None = None) -> list[Point]:
    """Measures each number of engines by itself, and ends everything that it started.

    Args:
        folder: On which disk the journals are; None means that of the temporary files.
        profile: Where a profile of the coordinator's event loop goes (``pstats``); it makes the coordinator slower.

    Raises:
        ConfigError: A number that makes no sense.
        AgentrError: Ray, an environment server or the coordinator failed.
    """
    if not numbers or min(numbers) < 1:
        raise ConfigError(f"{list(numbers)} engines cannot be measured", hint="Give numbers of at least 1, such as --engines 1,8,32.")
    with ending_cleanly(), _ray(reporter) as ray:
        return [_measure(ray, engines, load, reporter, folder, profile) for engines in numbers]


# engines --------------------------------------------------------------------------------------------------------------


class SimulatedEngine:
    """An engine that waits: an ``EngineHandle`` for a router in the same process."""

    def __init__(self, load: Load, number: int) -> None:
        self.name = f"simulated-{number}"
        self._load = load
        self._random = random.Random(f"{load.seed}/{number}")
        self._room = asyncio.Semaphore(load.calls)
        self._turns = _turns(load)
        self._checkpoint = ""
        self._calls = 0

    async def generate(self, request: GenerateRequest, checkpoint: str = "") -> list[Completion]:
        """Returns turns after a drawn latency, once there is room.

        Raises:
            StaleWeights: Other weights than ``checkpoint`` are loaded.
        """
        if checkpoint and checkpoint != self._checkpoint:
            raise StaleWeights(f"{self.name} holds {self._checkpoint!r}, not {checkpoint!r}")
        self._calls += 1
        try:
            async with self._room:
                await asyncio.sleep(self._random.lognormvariate(math.log(self._load.latency_s), self._load.sigma))
        finally:
            self._calls -= 1
        return self._random.sample(self._turns, request.n)

    async def load(self, checkpoint: str) -> None:
        """Holds other weights from now on."""
        self._checkpoint = checkpoint

    async def health(self) -> EngineHealth:
        """Returns the engine's state."""
        calls = min(self._calls, self._load.calls)
        return EngineHealth(checkpoint=self._checkpoint, running=calls * self._load.width, queued=self._calls - calls)


class SimulatedEngines:
    """Several simulated engines as one Ray actor."""

    def __init__(self, load: Load, numbers: Sequence[int]) -> None:
        self._engines = {number: SimulatedEngine(load, number) for number in numbers}

    async def generate(self, request: GenerateRequest, checkpoint: str, number: int) -> list[Completion]:
        return await self._engines[number].generate(request, checkpoint)

    async def load(self, checkpoint: str, number: int) -> None:
        await self._engines[number].load(checkpoint)

    async def health(self, number: int) -> EngineHealth:
        return await self._engines[number].health()

    async def pid(self) -> int:
        """Returns the process id."""
        return os.getpid()


@dataclass(frozen=True)
class _Call:
    """A method of an actor that is told which of its engines is meant."""

    method: Any
    number: int

    def remote(self, *arguments: Any) -> Any:
        return self.method.remote(*arguments, self.number)


@dataclass(frozen=True)
class OneOf:
    """One engine of an actor with several, called like an actor with one."""

    actor: Any
    number: int

    @property
    def generate(self) -> _Call:
        return _Call(self.actor.generate, self.number)

    @property
    def load(self) -> _Call:
        return _Call(self.actor.load, self.number)

    @property
    def health(self) -> _Call:
        return _Call(self.actor.health, self.number)


def _turns(load: Load) -> list[Completion]:
    """Returns different turns of the configured length: the ids are made up, and end with the end of the turn."""
    chance, made = random.Random(f"{load.seed}/turns"), []
    for number in range(1, max(_TURNS, load.width) + 1):
        ids = (*chance.choices(range(3, 1_800), k=load.tokens - 1), 2)
        text = f"Thought: something is missing.\nAction: get {number} cobblestone"
        made.append(Completion(text, ids, tuple(-chance.random() for _ in ids), FinishReason.STOP))
    return made


# the coordinator ------------------------------------------------------------------------------------------------------


class MeasuredCoordinator(Coordinator):
    """The coordinator, with a look at its own event loop. Engines that are given by their numbers are made in its own process."""

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
        router = Router([SimulatedEngine(self._load, number) for number in engines], self.config.policy)
        self._policy = router
        await router.load(str(checkpoint))
        return router


# a point --------------------------------------------------------------------------------------------------------------


def _measure(ray: Any, engines: int, load: Load, reporter: Reporter, disk: Path | None, profile: Path | None) -> Point:
    title = f"{engines} engine{'s' if engines > 1 else ''}"
    with ExitStack() as stack, reporter.task(title) as update:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="agentr-bench-", dir=disk, ignore_cleanup_errors=True)))
        config = _config(engines, load)
        update(0, load.seconds, "starting")
        servers = asyncio.run(EnvServers.start(config.env, str(folder), options=options(config, Role.environment)))
        stack.callback(lambda: asyncio.run(servers.stop()))
        actors, handles = _start_engines(ray, config, engines, load)
        for actor in actors:
            stack.callback(ray.kill, actor)
        how = options(config, Role.coordinator) | {"max_restarts": 0, "max_concurrency": 64}
        coordinator = ray.remote(MeasuredCoordinator).options(**how)
        coordinator = coordinator.remote(load, profile, config, servers.urls, servers.token, WEIGHTS, Secrets.of(config))
        end = stack.enter_context(_ended(ray, coordinator))
        call = _Caller(ray)
        call(coordinator.ready, timeout_s=_START_TIMEOUT_S)
        pids = {
            "coordinator": [call(coordinator.pid)],
            "environment": [status.pid for status in asyncio.run(servers.status())],
            "engines": [call(actor.pid, timeout_s=_START_TIMEOUT_S) for actor in actors],
        }
        tasks = _tasks(call(coordinator.tasks, TaskSelection(split="train", seed=load.seed), True), engines, load)
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
        running = coordinator.run.remote(job, WEIGHTS, handles)
        _warm_up(call, coordinator, running, trees, load, update)
        if profile is not None:
            call(coordinator.profile, True)
        before, cpus, machine = call(coordinator.look), _cpus(pids), _machine()
        started = time.monotonic()
        while (passed := time.monotonic() - started) < load.seconds:
            update(round(passed), load.seconds, "s measured")
            call.watch(running)
            call(coordinator.progress)
        after, cpus_after, machine_after = call(coordinator.look), _cpus(pids), _machine()
        memory = _resident_mb(pids["coordinator"][0])
        if profile is not None:
            call(coordinator.profile, False)
        end()
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


def _point(
    *,
    engines: int,
    load: Load,
    processes: int,
    servers: int,
    before: dict[str, Any],
    after: dict[str, Any],
    cpus: dict[str, list[float]],
    machine: float,
    memory: float,
    stored: tuple[int, int],
) -> Point:
    seconds, expansions = after["clock"] - before["clock"], after["calls"] - before["calls"]
    if not expansions:
        raise InfraError(f"no expansion in {seconds:.0f} s", hint="Give more --seconds, or a shorter --latency.")
    cpus = {**cpus, "coordinator": [after["cpu"] - before["cpu"]]}
    core = {kind: max(spent, default=0.0) / seconds for kind, spent in cpus.items()}
    each = {kind: 1000 * sum(spent) / expansions for kind, spent in cpus.items()}
    lags = sorted(after["lags"]) or [math.nan]
    share = expansions / seconds / load.ideal(engines)
    return Point(
        engines=engines,
        processes=processes,
        servers=servers,
        trees=load.in_flight(engines),
        growing=before["growing"],
        seconds=seconds,
        expansions=expansions,
        prompt_tokens=(after["prompt_tokens"] - before["prompt_tokens"]) / expansions,
        per_s=expansions / seconds,
        ideal=load.ideal(engines),
        share=share,
        coordinator_ms=each["coordinator"],
        loop_ms=1000 * (after["loop"] - before["loop"]) / expansions,
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
        total=after["calls"],
        limit=limit(
            share,
            coordinator=core["coordinator"],
            late=statistics.median(lags) / load.mean_s,
            environment=core["environment"],
            engines=core["engines"],
            machine=machine,
            growing=before["growing"] / load.in_flight(engines),
        ),
    )


def limit(share: float, *, coordinator: float, late: float, environment: float, engines: float, machine: float, growing: float) -> str:
    """Says what saturates first.

    Args:
        share: Of the ideal.
        coordinator, environment, engines: Share of a core that the busiest process of each kind takes.
        late: Median lag of the coordinator's event loop, as a share of the mean latency.
        machine: Share of all cores that is busy.
        growing: Share of the trees that were in flight when the window began.
    """
    if share >= NEAR_IDEAL:
        return "the engines: they are busy all the time"
    if coordinator > BUSY or late > LATE:
        full = f", on a machine whose cores are {machine:.0%} busy" if machine > BUSY else ""
        return f"the coordinator: it takes {coordinator:.0%} of a core{full}"
    if environment > BUSY:
        return f"an environment server: it takes {environment:.0%} of a core"
    if engines > BUSY:
        return f"the simulation: a process of engines takes {engines:.0%} of a core"
    if machine > BUSY:
        return f"the machine: {machine:.0%} of its cores are busy"
    if growing < NEAR_IDEAL:
        return f"the start: {growing:.0%} of the trees were in flight when the window began"
    return "no process by itself: time between an answer and the next call"


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
        how = options(config, Role.engine) | {"max_restarts": 0, "max_concurrency": len(numbers) * load.calls + 8}
        actor = ray.remote(SimulatedEngines).options(**how).remote(load, numbers)
        actors.append(actor)
        handles += [OneOf(actor, number) for number in numbers]
    return actors, handles


def _tasks(known: Sequence[Task], engines: int, load: Load) -> list[Task]:
    """Returns tasks enough for the window and the time before it: goals of the training split, with any number of seeds."""
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


def _warm_up(call: _Caller, coordinator: Any, running: Any, trees: int, load: Load, update: Update) -> None:
    """Waits until all trees are in flight, and then for two latencies more."""
    deadline = time.monotonic() + load.warm_s
    while time.monotonic() < deadline:
        call.watch(running)
        started = call(coordinator.progress)["in_flight"]
        update(0, load.seconds, f"{started:,} of {trees:,} trees in flight")
        if started >= trees:
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


# processes ------------------------------------------------------------------------------------------------------------


class _Caller:
    """Calls methods of actors, with a deadline."""

    def __init__(self, ray: Any) -> None:
        self._ray = ray

    def __call__(self, method: Any, *arguments: Any, timeout_s: float = 60.0) -> Any:
        return self._get(method.remote(*arguments), timeout_s)

    def watch(self, running: Any) -> None:
        """Waits for a moment.

        Raises:
            AgentrError: The stage has ended meanwhile, with what was wrong.
        """
        if self._ray.wait([running], timeout=POLL_S)[0]:
            self._get(running, 60.0)
            raise InfraError("the stage ended before the window did", hint="Give less --seconds or a longer --latency.")

    def _get(self, reference: Any, timeout_s: float) -> Any:
        from ray.exceptions import GetTimeoutError, RayError

        try:
            return self._ray.get(reference, timeout=timeout_s)
        except GetTimeoutError as error:
            raise InfraError(f"an actor did not answer within {timeout_s:g} s") from error
        except RayError as error:
            raise cause_of(error, "an actor") from error


@contextmanager
def _ray(reporter: Reporter) -> Iterator[Any]:
    """Starts Ray on this machine, with its files in a folder that is removed at the end."""
    config = Config()
    if joined(config):
        raise ConfigError("RAY_ADDRESS is set", hint="Unset it: the measurement starts a Ray of its own on this machine.")
    before = os.environ.get("RAY_TMPDIR")
    folder = tempfile.mkdtemp(prefix="agentr-", dir="/tmp")  # the names of Unix sockets are short
    os.environ["RAY_TMPDIR"] = folder
    try:
        with reporter.task("Ray"):
            ray = connect(config)
        try:
            yield ray
        finally:
            ray.shutdown()
    finally:
        os.environ.pop("RAY_TMPDIR") if before is None else os.environ.update(RAY_TMPDIR=before)
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def _ended(ray: Any, actor: Any) -> Iterator[Callable[[], None]]:
    """Gives what ends an actor and waits until its process is gone, which is done at the end at the latest."""
    ended = False

    def end() -> None:
        nonlocal ended
        if ended:
            return
        ended = True
        ray.kill(actor)
        ray.wait([actor.pid.remote()], timeout=10.0)  # fails once it is gone

    try:
        yield end
    finally:
        end()


def _cpus(pids: dict[str, list[int]]) -> dict[str, list[float]]:
    """Returns the CPU seconds of processes so far."""
    tick = os.sysconf("SC_CLK_TCK")

    def seconds(pid: int) -> float:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / tick

    return {kind: [seconds(pid) for pid in some] for kind, some in pids.items()}


def _machine() -> tuple[float, float]:
    """Returns the CPU time of this machine that was busy, and all of it, in ticks."""
    times = [int(each) for each in Path("/proc/stat").read_text().splitlines()[0].split()[1:9]]
    return sum(times) - times[3] - times[4], sum(times)


def _resident_mb(pid: int) -> float:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 1e6


# output ---------------------------------------------------------------------------------------------------------------


def as_dict(load: Load, points: Sequence[Point]) -> dict[str, Any]:
    """Returns a measurement as plain data."""
    return {
        "load": {**asdict(load), "calls": load.calls, "mean_s": load.mean_s},
        "cores": os.cpu_count(),
        "points": [asdict(point) for point in points],
    }


def table(load: Load, points: Sequence[Point]) -> Any:
    """Returns a measurement as a table for people."""
    from rich.table import Table

    where = "in the coordinator's process" if load.in_process else f"up to {SHARED} in a process"
    title = f"Simulated engines, {where}: latency {load.latency_s:g} s (sigma {load.sigma:g}), turns of {load.tokens} tokens"
    caption = (
        f"ideal = min(trees, engines x {load.slots} slots / {load.width} sequences a call) / mean latency of {load.mean_s:.3g} s. "
        f"{os.cpu_count()} cores; 'machine' is how busy they were, other work included."
    )
    shown = Table(title=title, caption=caption, caption_justify="left")
    columns = ("engines", "env servers", "trees", "exp/s", "ideal", "share", "coord. ms/exp", "of it loop", "env", "engines")
    for name in (*columns, "coord. core", "env core", "machine", "lag p50 ms", "p99", "MB"):
        shown.add_column(name, justify="right")
    shown.add_column("limit")
    for p in points:
        trees = f"{p.trees:,}" if p.growing >= p.trees else f"{p.growing:,} of {p.trees:,}"
        cells = [f"{p.engines}", f"{p.servers}", trees, f"{p.per_s:.1f}", f"{p.ideal:.1f}", f"{p.share:.2f}"]
        cells += [f"{v:.2f}" for v in (p.coordinator_ms, p.loop_ms, p.environment_ms, p.engines_ms)]
        cells += [f"{v:.2f}" for v in (p.coordinator_core, p.environment_core, p.machine)]
        cells += [f"{p.lag_p50_ms:.1f}", f"{p.lag_p99_ms:.1f}", f"{p.coordinator_mb:.0f}"]
        shown.add_row(*cells, p.limit)
    return shown
