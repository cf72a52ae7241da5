"""The mirror of a run in a store of objects: what is sealed survives the loss of the run directory.

The run directory stays on a shared file system, where journals grow and trainers write. A thread of the driver copies
what is finished: every sealed stage, and of a training that is not sealed yet the newest checkpoint that it may go on
from, in the order in which they ran. Below the address of the mirror::

    objects/<hash>-<size>   files, by what they hold: equal ones once, none ever changed
    manifest.json           written last, by compare-and-swap: each stage with its seal and the object of each of its
                            files

So whatever the manifest names is whole. It also says which *epoch* of drivers wrote it: each driver takes the next one
when it begins, and one that finds a later epoch than its own stops mirroring. A stage that is made anew replaces its
entry; one that the run directory does not have stays until then. What no entry names any more stays in ``objects/``
(`garbage`).

A mirror that does not work stops nothing: it is said once for each cause, and tried again.
"""

import asyncio
import logging
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path, PurePosixPath
from typing import Any

from agentr.backoff import Backoff
from agentr.config.identity import Identity
from agentr.errors import DataError, RunError
from agentr.store.bucket import (
    Bucket,
    BucketError,
    Changed,
    DamagedObject,
    Torn,
    Version,
    hashed,
    object_name,
    together,
)
from agentr.store.files import files_below
from agentr.store.layout import ROLLOUTS, TRAIN
from agentr.store.mirror_manifest import MANIFEST, Entry, Manifest, read_manifest
from agentr.store.records import read_records
from agentr.store.run import RunStore
from agentr.store.seal import StageRecord, files_of
from agentr.store.working import ALONE, PREFIX, working

log = logging.getLogger(__name__)

#: Seconds between two looks at the run directory.
POLL_S = 2.0
_PAUSES = Backoff(first_s=1.0, longest_s=60.0, jitter=0.2)
#: Longest wait for the thread to leave what it is doing, in seconds.
_LEAVE_S = 3.0

#: A training in its stage, or in a folder of it if the stage is a chain of them: what was asked, what came of it, how
#: far it was.
_JOB, _RESULT, _METRICS, _REFERENCE, _CHECKPOINTS = (
    "job.json",
    "result.json",
    "metrics.jsonl",
    "reference.npz",
    "checkpoints",
)

Update = Callable[[float, float, str], None]
"""``update(done, total, details)``, as ``agentr.observe.progress`` has it."""


# what is mirrored -----------------------------------------------------------------------------------------------------


def unfinished(folder: Path, complete: Callable[[Path], bool]) -> dict[str, Path]:
    """Returns the files that an unfinished stage of training may go on from, by the paths under which it finds them; or
    none.

    Args:
        folder: Of the stage.
        complete: Says whether a checkpoint is whole.
    """
    jobs = [path.parent for pattern in (_JOB, f"*/{_JOB}") for path in sorted(folder.glob(pattern))]
    found = {
        (job / name).relative_to(folder).as_posix(): path
        for job in jobs
        for name, path in _of_job(job, complete).items()
    }
    return found if any(PurePosixPath(name).name != _JOB for name in found) else {}


def _of_job(job: Path, complete: Callable[[Path], bool]) -> dict[str, Path]:
    if (job / _RESULT).exists():
        return {name: job / name for name in files_of(job)}
    work = working(job)
    checkpoints = (work / _CHECKPOINTS).glob("checkpoint-*") if work is not None else ()
    newest = max(filter(complete, checkpoints), key=lambda path: int(path.name.rpartition("-")[2]), default=None)
    if work is None or newest is None:
        return {}
    paths = [path for path in (work / _METRICS, work / _REFERENCE, *files_below(newest)) if path.is_file()]
    return {_JOB: job / _JOB, **{f"{PREFIX}{ALONE}/{path.relative_to(work).as_posix()}": path for path in paths}}


class _Over(Exception):
    """There is nothing more to be mirrored by this process; says why."""


