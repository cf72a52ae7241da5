"""The split guard: nothing that is held out for evaluation is trained on."""

from collections.abc import Iterable, Mapping

from agentr.errors import ConfigError
from agentr.types import Task
from env_servers.protocol import EnvironmentSpec

#: Most task ids that one message lists.
MAX_LISTED = 5


def assert_trainable(tasks: Iterable[Task], spec: EnvironmentSpec, held_out: Mapping[str, str]) -> None:
    """Refuses tasks that a training stage must not see.

    A task is refused for the split it was selected from, and also for its id, should a train split list a held-out
    task.

    Args:
        held_out: Every task id of the splits that are not for training, with the name of its split
            (`EnvClient.held_out`).

    Raises:
        ConfigError: At least one task is held out, or is of a split that the environment does not have.
    """
    by_split: dict[str, list[str]] = {}
    for task in tasks:
        split = spec.splits.get(task.split)
        if split is None:
            raise ConfigError(
                f"task {task.id!r} is of split {task.split!r}, which {spec.name} does not have",
                hint=f"It has: {', '.join(spec.splits)}.",
            )
        name = task.split if not split.train else held_out.get(task.id)
        if name is not None:
            by_split.setdefault(name, []).append(task.id)
    if by_split:
        listed = "; ".join(f"{len(ids)} of {name}: {', '.join(ids[:MAX_LISTED])}" for name, ids in by_split.items())
        trainable = [name for name, split in spec.splits.items() if split.train]
        raise ConfigError(
            f"held-out tasks of {spec.name} in a training stage ({listed})",
            hint=f"Train on: {', '.join(trainable) or 'none'}.",
        )


def assert_disjoint(tasks: Iterable[Task], evaluated: Iterable[Task], spec: EnvironmentSpec) -> None:
    """Refuses training tasks that pose a problem that this run is evaluated on, whatever their ids and splits.

    Raises:
        ConfigError: Names the problems that are on both sides.
    """
    if not spec.identity:
        return
    held_out = {task.labels.get(spec.identity) for task in evaluated} - {None}
    both = sorted({str(task.labels[spec.identity]) for task in tasks if task.labels.get(spec.identity) in held_out})
    if both:
        raise ConfigError(
            f"{len(both)} problems of {spec.name} are both trained on and evaluated on: {', '.join(both[:MAX_LISTED])}",
            hint=(
                "Train and evaluate on splits of one family: train with dev or test, agentgym_train with agentgym_test."
            ),
        )
