"""What a mirror holds: its manifest, one object that is written last.

It names each stage with its seal and the object of each of its files, so whatever it names is whole. What it does not
name any more stays (`garbage`).
"""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from typing import Any

from agentr.config.identity import Identity
from agentr.errors import DataError
from agentr.store.bucket import Bucket, Version, entry_of, object_name
from agentr.store.seal import FileRecord, OtherFormat, StageRecord, hash_of

MANIFEST = "manifest.json"
#: Version of the manifest; a reader refuses what it does not know.
FORMAT = 1


@dataclass(frozen=True)
class Entry:
    """A stage in the manifest.

    Attributes:
        record: Its seal; of a training that is not sealed, what the run knows of it.
        files: Its files, by their paths in its folder.
    """

    record: StageRecord
    files: dict[str, FileRecord]

    @property
    def size(self) -> int:
        return sum(entry.size for entry in self.files.values())


@dataclass(frozen=True)
class Manifest:
    """What a mirror holds.

    Attributes:
        run: Name of the run.
        config: Its configuration, as plain data.
        epoch: Of the driver that wrote it: higher than those of all before.
        writer: Name of that driver.
        stages: In the order of their first start.
        log: The run's log, as it was then.
    """

    run: str
    config: dict[str, Any]
    epoch: int = 0
    writer: str = ""
    stages: dict[str, Entry] = field(default_factory=dict)
    log: FileRecord | None = None

    @property
    def size(self) -> int:
        return sum(entry.size for entry in self.stages.values())

    def objects(self) -> set[str]:
        """Returns the names of all objects that are needed."""
        found = {object_name(file) for entry in self.stages.values() for file in entry.files.values()}
        return found | ({object_name(self.log)} if self.log else set())

    def changes(self, identity: Identity) -> str:
        """Returns in words how the configuration of the run is another than this one; empty if it is not, or if no
        stage depends on it."""
        return "; ".join(identity.changes(self.config)) if self.stages else ""

    def stored(self) -> bytes:
        """Returns the manifest as JSON with a checksum of its own."""
        stages = [
            {"seal": entry.record.stored(), "objects": {name: object_name(file) for name, file in entry.files.items()}}
            for entry in self.stages.values()
        ]
        known = {
            "format": FORMAT,
            "run": self.run,
            "config": self.config,
            "epoch": self.epoch,
            "writer": self.writer,
            "stages": stages,
        }
        data = json.loads(json.dumps({**known, "log": object_name(self.log) if self.log else None}, default=str))
        return (json.dumps({**data, "checksum": hash_of(data)}, indent=1, sort_keys=True) + "\n").encode()

    @classmethod
    def of(cls, data: bytes, where: str) -> Manifest:
        """Reads what ``stored`` returned.

        Raises:
            OtherFormat: It is of another format.
            DataError: It is damaged.
        """
        hint = (
            "Put an earlier version of it back, if the bucket keeps versions; or delete it: a driver that has the run "
            "writes it anew."
        )
        try:
            stored = json.loads(data)
            if stored["format"] > FORMAT:
                raise OtherFormat(
                    f"{where} is stored in format {stored['format']}; this version of agentr reads up to {FORMAT}"
                )
            if stored.pop("checksum") != hash_of(stored):
                raise DataError(f"{where} is damaged: it does not match its own checksum", hint=hint)
            stages = {(entry := _entry(each)).record.name: entry for each in stored["stages"]}
            known = {key: stored[key] for key in ("run", "config", "epoch", "writer")}
            return cls(**known, stages=stages, log=entry_of(stored["log"]) if stored["log"] else None)
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise DataError(f"{where} is damaged: {error!r}", hint=hint) from error


def _entry(stored: dict[str, Any]) -> Entry:
    record, files = StageRecord.of(stored["seal"]), {name: entry_of(each) for name, each in stored["objects"].items()}
    for name in (record.name, *files):
        if PurePosixPath(name).is_absolute() or ".." in PurePosixPath(name).parts:
            raise ValueError(f"{name!r} leads out of the run directory")
    return Entry(record, files)


async def read_manifest(bucket: Bucket) -> tuple[Manifest, Version] | None:
    found = await bucket.read(MANIFEST)
    return (Manifest.of(found[0], f"{bucket.url}/{MANIFEST}"), found[1]) if found is not None else None


def garbage(url: str) -> list[tuple[str, int]]:
    """Returns addresses and sizes of the objects that the manifest does not name: they may be deleted while no driver
    mirrors there.

    Raises:
        BucketError: The store cannot be read.
        DataError: There is no manifest, or it is damaged.
    """

    async def find() -> list[tuple[str, int]]:
        bucket = Bucket(url)
        found = await read_manifest(bucket)
        if found is None:
            raise DataError(f"{url} holds no {MANIFEST}", hint="Is this the address of a mirror?")
        needed = found[0].objects()
        return [(f"{bucket.url}/{name}", size) for name, size in await bucket.objects() if name not in needed]

    return asyncio.run(find())
