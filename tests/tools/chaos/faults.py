"""The faults: which part of a run is hit, in which stage, and how."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from fnmatch import fnmatchcase

from agentr.config.policy import PolicyBackend
from agentr.config.schema import Config
from agentr.errors import ConfigError
from agentr.methods import methods_of, plan_of
from agentr.rounds.plan import Plan
from agentr.store.layout import DATASET, DEMONSTRATIONS, EVAL, ROLLOUTS, TRAIN


class Part(StrEnum):
    """A process of a run."""

    engine = "engine"
    """An engine's actor."""
    environment = "environment"
    """An environment server; its supervisor lives on."""
    supervisor = "supervisor"
    """The supervisor of an environment server, and the server with it."""
    coordinator = "coordinator"
    """The coordinator."""
    worker = "worker"
    """A worker of the trainer."""
    controller = "controller"
    """Ray Train's controller, which watches the workers."""
    driver = "driver"
    """The driver; it is started again at once, as somebody who submits the run again would."""


class How(StrEnum):
    """What is done to it."""

    kill = "kill"
    """SIGKILL."""
    freeze = "freeze"
    """SIGSTOP, and SIGCONT some time later."""


@dataclass(frozen=True)
class Fault:
    """One fault.

    Attributes:
        stage: Name of the stage within its round, such as ``collect``.
    """

    stage: str
    part: Part
    how: How = How.kill

    def __str__(self) -> str:
        return f"{self.stage}:{self.part}" + ("" if self.how is How.kill else f":{self.how}")


#: What is frozen besides being killed: parts that others talk to, and that may hang.
FROZEN = (Part.engine, Part.environment, Part.coordinator, Part.worker)


def stages(plan: Plan) -> dict[str, list[Part]]:
    """Returns the stages of a run in their order, and which parts work in each."""
    config, methods = plan.config, methods_of(plan)
    serving = [Part.coordinator, Part.driver]
    if not config.env.url:
        serving = [Part.environment, Part.supervisor, *serving]
    playing = [Part.engine, *serving] if config.policy.backend is PolicyBackend.vllm else serving
    training = [Part.worker, Part.controller]
    found: dict[str, list[Part]] = {}
    if config.warm_start.enabled:
        found |= {DEMONSTRATIONS: serving, DATASET: [Part.driver], TRAIN: [*training, Part.driver]}
    for number in range(1, config.run.rounds + 1):
        for stage in (method := methods[number]).stages(number):
            if stage == DATASET:
                found[stage] = [Part.driver]
            elif stage == TRAIN:
                found |= {} if method.online else {stage: [*training, Part.driver]}
            else:
                found[stage] = [*playing[:-1], *training, Part.driver] if stage == ROLLOUTS else playing
    found[EVAL] = playing
    first = [name for name in found if name not in (DATASET, TRAIN, EVAL)]
    return {name: found[name] for name in [*first, *(name for name in (DATASET, TRAIN, EVAL) if name in found)]}


def faults(config: Config) -> list[Fault]:
    """Returns all faults that a configuration can have, in the order of its stages."""
    there = stages(plan_of(config))
    found = [Fault(stage, part) for stage, parts in there.items() for part in parts]
    frozen = [Fault(stage, part, How.freeze) for stage, parts in there.items() for part in parts if part in FROZEN]
    return sorted([*found, *frozen], key=lambda fault: list(there).index(fault.stage))


def choose(config: Config, patterns: Sequence[str]) -> list[Fault]:
    """Returns the faults that patterns such as ``collect:*``, ``*:driver`` or ``train:worker:freeze`` name; without
    any, all deaths.

    Raises:
        ConfigError: A pattern names none; says which there are.
    """
    there = faults(config)
    if not patterns:
        return [fault for fault in there if fault.how is How.kill]
    chosen: list[Fault] = []
    for pattern in patterns:
        named = [
            fault
            for fault in there
            if fnmatchcase(str(fault), pattern) and (fault.how is How.kill or pattern.count(":") == 2)
        ]
        if not named:
            raise ConfigError(
                f"no fault of this configuration is called {pattern!r}", hint=f"There are {', '.join(map(str, there))}."
            )
        chosen += named
    return [fault for fault in there if fault in chosen]


@dataclass(frozen=True)
class Strike:
    """A fault with its moment.

    Attributes:
        place: The stage of the run, such as ``rounds/01/collect``.
        after: Units of the stage that are finished first: trees, or optimiser steps.
    """

    fault: Fault
    place: str
    after: int


def schedule(chosen: Sequence[Fault], sizes: Mapping[str, tuple[int, int]]) -> list[Strike]:
    """Spreads the faults of each stage evenly over its units; the first comes as soon as the stage runs, which may last
    a second only.

    Where several rounds have the stage, it is the first of those with the most units.

    Args:
        sizes: By the stages of the undisturbed run, in their order: trees and optimiser steps.
    """
    found = []
    for place in sizes:
        name = place.rpartition("/")[2]
        largest = max(
            (other for other in sizes if other.rpartition("/")[2] == name), key=lambda other: max(sizes[other])
        )
        here = [fault for fault in chosen if fault.stage == name]
        if place == largest:
            found += [Strike(fault, place, max(sizes[place]) * i // len(here)) for i, fault in enumerate(here)]
    return found
