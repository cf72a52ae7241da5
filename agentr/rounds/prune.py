"""Deletes what a run does not need any more: weights of earlier rounds, optimiser states, logs of environment
servers."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from agentr.config.schema import rounds_kept
from agentr.errors import ConfigError
from agentr.read.run import Run
from agentr.read.stage import Training
from agentr.store.files import files_below, remove
from agentr.store.layout import EVAL, SELECTION, TRAIN
from agentr.store.model_folder import WEIGHTS
from agentr.store.records import read_index, write_index
from agentr.store.run import RunStore
from agentr.store.seal import write_seal


@dataclass(frozen=True)
class Prunable:
    """Something that can be deleted.

    Attributes:
        path: Relative to the run directory.
        size: In bytes.
        what: weights, optimiser states or logs.
        stage: The sealed stage that it is part of; empty if it is part of none.
    """

    path: str
    size: int
    what: str
    stage: str = ""


def prunable(run: Run, rule: str) -> Iterator[Prunable]:
    """Yields what can be deleted.

    The base model, the warm start, the best and the last round always keep their weights: a run continues from them.

    Args:
        rule: Which rounds keep their weights: all, best, or last N.

    Raises:
        ConfigError: It is no such rule.
    """
    count = rounds_kept(rule)
    if count is None:
        raise ConfigError(
            f"{rule!r} does not name the checkpoints that are kept", hint="Give all, best, or last N, such as 'last 2'."
        )
    chosen_by = SELECTION if run.config["eval"].get("select") else EVAL
    measured = {
        round_.number: evaluated.summary.success
        for round_ in run.rounds
        if (evaluated := round_.stages().get(chosen_by)) is not None and evaluated.sealed
    }
    rounds = [run.rounds[number] for number in measured if number]
    best = max(measured, key=lambda number: measured[number], default=0)
    kept = {round_.number for round_ in (rounds[-count:] if count else rounds)} | {best, max(measured, default=0)}
    for round_ in rounds:
        stage = round_.stages().get(TRAIN)
        if isinstance(stage, Training) and stage.sealed and round_.number not in kept:
            for name in stage.record.files:
                if name.endswith(WEIGHTS) and (stage.path / name).exists():
                    yield Prunable(f"{stage.name}/{name}", (stage.path / name).stat().st_size, "weights", stage.name)
    for stage in run.stages().values():
        if stage.sealed:
            for path in sorted(stage.path.glob("**/checkpoint-*")):
                yield Prunable(path.relative_to(run.path).as_posix(), _size(path), "optimiser states")
    if run.layout.logs.is_dir():
        for path in sorted(run.layout.logs.glob("*")):
            if path.name != run.layout.driver_log.name:
                yield Prunable(path.relative_to(run.path).as_posix(), _size(path), "logs")


def prune(path: Path, found: list[Prunable]) -> None:
    """Deletes what ``prunable`` found. The seals of the stages list what was deleted.

    Raises:
        RunError: A driver works on the run.
    """
    store = RunStore(path.resolve())
    store.take()
    try:
        delete(store, found)
    finally:
        store.close()


def delete(store: RunStore, found: list[Prunable]) -> None:
    """As ``prune``, for the process that works on the run."""
    for stage in {entry.stage for entry in found if entry.stage}:
        record = store.record(stage)
        assert record is not None, "prunable found it"
        gone = {Path(entry.path).relative_to(stage).as_posix() for entry in found if entry.stage == stage}
        files = {name: entry for name, entry in record.files.items() if name not in gone}
        sealed = replace(record, files=files, pruned=sorted({*record.pruned, *gone}))
        write_seal(store.root / stage, sealed)
        index = read_index(store.root)
        index.stages[stage] = sealed
        write_index(store.root, index)
    for entry in found:
        remove(store.root / entry.path)
        store.event("pruned", path=entry.path, bytes=entry.size)


def _size(path: Path) -> int:
    return sum(file.stat().st_size for file in (files_below(path) if path.is_dir() else [path]) if file.is_file())