class Claim:
    """A driver's claim to the mirror of its run.

    Attributes:
        manifest: As this driver wrote it last; None while the mirror is to be taken.
    """

    def __init__(self, store: RunStore, identity: Identity, bucket: Bucket, allow_change: bool) -> None:
        self._store, self._identity, self._bucket, self._allow_change = store, identity, bucket, allow_change
        self.manifest: Manifest | None = None
        self._version: Version | None = None

    async def take(self) -> list[str]:
        """Takes the mirror for this driver, and returns the stages that it has.

        Raises:
            _Over: It is another run's.
        """
        found = await read_manifest(self._bucket)
        name, config = self._identity.name, self._identity.values
        before, self._version = found if found is not None else (Manifest(name, config), None)
        if not self._allow_change and (changes := before.changes(self._identity)):
            raise _Over(
                f"{self._bucket.url} is the mirror of a run with another configuration: {changes}. Give each run one "
                "of its own."
            )
        writer = await asyncio.to_thread(self._store.owner)
        await self._write(replace(before, run=name, config=config, epoch=before.epoch + 1, writer=writer))
        return [*before.stages]

    async def add(self, entry: Entry, order: Iterable[str]) -> None:
        """Writes the manifest with an entry in its place among stages that are in this order."""
        assert self.manifest is not None, "it was taken"
        stages, place = (
            {**self.manifest.stages, entry.record.name: entry},
            {name: number for number, name in enumerate(order)},
        )
        ordered = sorted(stages, key=lambda name: place.get(name, len(place)))
        await self._write(replace(self.manifest, stages={name: stages[name] for name in ordered}))

    async def _write(self, manifest: Manifest) -> None:
        """Writes the manifest, and the run's log before it.

        Raises:
            _Over: A later driver mirrors the run.
            RunError: Another driver took the run, or its directory is gone.
            Changed: The manifest was changed or deleted; it is to be claimed again.
        """
        await asyncio.to_thread(self._store.lease.check)
        if self._store.layout.events.exists():
            events = _snapshot(self._store.layout.events)
            entry = await hashed(events)
            await self._bucket.create(entry, events)
            manifest = replace(manifest, log=entry)
        data = manifest.stored()
        try:
            version = await self._bucket.swap(MANIFEST, data, self._version)
        except Changed:
            version = await self._settled(data)
        self.manifest, self._version = manifest, version

    async def _settled(self, data: bytes) -> Version:
        """Finds out what came of a manifest that was refused, and returns its version if it was written and only the
        answer was lost."""
        found, mine, self.manifest = await self._bucket.read(MANIFEST), self.manifest, None
        if found is not None and found[0] == data:
            return found[1]
        there = Manifest.of(found[0], f"{self._bucket.url}/{MANIFEST}") if found is not None else None
        if there is not None and mine is not None and there.epoch >= mine.epoch:
            raise _Over(f"another driver mirrors this run to {self._bucket.url}: {there.writer}.")
        raise Changed


class Backlog:
    """What of a run is not mirrored yet.

    Args:
        complete: Says whether a checkpoint of a training is whole.

    Attributes:
        seen: The state of the run directory in which it was read; None reads it anew.
        checkpoints: What was mirrored of unfinished trainings, by the stage.
    """

    def __init__(self, store: RunStore, complete: Callable[[Path], bool]) -> None:
        self._store, self._complete = store, complete
        self._known: dict[str, StageRecord] = {}
        self.seen: tuple[int, int, int] | None = None
        self.checkpoints: dict[str, Any] = {}

    def records(self) -> dict[str, StageRecord]:
        """Returns the records of the run, read anew only if they changed."""
        with suppress(OSError):  # the run directory is gone: whoever writes next says so
            found = self._store.layout.manifest.stat()
            seen = (found.st_mtime_ns, found.st_size, found.st_ino)
            if seen != self.seen:
                self._known, self.seen = read_records(self._store.root), seen
        return self._known

    def state(self, record: StageRecord) -> Any:
        """Returns what distinguishes the present state of a stage from others; None if there is nothing to mirror."""
        if record.sealed:
            return record
        folder = self._store.root / record.name
        # A training goes on from its own files alone, but an online one: that needs the steps that it was fed, too.
        resumable = folder.name == TRAIN and not (folder.parent / ROLLOUTS).exists()
        with suppress(OSError):  # checkpoints come and go
            files = unfinished(folder, self._complete) if resumable else {}
            return {name: path.stat().st_mtime_ns for name, path in files.items() if path.name != _METRICS} or None
        return None

    def sources(self, record: StageRecord) -> dict[str, Path | bytes]:
        """Returns what the files of a stage hold, or where.

        Raises:
            Torn: A training that is not sealed has nothing any more to go on from.
        """
        folder = self._store.root / record.name
        if record.sealed:
            return {name: folder / name for name in record.files}
        found: dict[str, Path] = {}
        with suppress(OSError):  # a folder went away while it was read
            found = unfinished(folder, self._complete)
        if not found:
            raise Torn(f"{folder} has no checkpoint any more")
        return {name: _snapshot(path) if path.name == _METRICS else path for name, path in found.items()}

    def unmirrored(self, manifest: Manifest | None) -> Iterator[tuple[StageRecord, Any]]:
        """Yields the stages that are not mirrored yet, each with its state."""
        for record in self.records().values():
            state, held = self.state(record), manifest.stages.get(record.name) if manifest else None
            mirrored = held.record if record.sealed and held is not None else self.checkpoints.get(record.name)
            if state is not None and state != mirrored:
                yield record, state


