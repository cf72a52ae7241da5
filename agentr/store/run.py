"""Keeps the state of a run in its directory: the sealed stages, their summaries, and the process that owns the run.

A restart reads everything that it needs from this state. ``agentr.store.layout`` names the files.
"""

from __future__ import annotations

import itertools
import json
import os
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from agentr import logs
from agentr.config.identity import at_default, changed_keys, plain, to_yaml
from agentr.config.schema import Config
from agentr.errors import DataError, RunError
from agentr.store.files import append_line, copy_folder, disk, disk_errors, make_folder, write_bytes
from agentr.store.inside import check_folder
from agentr.store.layout import Layout, stage_of, title_of
from agentr.store.lease import LEASE_S, Lease
from agentr.store.origin import made_by, version
from agentr.store.records import Index, read_config, read_index, read_records, write_index
from agentr.store.seal import StageRecord, content_hash, hash_files, hash_of, sealed_files, verify, write_seal
from agentr.store.summaries import S
from agentr.store.trust import remember

#: Longest value of a configuration that the record of a stage holds, in characters of JSON.
_LONGEST = 10_000


class NotWanted(Exception):
    """Raised in place of running a stage when others alone are to be run."""

    def __init__(self, stage: str) -> None:
        super().__init__(stage)
        self.stage = stage


