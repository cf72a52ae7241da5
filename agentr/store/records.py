"""The records of a run's stages: read from their seals, and from the run's manifest, which has a copy of each.

The manifest also knows the stages that are running and the configuration. It is an index: lost or damaged, it is made
anew from the seals.
"""

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import yaml

from agentr.config.identity import plain
from agentr.config.model import ModelConfig
from agentr.config.schema import EnvConfig, MethodConfig, RunConfig, TaskSelection
from agentr.config.text import read_yaml
from agentr.errors import DataError
from agentr.outside import typed
from agentr.store.files import read_json
from agentr.store.layout import Layout, stages_on_disk
from agentr.store.seal import FORMAT, OtherFormat, StageRecord, check_format, hash_of, read_seal, write_checked


@dataclass
class Index:
    """The manifest of a run.

    Attributes:
        name: Name of the run.
        config: Its configuration, as plain data; empty if the index is lost.
        stages: Records of its stages, in the order of their first start.
        problem: Why the manifest cannot be read; empty if it can.
    """

    name: str = ""
    config: dict[str, Any] = field(default_factory=dict)
    stages: dict[str, StageRecord] = field(default_factory=dict)
    problem: str = ""


@dataclass
class _Eval:
    tasks: TaskSelection = field(default_factory=TaskSelection)
    select: str = ""


@dataclass
class _Kept:
    """What others read of a stored configuration without knowing its method."""

    run: RunConfig = field(default_factory=RunConfig)
    model: ModelConfig = field(default_factory=ModelConfig)
    env: EnvConfig = field(default_factory=EnvConfig)
    eval: _Eval = field(default_factory=_Eval)
    method: MethodConfig = field(default_factory=MethodConfig)
    from_round: dict[int, dict[str, Any]] = field(default_factory=dict)


def read_index(root: Path) -> Index:
    """Reads the manifest of a run; what is lost or damaged is named in ``problem``, and the index is empty.

    Raises:
        OtherFormat: The run is of another format.
    """
    path = Layout(root).manifest
    if not path.exists():
        return Index(problem="is missing")
    try:
        stored = read_json(path)
        if not isinstance(stored, dict):
            raise DataError(f"{path} holds no table")
        check_format(stored, f"the run {root}")
        if stored.pop("checksum", None) != hash_of(stored):
            return Index(problem="does not match its own checksum")
        records = [StageRecord.of(entry) for entry in stored["stages"]]
        name, config = (
            typed(str, stored["name"], f"{path}: name"),
            typed(dict[str, Any], stored["config"], f"{path}: config"),
        )
        return Index(name, config, {record.name: record for record in records})
    except OtherFormat:
        raise
    except DataError as error:
        return Index(problem=f"cannot be read: {error.message}")
    except (KeyError, TypeError, AttributeError) as error:
        return Index(problem=f"cannot be read: {error!r}")


def write_index(root: Path, index: Index) -> None:
    """Writes the manifest of a run."""
    stages = [record.stored() for record in index.stages.values() if record.state != "damaged"]
    write_checked(
        Layout(root).manifest, {"format": FORMAT, "name": index.name, "config": index.config, "stages": stages}
    )


def read_records(root: Path, index: Index | None = None) -> dict[str, StageRecord]:
    """Reads the records of a run's stages, in the order of their first start.

    A seal holds against the index. A stage whose seal is lost or damaged is taken from the index; if that does not have
    it either, its state is ``damaged``.

    Raises:
        OtherFormat: The run is of another format.
    """
    index = index or read_index(root)
    found = dict(index.stages)
    for name in stages_on_disk(root):
        try:
            sealed = read_seal(root / name)
        except OtherFormat:
            raise
        except DataError:
            if name not in found or not found[name].sealed:
                found[name] = StageRecord(name=name, state="damaged", started=0.0, seconds=0.0, summary={})
            continue
        if sealed is not None:
            found[name] = sealed if name == sealed.name else replace(sealed, name=name)
    order = {name: number for number, name in enumerate(index.stages)}
    return dict(sorted(found.items(), key=lambda item: (order.get(item[0], len(order)), item[1].started)))


def read_config(root: Path) -> dict[str, Any]:
    """Returns the configuration of a run, as plain data: its ``config.yaml``, or the manifest's copy if that cannot be
    read.

    Raises:
        DataError: The directory holds no run; the error names runs below it. Or the run is of a version that is not
            read any more.
    """
    layout = Layout(root)
    try:
        stored = read_yaml(layout.config)
        problem = "" if isinstance(stored, dict) else f"{layout.config} holds no configuration"
    except (FileNotFoundError, NotADirectoryError):
        stored, problem = None, "it has no config.yaml" if root.is_dir() else "there is no such folder"
    except (OSError, yaml.YAMLError) as error:
        stored, problem = None, " ".join(str(error).split())
    if problem:
        stored = read_index(root).config
    if not stored:
        raise not_a_run(root, problem)
    kept = typed(_Kept, stored, str(layout.config))
    if "method" not in stored:
        hint = "Read it with the version that made it, or start it anew in another run.dir."
        raise DataError(
            f"{root} was made by an earlier version of agentr: its configuration has no section 'method'", hint=hint
        )
    return _completed(stored, plain(kept))


def _completed(stored: Any, defaults: Any) -> Any:
    """Returns stored data with the defaults of the keys that somebody took out."""
    if not (isinstance(stored, dict) and isinstance(defaults, dict)):
        return stored
    return {
        name: _completed(stored.get(name, value), defaults.get(name)) for name, value in {**defaults, **stored}.items()
    }


def not_a_run(root: Path, problem: str = "") -> DataError:
    """Returns the error for a folder that is no run; it names the nearest runs below it."""
    found = sorted(path.parent for depth in ("*", "*/*", "*/*/*") for path in root.glob(f"{depth}/config.yaml"))
    hint = (
        f"Runs below it: {', '.join(str(path) for path in found[:5])}."
        if found
        else "Start one with 'agentr run CONFIG'."
    )
    return DataError(f"{root} holds no run" + (f": {problem}" if problem else ""), hint=hint)
