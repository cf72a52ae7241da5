"""The parts of a run that are placed by themselves, and which nodes their labels select."""

import re
from enum import StrEnum

#: Ray's label of a node's role, and the roles that the cluster files of ``ray_jobs`` give.
LABEL = "agentr-role"
NODE_ROLES = ("head", "env", "rollout", "train")


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
