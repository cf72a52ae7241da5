"""What runs where: the Ray options of each part's actors."""

from __future__ import annotations

import re
from enum import StrEnum
from typing import Any

from agentr.config.policy import Device, PolicyBackend
from agentr.config.schema import Config
from agentr.config.training import Share

#: Ray's label of a node's role, and the roles that the cluster files of ``ray_jobs`` give.
LABEL = "agentr-role"
NODE_ROLES = ("head", "env", "rollout", "train")
_MORE_THAN_HALF = 0.51


class Role(StrEnum):
    """A part of a run that is placed by itself."""

    driver = "driver"
    coordinator = "coordinator"
    environment = "environment"
    engine = "engine"
    trainer = "trainer"


#: How the names of each role's actors begin.
_NAMES = {Role.engine: r"rollout-\d+-", Role.environment: r"env-.+-\d+-", Role.coordinator: r"coordinator-"}


def role_of(name: str) -> Role | None:
    """Returns the role of an actor by its name; None for actors that are no part of a run by themselves."""
    return next((role for role, pattern in _NAMES.items() if re.match(pattern, name or "")), None)


def selector(config: Config, role: Role) -> dict[str, str]:
    """Returns the labels that a role's nodes must have, as Ray's label selectors say it."""
    # Ray takes "in(a, b)" and then looks for " b".
    return {key: condition.replace(" ", "") for key, condition in getattr(config.cluster.nodes, role.value).items()}


def options(config: Config, role: Role, *, gpus: float = 0, spread: bool = False) -> dict[str, Any]:
    """Returns the Ray options of an actor.

    It reserves no CPUs: trees, servers and engines wait most of the time, and where engine and trainer take turns on two cores a
    reservation would leave none for the other. GPUs are reserved, all on one node, since an actor's request is never split.

    Args:
        spread: Put each actor on the node with the fewest.
    """
    found: dict[str, Any] = {"num_cpus": 0, "num_gpus": gpus, "max_restarts": -1, "max_task_retries": 0}
    if labels := selector(config, role):
        found["label_selector"] = labels
    if spread:
        found["scheduling_strategy"] = "SPREAD"
    return found


def booked(config: Config, gpus_there: float, online: bool) -> tuple[float, float]:
    """Returns the GPUs that each engine and each trainer worker books, where it runs on GPUs.

    On a GPU that the two share the engine books more than half and the worker the rest, so that no two engines come to be on one GPU.

    Args:
        gpus_there: GPUs that the cluster has now, for ``policy.device=auto``.
        online: Whether a method of the run trains while its engines are up.
    """
    policy, trainer = config.policy, config.trainer
    apart = trainer.share is Share.split or (trainer.share is Share.time and not online)
    if apart or not trainer.use_gpu or policy.backend is not PolicyBackend.vllm or not engines_on_gpu(config, gpus_there):
        return policy.tensor_parallel_size, 1
    engine = max(policy.gpu_memory_utilization, _MORE_THAN_HALF)
    return engine, round(1 - engine, 4)  # Ray counts in ten thousandths


def sleeping(config: Config, gpus_there: float, online: bool) -> bool:
    """Returns whether engines sleep while a trainer on their GPUs trains; the arguments are those of ``booked``."""
    return online and config.trainer.share is Share.time and config.trainer.use_gpu and engines_on_gpu(config, gpus_there)


def engines_on_gpu(config: Config, gpus_there: float) -> bool:
    """Returns whether engines run on GPUs: the configuration's word, and only without one what the cluster has now."""
    return config.policy.device is Device.gpu or (config.policy.device is Device.auto and gpus_there > 0)


def matches(labels: dict[str, str], wanted: dict[str, str]) -> bool:
    """Returns whether a node with these labels is one that a selector selects, as Ray decides it."""
    return all(_holds(labels.get(key), condition) for key, condition in wanted.items())


def _holds(value: str | None, condition: str) -> bool:
    negated = condition.startswith("!")
    return (value in values_of(condition)) != negated


def values_of(condition: str) -> list[str]:
    """Returns the values that a condition of a selector names: those of ``a``, ``!a``, ``in(a, b)``, ``!in(a, b)``."""
    inner = condition.removeprefix("!")
    if inner.startswith("in(") and inner.endswith(")"):
        return inner[3:-1].split(",")
    return [inner]
