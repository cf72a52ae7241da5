"""Reads everything in a run directory, names what is damaged, and sets it aside so that it is made anew.

Whatever is damaged in one place can be made anew from the others: the manifest from the seals and the seals from the
manifest, a dataset from its trees, trees and weights from the policy that they were made with (the same seed gives the
same). Nothing is deleted.
"""

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from enum import StrEnum
from pathlib import Path

import yaml
from rich.table import Table

import agentr
from agentr.config.identity import changed_keys
from agentr.config.text import dump_yaml, read_yaml
from agentr.errors import AgentrError, ConfigError, DataError
from agentr.outside import read_file
from agentr.read.run import Run
from agentr.read.stage import Rollouts, Trees
from agentr.search.stored import from_bytes
from agentr.search.tree import Tree
from agentr.store.files import disk, files_below, make_folder, read_lines, whole_lines, write_bytes
from agentr.store.forest import Forest
from agentr.store.growing import GrowingForest
from agentr.store.layout import MODEL, ROLLOUTS, TRAIN, Layout
from agentr.store.records import read_config, read_index, read_records, write_index
from agentr.store.run import RunStore
from agentr.store.seal import SEAL, StageRecord, hash_folder, read_seal, verify, write_seal
from agentr.store.stages import stale
from agentr.store.tables import footer_hash, open_table, read_group
from agentr.words import counted


class Remedy(StrEnum):
    """What ``--repair`` and then ``agentr resume`` do about a finding, in words."""

    NONE = "none: it cannot be made anew"
    MADE_ANEW = "made anew"
    STALE = "made anew, with --stale"
    TREES = "the trees that can be read are kept, the others grown anew"
    SEAL = "written anew from the run's manifest"
    MANIFEST = "made anew from the seals of the stages"
    CONFIG = "put back from the run's manifest"
    LINES = "the lines that can be read are kept"
    BEST = "set again when the run is resumed"


@dataclass(frozen=True, kw_only=True)
class StageProblem:
    """Something that is wrong in a run directory.

    Attributes:
        stage: The stage that it is in; empty for files of the run itself.
        problems: Files and what is wrong with them.
        remedy: What can be done about it.
        seconds: How long the stage took when it was made.
        depends: Stages that were made from it, directly or not.
    """

    stage: str
    problems: tuple[str, ...]
    remedy: Remedy
    seconds: float = 0.0
    depends: tuple[str, ...] = field(default=())


def examine(path: Path) -> Iterator[StageProblem]:
    """Reads all files of a run and yields what is wrong, the run's own files first, then stages in the order in which
    they ran.

    Raises:
        DataError: The folder holds no run, or one of another format.
    """
    run = agentr.open(path)
    yield from _own_files(run)
    records = run.records()
    for name, record in records.items():
        damages = list(verify(run.path, record)) if record.sealed else []
        problems = tuple(map(str, damages))
        about = {"stage": name, "seconds": record.seconds, "depends": _dependents(name, records)}
        if record.state == "damaged":
            yield StageProblem(
                problems=(f"{name}/{SEAL}: is damaged, and so is the manifest's copy",),
                remedy=Remedy.MADE_ANEW,
                **about,
            )
        elif problems:
            unreadable = any(damage.unreadable for damage in damages)  # no reason to make it anew
            yield StageProblem(problems=problems, remedy=Remedy.NONE if unreadable else _remedy(run, name), **about)
        elif record.sealed and _seal_problem(run.path, record):
            problem = f"{name}/{SEAL}: {_seal_problem(run.path, record)}"
            yield StageProblem(stage=name, problems=(problem,), remedy=Remedy.SEAL)


def stale_stages(path: Path) -> Iterator[StageProblem]:
    """Yields the stages of a run whose inputs were made anew since and are others."""
    records = agentr.open(path).records()
    for name, record in records.items():
        if record.sealed and (reasons := stale(record, records)):
            about = {"seconds": record.seconds, "depends": _dependents(name, records)}
            yield StageProblem(stage=name, problems=tuple(reasons), remedy=Remedy.STALE, **about)


def repair(path: Path, findings: list[StageProblem]) -> list[str]:
    """Sets aside what is damaged, and makes anew what needs no run. Returns what was done, in words.

    Raises:
        RunError: A driver works on the run, or the disk cannot be written.
    """
    store = RunStore(path.resolve())
    done: list[str] = []
    with _owned(store):
        for finding in findings:
            if finding.remedy is Remedy.NONE:
                continue
            if not finding.stage:
                done += _mend_own_files(store)
            elif finding.remedy is Remedy.SEAL:
                record = read_records(store.root)[finding.stage]
                write_seal(store.root / finding.stage, record)
                done.append(f"{finding.stage}/{SEAL} was written from the manifest's copy")
            else:
                done.append(_reopen(store, finding.stage))
    return done


