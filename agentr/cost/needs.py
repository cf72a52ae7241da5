"""What each role needs of a device, whether it fits, and what makes it fit."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from agentr.config.policy import PolicyBackend
from agentr.config.training import Share, TrainConfig
from agentr.cost import memory
from agentr.cost.hardware import GIB, Hardware
from agentr.cost.models import shape_of, training_of, width_of
from agentr.cost.number import Number, given, shown
from agentr.cost.shape import Shape
from agentr.errors import ConfigError
from agentr.methods import methods_of
from agentr.rounds.plan import Plan
from agentr.types import Loss

#: Parts of memory that depend on how long rows and contexts are.
_VARYING = ("activations", "output layer", "fragments", "cache of the longest context", "engines' cache", "the rest")
#: Memory that a machine keeps for others than a trainer's workers: Ray, coordinator, environments, the system.
_HOST = 4.0 * GIB
#: Rank of adapters where all weights do not fit.
RANK = 16


@dataclass(frozen=True, kw_only=True)
class MemoryNeed:
    """What a role needs of one device, at its worst.

    Attributes:
        role: ``engine``, or ``trainer`` and of which round.
        phase: When that is.
        need: Bytes.
        room: Bytes that there are.
        parts: What they are, the largest first.
        keys: Overrides that together mend it if it does not fit, from what costs least; empty if nothing does.
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


def needs(plan: Plan, hardware: Hardware, shape: Shape | None = None) -> list[MemoryNeed]:
    """Returns what each role needs of a device.

    Raises:
        ModelError: The size of the model is not known.
    """
    shape = shape or shape_of(plan.config.model)
    return list(_on_gpus(plan, hardware, shape) if hardware.device.gpu else _on_a_machine(plan, hardware, shape))


def require_room(found: list[MemoryNeed], title: str) -> None:
    """Refuses what cannot fit, however short rows are.

    Args:
        title: Of the device.

    Raises:
        ConfigError: What is there at all times is more than a device has.
    """
    for need in found:
        always = sum(part.value for name, part in need.parts.items() if name not in _VARYING)
        if always > need.room.value:
            mended = f"Set {' '.join(need.keys)}. " if need.keys else ""
            raise ConfigError(
                f"{need.role} needs at least {shown(always, 'B')}, and {title} has {need.room.shown()} for it",
                hint=f"{mended}'agentr plan' looks for what fits.",
            )


def trainings(plan: Plan) -> dict[str, tuple[str, TrainConfig, Loss, bool]]:
    """Returns the trainings of a run that differ, by where they are: the key of their section, how, on what loss, and
    whether engines are up beside it."""
    found: dict[str, tuple[str, TrainConfig, Loss, bool]] = {}
    if plan.config.warm_start.enabled:
        found["warm start"] = ("warm_start.train", plan.config.warm_start.train, Loss.IMITATE, False)
    methods = methods_of(plan)
    for number in range(1, plan.config.run.rounds + 1):
        method, train = methods[number], plan.train(number)
        before = [entry[1:] for entry in found.values()]
        if (train, method.loss, method.online) not in before:
            place = min(number, len(plan.at(number).train)) - 1
            changes = [
                n for n in sorted(plan.config.from_round) if n <= number and "train" in plan.config.from_round[n]
            ]
            section = f"from_round.{changes[-1]}.train.{place}" if changes else f"train.{place}"
            found[f"round {number}"] = (section, train, method.loss, method.online)
    return found


