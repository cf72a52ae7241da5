"""Routes requests to engines: to the tree's own engine if possible, else to the least loaded one.

An engine is *ready* or *quarantined*. A call that fails, times out or finds other weights puts the engine into
quarantine. A probe then asks for its health with growing pauses, loads the wanted weights and makes it ready again;
callers wait meanwhile, each with a deadline. The router does not know Ray: it reaches engines through `EngineHandle`.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter, OrderedDict, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

from agentr.backoff import Backoff
from agentr.config.policy import PolicyConfig
from agentr.errors import AgentrError, EngineLost, InfraError, StaleWeights
from agentr.policy.base import EngineHealth, GenerateRequest, PolicyStats, cost_of
from agentr.types import Completion

SPILL = 8
"""Calls in flight that a tree's home engine may have above the least loaded engine; beyond it, that one answers."""
_HOMES = 8192
"""Upper bound on the trees whose home engine is remembered."""
BACKOFF = Backoff(first_s=0.5, longest_s=16.0)
"""Pauses between attempts."""


class EngineHandle(Protocol):
    """Access to an engine in another process. Infrastructure failures are InfraErrors; the router sets deadlines."""

    name: str

    async def generate(self, request: GenerateRequest, checkpoint: str) -> list[Completion]:
        """See `Engine.generate`."""
        ...

    async def load(self, checkpoint: str) -> None:
        """See `Engine.load`."""
        ...

    async def health(self) -> EngineHealth:
        """See `Engine.health`."""
        ...


@dataclass
class _Slot:
    """The router's record of an engine."""

    handle: EngineHandle
    in_flight: int = 0
    homes: int = 0
    problem: str = ""
    busy_s: float = 0.0
    busy_since: float = 0.0
    probe: asyncio.Task[None] | None = field(default=None, repr=False)

    @property
    def ready(self) -> bool:
        return not self.problem


class Dispatcher:
    """Gives engines to calls. Invariant: no more than ``cap`` calls are in flight on an engine.

    Attributes:
        queue: Calls that wait: for which tree, and what wakes them.
        held: While it is locked, no call gets an engine.
    """

    def __init__(self, engines: Sequence[EngineHandle], cap: int, timeout_s: float) -> None:
        self.slots = [_Slot(engine) for engine in engines]
        self.queue: deque[tuple[str, asyncio.Future[_Slot]]] = deque()
        self.held = asyncio.Lock()
        self._cap = cap
        self._timeout_s = timeout_s
        self._changed = asyncio.Event()
        self._homes: OrderedDict[str, _Slot] = OrderedDict()

    async def acquire(self, affinity: str, failures: Sequence[str]) -> _Slot:
        """Gives a call its engine; calls that wait are served in their order, and none is woken in vain."""
        slot = None if self.queue else self._choose(affinity)
        if slot is not None:
            return self._take(slot, affinity)
        served: asyncio.Future[_Slot] = asyncio.get_running_loop().create_future()
        self.queue.append((affinity, served))
        try:
            async with asyncio.timeout(self._timeout_s):
                return await served
        except BaseException as error:  # also when cancelled: the engine that it was given meanwhile is free again
            if served.done() and not served.cancelled():
                self.release(served.result())
            served.cancel()
            if not isinstance(error, TimeoutError):
                raise
            before = f" Before that: {'; '.join(failures)}." if failures else ""
            what = f"waited {self._timeout_s:g} s for an engine that is ready and has room ({self.report()}).{before}"
            raise InfraError(what) from None

    def _take(self, slot: _Slot, affinity: str) -> _Slot:
        if affinity and affinity not in self._homes:
            self._homes[affinity] = slot
            slot.homes += 1
            if len(self._homes) > _HOMES:
                self._homes.popitem(last=False)[1].homes -= 1
        if not slot.in_flight:
            slot.busy_since = time.monotonic()
        slot.in_flight += 1
        return slot

    def serve(self) -> None:
        """Gives engines that have room to the calls that wait longest.
        If there is none for one of them, there is none for any."""
        while self.queue:
            affinity, served = self.queue[0]
            if not served.done():
                slot = self._choose(affinity)
                if slot is None:
                    return
                served.set_result(self._take(slot, affinity))
            self.queue.popleft()

    def _choose(self, affinity: str) -> _Slot | None:
        """Chooses the engine for a call, if one has room. Depends on the load only, not on the order of callers."""
        ready = [s for s in self.slots if s.ready]
        if self.held.locked() or not ready:
            return None
        least = min(ready, key=lambda s: (s.in_flight, s.homes))
        home = self._homes.get(affinity)
        if home is not None and home.ready and home.in_flight <= least.in_flight + SPILL and home.in_flight < self._cap:
            return home
        return least if least.in_flight < self._cap else None

    def release(self, slot: _Slot) -> None:
        slot.in_flight -= 1
        if not slot.in_flight:
            slot.busy_s += time.monotonic() - slot.busy_since
        self.notify()

    async def wait(self, ready: Callable[[], bool], what: str) -> None:
        """Waits until ``ready()``, which still holds on return: no other coroutine runs in between.

        One waits at a time, which is who holds ``held``.
        """
        try:
            async with asyncio.timeout(self._timeout_s):
                while not ready():
                    self._changed.clear()
                    await self._changed.wait()
        except TimeoutError:
            raise InfraError(f"waited {self._timeout_s:g} s for {what} ({self.report()}).") from None

    def notify(self) -> None:
        """Gives what can be given now, and wakes who waits for something else."""
        self.serve()
        self._changed.set()

    def report(self) -> str:
        return ", ".join(f"{s.handle.name}: {s.problem or f'ready, {s.in_flight} calls in flight'}" for s in self.slots)