def chosen(path: Path, stage: str) -> StageProblem:
    """Returns a stage that is to be made anew although nothing is wrong with it.

    Raises:
        DataError: There is no such stage; the error names the nearest.
    """
    run = agentr.open(path)
    about = {"seconds": run.stage(stage).seconds, "depends": _dependents(stage, run.records())}
    return StageProblem(stage=stage, problems=("chosen",), remedy=_remedy(run, stage), **about)


def table_of(finding: StageProblem) -> Table:
    """Returns a finding as a table."""
    shown = Table(title=finding.stage or "the run's own files", show_header=False, title_justify="left")
    shown.add_column(style="bold")
    shown.add_column(overflow="fold")
    for problem in finding.problems:
        shown.add_row("wrong", problem)
    shown.add_row("remedy", finding.remedy)
    if finding.seconds:
        shown.add_row("cost", f"{finding.seconds:.0f} s when it was made")
    if finding.depends:
        shown.add_row("depends on it", ", ".join(finding.depends))
    return shown


def relocate(path: Path, model: Path) -> None:
    """Says where the model of a run is now that the user gave from outside.

    Raises:
        ConfigError: The run has a model of its own, or the folder holds another one.
    """
    store = RunStore(path.resolve())
    record = store.record(MODEL)
    if record is None or not record.summary.get("folder_hash"):
        raise ConfigError(f"{path} has its model in its own folder", hint="Leave --model out.")
    if not model.is_dir() or hash_folder(model) != record.summary["folder_hash"]:
        raise ConfigError(
            f"{model} is not the model that {path} was started with", hint="Its files must be the same, under any name."
        )
    with _owned(store):
        path_now = str(model.resolve())
        made_with = {**record.config, "model": {**record.config.get("model", {}), "path": path_now}}
        moved = replace(record, summary={**record.summary, "path": path_now}, config=made_with)
        write_seal(store.root / MODEL, moved)
        index = read_index(store.root)
        index.stages[MODEL] = moved
        index.config["model"]["path"] = path_now
        write_index(store.root, index)
        write_bytes(store.layout.config, dump_yaml(index.config).encode())


# what is wrong --------------------------------------------------------------------------------------------------------


def _own_files(run: Run) -> Iterator[StageProblem]:
    index = read_index(run.path)
    if index.problem:
        yield StageProblem(stage="", problems=(f"{run.layout.manifest.name}: {index.problem}",), remedy=Remedy.MANIFEST)
    elif index.config and (problem := _config_problem(run.layout.config, index.config)):
        yield StageProblem(stage="", problems=(f"{run.layout.config.name}: {problem}",), remedy=Remedy.CONFIG)
    for file in _files_of_lines(run.path):
        if problem := _lines_problem(file):
            yield StageProblem(stage="", problems=(f"{file.relative_to(run.path)}: {problem}",), remedy=Remedy.LINES)
    if run.layout.best.is_symlink() and not run.layout.best.exists():
        yield StageProblem(
            stage="",
            problems=(f"{run.layout.best.name}: points to a checkpoint that is not there",),
            remedy=Remedy.BEST,
        )


def _files_of_lines(root: Path) -> Iterator[Path]:
    """The files of a run that grow by lines: its own and those of stages that run. A seal says what the others hold."""
    sealed = {root / name for name, record in read_records(root).items() if record.sealed}
    elsewhere = sealed | {Layout(root).logs, Layout(root).damaged}
    for path in files_below(root):
        lines = path.suffix == ".jsonl" and path.is_file() and not path.is_symlink()
        if lines and elsewhere.isdisjoint(path.parents):
            yield path


def _lines_problem(path: Path) -> str:
    try:
        read_lines(path)
        data = read_file(path)
    except DataError as error:
        return error.message
    half = len(data) - len(whole_lines(data))
    return (
        f"ends in half a line, of {half} bytes; it was being written when the disk was full or its process ended"
        if half > 0
        else ""
    )


