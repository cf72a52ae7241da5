"""Simulated engines: they wait instead of computing.

An engine answers ``slots / width`` calls at a time (``width`` sequences each), each after one draw of a lognormal
latency, with turns whose action the environment carries out.
"""

import asyncio
import math
import os
import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from agentr.cluster.preflight import SESSIONS_OF_A_SERVER, SESSIONS_OF_A_TREE
from agentr.errors import ConfigError, StaleWeights
from agentr.policy import wire
from agentr.policy.base import EngineHealth, GenerateRequest
from agentr.types import Completion, FinishReason

#: Most simulated engines in one process.
SHARED = 32
#: Different turns that a process of engines draws from: making one takes longer than sending it.
_TURNS = 256


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
        servers: Environment servers; 0 means one for each 8 engines, at most 4, or as many as hold the sessions of all
            trees.
        coordinators: Processes that share the trees.
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
    coordinators: int = 1
    in_process: bool = False
    seconds: float = 20.0
    warm_s: float = 30.0
    seed: int = 0

    def __post_init__(self) -> None:
        if self.slots < self.width:
            raise ConfigError(
                f"{self.slots} slots have no room for a call of {self.width} sequences", hint="Give --slots >= --width."
            )
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
        """Returns the number of environment servers: no fewer than hold the sessions of all trees."""
        holding = math.ceil(self.in_flight(engines) * SESSIONS_OF_A_TREE / SESSIONS_OF_A_SERVER)
        return self.servers or max(holding, min(4, math.ceil(engines / 8)))


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

    async def generate(self, call: bytes, number: int) -> bytes:
        return wire.pack_answer(await self._engines[number].generate(*wire.unpack_call(call)))

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
