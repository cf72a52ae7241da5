"""Seals: what a sealed stage says of itself, in ``stage.json`` in its folder.

A seal names every file of the stage with its size and its BLAKE3 hash, what the stage was made from, and what it came
to. It is written last and in one step: a stage is sealed if and only if its seal is there. The manifest of the run has
a copy of every seal, so either can be made from the other.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from fnmatch import fnmatch
from pathlib import Path, PurePosixPath
from typing import Any

from blake3 import blake3

from agentr.errors import DataError
from agentr.outside import typed
from agentr.store.files import files_below, read_json, write_json
from agentr.store.inside import check_names
from agentr.store.summaries import S, Summary

#: Version of the stored form of a run; a reader refuses what it does not know.
FORMAT = 3

#: Name of the seal in the folder of a stage.
SEAL = "stage.json"

#: The card of a model, in its folder. In that of a checkpoint it says what is known of it so far, and is part of no
#: seal.
CARD = "README.md"

#: Files of a stage that nobody needs once it is sealed: they are not part of the seal.
SPARE = ("checkpoint-*", "work-*", ".*", "*.log", "damaged", SEAL)


@dataclass(frozen=True)
class FileRecord:
    """Size and hash of a file.

    Attributes:
        size: In bytes.
        blake3: First 128 bits of the BLAKE3 hash, in hexadecimal.
    """

    size: int
    blake3: str


@dataclass(frozen=True, kw_only=True)
class Damage:
    """A file that is not what it was when its stage was sealed.

    Attributes:
        path: Relative to the run directory.
        stage: The stage that the file is of; empty for files of the run itself.
        problem: missing, or what is wrong with it.
        unreadable: It is there and may not be read, so that nobody knows whether it is damaged.
    """

    path: str
    stage: str
    problem: str
    unreadable: bool = False

    def __str__(self) -> str:
        return f"{self.path}: {self.problem}"


@dataclass(frozen=True, kw_only=True)
class StageRecord:
    """A stage of a run.

    Attributes:
        name: Path of the stage below the run directory, such as ``rounds/01/collect``.
        state: running, sealed, or damaged (neither its seal nor the copy in the run's manifest can be read).
        started: Time of its last start, in seconds since 1970.
        seconds: Seconds of work on it, those of failed attempts included.
        summary: What it came to, as its type keeps it.
        inputs: Content of each stage that it was made from, by name.
        config: Values of the configuration that it was made with.
        files: Its files, by their paths in its folder.
        content: Hash of what later stages read of it.
        pruned: Files that were deleted since, to save space.
        agentr: Version of agentr that sealed it, and commit where known.
        format: Version of its stored form.
    """

    name: str
    state: str
    started: float
    seconds: float
    summary: dict[str, Any]
    inputs: dict[str, str] = field(default_factory=dict)
    config: dict[str, Any] = field(default_factory=dict)
    files: dict[str, FileRecord] = field(default_factory=dict)
    content: str = ""
    pruned: list[str] = field(default_factory=list)
    agentr: str = ""
    format: int = FORMAT

    @property
    def sealed(self) -> bool:
        return self.state == "sealed"

    def read(self, kind: type[S]) -> S:
        """Returns the summary as the type of its kind of stage."""
        return kind.read(self.summary)

    def stored(self) -> dict[str, Any]:
        """Returns the record as plain data."""
        return asdict(self)

    @classmethod
    def of(cls, stored: Any, what: str = "the record of a stage") -> StageRecord:
        """Reads what ``stored`` returned; keys that are not known are left out.

        Args:
            what: Where it is from, for errors.

        Raises:
            DataError: The record is of another format, lacks something, or names a place outside of the run.
        """
        if isinstance(stored, Mapping):
            check_format(stored, "this stage")
        record = typed(cls, stored, what)
        outside = record.summary.get("folder_hash")  # a model that the user named
        places = [
            str(record.summary[key])
            for key in ("path", "checkpoint")
            if record.summary.get(key) and not (key == "path" and outside)
        ]
        check_names([record.name, *record.files, *record.pruned, *places], what)
        return record


class OtherFormat(DataError):
    """Data of a version of agentr with another stored form."""


def check_format(stored: Mapping[str, Any], what: str) -> None:
    """Refuses data of another version.

    Raises:
        OtherFormat: With the version that is needed.
    """
    found = stored.get("format", stored.get("version", FORMAT))
    if isinstance(found, int) and found != FORMAT:
        which = "or later" if found > FORMAT else "or earlier"
        wrote = f"agentr {stored['agentr']} {which}" if stored.get("agentr") else "the version of agentr that wrote it"
        hint = f"Read it with {wrote}."
        raise OtherFormat(
            f"{what} is stored in format {found}; this version of agentr reads format {FORMAT}", hint=hint
        )


# hashes ---------------------------------------------------------------------------------------------------------------


def hash_file(path: Path) -> FileRecord:
    """Hashes a file, with all cores if it is large.

    Raises:
        OSError: The file cannot be read.
    """
    with path.open("rb"):  # a folder, or a file that may not be read, by its own error
        pass
    hasher = blake3(max_threads=blake3.AUTO)
    hasher.update_mmap(path)
    return FileRecord(path.stat().st_size, hasher.hexdigest(length=16))


def hash_files(folder: Path, names: list[str]) -> dict[str, FileRecord]:
    """Hashes files of a folder, several at a time."""
    with ThreadPoolExecutor(8) as threads:
        return dict(zip(names, threads.map(lambda name: hash_file(folder / name), names), strict=True))


def hash_of(data: Any) -> str:
    """Returns the hash of plain data, which does not depend on the order of keys."""
    text = json.dumps(data, sort_keys=True, separators=(",", ":"), default=str)
    return blake3(text.encode()).hexdigest(length=16)


def files_of(folder: Path) -> list[str]:
    """Returns the files in a folder, without those that are spare: workers may still delete some of these."""
    return [path.relative_to(folder).as_posix() for path in files_below(folder, SPARE) if path.is_file()]


def sealed_files(folder: Path) -> list[str]:
    """Returns the files in the folder of a stage that its seal names: not the cards of its checkpoints."""
    return [name for name in files_of(folder) if PurePosixPath(name).parts[-2:] != ("model", CARD)]


def content_hash(files: Mapping[str, FileRecord], summary: Summary) -> str:
    """Returns the hash of what later stages read of a stage: the files that its kind of summary names."""
    read = sorted(
        (name, entry.blake3)
        for name, entry in files.items()
        if any(fnmatch(name, pattern) for pattern in summary.content)
    )
    return hash_of([read, summary.outside()])


# seals ----------------------------------------------------------------------------------------------------------------


def write_seal(folder: Path, record: StageRecord) -> None:
    """Writes the seal of a stage."""
    write_checked(folder / SEAL, record.stored())


def read_seal(folder: Path) -> StageRecord | None:
    """Reads the seal of a stage; None if there is none.

    Raises:
        DataError: It is damaged, or of another format.
    """
    path = folder / SEAL
    return StageRecord.of(read_checked(path), str(path)) if path.exists() else None


def verify(root: Path, record: StageRecord) -> Iterator[Damage]:
    """Yields the files of a sealed stage that are missing or are not what they were."""
    folder = root / record.name
    for name, entry in record.files.items():
        path = f"{record.name}/{name}"
        try:
            size = (folder / name).stat().st_size
            if size != entry.size:
                yield Damage(path=path, stage=record.name, problem=f"has {size:,} bytes in place of {entry.size:,}")
            elif hash_file(folder / name) != entry:
                yield Damage(path=path, stage=record.name, problem="has another hash than when it was sealed")
        except FileNotFoundError:
            yield Damage(path=path, stage=record.name, problem="is missing")
        except OSError as error:
            yield Damage(path=path, stage=record.name, problem=f"cannot be read: {error.strerror}", unreadable=True)
    if outside := record.summary.get("folder_hash"):
        path = str(record.summary.get("path"))
        if not (Path(path) / "config.json").is_file():  # whatever else is there is not read
            yield Damage(
                path=path,
                stage=record.name,
                problem="is missing: name its new place ('agentr resume' and 'agentr doctor' take --model)",
            )
        elif hash_folder(Path(path)) != outside:
            yield Damage(path=path, stage=record.name, problem="holds another model than when the run was started")


def hash_folder(folder: Path) -> str:
    """Returns the hash of all files in a folder, whatever its name."""
    return hash_of(sorted((name, entry.blake3) for name, entry in hash_files(folder, files_of(folder)).items()))


def write_checked(path: Path, data: dict[str, Any]) -> None:
    """Writes JSON with a checksum of its own, so that a changed byte is noticed."""
    plain = json.loads(json.dumps(data, default=str))
    write_json(path, {**plain, "checksum": hash_of(plain)})


def read_checked(path: Path) -> dict[str, Any]:
    """Reads what ``write_checked`` wrote.

    Raises:
        DataError: The file is missing or damaged.
    """
    data = read_json(path)
    if not isinstance(data, dict) or data.pop("checksum", None) != hash_of(data):
        raise DataError(f"{path} is damaged: it does not match its own checksum")
    return data