def _config_problem(path: Path, kept: dict) -> str:
    try:
        found = read_yaml(path)
        changes = changed_keys(kept, found)
    except FileNotFoundError:
        return "is missing"
    except (OSError, yaml.YAMLError, AttributeError, TypeError):
        return "cannot be read"
    return f"is not what the run was started with: {'; '.join(changes)}" if changes else ""


def _seal_problem(root: Path, record: StageRecord) -> str:
    try:
        return "is missing" if read_seal(root / record.name) is None else ""
    except DataError:
        return "is damaged"


def _remedy(run: Run, name: str) -> Remedy:
    stage = run.stage(name)
    if name == MODEL and stage.record.summary.get("folder_hash"):
        return Remedy.NONE
    return Remedy.TREES if isinstance(stage, Trees) and not isinstance(stage, Rollouts) else Remedy.MADE_ANEW


def _dependents(name: str, records: dict[str, StageRecord]) -> tuple[str, ...]:
    found: set[str] = set()
    while more := {other for other, record in records.items() if record.inputs.keys() & {name, *found}} - found:
        found |= more
    return tuple(other for other in records if other in found)


# what is done about it ------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def _owned(store: RunStore) -> Iterator[None]:
    store.take()
    try:
        yield
    finally:
        store.close()


def _mend_own_files(store: RunStore) -> list[str]:
    index, layout, done = read_index(store.root), store.layout, []
    if index.problem:
        config = read_config(store.root)
        _set_aside(store, layout.manifest)
        index.name, index.config = config["run"]["name"], config
        index.stages = read_records(store.root, index)
        write_index(store.root, index)
        done.append(f"{layout.manifest.name} was made anew from the seals of {len(index.stages)} stages")
    elif index.config and _config_problem(layout.config, index.config):
        _set_aside(store, layout.config)
        write_bytes(layout.config, dump_yaml(index.config).encode())
        done.append(f"{layout.config.name} was put back")
    for path in _files_of_lines(store.root):
        if _lines_problem(path):
            kept = [line for line in map(whole_lines, read_file(path).split(b"\n")) if line]
            _set_aside(store, path)
            write_bytes(path, b"".join(kept))
            done.append(
                f"{path.relative_to(store.root)} was written anew with its {counted(len(kept), 'line')} that can be "
                "read"
            )
    return done


def _set_aside(store: RunStore, path: Path) -> None:
    if path.exists():
        make_folder(store.layout.damaged)
        disk.rename(path, store.layout.damaged / f"{path.name}.{len(list(store.layout.damaged.iterdir()))}")


def _reopen(store: RunStore, name: str) -> str:
    """Sets a stage aside. Of a stage of trees, those that can be read are put back as finished ones."""
    run = agentr.open(store.root)
    stage = run.stage(name) if name in run.records() else None
    place = store.stages.set_aside(name)
    where = place.relative_to(store.root)
    if isinstance(stage, Rollouts):  # each step's trees were drawn with weights that the step before had left
        train = name.replace(ROLLOUTS, TRAIN)
        store.stages.set_aside(train)
        return f"{name} was set aside to {where}, and {train} with it: they are made together"
    if not isinstance(stage, Trees) or not place.is_dir():
        return f"{name} was set aside to {where}"
    make_folder((store.root / name).parent, below=store.root)
    forest, kept = GrowingForest(store.root / name, epoch=store.lease.next_epoch()), 0
    for tree in _readable(place, stage.record):
        forest.write(tree)
        kept += 1
    return f"{name} was set aside to {where}; {kept} of its trees can be read and were kept"


def _readable(folder: Path, record: StageRecord) -> Iterator[Tree]:
    """Yields the trees of a damaged forest that can be read for certain."""
    try:
        footers = {part["file"]: part["footer"] for part in Forest(folder).manifest["parts"]}
    except (DataError, KeyError):
        footers = {}
    damaged = {damage.path for damage in verify(folder.parent, replace(record, name=folder.name))}
    for name in record.files:
        if not name.startswith("trees/"):
            continue
        whole = f"{folder.name}/{name}" not in damaged
        with contextlib.suppress(AgentrError, OSError):
            yield from _trees_in(folder / name, footers.get(name), whole)


def _trees_in(path: Path, footer: str | None, whole: bool) -> Iterator[Tree]:
    if footer is None and not whole:
        return
    with open_table(path, footer or footer_hash(path)) as file:
        for group in range(file.num_row_groups):
            with contextlib.suppress(DataError):
                for row in read_group(file, path, group).to_pylist():
                    with contextlib.suppress(DataError):
                        yield from_bytes(row["tree"] + row["spent"])