class RunStore:
    """A run directory, as the process that works on it sees it. To read one, see ``agentr.open``.

    Args:
        root: The directory; :meth:`open` makes it if it is missing.
        say: Is told what a person should know, such as stages that are stale.
        lease_s: After how many seconds of silence another process may take the run.

    Attributes:
        told: Is told each event, its kind and what it is about, before it is written.
        only: Stages that alone are run, with what runs within them; empty for all.
    """

    def __init__(self, root: Path, say: Callable[[str], None] = lambda text: None, lease_s: float = LEASE_S) -> None:
        self.root = root
        self.layout = Layout(root)
        self.say = say
        self.told: Callable[[str, Mapping[str, Any]], None] = lambda kind, about: None
        self.only: Collection[str] = ()
        self.lease = Lease(self.layout.lease, lease_s, lambda text: self.say(text))
        #: Of each stage that is running, one within the other: the content of the stages that it has read so far.
        self._inputs: list[dict[str, str]] = []
        #: Of each stage that is running: seconds of the stages that ran within it, which are their own.
        self._within: list[float] = []
        #: Files whose hashes were found right, by name, with their sizes and times then.
        self._verified: dict[str, dict[str, tuple[int, int]]] = {}

    # opening ----------------------------------------------------------------------------------------------------------

    def open(self, config: Config, *, allow_change: bool = False, restore: Callable[[], None] = lambda: None) -> None:
        """Takes the run for this process, and checks that its configuration is unchanged.

        Args:
            restore: Is called as soon as the directory is this process's: it may fill one that holds no run.

        Raises:
            RunError: Another driver works on the run, or the configuration changed; the error names the owner, or the keys.
            OtherFormat: The run is of another format. Nothing was written.
        """
        read_index(self.root)
        with disk_errors(self.root):
            self.root.mkdir(parents=True, exist_ok=True)
        check_folder(self.root)
        self.lease.take()
        try:
            restore()
            self._keep_config(config, allow_change)
            self.event("opened", **made_by())
        except BaseException:  # also when interrupted: the run must not stay taken
            self.close()
            raise

    def _keep_config(self, config: Config, allow_change: bool) -> None:
        index = read_index(self.root)
        index.stages = read_records(self.root, index)  # what is sealed and not in the index, or what the index lost
        stored = index.config or (read_config(self.root) if self.layout.config.exists() else {})
        if stored:
            changes = changed_keys(stored, plain(config), at_default(config))
            # A run that failed before anything was finished may be mended.
            made = any(record.state != "running" for record in index.stages.values())
            if changes and not allow_change and made:
                raise RunError(
                    f"{self.root} was started with another configuration: " + "; ".join(changes),
                    hint="Choose another run.dir, put the values back, or go on with the new ones: 'agentr run' and 'agentr resume' take "
                    "--allow-config-change.",
                )
            for change in changes:
                self.event("config_changed", change=change)
        remember(self.root, plain(config))  # first: a run that is killed here has to be its owner's
        write_bytes(self.layout.config, to_yaml(config).encode())
        if index.problem and index.stages:
            self.event("manifest_made_anew", problem=index.problem, stages=len(index.stages))
        index.name, index.config = config.run.name, plain(config)
        write_index(self.root, index)

    def take(self) -> None:
        """Takes the run for this process, as it is.

        Raises:
            RunError: Another process works on it.
            DataError: Something in it leads outside of it.
        """
        check_folder(self.root)
        self.lease.take()

    def close(self) -> None:
        self.lease.release()

    def owner(self) -> str:
        """Returns the name of the live driver, or nothing if no process works on the run. Takes no lock."""
        return self.lease.look()

    # stages -----------------------------------------------------------------------------------------------------------

    def stage(
        self,
        name: str,
        kind: type[S],
        work: Callable[[Path], S],
        config: Mapping[str, Any] | None = None,
    ) -> S:
        """Runs a stage unless it is sealed, and seals it. What the work reads by ``use`` are its inputs.

        Args:
            name: Path of the stage below the run directory, such as ``rounds/01/collect``.
            kind: Type of its summary.
            work: Does the stage in the given folder and returns its summary. If the folder holds finished work of an earlier attempt,
                it does not repeat that work.
            config: Values of the configuration that it is made with. If they or its inputs are others than those that a sealed stage
                was made with, the stage is stale: that is said, and it stays as it is.

        Returns:
            The stage's summary, of this run or of the one that sealed it.

        Raises:
            DataError: A file of an input is damaged; the error names it.
            RunError: The disk is full, or the run directory is gone.
            NotWanted: It is none of the stages that alone are to be run.
        """
        values = _values(config or {})
        record = self.record(name)
        if record is not None and record.state == "damaged":
            hint = f"Say 'agentr doctor {self.root} --repair', then 'agentr resume {self.root}'."
            raise DataError(f"what {self.root} knows of its stage {name} is damaged", hint=hint)
        if record is not None and record.sealed:
            if reasons := stale(record, read_records(self.root), values, at_default(config or {})):
                more = f"; and {len(reasons) - 3} more" if len(reasons) > 3 else ""
                why = f"{title_of(name)} is stale: {'; '.join(reasons[:3])}{more}"
                self.say(f"{why}. It stays as it is; 'agentr doctor {self.root} --repair --stale' lets it be made anew.")
                self.event("stage_stale", stage=name, reasons=reasons)
            return record.read(kind)
        if not self.wants(name) and not self._inputs:
            raise NotWanted(name)
        started = time.time()
        spent = record.seconds if record is not None else 0.0
        running = StageRecord(name=name, state="running", started=started, seconds=spent, summary={})
        self._write(running)
        self.event("stage_started", stage=name)
        folder = self.root / name
        make_folder(folder, below=self.root)
        self._inputs.append({})
        self._within.append(0.0)
        try:
            with logs.about(stage=name, **_place(name)):
                summary = work(folder)
            files = hash_files(folder, sealed_files(folder))
        except BaseException as error:
            self._stopped(replace(running, seconds=spent - self._within[-1]), error)
            raise
        finally:
            inputs, within, whole = self._inputs.pop(), self._within.pop(), time.time() - started
            if self._within:
                self._within[-1] += whole
        seconds = spent + whole - within
        sealed = StageRecord(
            name=name,
            state="sealed",
            started=started,
            seconds=seconds,
            summary=summary.stored(),
            inputs=inputs,
            config=values,
            files=files,
            content=content_hash(files, summary),
            agentr=version(),
        )
        write_seal(folder, sealed)
        self._write(sealed)
        self._verified[name] = self._times(sealed)
        self.event("stage_sealed", stage=name, seconds=round(seconds, 3))
        return summary

    def wants(self, name: str) -> bool:
        """Returns whether a stage is to be run, if it is not sealed."""
        return not self.only or name in self.only

    def _stopped(self, running: StageRecord, error: BaseException) -> None:
        """Notes that a stage was not finished, if that can still be noted: the disk may be full, the directory gone."""
        spent = running.seconds + time.time() - running.started
        why = f"{type(error).__name__}: {error}"[:2000] if isinstance(error, Exception) else "told to end"  # by whichever signal
        with logs.about(stage=running.name, **_place(running.name)):
            logs.said.error("stopped: %s", error, exc_info=error)
        try:
            self._write(StageRecord(**{**vars(running), "seconds": spent}))
            self.event("stage_stopped", stage=running.name, error=why, cause=getattr(error, "kind", ""))
        except RunError:
            pass

    def use(self, name: str) -> None:
        """Notes that the stage that is running reads another one, and checks the files of that. Does nothing while no stage is running.

        Raises:
            RunError: The other stage is not sealed.
            DataError: Files of it are damaged.
        """
        if self._inputs:
            self._inputs[-1][name] = self.checked(name).content

    def checked(self, name: str) -> StageRecord:
        """Returns the record of a sealed stage after comparing its files with their hashes; each file once, while it does not change.

        Raises:
            RunError: The stage is not sealed.
            DataError: Files are damaged or missing; the error names them and what to do.
        """
        record = self.record(name)
        if record is None or not record.sealed:
            raise RunError(f"{self.root} has no {name} yet", hint=f"Go on with 'agentr resume {self.root}'.")
        if record.pruned:
            hint = f"'agentr doctor {self.root} --repair --stage {name}' lets it be made anew."
            raise RunError(f"the weights of {name} were deleted to save space", hint=hint)
        times = self._times(record)
        if times != self._verified.get(name):
            found = list(verify(self.root, record))
            if found:
                named = "; ".join(map(str, found[:3])) + (f"; and {len(found) - 3} more" if len(found) > 3 else "")
                raise DataError(
                    f"the stage {name} of {self.root} is damaged: {named}",
                    hint=f"'agentr doctor {self.root}' says what depends on it; with --repair it sets the stage aside, "
                    f"and 'agentr resume {self.root}' makes it anew.",
                )
            self._verified[name] = times
        return record

    def _times(self, record: StageRecord) -> dict[str, tuple[int, int]]:
        """Size and time of each file of a stage, and of a model outside."""
        outside = Path(record.summary["path"]) if record.summary.get("folder_hash") else None
        paths = [self.root / record.name / file for file in record.files] + (sorted(outside.glob("*")) if outside else [])
        return {str(path): (found.st_size, found.st_mtime_ns) for path in paths if path.exists() and (found := path.stat())}

    def adopt(self, other: RunStore, names: Sequence[str]) -> None:
        """Copies sealed stages of another run that this one does not have, each in one step.

        The caller must ensure that both runs would produce identical results.

        Raises:
            DataError: A file of a stage is damaged.
        """
        for name in names:
            record = other.record(name)
            if record is None or not record.sealed or self.record(name) is not None:
                continue
            other.checked(name)
            if not self.root.exists():
                self.root.mkdir(parents=True)
            make_folder((self.root / name).parent, below=self.root)
            copy_folder(other.root / name, self.root / name)
            self._write(record)
            self.event("stage_adopted", stage=name, source=os.path.relpath(other.root, self.root))

    def set_aside(self, name: str) -> Path:
        """Moves a stage out of the way, as if it had never been run, and returns where it is now. Nothing is deleted."""
        make_folder(self.layout.damaged)
        now = time.strftime("%Y-%m-%dT%H-%M-%S")
        number = next(number for number in itertools.count(1) if not (self.layout.damaged / f"{now}-{number}" / name).exists())
        place = self.layout.damaged / f"{now}-{number}" / name
        make_folder(place.parent, below=self.layout.damaged)
        if (self.root / name).exists():
            disk.rename(self.root / name, place)
        index = read_index(self.root)
        index.stages = read_records(self.root, index)
        index.stages.pop(name, None)
        write_index(self.root, index)
        self.event("stage_set_aside", stage=name, place=place.relative_to(self.root).as_posix())
        return place

    # places -----------------------------------------------------------------------------------------------------------

    def stored_path(self, path: Path) -> str:
        """Returns a path as a summary keeps it: relative to the run directory if it lies there, so that the run can be moved."""
        inside = path.is_relative_to(self.root)
        return path.relative_to(self.root).as_posix() if inside else str(path)

    def model_path(self, stored: str) -> Path:
        """Returns the folder of a model from what ``stored_path`` returned."""
        return self.root / stored

    def record(self, name: str) -> StageRecord | None:
        return read_records(self.root).get(name)

    def records(self) -> list[StageRecord]:
        """Returns all stages in the order in which they were first started."""
        return list(read_records(self.root).values())

    def sealed(self, name: str) -> bool:
        record = self.record(name)
        return record is not None and record.sealed

    def event(self, kind: str, **about: Any) -> None:
        """Adds an event to the run's log."""
        self.told(kind, about)
        append_line(self.layout.events, {"time": round(time.time(), 3), "event": kind, **about})

    # ------------------------------------------------------------------------------------------------------------------

    def _write(self, record: StageRecord) -> None:
        index = read_index(self.root)
        write_index(self.root, Index(index.name, index.config, {**read_records(self.root, index), record.name: record}))