def _on_a_machine(plan: Plan, hardware: Hardware, shape: Shape) -> Iterator[MemoryNeed]:
    policy, workers = plan.config.policy, plan.config.trainer.workers
    beside = {
        "engines' cache": given(
            "engines' cache", policy.kv_cache_gib * GIB * policy.engines, "policy.kv_cache_gib", "B"
        ),
        "engines' weights": (shape.parameters * width_of(plan.config.model) * policy.engines).named(
            "engines' weights", "B"
        ),
        "the rest": given("the rest", _HOST, "a constant: Ray, coordinator, environments, the system", "B"),
    }

    def parts(train: TrainConfig, loss: Loss) -> tuple[str, dict[str, Number]]:
        found = memory.trainer_memory(
            shape, training_of(train, loss, plan.config.trainer, hardware.device), hardware.device
        )
        phase, _ = memory.worst(found)
        return phase, {**{name: part * workers for name, part in found[phase].items()}, **beside}

    for where, (section, train, loss, _) in trainings(plan).items():
        yield _need(
            f"trainer, {where}",
            *parts(train, loss),
            hardware.device.memory,
            _mended(section, train, loss, parts, hardware.device.memory),
        )


def _on_gpus(plan: Plan, hardware: Hardware, shape: Shape) -> Iterator[MemoryNeed]:
    policy, trainer, device = plan.config.policy, plan.config.trainer, hardware.device
    width, split, share = width_of(plan.config.model), policy.tensor_parallel_size, policy.gpu_memory_utilization
    if policy.backend is not PolicyBackend.openai:
        held = memory.engine_memory(shape, width, split, share, device)
        kv = shape.kv_token(width) / min(split, shape.kv_heads) * plan.config.model.max_model_len
        fixed = {
            "weights": held["weights"],
            "work space": held["work space"],
            "cache of the longest context": kv.named("cache of the longest context", "B"),
        }
        room = (device.memory * share).named("an engine's share", "B")
        keys = []
        if share < 0.9:
            keys.append("policy.gpu_memory_utilization=0.9")
        if (wider := 2 * split) <= device.per_node and shape.heads % wider == 0:
            keys.append(f"policy.tensor_parallel_size={wider}")
        yield _need("engine", "drawing", fixed, room, tuple(keys))

    def parts(train: TrainConfig, loss: Loss) -> tuple[str, dict[str, Number]]:
        found = memory.trainer_memory(shape, training_of(train, loss, trainer, device), device)
        phase, _ = memory.worst(found)
        return phase, found[phase]

    for where, (section, train, loss, online) in trainings(plan).items():
        beside = policy.backend is not PolicyBackend.openai and (
            trainer.share is Share.together or (online and trainer.share is Share.time)
        )
        room = (device.memory * (1 - share)).named("what an engine leaves", "B") if beside else device.memory
        yield _need(f"trainer, {where}", *parts(train, loss), room, _mended(section, train, loss, parts, room))


def _need(role: str, phase: str, parts: dict[str, Number], room: Number, keys: tuple[str, ...]) -> MemoryNeed:
    ordered = dict(sorted(parts.items(), key=lambda item: -item[1].value))
    need = memory.total(ordered).named(f"{role}: {phase}", "B")
    return MemoryNeed(
        role=role, phase=phase, need=need, room=room, parts=ordered, keys=keys if need.value > room.value else ()
    )


def _mended(section: str, train: TrainConfig, loss: Loss, parts: Any, room: Number) -> tuple[str, ...]:
    """Returns what makes a training fit, one after another from what costs least; empty if all of it is not enough."""
    steps = [
        ("micro_batch_size", 1, replace(train, micro_batch_size=1)),
        ("gradient_checkpointing", True, replace(train, micro_batch_size=1, gradient_checkpointing=True)),
        (
            "lora.rank",
            RANK,
            replace(
                train,
                micro_batch_size=1,
                gradient_checkpointing=True,
                lora=replace(train.lora, rank=train.lora.rank or RANK),
            ),
        ),
    ]
    keys: list[str] = []
    before = train
    for key, value, changed in steps:
        if changed == before:
            continue
        before = changed
        keys.append(f"{section}.{key}={str(value).lower()}")
        if memory.total(parts(changed, loss)[1]).value <= room.value:
            return tuple(keys)
    return ()
