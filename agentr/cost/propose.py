"""Looks for what fits on some hardware and is fastest, as overrides to copy."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, replace
from enum import Enum
from itertools import product
from typing import Any

from agentr.cluster.places import Places
from agentr.config.model import Dtype
from agentr.config.policy import Device
from agentr.config.training import Share
from agentr.cost.evidence import Evidence
from agentr.cost.forecast import Forecast, forecast
from agentr.cost.hardware import Hardware
from agentr.cost.models import shape_of
from agentr.cost.needs import RANK, needs
from agentr.rounds.plan import Plan

#: Shares of a GPU's memory for an engine beside a trainer, besides the configured one.
_BESIDE = (0.3, 0.4, 0.5, 0.6)
#: Share of the room that what is proposed may take: formulas are not exact.
MARGIN = 0.92
#: How much longer something may take than the fastest and be as good.
CLOSE = 1.15
#: Sequences that an engine on a GPU decodes together, at least.
_SEQUENCES = 256


@dataclass(frozen=True)
class Proposal:
    """What to change, and what comes of it.

    Attributes:
        overrides: As on the command line; none if the configuration is best as it is.
        forecast: With them.
    """

    overrides: tuple[str, ...]
    forecast: Forecast


def propose(plan: Plan, hardware: Hardware, known: Sequence[Evidence]) -> Proposal | None:
    """Returns the fastest of what fits; None if nothing does. Of what takes about as long it is the one that changes
    least. All weights are trained where that fits.

    Args:
        known: Evidence about the run.
    """
    heads = shape_of(plan.config.model).heads
    # whole weights on each worker, split ones, and adapters where neither fits
    for rank, zero in ((0, 2), (0, 3), (RANK, 2)):
        fitting: dict[object, Proposal] = {}
        for change in (*_as_it_is(plan, hardware, rank, zero), *_changes(plan, heads, hardware, rank, zero)):
            if change.takes in fitting:  # with another share of the memory, which costs no time
                continue
            tried = change.made(plan)
            if all(need.need.value <= MARGIN * need.room.value for need in needs(tried, hardware)):
                fitting[change.takes] = Proposal(change.overrides(plan), forecast(tried, hardware, known))
        if fitting:
            fastest = min(found.forecast.seconds()[1] for found in fitting.values())
            close = [found for found in fitting.values() if found.forecast.seconds()[1] <= CLOSE * fastest]
            return min(close, key=lambda found: (len(found.overrides), found.forecast.seconds()[1]))
    return None


@dataclass(frozen=True)
class _Change:
    """What is tried.

    Attributes:
        machine: Keys of the sections ``policy``, ``trainer`` and ``model``.
        training: Keys of every training.
    """

    machine: Mapping[str, Any]
    training: Mapping[str, Any]

    @property
    def takes(self) -> object:
        """Returns what of it decides how long a run takes."""
        machine = {key: value for key, value in self.machine.items() if key != "policy.gpu_memory_utilization"}
        return (*machine.items(), *self.training.items())

    def made(self, plan: Plan) -> Plan:
        """Returns the run with it."""
        config, *rounds = deepcopy([plan.config, *plan.rounds])
        for each in (config, *rounds):
            for key, value in self.machine.items():
                section, name = key.split(".")
                setattr(getattr(each, section), name, value)
            for train in (*each.train, each.warm_start.train):
                for key, value in self.training.items():
                    _set(train, key, value)
        return replace(plan, config=config, rounds=tuple(rounds), places=Places.of(config, plan.places.online))

    def overrides(self, plan: Plan) -> tuple[str, ...]:
        """Returns what of it is not so already, as on the command line."""
        config = plan.config
        found = [(key, value, _get(config, key)) for key, value in self.machine.items()]
        wheres: list[tuple[str, Any]] = [(f"train.{i}", train) for i, train in enumerate(config.train)]
        if config.warm_start.enabled:
            wheres.append(("warm_start.train", config.warm_start.train))
        for round_, sections in config.from_round.items():
            wheres += [(f"from_round.{round_}.train.{i}", train) for i, train in enumerate(sections.get("train") or ())]
        for where, train in wheres:
            found += [(f"{where}.{key}", value, _get(train, key)) for key, value in self.training.items()]
        return tuple(f"{key}={_written(value)}" for key, value, before in found if value != before)


def _as_it_is(plan: Plan, hardware: Hardware, rank: int, zero: int) -> Iterator[_Change]:
    """Yields the configuration without a change, if there are enough devices for it."""
    if not rank and zero == 2 and devices_of(plan) <= hardware.count:
        yield _Change({}, {})


def _changes(plan: Plan, heads: int, hardware: Hardware, rank: int, zero: int) -> Iterator[_Change]:
    """Yields what may be set."""
    if not hardware.device.gpu:
        slow = plan.config.model.dtype is Dtype.bfloat16 and not hardware.device.bf16
        dtypes: list[dict[str, Any]] = [{}, {"model.dtype": Dtype.float32}] if slow else [{}]
        cores = hardware.device.cores
        for dtype, workers in product(dtypes, {1, cores} if zero == 2 else ()):
            machine = {**dtype, "trainer.workers": workers, "trainer.threads": cores // workers}
            yield from (_Change(machine, training) for training in _cuts(plan, workers, rank))
        return
    for share in Share:
        for for_engines, workers in _splits(hardware.count, share):
            if zero == 3 and workers == 1:
                continue
            for parallel in (1, 2, 4, 8):
                if for_engines % parallel or parallel > hardware.device.per_node or heads % parallel:
                    continue
                beside = share is Share.together or (plan.places.online and share is Share.time)
                own = plan.config.policy.gpu_memory_utilization
                for memory in (own, *_BESIDE) if beside else (own,):
                    machine = {
                        "policy.device": Device.gpu if plan.config.policy.device is Device.cpu else Device.auto,
                        "policy.engines": for_engines // parallel,
                        "policy.tensor_parallel_size": parallel,
                        "policy.gpu_memory_utilization": memory,
                        "policy.max_num_seqs": max(plan.config.policy.max_num_seqs, _SEQUENCES),
                        "trainer.use_gpu": True,
                        "trainer.share": share,
                        "trainer.zero": zero,
                        "trainer.workers": workers,
                    }
                    yield from (_Change(machine, training) for training in _cuts(plan, workers, rank))


def devices_of(plan: Plan) -> int:
    """Returns how many GPUs a configuration asks for."""
    policy, trainer = plan.config.policy, plan.config.trainer
    engines = policy.engines * policy.tensor_parallel_size if policy.device is not Device.cpu else 0
    workers = trainer.workers if trainer.use_gpu else 0
    return engines + workers if trainer.share is Share.split else max(engines, workers, 1)


def _splits(count: int, share: Share) -> Iterator[tuple[int, int]]:
    """Yields GPUs of engines and workers."""
    if share is not Share.split:
        yield count, count
    else:
        yield from ((engines, count - engines) for engines in range(1, count))


def _cuts(plan: Plan, workers: int, rank: int) -> Iterator[dict[str, Any]]:
    """Yields how trainings may be cut: rows of a micro-batch that divide every batch, and whether activations are
    computed again."""
    trains = [train for each in (plan.config, *plan.rounds) for train in each.train]
    if plan.config.warm_start.enabled:
        trains.append(plan.config.warm_start.train)
    ranks = {train.lora.rank for train in trains}
    if rank and 0 not in ranks:
        return
    for micro in (1, 2, 4, 8, 16, 32):
        if all(train.batch_size % (micro * workers) == 0 for train in trains):
            for again in (False, True):
                found: dict[str, Any] = {"micro_batch_size": micro, "gradient_checkpointing": again}
                yield {**found, "lora.rank": rank} if rank else found


def _get(place: Any, key: str) -> Any:
    """Returns what a section, or the data of one, says of a key; None if it says nothing."""
    for name in key.split("."):
        place = place.get(name) if isinstance(place, Mapping) else getattr(place, name, None)
    return place


def _set(place: Any, key: str, value: Any) -> None:
    *above, last = key.split(".")
    for name in above:
        place = getattr(place, name)
    setattr(place, last, value)


def _written(value: Any) -> str:
    if isinstance(value, Enum):
        return str(value.value)
    return str(value).lower() if isinstance(value, bool) else f"{value:g}" if isinstance(value, float) else str(value)
