"""Fills a run directory that holds no run from the mirror of the run (``agentr.store.mirror``), before anything else is
done in it.

While that goes on, a file in the directory says so. A restore that was cut off goes on with the files that are not
there yet.
"""

import asyncio
from collections.abc import Callable, Coroutine
from contextlib import AbstractContextManager, suppress
from pathlib import Path
from typing import Any, TypeVar

from agentr.config.identity import Identity
from agentr.errors import DataError, RunError
from agentr.store.bucket import Bucket, BucketError, DamagedObject, hashed, together
from agentr.store.files import make_folder, remove, write_json
from agentr.store.layout import stages_on_disk
from agentr.store.mirror_manifest import Entry, Manifest, read_manifest
from agentr.store.records import Index, read_records, write_index
from agentr.store.run import RunStore
from agentr.store.seal import FileRecord, write_seal
from agentr.words import counted

#: In the run directory while it is being restored.
RESTORING = "restoring.json"

#: Seconds between two reports of progress.
_TELL_S = 0.2

T = TypeVar("T")
Update = Callable[[float, float, str], None]


def restore(
    store: RunStore,
    identity: Identity,
    url: str,
    task: Callable[[str], AbstractContextManager[Update]],
    *,
    allow_change: bool = False,
) -> None:
    """Restores a run whose directory holds none, if its mirror has it. The directory must belong to this process.

    Args:
        url: Of the mirror; empty if there is none.
        task: Shows the progress of a piece of work, as ``agentr.observe.progress.Reporter.task`` does.
        allow_change: Restore it for another configuration, too.

    Raises:
        RunError: The mirror cannot be read, so that nobody knows whether it has the run; or it has one with another
            configuration; or an earlier restore was not finished and cannot go on.
        DataError: Objects are damaged or missing; the error names them. Everything else was restored.
    """
    marker = store.root / RESTORING
    if not marker.exists() and (not url or _holds_run(store.root)):
        return
    if not url:
        raise RunError(f"{store.root} was not restored to the end", hint=_hint("Set run.mirror", marker))
    bucket = Bucket(url)
    try:
        found = _wait(read_manifest(bucket))
    except BucketError as error:
        hint = (
            f"{error.hint} Then start the same run again. To begin it without its mirror, take run.mirror out.".strip()
        )
        raise RunError(
            f"{store.root} holds no run, and whether its mirror does is not known: {error.message}", hint=hint
        ) from error
    if found is not None and found[0].stages:
        _require_same(found[0], identity, bucket, allow_change)
        _restore_all(store, bucket, found[0], task)
    elif marker.exists():
        raise RunError(
            f"{store.root} was not restored to the end, and {url} holds no run",
            hint=_hint("Correct run.mirror", marker),
        )


def _hint(what: str, marker: Path) -> str:
    return f"{what.rstrip('.')}, and start the same run again. To go on with what is there instead, delete {marker}."


def _holds_run(root: Path) -> bool:
    """Returns whether there is anything of a run that a restore could spoil: a stage."""
    return bool(stages_on_disk(root) or read_records(root))


def _require_same(manifest: Manifest, identity: Identity, bucket: Bucket, allow_change: bool) -> None:
    changes = manifest.changes(identity)
    if changes and not allow_change:
        hint = "Choose another run.mirror, put the values back, or start 'agentr run' with --allow-config-change."
        raise RunError(f"{bucket.url} is the mirror of a run with another configuration: {changes}", hint=hint)


def _restore_all(
    store: RunStore, bucket: Bucket, manifest: Manifest, task: Callable[[str], AbstractContextManager[Update]]
) -> None:
    marker = store.root / RESTORING
    write_json(marker, {"mirror": bucket.url, "epoch": manifest.epoch})
    work = _Restoring(store, bucket)
    with task(
        f"restoring {counted(len(manifest.stages), 'stage')}, {_words(manifest.size)} from {bucket.url}"
    ) as update:
        try:
            _wait(work.run(manifest), lambda: update(bucket.moved >> 20, manifest.size >> 20, "MiB"))
        except BucketError as error:
            raise RunError(
                f"{store.root} was not restored to the end: {error.message}", hint=_hint(error.hint, marker)
            ) from error
    if work.damaged:
        raise _damaged(work.damaged, store.root, marker)
    write_index(
        store.root,
        Index(manifest.run, manifest.config, {name: entry.record for name, entry in manifest.stages.items()}),
    )
    store.event("restored", mirror=bucket.url, stages=len(manifest.stages), bytes=manifest.size)
    remove(marker)


def _damaged(problems: list[str], root: Path, marker: Path) -> DataError:
    hint = "Put earlier versions of these objects back, if the bucket keeps them, and start the same run again."
    if _holds_run(root):
        hint += f" Or delete them and {marker}: then their stages are made anew, and everything else is there."
    else:
        hint += " Or begin anew, with another run.mirror."
    return DataError("; ".join(problems), hint=hint)


class _Restoring:
    """One restore.

    Attributes:
        damaged: What is wrong with objects that are not what they should be.
    """

    def __init__(self, store: RunStore, bucket: Bucket) -> None:
        self.root = store.root
        self.log = store.layout.events
        self.bucket = bucket
        self.damaged: list[str] = []

    async def run(self, manifest: Manifest) -> None:
        if manifest.log is not None and not self.log.exists():
            with suppress(DamagedObject):  # a run goes on without what happened before
                await self.bucket.fetch(manifest.log, self.log)
        for entry in manifest.stages.values():
            await self._stage(entry)

    async def _stage(self, entry: Entry) -> None:
        """Restores a stage, its seal last; nothing of it if an object of it is damaged."""
        folder, damaged = self.root / entry.record.name, len(self.damaged)
        make_folder(folder, below=self.root)
        await together(
            [lambda name=name, file=file: self._file(folder / name, file) for name, file in entry.files.items()]
        )
        if len(self.damaged) > damaged:
            remove(folder)
        elif entry.record.sealed:
            write_seal(folder, entry.record)

    async def _file(self, path: Path, file: FileRecord) -> None:
        if path.is_file() and path.stat().st_size == file.size and await hashed(path) == file:
            self.bucket.moved += file.size
            return
        make_folder(path.parent, below=self.root)
        try:
            await self.bucket.fetch(file, path)
        except DamagedObject as error:
            self.damaged.append(f"{error.message} ({path.relative_to(self.root).as_posix()})")


def _wait(work: Coroutine[Any, Any, T], notify: Callable[[], None] = lambda: None) -> T:
    """Waits for something, and shows its progress meanwhile."""

    async def wait() -> T:
        task = asyncio.create_task(work)
        while not task.done():
            await asyncio.wait({task}, timeout=_TELL_S)
            notify()
        return task.result()

    return asyncio.run(wait())


def _words(size: int) -> str:
    """Returns a number of bytes in words."""
    units = ("bytes", "KiB", "MiB", "GiB", "TiB")
    power = min(max(size.bit_length() - 1, 0) // 10, len(units) - 1)
    return f"{size / 1024**power:.{1 if power else 0}f} {units[power]}"