class Router:
    """A policy over engines. Belongs to one event loop.

    Invariants: an answer comes from the weights last given to ``load``; counters are the router's own, so a restart of
    an engine does not lose them.

    Args:
        engines: Handles with distinct names.
        config: ``timeout_s`` bounds one attempt (waiting for an engine, and again the engine's answer), ``retries``
            the attempts after the first.
        checkpoint: Weights that must answer; empty takes those that the engines hold, until ``load``.
        cap: Calls in flight for each engine; the default is ``max_num_seqs``.
        backoff: Pauses between attempts, and between the probes of an engine in quarantine.
        probe_timeout_s: Deadline of a health check.

    Attributes:
        causes: How many calls failed, by cause.
    """

    def __init__(
        self,
        engines: Sequence[EngineHandle],
        config: PolicyConfig,
        *,
        checkpoint: str = "",
        cap: int = 0,
        backoff: Backoff = BACKOFF,
        probe_timeout_s: float = 10.0,
    ) -> None:
        if not engines or len({e.name for e in engines}) < len(engines):
            raise ValueError("a router needs engines with distinct names")
        self.checkpoint = checkpoint
        self._calls = Dispatcher(engines, cap or config.max_num_seqs, config.timeout_s)
        self._config = config
        self._backoff = backoff
        self._probe_timeout_s = probe_timeout_s
        self._stats = PolicyStats()
        self.causes: Counter[str] = Counter()

    @classmethod
    def over_actors(cls, actors: Sequence[Any], config: PolicyConfig, *, checkpoint: str = "") -> Router:
        """Makes a router over the Ray actors of ``agentr.policy.actor.start_engines``."""
        from agentr.policy.actor import RayEngine, engine_name

        return cls([RayEngine(actor, engine_name(i)) for i, actor in enumerate(actors)], config, checkpoint=checkpoint)

    async def generate(self, request: GenerateRequest) -> list[Completion]:
        """See `Policy.generate`.

        Raises:
            InfraError: Every attempt failed; names each engine and its problem.
            ContextOverflow, ModelError: The engine refused the request; another engine would refuse it, too.
        """
        failures: list[str] = []
        for attempt in range(self._config.retries + 1):
            if attempt:
                await asyncio.sleep(self._backoff.pause_s(attempt - 1))
            slot = await self._calls.acquire(request.affinity, failures)
            try:
                async with asyncio.timeout(self._config.timeout_s):
                    completions = await slot.handle.generate(request, self.checkpoint)
            except TimeoutError:
                self.causes["engine_timeout"] += 1
                self._quarantine(slot, f"no answer to a generate call within {self._config.timeout_s:g} s")
            except InfraError as error:
                self.causes["engine_stale" if isinstance(error, StaleWeights) else "engine_lost"] += 1
                self._quarantine(slot, str(error), at_once=isinstance(error, StaleWeights))
            else:
                self._stats += PolicyStats(cost_of(request, completions))
                return completions
            finally:
                self._calls.release(slot)
            failures.append(f"{slot.handle.name}: {slot.problem or 'failed, and came back meanwhile'}")
        raise InfraError(f"no completion after {len(failures)} attempts: " + "; ".join(failures) + ".")

    async def load(self, checkpoint: str) -> None:
        """Loads the weights in ``checkpoint`` into all engines that are ready.

        The others load them before their next use. If none is, the first that is started again is waited for. Calls in
        flight end first, later calls wait.

        Raises:
            InfraError: Not one engine could load them within ``timeout_s``.
            ModelError: There is no model in ``checkpoint``; the router keeps asking for the old one.
        """
        slots, wait = self._calls.slots, self._calls.wait
        try:
            async with self._calls.held:
                await wait(lambda: not self.running, "the calls in flight to end before a weight reload")
                results = await asyncio.gather(
                    *(self._load(slot, checkpoint) for slot in slots), return_exceptions=True
                )
                refused = [
                    r for r in results if isinstance(r, BaseException) and not isinstance(r, InfraError | TimeoutError)
                ]
                if refused:
                    raise refused[0]
                self.checkpoint = checkpoint
                for slot, result in zip(slots, results, strict=True):
                    if isinstance(result, BaseException):
                        self._quarantine(slot, f"loading {checkpoint}: {result or 'timed out'}")
                    else:
                        slot.problem = ""
                self._calls.notify()
                if all(isinstance(result, EngineLost) for result in results):
                    raise InfraError(f"no engine could load {checkpoint}: {self._calls.report()}.")
                if not any(slot.ready for slot in slots):  # those that died are started again, and load it then
                    await wait(lambda: any(slot.ready for slot in slots), f"an engine to load {checkpoint}")
        finally:
            self._calls.serve()

    async def stats(self) -> PolicyStats:
        """Returns the counters of answered calls. ``busy_s`` is summed over engines."""
        now = time.monotonic()
        busy_s = sum(slot.busy_s + (now - slot.busy_since if slot.in_flight else 0.0) for slot in self._calls.slots)
        return replace(self._stats, busy_s=busy_s)

    @property
    def running(self) -> int:
        """Calls in flight on engines."""
        return sum(slot.in_flight for slot in self._calls.slots)

    @property
    def waiting(self) -> int:
        """Calls that wait for an engine."""
        return len(self._calls.queue)

    def states(self) -> dict[str, str]:
        """Returns the problem of each engine in quarantine, by engine name; "" for those that are ready."""
        return {slot.handle.name: slot.problem for slot in self._calls.slots}

    def problems(self) -> dict[str, str]:
        """Returns the engines in quarantine by name, each with its problem."""
        return {name: problem for name, problem in self.states().items() if problem}

    async def close(self) -> None:
        """Ends the probes. Engines keep running."""
        probes = [slot.probe for slot in self._calls.slots if slot.probe is not None]
        for probe in probes:
            probe.cancel()
        await asyncio.gather(*probes, return_exceptions=True)

    # health -----------------------------------------------------------------------------------------------------------

    def _quarantine(self, slot: _Slot, problem: str, *, at_once: bool = False) -> None:
        """Takes an engine out of service until a probe succeeds; ``at_once`` skips the first pause."""
        slot.problem = problem
        if slot.probe is None or slot.probe.done():
            slot.probe = asyncio.create_task(self._probe(slot, at_once), name=f"probe {slot.handle.name}")

    async def _probe(self, slot: _Slot, at_once: bool) -> None:
        attempt = 0
        while slot.problem:
            if not at_once:
                await asyncio.sleep(self._backoff.pause_s(attempt))
                attempt += 1
            at_once = False
            try:
                # wait_for may swallow the cancellation by close() (Python 3.11)
                async with asyncio.timeout(self._probe_timeout_s):
                    health = await slot.handle.health()
                wanted = self.checkpoint
                if wanted and health.checkpoint != wanted:
                    await self._load(slot, wanted)
            except (AgentrError, TimeoutError) as error:
                slot.problem = f"{slot.problem.split(' [')[0]} [probe: {error or 'no answer'}]"
                continue
            if wanted == self.checkpoint:  # else another load came in between: look again
                slot.problem = ""
        self._calls.notify()

    async def _load(self, slot: _Slot, checkpoint: str) -> None:
        async with asyncio.timeout(self._config.timeout_s):
            await slot.handle.load(checkpoint)
