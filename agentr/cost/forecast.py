"""A run before it is started, stage by stage: what each stage takes, how long, and what each device holds at its worst.

Counts are from ``agentr.cost.evidence``, bytes and seconds from ``agentr.cost.memory`` and ``agentr.cost.speed``.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

from agentr.config.model import Dtype, ModelConfig, ModelSource
from agentr.config.policy import PolicyBackend
from agentr.config.schema import Config
from agentr.config.text import read_yaml
from agentr.config.training import Share, TrainConfig
from agentr.cost import memory, speed
from agentr.cost.bounds import Bound, count_tasks
from agentr.cost.evidence import GUESS, Amounts, Evidence, Rows, evidence, guess, guessed_rows
from agentr.cost.hardware import GIB, Hardware
from agentr.cost.memory import Training
from agentr.cost.number import Number, given, least, most
from agentr.cost.shape import Shape, read_shape
from agentr.errors import ModelError
from agentr.methods import methods_of
from agentr.models import nano
from agentr.rounds.method import Method, optimiser_steps
from agentr.rounds.plan import Plan
from agentr.store.layout import (
    CONTROL,
    DATASET,
    DEMONSTRATIONS,
    EVAL,
    RECOVERY,
    ROLLOUTS,
    SELECTION,
    TRAIN,
    Arm,
    arm_of,
    title_of,
)
from agentr.types import Loss
from env_servers import registry

#: Starting parts, as so many calls: it is Python that imports. On a GPU an engine compiles and captures graphs, too.
RAY_CALLS, ENGINE_START_CALLS, TRAINER_START_CALLS = 8e5, 2.5e6, 1.8e6
GRAPHS_S = 40.0
#: How far seconds may be off beside the counts, as a factor up and down (docs/cost.md#checked).
SECONDS_FACTOR = 1.5
#: Memory that a machine keeps for others than a trainer's worker, in GiB: Ray, coordinator, environments, the system.
HOST_GIB = 4.0


@dataclass(frozen=True, kw_only=True)
class StageForecast:
    """What a stage takes.

    Attributes:
        name: The stage, such as ``rounds/01/collect``.
        amount: How much there is to do, in words.
        seconds: Expected.
        factor: How far that may be off, up and down.
        devices: Devices that are held meanwhile.
        source: Where its counts are from.
    """

    name: str
    amount: str
    seconds: Number
    factor: float
    devices: int
    source: str

    @property
    def low(self) -> float:
        return self.seconds.value / self.factor

    @property
    def high(self) -> float:
        return self.seconds.value * self.factor


@dataclass(frozen=True, kw_only=True)
class Need:
    """What a role needs of one device, at its worst.

    Attributes:
        role: ``trainer``, ``engine``, or both where they share a device.
        phase: When that is.
        need: Bytes.
        room: Bytes that there are.
        parts: What they are, the largest first.
        keys: Overrides that mend it if it does not fit, the cheapest first.
    """

    role: str
    phase: str
    need: Number
    room: Number
    parts: dict[str, Number]
    keys: tuple[str, ...] = ()

    @property
    def fits(self) -> bool:
        return self.need.value <= self.room.value


@dataclass(frozen=True, kw_only=True)
class Forecast:
    """What a run takes on some hardware.

    Attributes:
        parameters: Of the model.
        sources: Where counts are from, in words.
    """

    hardware: Hardware
    shape: Shape
    stages: list[StageForecast]
    needs: list[Need]
    sources: list[str]

    @property
    def fits(self) -> bool:
        return all(need.fits for need in self.needs)

    def seconds(self) -> tuple[float, float, float]:
        """Returns the least, the expected and the most seconds."""
        low, mid, high = (sum(f(s) for s in self.stages) for f in (lambda s: s.low, lambda s: s.seconds.value, lambda s: s.high))  # fmt: skip
        return low, mid, high

    def device_hours(self) -> tuple[float, float, float]:
        """Returns the same as hours of devices: those of the whole machine, for as long as the run goes on."""
        low, mid, high = (each * self.hardware.count / 3600 for each in self.seconds())
        return low, mid, high


def forecast(plan: Plan, hardware: Hardware, known: Sequence[Evidence] | None = None) -> Forecast:
    """Returns what a run takes.

    Args:
        known: Evidence, the best first; by default what is found beside the run.

    Raises:
        ModelError: The size of the model is not known.
    """
    config = plan.config
    known = evidence(config) if known is None else known
    shape = shape_of(config.model)
    found = _Forecaster(plan, hardware, shape, known)
    stages = list(found.stages())
    return Forecast(
        hardware=hardware,
        shape=shape,
        stages=stages,
        needs=list(found.needs()),
        sources=list(dict.fromkeys(found.used)),
    )


def needs(plan: Plan, hardware: Hardware) -> list[Need]:
    """Returns what each role needs of a device."""
    return list(_Forecaster(plan, hardware, shape_of(plan.config.model), ()).needs())


def shape_of(model: ModelConfig) -> Shape:
    """Returns the shape of the configured model: of its folder, or of what agentr knows of models with that name.

    Raises:
        ModelError: There is neither.
    """
    if model.source is ModelSource.nano:
        return read_shape(nano.WEIGHTS, "nano")
    name = "HuggingFaceTB/SmolLM2-135M-Instruct" if model.source is ModelSource.smollm2 else model.path
    folder = Path(name).expanduser()
    if folder.is_dir():
        return read_shape(folder)
    described = _described(file := Path(__file__).with_name("models.yaml"))
    if name not in described:
        hint = "Give model.path as a folder with config.json; its weights need not be there."
        raise ModelError(f"the size of {name} is not known here", hint=hint)
    return Shape.of(described[name], name, f"{file.name}: {name}")


@cache
def _described(file: Path) -> dict[str, Any]:
    return read_yaml(file)


class _Forecaster:
    """Puts a run's stages together."""

    def __init__(self, plan: Plan, hardware: Hardware, shape: Shape, known: Sequence[Evidence]) -> None:
        self.plan, self.config, self.hardware, self.shape, self.known = plan, plan.config, hardware, shape, known
        self.device = hardware.device
        self.methods = methods_of(plan)
        self.used: list[str] = []
        about = None if self.config.env.url else registry.about(self.config.env.name)
        self.limit = about.step_limit if about is not None else 0
        self.width = 4 if self.config.model.dtype is Dtype.float32 else 2
        self.bf16 = self.device.gpu

    # evidence ---------------------------------------------------------------------------------------------------------

    def _amounts(self, stage: str, config: Config, bound: int, turns: int) -> tuple[Amounts, float, str]:
        for one in self.known:
            if (found := one.of_trees(stage)) is not None:
                self.used.append(f"counts of {stage}: {one.source}")
                return found, one.factor, one.source
        self.used.append(f"counts of {stage}: a guess")
        return guess(config, bound, turns), GUESS, "a guess"

    def _rows(self, warm: bool, config: Config) -> tuple[Rows, float, str]:
        for one in self.known:
            if (found := one.of_rows(warm)) is not None:
                return found, one.factor, one.source
        return guessed_rows(config), GUESS, "a guess"

    # stages -----------------------------------------------------------------------------------------------------------

    def stages(self) -> Iterator[StageForecast]:
        yield self._stage("start", "Ray, servers, an engine", self._start(), 1.0, "constants")
        config, rounds = self.config, self.config.run.rounds
        warm = arm_of(0)
        if config.warm_start.enabled:
            tasks = sum(_known(count_tasks(config.env, each)) for each in config.warm_start.tasks)
            turns = (0.5 * tasks * (self.limit or 10)) * speed.TURN_CALLS * self.device.call
            yield self._stage(warm.stage(DEMONSTRATIONS), f"{tasks} tasks", turns, 2.0, "a guess")
            yield self._training(warm, config.warm_start.train, tasks, Loss.IMITATE, warm=True)
        yield from self._measured(warm)
        steps = 0
        for number in range(1, rounds + 1):
            here, method = self.plan.at(number), self.methods[number]
            yield from self._round(number, here, method)
            steps += method.optimiser_steps(self.plan.train(number), None) or 0
        if config.run.control and rounds and steps:
            train = replace(config.warm_start.train, steps=steps)
            yield self._training(CONTROL, train, 0, Loss.IMITATE, warm=True)
            yield from self._measured(CONTROL)

    def _round(self, number: int, here: Config, method: Method) -> Iterator[StageForecast]:
        arm = arm_of(number)
        tasks = _known(count_tasks(here.env, here.collect.tasks))
        grown = tasks if method.online else (method.trees(tasks) or tasks)
        for name, work in method.exploration(number).items():
            bound = work.max_completions(self.limit or 30)
            trees = grown
            if name == ROLLOUTS:
                trees = (method.trees(tasks) or tasks) - (tasks if len(method.exploration(number)) > 1 else 0)
            amounts, factor, source = self._amounts(name, here, bound, self.limit or 30)
            at_once = min(here.collect.in_flight, getattr(method.config, "tasks", trees) if name == ROLLOUTS else trees)
            chains = (trees / at_once) if at_once else 0
            seconds = self._played(amounts, trees, at_once, chains, work.at_once)
            yield self._stage(arm.stage(name), f"{trees:,} trees", seconds, factor, source)
        train = self.plan.train(number)
        if method.online:
            yield self._online(arm, number, method, train)
        else:
            yield self._training(arm, train, grown, method.loss, warm=False)
        yield from self._measured(arm)

    def _measured(self, arm: Arm) -> Iterator[StageForecast]:
        config = self.config.eval
        turns = config.max_steps or self.limit or 30
        for name, selection in ((EVAL, config.tasks), (SELECTION, replace(config.tasks, split=config.select))):
            if name == SELECTION and (not config.select or arm == CONTROL):
                continue
            tasks = _known(count_tasks(self.config.env, selection)) * config.episodes
            amounts, factor, source = self._amounts(EVAL, self.config, turns, turns)
            seconds = self._played(amounts, tasks, min(config.in_flight, tasks), tasks / config.in_flight, 1)
            yield self._stage(arm.stage(name), f"{tasks:,} episodes", seconds, factor, source)
        if config.recovery:
            amounts, factor, source = self._amounts(RECOVERY, self.config, turns, turns)
            tasks = _known(count_tasks(self.config.env, config.tasks))
            seconds = self._played(amounts, tasks, min(config.in_flight, tasks), tasks / config.in_flight, 1)
            yield self._stage(arm.stage(RECOVERY), f"up to {tasks:,} episodes", seconds, max(factor, 2.0), source)

    def _training(self, arm: Arm, train: TrainConfig, trees: int, loss: Loss, *, warm: bool) -> StageForecast:
        rows, factor, source = self._rows(warm, self.config)
        steps = optimiser_steps(train, max(1, round(rows.each * trees)) if trees else None) or 1
        factor = factor if not train.steps else min(factor, 1.3)
        job = self.job(train, loss, rows)
        each = speed.optimiser_step(self.shape, job, self.device)
        started = given("a trainer's start", TRAINER_START_CALLS, "calls") * self.device.call
        written = self.shape.parameters * self.width / self.device.disk
        reference = each * (0.4 * math.ceil(rows.each * trees / max(1, train.batch_size))) if loss is Loss.PREFER else 0
        seconds = given("optimiser steps", steps, source) * each + started + written + reference
        amount = f"{steps:,} steps of {train.batch_size} x {rows.tokens:.0f} tokens"
        return self._stage(arm.stage(TRAIN), amount, seconds, factor, source, trains=True)

    def _online(self, arm: Arm, number: int, method: Method, train: TrainConfig) -> StageForecast:
        rows, factor, source = self._rows(False, self.config)
        steps = method.optimiser_steps(train, None) or 1
        each = speed.optimiser_step(self.shape, self.job(train, Loss.REINFORCE, rows), self.device)
        handed = self.shape.parameters * self.width * 2 / self.device.disk
        started = TRAINER_START_CALLS * self.device.call
        updates = max(1, train.grpo.updates)
        seconds = given("optimiser steps", steps, "method.steps") * each + handed * (steps / updates) + started
        times, watched = method.validations()
        if watched is not None:
            tasks = _known(count_tasks(self.config.env, watched)) * self.config.eval.episodes
            turns = self.config.eval.max_steps or self.limit or 30
            amounts, more, _ = self._amounts(EVAL, self.config, turns, turns)
            at_once = self.config.eval.in_flight
            seconds = seconds + times * self._played(amounts, tasks, min(at_once, tasks), tasks / at_once, 1)
            factor = max(factor, more)
        return self._stage(arm.stage(TRAIN), f"{steps:,} optimiser steps", seconds, factor, source, trains=True)

    def _stage(
        self, name: str, amount: str, seconds: Number, factor: float, source: str, *, trains: bool = False
    ) -> StageForecast:
        return StageForecast(
            name=name,
            amount=amount,
            seconds=seconds.named(title_of(name), "s"),
            factor=max(SECONDS_FACTOR, factor),
            devices=self.workers if trains else self.engines,
            source=source,
        )

    # seconds ----------------------------------------------------------------------------------------------------------

    def _start(self) -> Number:
        calls = given("start of Ray and an engine", RAY_CALLS + ENGINE_START_CALLS, "constants") * self.device.call
        weights = self.shape.parameters * self.width / self.device.disk
        return calls + weights + (GRAPHS_S if self.device.gpu else 0)

    def _played(self, each: Amounts, trees: int, at_once: int, chains: float, branches: int) -> Number:
        """Seconds in which trees grow or episodes are played: the engines' work, the coordinators' and the servers', or
        the turns that come one after another, whatever is longest."""
        if not trees:
            return given("nothing", 0, "", "s")
        policy = self.config.policy
        count, source = given("trees", trees, "the configuration"), "evidence"
        per_call = max(1.0, each.completions / max(each.calls, 1e-9))
        engines = given("engines", self.engine_count, "policy.engines")
        wanted = at_once * branches * per_call / self.engine_count
        together = max(1.0, min(wanted, policy.max_num_seqs))
        context = (each.prompt / each.calls if each.calls else 0) + 0.5 * each.drawn / max(each.completions, 1)
        step = speed.engine_step(
            self.shape,
            together,
            context,
            self.device,
            width=self.width,
            tensor_parallel=policy.tensor_parallel_size,
        )
        drawn = count * given("tokens drawn for a tree", each.drawn, source)
        read = count * given("prompt tokens computed for a tree", each.computed, source)
        reading = speed.prefill(
            self.shape, read, context, self.device, width=self.width, tensor_parallel=policy.tensor_parallel_size
        )
        engine = ((drawn / together * step + reading) / engines).named("engines' work", "s")
        turns = count * (
            given("calls of a tree", each.calls, source) + given("actions of a tree", each.actions, source)
        )
        handled = (turns * speed.TURN_CALLS * self.device.call / self.config.collect.coordinators).named(
            "coordinators' and servers' work", "s"
        )
        depth = given("calls in a row", each.calls / max(1, branches), source)
        tokens = each.drawn / max(each.completions, 1)
        serial = (depth * chains * (tokens * step + speed.TURN_CALLS * self.device.call)).named("turns in a row", "s")
        if policy.backend is PolicyBackend.openai:
            return most(handled, serial)
        if self.device.cores and self.device.cores < 4:  # they share the cores
            return least(engine + handled, most(engine, handled, serial) * 2)
        return most(engine, handled, serial)

    # devices ----------------------------------------------------------------------------------------------------------

    @property
    def workers(self) -> int:
        return self.config.trainer.workers

    @property
    def engine_count(self) -> int:
        return self.config.policy.engines

    @property
    def engines(self) -> int:
        return self.engine_count * self.config.policy.tensor_parallel_size if self.device.gpu else 1

    def job(self, train: TrainConfig, loss: Loss, rows: Rows | None = None) -> Training:
        """Returns what an optimiser step is made of; without evidence, of rows as long as they may be."""
        sides = 2 if loss is Loss.PREFER else 1
        return Training(
            workers=self.workers,
            rows=train.micro_batch_size * sides,
            batch=train.batch_size * sides,
            longest=train.max_length,
            mean=rows.tokens if rows is not None else train.max_length,
            trained=rows.trained if rows is not None else 1.0,
            bf16=self.bf16 if train.bf16 is None else train.bf16,
            checkpointing=train.gradient_checkpointing,
            rank=train.lora.rank,
            reference=loss is Loss.REINFORCE and train.grpo.kl > 0,
        )

    def trainings(self) -> dict[str, tuple[TrainConfig, Loss, bool]]:
        """Returns the trainings of a run that differ: how, on what loss, and whether engines are up beside it."""
        found: dict[str, tuple[TrainConfig, Loss, bool]] = {}
        if self.config.warm_start.enabled:
            found["warm start"] = (self.config.warm_start.train, Loss.IMITATE, False)
        for number in range(1, self.config.run.rounds + 1):
            method = self.methods[number]
            entry = (self.plan.train(number), method.loss, method.online)
            if entry not in found.values():
                found[f"round {number}"] = entry
        return found

    def needs(self) -> Iterator[Need]:
        policy, share = self.config.policy, self.config.trainer.share
        room = self.device.memory
        if not self.device.gpu:
            cache = given("engine's cache", policy.kv_cache_gib * GIB * policy.engines, "policy.kv_cache_gib", "B")
            engine = (self.shape.parameters * self.width * policy.engines).named("engines' weights", "B")
            rest = given("Ray, coordinator, environments, the system", HOST_GIB * GIB, "a constant", "B")
            for where, (train, loss, _) in self.trainings().items():
                job = self.job(train, loss)
                phase, _ = memory.worst(phases := memory.trainer_memory(self.shape, job, self.device))
                each = {name: part * self.workers for name, part in phases[phase].items()}
                parts = {**each, "engine's cache": cache, "engines' weights": engine, "the rest": rest}
                yield self._need(f"machine, {where}", phase, parts, room, self._keys(train))
            return
        if policy.backend is not PolicyBackend.openai:
            parts = memory.engine_memory(
                self.shape, self.width, policy.tensor_parallel_size, policy.gpu_memory_utilization, self.device
            )
            kv = self.shape.kv_token(self.width) / min(policy.tensor_parallel_size, self.shape.kv_heads)
            one = (kv * self.config.model.max_model_len).named("cache of the longest context", "B")
            taken = (room * policy.gpu_memory_utilization).named("an engine's share", "B")
            fixed = {"weights": parts["weights"], "work space": parts["work space"], "cache of one context": one}
            bigger = min(2 * policy.tensor_parallel_size, self.device.per_node)
            keys = ("policy.gpu_memory_utilization=0.9", f"policy.tensor_parallel_size={bigger}")
            yield self._need("engine", "drawing", fixed, taken, keys)
        for where, (train, loss, online) in self.trainings().items():
            job = self.job(train, loss)
            phase, _ = memory.worst(phases := memory.trainer_memory(self.shape, job, self.device))
            beside = share is Share.together or (online and share is Share.time)
            left = (room * (1 - policy.gpu_memory_utilization)).named("what an engine leaves", "B") if beside else room
            keys = self._keys(train)
            if beside:
                keys = (f"policy.gpu_memory_utilization={max(0.3, policy.gpu_memory_utilization - 0.2):.2f}", *keys)
            yield self._need(f"trainer, {where}", phase, phases[phase], left, keys)

    def _need(self, role: str, phase: str, parts: dict[str, Number], room: Number, keys: tuple[str, ...]) -> Need:
        ordered = dict(sorted(parts.items(), key=lambda item: -item[1].value))
        need = memory.total(ordered).named(f"{role}: {phase}", "B")
        return Need(role=role, phase=phase, need=need, room=room, parts=ordered, keys=keys)

    def _keys(self, train: TrainConfig) -> tuple[str, ...]:
        """What makes a training smaller, from what costs least."""
        keys = []
        if train.micro_batch_size > 1:
            keys.append("train.0.micro_batch_size=1")
        if not train.gradient_checkpointing:
            keys.append("train.0.gradient_checkpointing=true")
        if self.workers < self.hardware.count:
            keys.append(f"trainer.workers={self.hardware.count}")
        if not train.lora.rank:
            keys.append("train.0.lora.rank=16")
        return tuple(keys)


def _known(bound: Bound) -> int:
    return bound.value or 0
