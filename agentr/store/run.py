"""Keeps the state of a run in its directory: the sealed stages, their summaries, and the process that owns the run.

A restart reads everything that it needs from this state. ``agentr.store.layout`` names the files.
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import socket
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TextIO

import yaml

from agentr.config.identity import changed_keys, config_hash, plain, to_yaml
from agentr.config.schema import Config
from agentr.errors import DataError, RunError
from agentr.store.files import append_line, read_json, write_bytes
from agentr.store.layout import MODEL, Layout
from agentr.store.summaries import S


@dataclass(frozen=True)
class StageRecord:
    """A stage in the manifest. ``state`` is running or sealed."""

    name: str
    state: str
    started: float
    seconds: float
    summary: dict[str, Any]

    @property
    def sealed(self) -> bool:
        return self.state == "sealed"

    def read(self, kind: type[S]) -> S:
        """Returns the summary as the type of its kind of stage."""
        return kind.read(self.summary)


class RunStore:
    """A run directory.

    Args:
        root: The directory; :meth:`open` makes it if it is missing.
    """

    def __init__(self, root: Path) -> None:
        self.root = root
        self.layout = Layout(root)
        self._lock: TextIO | None = None

    # opening ----------------------------------------------------------------------------------------------------------

    def open(self, config: Config, *, allow_change: bool = False) -> None:
        """Takes the run for this process, and checks that its configuration is unchanged.

        Raises:
            RunError: Another driver works on the run, or the configuration changed; the error names the owner, or the keys.
        """
        self.root.mkdir(parents=True, exist_ok=True)
        self._take_lock()
        try:
            self._keep_config(config, allow_change)
        except BaseException:
            self.close()
            raise
        self.event("opened", pid=os.getpid(), host=socket.gethostname())

    def _keep_config(self, config: Config, allow_change: bool) -> None:
        stored = self.layout.config
        if stored.exists():
            changes = changed_keys(self.stored_config(), plain(config))
            if changes and not allow_change:
                raise RunError(
                    f"{self.root} was started with another configuration: " + "; ".join(changes),
                    hint="Choose another run.dir, put the values back, or pass --allow-config-change.",
                )
            for change in changes:
                self.event("config_changed", change=change)
        write_bytes(stored, to_yaml(config).encode())
        self._store({**self._manifest(), "name": config.run.name, "config_hash": config_hash(config)})

    def close(self) -> None:
        if self._lock is not None:
            self._lock.close()  # releases the lock too
            self._lock = None

    def _take_lock(self) -> None:
        """Takes an advisory lock, which the kernel releases whenever the process dies."""
        file = self.layout.owner.open("a+", encoding="utf-8")
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            file.seek(0)
            owner = file.read().strip() or "an unknown process"
            file.close()
            raise RunError(
                f"another driver works on {self.root}: {owner}",
                hint="Watch it with 'agentr status', or end that process first.",
            ) from None
        file.seek(0)
        file.truncate()
        file.write(f"pid {os.getpid()} on {socket.gethostname()}, since {time.strftime('%Y-%m-%d %H:%M:%S')}")
        file.flush()
        self._lock = file

    def owner(self) -> str:
        """Returns the name of the live driver, or nothing if no process works on the run."""
        path = self.layout.owner
        if not path.exists():
            return ""
        with path.open("r", encoding="utf-8") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except BlockingIOError:
                return file.read().strip()
        return ""

    def stored_config(self) -> dict[str, Any]:
        """Returns the configuration of the run, as plain data.

        Raises:
            DataError: The directory holds no run.
        """
        try:
            stored = yaml.safe_load(self.layout.config.read_text(encoding="utf-8"))
        except (OSError, yaml.YAMLError) as error:
            raise DataError(f"{self.root} holds no run: {error}", hint="Start one with 'agentr run CONFIG'.") from error
        if not isinstance(stored, dict) or "method" not in stored:
            hint = "Read it with the version that made it, or start it anew in another run.dir."
            raise DataError(f"{self.root} was made by an earlier version of agentr: its configuration has no section 'method'", hint=hint)
        return stored

    # stages -----------------------------------------------------------------------------------------------------------

    def stage(self, name: str, kind: type[S], work: Callable[[Path], S]) -> S:
        """Runs a stage unless it is sealed, and seals it.

        Args:
            name: Path of the stage below the run directory, such as ``rounds/01/collect``.
            kind: Type of its summary.
            work: Does the stage in the given folder and returns its summary. If the folder holds finished work of an earlier attempt,
                it does not repeat that work.

        Returns:
            The stage's summary, of this run or of the one that sealed it.
        """
        record = self.record(name)
        if record is not None and record.sealed:
            return record.read(kind)
        started = time.time()
        spent = record.seconds if record is not None else 0.0
        self._write(StageRecord(name, "running", started, spent, {}))
        self.event("stage_started", stage=name)
        folder = self.root / name
        folder.mkdir(parents=True, exist_ok=True)
        try:
            summary = work(folder)
        except BaseException as error:
            self._write(StageRecord(name, "running", started, spent + time.time() - started, {}))
            self.event("stage_stopped", stage=name, error=f"{type(error).__name__}: {error}"[:2000])
            raise
        seconds = spent + time.time() - started
        stored = summary.stored()
        self._write(StageRecord(name, "sealed", started, seconds, stored))
        append_line(self.layout.metrics, {"stage": name, "seconds": round(seconds, 3), **_flat_numbers(stored)})
        self.event("stage_sealed", stage=name, seconds=round(seconds, 3))
        return summary

    def adopt(self, other: RunStore, names: Sequence[str]) -> None:
        """Copies sealed stages of another run that this one does not have: each is a folder and a record, without absolute paths.

        The caller must ensure that both runs would produce identical results.
        """
        for name in names:
            record = other.record(name)
            if record is None or not record.sealed or self.record(name) is not None:
                continue
            if (other.root / name).exists():
                shutil.copytree(other.root / name, self.root / name, dirs_exist_ok=True)
            self._write(record)
            self.event("stage_adopted", stage=name, source=str(other.root))

    # places -----------------------------------------------------------------------------------------------------------

    def stored_path(self, path: Path) -> str:
        """Returns a path as a summary keeps it: relative to the run directory if it lies there, so that the run can be moved."""
        inside = path.is_relative_to(self.root)
        return path.relative_to(self.root).as_posix() if inside else str(path)

    def model_path(self, stored: str) -> Path:
        """Returns the folder of the base model.

        Args:
            stored: What ``stored_path`` returned. Earlier versions kept absolute paths; if the run was moved since, the folder in
                this run directory is meant.
        """
        path = Path(stored)
        if not path.is_absolute():
            return self.root / path
        moved = self.root / MODEL / path.name
        return moved if path.parent.name == MODEL and (moved / "config.json").exists() else path

    def record(self, name: str) -> StageRecord | None:
        entry = self._manifest()["stages"].get(name)
        return None if entry is None else StageRecord(name, **entry)

    def records(self) -> list[StageRecord]:
        """Returns all stages in the order in which they were first started."""
        return [StageRecord(name, **entry) for name, entry in self._manifest()["stages"].items()]

    def sealed(self, name: str) -> bool:
        record = self.record(name)
        return record is not None and record.sealed

    def event(self, kind: str, **about: Any) -> None:
        append_line(self.layout.events, {"time": round(time.time(), 3), "event": kind, **about})

    # ------------------------------------------------------------------------------------------------------------------

    def _manifest(self) -> dict[str, Any]:
        path = self.layout.manifest
        return read_json(path) if path.exists() else {"version": 1, "stages": {}}

    def _write(self, record: StageRecord) -> None:
        manifest = self._manifest()
        manifest["stages"][record.name] = {k: v for k, v in vars(record).items() if k != "name"}
        self._store(manifest)

    def _store(self, manifest: dict[str, Any]) -> None:
        # Stages stand in the order of their first start, so keys are not sorted.
        write_bytes(self.layout.manifest, (json.dumps(manifest, indent=2, default=str) + "\n").encode())


def _flat_numbers(summary: dict[str, Any]) -> dict[str, Any]:
    return {k: v for k, v in summary.items() if isinstance(v, int | float | str)}