class Mirror:
    """Copies what is sealed, in a thread of its own, from `start` to `finish` or `stop`.

    Args:
        store: Of the run, which this process has taken.
        identity: Of the run.
        url: Its address.
        notify: Called with what a person should know.
        failing: Called with why nothing is mirrored, and with nothing once it is again.
        complete: Says whether a checkpoint of a training is whole.
        allow_change: Mirror a run whose configuration was changed since.
        poll_s: Seconds between two looks at the run directory.
    """

    def __init__(
        self,
        store: RunStore,
        identity: Identity,
        url: str,
        notify: Callable[[str], None],
        complete: Callable[[Path], bool],
        *,
        failing: Callable[[str], None] = lambda problem: None,
        allow_change: bool = False,
        poll_s: float = POLL_S,
    ) -> None:
        self.store = store
        self.bucket = Bucket(url)
        self._notify, self._failing, self._poll_s = notify, failing, poll_s
        self._claim = Claim(store, identity, self.bucket, allow_change)
        self._backlog = Backlog(store, complete)
        #: What cannot be mirrored as it is, by the stage.
        self._left_out: dict[str, Any] = {}
        self._told: set[str] = set()
        #: Why nothing is mirrored; empty while it is.
        self._problem = ""
        self._finishing = self._stopping = self._over = False
        self._loop = asyncio.new_event_loop()
        self._wake = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._thread = threading.Thread(target=self._run, name="mirror", daemon=True)

    # what the driver calls --------------------------------------------------------------------------------------------

    def start(self) -> None:
        self._thread.start()

    def finish(self, wait_s: float, update: Update = lambda *_: None, *, patient: bool = True) -> list[str]:
        """Waits until everything is mirrored, ends the thread, and returns what is not mirrored: names of stages.

        Args:
            patient: Wait although the mirror does not work at the moment: it may yet.
        """
        deadline, left = time.monotonic() + wait_s, self._unmirrored()
        total = self.bucket.moved + sum(file.size for record in left for file in record.files.values())
        self._finishing = True
        self._call(self._wake.set)
        while self._thread.is_alive() and time.monotonic() < deadline and (patient or not self._problem):
            update(self.bucket.moved >> 20, max(total, self.bucket.moved) >> 20, "MiB")
            self._thread.join(0.2)
        self.stop()
        return [record.name for record in self._unmirrored()]

    def stop(self) -> None:
        """Ends the thread, whatever it is doing. What it had not finished goes on with the next driver."""
        self._stopping = True
        self._call(lambda: self._task.cancel() if self._task is not None else None)
        self._thread.join(_LEAVE_S)

    def _call(self, what: Callable[[], Any]) -> None:
        with suppress(RuntimeError):  # the loop has ended
            self._loop.call_soon_threadsafe(what)

    # the thread -------------------------------------------------------------------------------------------------------

    def _run(self) -> None:
        try:
            with asyncio.Runner(loop_factory=lambda: self._loop) as runner:
                runner.run(self._work())
        except asyncio.CancelledError:
            pass
        except (_Over, RunError) as error:
            self._over = True
            self._notify(f"{error} Nothing more is mirrored from here to {self.bucket.url}.")
            self._fails(str(error))
        except Exception as error:  # a defect here must not end the run
            log.exception("the mirror stopped")
            self._notify(f"nothing more is mirrored to {self.bucket.url}: {error!r}. The run goes on.")
            self._fails(repr(error))

    async def _work(self) -> None:
        self._task, failures = asyncio.current_task(), 0
        while not self._stopping:
            last = self._finishing
            self._wake.clear()
            try:
                if self._claim.manifest is None:
                    await self._take()
                while (waiting := self._next()) is not None:
                    await self._mirror(*waiting)
                if self._problem:
                    self._notify(f"{self.bucket.url}: mirrored again")
                self._fails("")
                if last:
                    return
                failures, pause = 0, self._poll_s
            except (BucketError, DataError, Changed) as error:
                failures, pause = failures + 1, _PAUSES.pause_s(failures)
                # else another driver was faster, or somebody deleted the manifest: look again
                if not isinstance(error, Changed):
                    self._fails(str(error))
                    self._tell(f"{error} The run goes on, and is mirrored once that is mended.")
            with suppress(TimeoutError):
                await asyncio.wait_for(self._wake.wait(), pause)

    def _fails(self, problem: str) -> None:
        """Tells a problem when there is one where there was none, and when it is over."""
        if bool(problem) != bool(self._problem):
            self._failing(problem)
        self._problem = problem

    def _tell(self, text: str) -> None:
        """Says something once."""
        if text not in self._told:
            self._told.add(text)
            self._notify(text)

    # doing it ---------------------------------------------------------------------------------------------------------

    def _unmirrored(self) -> list[StageRecord]:
        """Returns what is not mirrored and is this process's to mirror."""
        return [] if self._over else [record for record, _ in self._backlog.unmirrored(self._claim.manifest)]

    def _next(self) -> tuple[StageRecord, Any] | None:
        waiting = self._backlog.unmirrored(self._claim.manifest)
        return next(((record, state) for record, state in waiting if state != self._left_out.get(record.name)), None)

    async def _take(self) -> None:
        if lacking := [name for name in await self._claim.take() if name not in self._backlog.records()]:
            self._tell(
                f"{self.bucket.url} also has {', '.join(lacking)}, which {self.store.root} does not have. They stay "
                "there until they are made anew here; an empty run.dir would be filled with all that is there."
            )

    async def _mirror(self, record: StageRecord, state: Any) -> None:
        try:
            sources = self._backlog.sources(record)
            files = record.files or {name: await hashed(source) for name, source in sources.items()}
            objects = {object_name(file): (file, sources[name]) for name, file in files.items()}  # equal files once
            await together([lambda each=each: self.bucket.create(*each) for each in objects.values()])
        except (Torn, DamagedObject) as error:
            self._leave_out(record, state, error)
            return
        await self._claim.add(Entry(record, files), self._backlog.records())
        if not record.sealed:
            self._backlog.checkpoints[record.name] = state

    def _leave_out(self, record: StageRecord, state: Any, error: Exception) -> None:
        """Goes on without a stage whose files are not what they should be, unless it is another one meanwhile."""
        self._backlog.seen = None
        now = self._backlog.records().get(record.name)
        if not record.sealed:
            self._tell(
                f"{self.bucket.url}: a checkpoint of {record.name} was not mirrored: {error}. If that happens to all "
                "of them, they are deleted before they are there: raise train.checkpoint_every."
            )
        if now is not None and self._backlog.state(now) == state:
            self._left_out[record.name] = state
            if record.sealed:
                self._tell(
                    f"{self.bucket.url}: {record.name} is not mirrored: {error}. 'agentr doctor {self.store.root}' "
                    "looks at its files."
                )


def _snapshot(path: Path) -> bytes:
    """Returns the whole lines of a file that grows.

    Raises:
        Torn: It cannot be read.
    """
    try:
        return path.read_bytes().rpartition(b"\n")[0] + b"\n"
    except OSError as error:
        raise Torn(f"{path} cannot be read: {error.strerror}") from None
