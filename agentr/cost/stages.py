"""The stages of a run, what there is to do in each, and how long that takes."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from agentr.config.policy import PolicyBackend
from agentr.config.training import Share, TrainConfig
from agentr.cost import speed
from agentr.cost.bounds import Bound, count_tasks
from agentr.cost.evidence import Amounts, Counts, Evidence, RowCounts
from agentr.cost.hardware import DeviceSpec, Hardware
from agentr.cost.models import training_of, width_of
from agentr.cost.number import Number, given, most
from agentr.cost.shape import Shape
from agentr.methods import methods_of
from agentr.rounds.method import Method, optimiser_steps
from agentr.rounds.plan import Plan
from agentr.store.layout import (
    CEILING,
    DEMONSTRATIONS,
    EVAL,
    PROBE,
    RECOVERIES,
    RECOVERY,
    ROLLOUTS,
    SAMPLED,
    SELECTION,
    TRAIN,
    Arm,
    arm_of,
    recovery_stage,
    title_of,
)
from agentr.types import Loss
from env_servers import registry

#: Starting parts, as so many calls: it is Python that imports. On a GPU an engine compiles and captures graphs, too.
RAY_CALLS, ENGINE_START_CALLS, TRAINER_START_CALLS, SERVERS_START_CALLS = 8e5, 2.5e6, 4e6, 2e6
GRAPHS_S = 40.0
#: How far seconds may be off beside the counts, as a factor up and down (docs/cost.md#checked).
SECONDS_FACTOR = 1.5


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


class StageForecaster:
    """Puts a run's stages together."""

    def __init__(self, plan: Plan, hardware: Hardware, shape: Shape, known: Sequence[Evidence]) -> None:
        self.plan, self.config, self.shape = plan, plan.config, shape
        self.counts = Counts(known, self.config.model, self.config.build)
        self.device = hardware.device
        self.methods = methods_of(plan)
        self._trained = False
        about = None if self.config.env.url else registry.about(self.config.env.name)
        self.limit = about.step_limit if about is not None else 0
        self.width = width_of(self.config.model)
        policy = self.config.policy
        self.workers, self.engine_count = self.config.trainer.workers, policy.engines
        self.engines = policy.engines * policy.tensor_parallel_size if self.device.gpu else 1

    # stages -----------------------------------------------------------------------------------------------------------

    def stages(self) -> Iterator[StageForecast]:
        yield self._stage(
            "start", "Ray, servers, an engine", start(self.shape, self.width, self.device), 1.0, "constants"
        )
        config, rounds = self.config, self.config.run.rounds
        warm = arm_of(0)
        if config.warm_start.enabled:
            tasks = sum(_known(count_tasks(config.env, each)) for each in config.warm_start.tasks)
            yield self._demonstrated(warm, tasks)
            yield self._training(warm, config.warm_start.train, tasks, Loss.IMITATE, warm=True)
        yield from self._measured(warm)
        steps = 0
        for number in range(1, rounds + 1):
            yield from self._round(number)
            steps += self.methods[number].optimiser_steps(self.plan.train(number), None) or 0
        for arm in self.plan.references if steps else ():
            if arm == CEILING:
                times = rounds if config.collect.fresh_tasks else 1
                yield self._demonstrated(arm, times * _known(count_tasks(config.env, config.collect.tasks)))
            train = replace(config.warm_start.train, steps=steps)
            yield self._training(arm, train, 0, Loss.IMITATE, warm=True)
            yield from self._measured(arm)

    def _demonstrated(self, arm: Arm, tasks: int) -> StageForecast:
        servers = SERVERS_START_CALLS * self.device.call
        seconds = 0.5 * tasks * (self.limit or 10) * speed.turn(self.device) + servers
        return self._stage(arm.stage(DEMONSTRATIONS), f"{tasks} tasks", seconds, 2.0, "a guess")

    def _round(self, number: int) -> Iterator[StageForecast]:
        here, method = self.plan.at(number), self.methods[number]
        arm = arm_of(number)
        tasks = _known(count_tasks(here.env, here.collect.tasks))
        grown = tasks if method.online else (method.trees(tasks) or tasks)
        train, works = self.plan.train(number), dict(method.exploration(number))
        probed = tasks if PROBE in method.stages(number) else 0
        if probed:
            works = {PROBE: works[ROLLOUTS], **works}
        for name, work in works.items():
            bound = work.max_completions(self.limit or 30)
            trees = (method.trees(tasks) or tasks) - probed if name == ROLLOUTS else grown
            amounts, factor, source = self.counts.amounts(name, here.collect.sampling, bound, self.limit or 30)
            at_once = min(here.collect.in_flight, getattr(method.config, "tasks", trees) if name == ROLLOUTS else trees)
            chains = (trees / at_once) if at_once else 0
            seconds = self._played(amounts, trees, at_once, chains, work.at_once)
            played = self._stage(arm.stage(name), f"{trees:,} trees", seconds, factor, source)
            if name == ROLLOUTS:
                yield from self._online(arm, played, method, train)
            else:
                yield played
        if not method.online:
            yield self._training(arm, train, grown, method.loss, warm=False)
        yield from self._measured(arm)

    def _measured(self, arm: Arm) -> Iterator[StageForecast]:
        config = self.config.eval
        turns = config.max_steps or self.limit or 30
        asked = {
            EVAL: config.episodes,
            SELECTION: config.episodes if config.select and not arm.reference else 0,
            SAMPLED: config.sampled,
            **{recovery_stage(beginning): int(config.recovery) for beginning in config.recovery_from},
        }
        for name, each in asked.items():
            if not each:
                continue
            selection = replace(config.tasks, split=config.select) if name == SELECTION else config.tasks
            episodes = _known(count_tasks(self.config.env, selection)) * each
            most = name in RECOVERIES  # only where the warm start went wrong
            amounts, factor, source = self.counts.amounts(RECOVERY if most else EVAL, config.sampling, turns, turns)
            at_once = min(config.in_flight, episodes)
            seconds = self._played(amounts, episodes, at_once, episodes / config.in_flight, 1)
            amount = f"{'up to ' if most else ''}{episodes:,} episodes"
            yield self._stage(arm.stage(name), amount, seconds, max(factor, 2.0) if most else factor, source)

    def _training(self, arm: Arm, train: TrainConfig, trees: int, loss: Loss, *, warm: bool) -> StageForecast:
        rows, factor, source = self.counts.rows(warm)
        steps = optimiser_steps(train, max(1, round(rows.each * trees)) if trees else None) or 1
        factor = factor if not train.steps else min(factor, 1.3)
        each = self._step(train, loss, rows)
        started = self._trainer_start()
        written = self.shape.parameters * self.width / self.device.disk
        reference = each * (0.4 * math.ceil(rows.each * trees / max(1, train.batch_size))) if loss is Loss.PREFER else 0
        seconds = given("optimiser steps", steps, source) * each + started + written + reference
        amount = f"{steps:,} steps of {train.batch_size} x {rows.tokens:.0f} tokens"
        return self._stage(arm.stage(TRAIN), amount, seconds, factor, source, trains=True)

    def _online(self, arm: Arm, played: StageForecast, method: Method, train: TrainConfig) -> Iterator[StageForecast]:
        """Yields the rollouts with the training of all steps but the last, and that of the last."""
        rows, factor, source = self.counts.rows(False)
        updates = max(1, train.grpo.updates)
        steps = method.optimiser_steps(train, None) or updates
        each = self._step(train, Loss.REINFORCE, rows)
        ways = given("ways over the disk", 1 if train.lora.rank else 2, "engines add adapters to the start's weights")
        handed = self.shape.parameters * self.width * ways / self.device.disk
        started = self._trainer_start()
        before = steps - updates
        taken = given("optimiser steps before the last", before, "method.steps") * each
        seconds = played.seconds + taken + handed * (steps / updates) + started
        times, watched = method.validations()
        if watched is not None:
            tasks = _known(count_tasks(self.config.env, watched)) * self.config.eval.episodes
            turns = self.config.eval.max_steps or self.limit or 30
            amounts, more, _ = self.counts.amounts(EVAL, self.config.eval.sampling, turns, turns)
            at_once = self.config.eval.in_flight
            seconds = seconds + times * self._played(amounts, tasks, min(at_once, tasks), tasks / at_once, 1)
            factor = max(factor, more)
        amount = f"{played.amount}, {before:,} optimiser steps"
        yield self._stage(played.name, amount, seconds, max(factor, played.factor), played.source)
        ended = given("optimiser steps of the last", updates, "train.grpo") * each
        yield self._stage(arm.stage(TRAIN), f"{updates:,} optimiser steps", ended, factor, source, trains=True)

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

    def _step(self, train: TrainConfig, loss: Loss, rows: RowCounts) -> Number:
        trainer = self.config.trainer
        job = training_of(train, loss, trainer, self.device, rows)
        return speed.step_in_a_run(self.shape, job, self.device, trainer.threads)

    def _trainer_start(self) -> Number:
        first, self._trained = not self._trained, True
        return trainer_start(self.device, self.config.trainer.share, first)

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
        device = self.device.part(min(1.0, policy.threads / (self.device.cores or 1), 1 / self.engine_count))
        step = speed.engine_step(
            self.shape,
            together,
            context,
            device,
            width=self.width,
            tensor_parallel=policy.tensor_parallel_size,
        )
        drawn = count * given("tokens drawn for a tree", each.drawn, source)
        read = count * given("prompt tokens computed for a tree", each.computed, source)
        reading = speed.prefill(
            self.shape, read, context, device, width=self.width, tensor_parallel=policy.tensor_parallel_size
        )
        engine = ((drawn / together * step + reading) / engines).named("engines' work", "s")
        turns = count * (
            given("calls of a tree", each.calls, source) + given("actions of a tree", each.actions, source)
        )
        way = speed.turn(self.device)
        handled = (turns * way / self.config.collect.coordinators).named("coordinators' and servers' work", "s")
        depth = given("calls in a row", each.calls / max(1, branches), source)
        tokens = each.drawn / max(each.completions, 1)
        serial = (depth * chains * (tokens * step + way)).named("turns in a row", "s")
        if policy.backend is PolicyBackend.openai:
            return most(handled, serial)
        work = engine * engines + handled * self.config.collect.coordinators
        return longest(self.device, work, engine, handled, serial)


def longest(device: DeviceSpec, work: Number, *seconds: Number) -> Number:
    """Seconds of parts that go on beside one another; without a GPU they have the cores for all their ``work``."""
    return most(*seconds) if device.gpu else most(*seconds, (work / device.cores).named("all cores' work", "s"))


def start(shape: Shape, width: int, device: DeviceSpec) -> Number:
    """Seconds until Ray and an engine are up."""
    calls = given("start of Ray and an engine", RAY_CALLS + ENGINE_START_CALLS, "constants") * device.call
    return calls + shape.parameters * width / device.disk + (GRAPHS_S if device.gpu else 0)


def trainer_start(device: DeviceSpec, share: Share, first: bool) -> Number:
    """Seconds until workers train. They stay up after the first training, unless engines take their GPUs."""
    stays = not device.gpu or share is Share.together
    calls = 0.0 if stays and not first else TRAINER_START_CALLS
    return given("a trainer's start", calls, "calls; 0 where its workers are up") * device.call


def _known(bound: Bound) -> int:
    return bound.value or 0