def _place(name: str) -> dict[str, Any]:
    """The arm and the round of a stage, for logs."""
    found = stage_of(name)
    return {"arm": found[0].title, "round": found[0].number} if found is not None else {}


def _values(config: Mapping[str, Any]) -> dict[str, Any]:
    """Returns values of a configuration as JSON has them; those that are long (a user's whole file) as a hash."""
    found = json.loads(json.dumps(plain(dict(config)), default=str))
    return {key: value if len(json.dumps(value)) <= _LONGEST else f"hash {hash_of(value)}" for key, value in found.items()}


def stale(
    record: StageRecord, records: Mapping[str, StageRecord], config: Mapping[str, Any] | None = None, defaults: Collection[str] = ()
) -> list[str]:
    """Returns why a sealed stage is not what would be made now: its inputs or its configuration are others. Empty if it is.

    Args:
        records: The records of the run as they are now.
        config: The configuration that it would be made with now; None if that is not known.
        defaults: Keys of it that have their default value; those that came later than the stage are no change.
    """
    reasons = [
        f"{name} was made anew since, and is another"
        for name, content in record.inputs.items()
        if (now := records.get(name)) is not None and now.sealed and now.content and content and now.content != content
    ]
    if config is not None:
        reasons += changed_keys(record.config, dict(config), defaults)
    return reasons
