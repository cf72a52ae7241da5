"""Running the stages of a run: each is sealed when it is done, and skipped when it is sealed."""

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
from agentr.config.identity import at_default, changed_keys, plain
from agentr.errors import DataError, RunError
from agentr.store.checked import CheckedFiles
from agentr.store.files import copy_folder, disk, make_folder
from agentr.store.layout import Layout, stage_of, title_of
from agentr.store.origin import version
from agentr.store.records import Index, read_index, read_records, write_index
from agentr.store.seal import StageRecord, content_hash, hash_files, hash_of, sealed_files, write_seal
from agentr.store.summaries import S

#: Longest value of a configuration that the record of a stage holds, in characters of JSON.
_LONGEST = 10_000


class NotWanted(Exception):
    """Raised in place of running a stage when others alone are to be run."""

    def __init__(self, stage: str) -> None:
        super().__init__(stage)
        self.stage = stage


class Stages:
    """The stages of a run, as the process that works on it sees them. They may run one within the other.

    Args:
        event: Notes an event in the run.
        notify: Called with what a person should know, such as stages that are stale.

    Attributes:
        only: Stages that alone are run, with what runs within them; empty for all.
    """

    def __init__(self, root: Path, event: Callable[..., None], notify: Callable[[str], None]) -> None:
        self.root = root
        self.only: Collection[str] = ()
        self._event = event
        self._notify = notify
        self._files = CheckedFiles(root)
        #: Of each stage that is running, one within the other: the content of the stages that it has read so far.
        self._inputs: list[dict[str, str]] = []
        #: Of each stage that is running: seconds of the stages that ran within it, which are their own.
        self._within: list[float] = []

    def run(
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
            work: Does the stage in the given folder and returns its summary. If the folder holds finished work of an
                earlier attempt, it does not repeat that work.
            config: Values of the configuration that it is made with. If they or its inputs are others than those that a
                sealed stage was made with, the stage is stale: that is said, and it stays as it is.

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
                self._notify(
                    f"{why}. It stays as it is; 'agentr doctor {self.root} --repair --stale' lets it be made anew."
                )
                self._event("stage_stale", stage=name, reasons=reasons)
            return record.read(kind)
        if not self.wants(name) and not self._inputs:
            raise NotWanted(name)
        started = time.time()
        spent = record.seconds if record is not None else 0.0
        running = StageRecord(name=name, state="running", started=started, seconds=spent, summary={})
        self._write(running)
        self._event("stage_started", stage=name)
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
        self._files.known(sealed)
        self._event("stage_sealed", stage=name, seconds=round(seconds, 3))
        return summary

    def wants(self, name: str) -> bool:
        """Returns whether a stage is to be run, if it is not sealed."""
        return not self.only or name in self.only

    def use(self, name: str) -> None:
        """Notes that the stage that is running reads another one, and checks the files of that.
        Does nothing while no stage is running.

        Raises:
            RunError: The other stage is not sealed.
            DataError: Files of it are damaged.
        """
        if self._inputs:
            self._inputs[-1][name] = self.checked(name).content

    def checked(self, name: str) -> StageRecord:
        """Returns the record of a sealed stage after comparing its files with their hashes; each file once, while it
        does not change.

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
        self._files.check(record)
        return record

    def adopt(self, other: Stages, names: Sequence[str]) -> None:
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
            self._event("stage_adopted", stage=name, source=os.path.relpath(other.root, self.root))

    def set_aside(self, name: str) -> Path:
        """Moves a stage out of the way, as if it had never been run, and returns where it is now.
        Nothing is deleted."""
        damaged = Layout(self.root).damaged
        make_folder(damaged)
        now = time.strftime("%Y-%m-%dT%H-%M-%S")
        number = next(number for number in itertools.count(1) if not (damaged / f"{now}-{number}" / name).exists())
        place = damaged / f"{now}-{number}" / name
        make_folder(place.parent, below=damaged)
        if (self.root / name).exists():
            disk.rename(self.root / name, place)
        index = read_index(self.root)
        index.stages = read_records(self.root, index)
        index.stages.pop(name, None)
        write_index(self.root, index)
        self._event("stage_set_aside", stage=name, place=place.relative_to(self.root).as_posix())
        return place

    def _stopped(self, running: StageRecord, error: BaseException) -> None:
        """Notes that a stage was not finished, if that can still be noted: the disk may be full, the directory gone."""
        spent = running.seconds + time.time() - running.started
        # by whichever signal
        why = f"{type(error).__name__}: {error}"[:2000] if isinstance(error, Exception) else "asked to end"
        with logs.about(stage=running.name, **_place(running.name)):
            logs.messages.error("stopped: %s", error, exc_info=error)
        try:
            self._write(StageRecord(**{**vars(running), "seconds": spent}))
            self._event("stage_stopped", stage=running.name, error=why, cause=getattr(error, "kind", ""))
        except RunError:
            pass

    def record(self, name: str) -> StageRecord | None:
        return read_records(self.root).get(name)

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
    return {
        key: value if len(json.dumps(value)) <= _LONGEST else f"hash {hash_of(value)}" for key, value in found.items()
    }


def stale(
    record: StageRecord,
    records: Mapping[str, StageRecord],
    config: Mapping[str, Any] | None = None,
    defaults: Collection[str] = (),
) -> list[str]:
    """Returns why a sealed stage is not what would be made now: its inputs or its configuration are others.
    Empty if it is.

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
