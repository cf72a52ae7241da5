"""Selects tasks of a split: label filters, a seeded order, a limit."""

import random
from collections.abc import Mapping, Sequence
from typing import Any

from agentr.config.schema import TaskSelection
from agentr.errors import ConfigError
from agentr.types import Task


def select(tasks: Sequence[Task], selection: TaskSelection) -> list[Task]:
    """The tasks that pass every filter, shuffled by the seed, the first ``limit`` of them.

    Raises:
        ConfigError: An unknown label, a filter that cannot be applied, a negative limit, or filters that no task
            passes.
    """
    if selection.limit is not None and selection.limit < 0:
        raise ConfigError(f"tasks.limit is {selection.limit}", hint="Use a number from 0, or null for all tasks.")
    known = sorted({label for task in tasks for label in task.labels})
    if unknown := sorted(set(selection.where) - set(known)):
        raise ConfigError(
            f"tasks of split {selection.split!r} have no label {', '.join(map(repr, unknown))}",
            hint=f"They have: {', '.join(known) or 'none'}.",
        )
    chosen = [task for task in tasks if all(passes(task, label, wanted) for label, wanted in selection.where.items())]
    if tasks and not chosen:
        raise ConfigError(
            f"no task of split {selection.split!r} passes {dict(selection.where)}", hint="Widen the filters."
        )
    random.Random(f"tasks/{selection.seed}").shuffle(chosen)
    return chosen if selection.limit is None else chosen[: selection.limit]


def passes(task: Task, label: str, wanted: Any) -> bool:
    """Checks a task's label against ``wanted``: a value, a list of values, or ``{min: .., max: ..}``, both included.

    A task without the label does not pass.

    Raises:
        ConfigError: The range has other keys, or cannot be compared with the label.
    """
    if label not in task.labels:
        return False
    value = task.labels[label]
    if isinstance(wanted, Mapping):
        if not wanted or set(wanted) - {"min", "max"}:
            raise ConfigError(
                f"the filter of label {label!r} is {dict(wanted)}", hint="A range has the keys min and max."
            )
        try:
            return wanted.get("min", value) <= value <= wanted.get("max", value)
        except TypeError as error:
            raise ConfigError(
                f"label {label!r} has values like {value!r}, which {dict(wanted)} cannot bound"
            ) from error
    if isinstance(wanted, Sequence) and not isinstance(wanted, str):
        return value in wanted
    return value == wanted
