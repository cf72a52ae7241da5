"""Packs a run into one archive, and unpacks it again."""

import getpass
import io
import json
import re
import shutil
import socket
import sys
import tarfile
import tempfile
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import IO, Any, cast

import zstandard

import agentr
from agentr.config.identity import flatten, plain
from agentr.config.schema import Config
from agentr.config.text import dump_yaml
from agentr.errors import ConfigError, DataError
from agentr.outside import MOST
from agentr.read.run import Run
from agentr.store.files import disk, disk_errors, files_below, writing
from agentr.store.inside import check_names
from agentr.store.seal import SEAL, SPARE, hash_of, read_checked

#: What an archive leaves out: what a restart makes again or nobody needs.
LEFT_OUT = (*(pattern for pattern in SPARE if pattern != SEAL), "logs", "tracking", "token")

#: How much larger than an archive its files may be, but for the bytes of a small one; and what each of them counts at
#: least.
RATIO, _SMALL, _BLOCK = 100, 64 << 20, 4096

#: What is read whole or not at all.
_DOCUMENTS = (".json", ".jsonl", ".yaml")

#: Keys of events that name machines and people.
_PRIVATE = ("host", "pid", "command", "source")


def pack(path: Path, out: Path, *, for_sharing: bool = False) -> tuple[int, int]:
    """Packs a run into a ``.tar.zst`` archive and returns the number of files and the size of the archive in bytes.

    Args:
        for_sharing: Leave out names of hosts and users, absolute paths and addresses.

    Raises:
        DataError: The folder holds no run, or a document in it is too large to be read.
        RunError: The archive cannot be written.
    """
    run = agentr.open(path)
    count = 0
    with (
        writing(out) as file,
        zstandard.ZstdCompressor(level=9, threads=-1).stream_writer(file, closefd=False) as compressed,
        tarfile.open(fileobj=compressed, mode="w|", format=tarfile.PAX_FORMAT) as archive,
    ):
        for name in _files(run.path):
            source = run.path / name
            if source.suffix in _DOCUMENTS and source.stat(follow_symlinks=False).st_size > MOST:
                raise DataError(f"{source} is larger than {MOST >> 20} MiB; nobody could read it")
            entry = archive.gettarinfo(source, f"{archive_name(run)}/{name}")
            entry.uid = entry.gid = 0
            entry.uname = entry.gname = ""
            if source.is_symlink():
                archive.addfile(entry)
            else:
                shared = _scrubbed(run, source) if for_sharing else None
                if shared is None:
                    with source.open("rb") as data:
                        archive.addfile(entry, data)
                else:
                    entry.size = len(shared)
                    archive.addfile(entry, io.BytesIO(shared))
            count += 1
    return count, out.stat().st_size


def archive_name(run: Run) -> str:
    """Returns what the archive of a run is called, and the folder in it: the run's name, as a file may be called."""
    return re.sub(r"[^\w.-]+", "_", run.name).lstrip(".")[:100] or "run"


def unpack(archive: Path, out: Path, *, any_size: bool = False) -> Path:
    """Unpacks an archive and returns the run directory: a folder of the run's name in ``out``.

    Args:
        any_size: Also unpack what becomes much larger than its archive (``RATIO``).

    Raises:
        ConfigError: There is already something in its place.
        DataError: The file is no archive of a run, or damaged, or becomes too large.
    """
    if not archive.is_file():
        raise DataError(f"{archive} is no file", hint="Give what 'agentr pack RUN' wrote.")
    with disk_errors(out):
        out.mkdir(parents=True, exist_ok=True)
    try:
        with (
            archive.open("rb") as file,
            zstandard.ZstdDecompressor().stream_reader(file) as data,
            disk_errors(out),
            tempfile.TemporaryDirectory(prefix=".unpacked-", dir=out) as aside,
        ):
            counted = _Counted(data, archive, sys.maxsize if any_size else _SMALL + RATIO * archive.stat().st_size)
            with tarfile.open(fileobj=cast(Any, counted), mode="r|") as tar:
                extract(tar, Path(aside), archive, counted.spend)
            found = list(Path(aside).iterdir())
            if len(found) != 1 or not (found[0] / "config.yaml").exists():
                raise DataError(f"{archive} holds no run")
            target = out / found[0].name
            if target.exists():
                raise ConfigError(f"{target} is already there", hint="Give another folder with --out, or move it.")
            disk.rename(found[0], target)
            return target
    except (tarfile.TarError, zstandard.ZstdError, EOFError) as error:
        raise DataError(
            f"{archive} is no archive of a run, or damaged: {error}", hint="Make it with 'agentr pack RUN'."
        ) from error


class _Counted:
    """What an archive holds, up to so many bytes. Its files are read in pieces of some kilobytes."""

    def __init__(self, data: IO[bytes], name: Path, left: int) -> None:
        self._data, self._name, self._left = data, name, left

    def read(self, size: int) -> bytes:
        piece = self._data.read(size)
        self.spend(len(piece))
        return piece

    def spend(self, size: int) -> None:
        self._left -= size
        if self._left < 0:
            hint = "If it is from somebody you know, give --any-size."
            raise DataError(
                f"{self._name} becomes more than {RATIO} times as large as it is, or too many files", hint=hint
            )


def extract(tar: tarfile.TarFile, folder: Path, name: Path, spend: Callable[[int], None] = lambda size: None) -> None:
    """Writes what an archive holds into an empty folder: files, folders and links, and nothing outside of it.

    Python's own filters for this came with 3.11.4; Debian 12 has 3.11.2.

    Raises:
        DataError: The archive holds something else, twice the same name, or a name or a link that leads outside.
            Members before it are written.
    """
    for entry in tar:
        place = folder / entry.name
        # Without .. no path leads out, whatever links are on its way.
        check_names([entry.name, *([entry.linkname] if entry.issym() else [])], f"{name} is refused: its member")
        spend(_BLOCK)
        try:
            if entry.isdir():
                place.mkdir(parents=True, exist_ok=True)
                continue
            place.parent.mkdir(parents=True, exist_ok=True)
            if entry.issym():
                place.symlink_to(entry.linkname)
            elif entry.isreg() and (data := tar.extractfile(entry)):
                with place.open("xb") as file:  # never through a link that was there before
                    shutil.copyfileobj(data, file)
            else:
                raise DataError(
                    f"{name} is refused: its member {entry.name!r} is neither a file, nor a folder, nor a symbolic link"
                )
        except (FileExistsError, NotADirectoryError) as error:
            raise DataError(f"{name} is refused: its member {entry.name!r} comes twice") from error


def _files(root: Path) -> Iterator[str]:
    for path in files_below(root, LEFT_OUT):
        if path.is_file() or path.is_symlink():
            yield path.relative_to(root).as_posix()


# sharing --------------------------------------------------------------------------------------------------------------


def _scrubbed(run: Run, path: Path) -> bytes | None:
    """Returns a file without names of machines and people, or None if it is to be packed as it is."""
    if path == run.layout.config:
        return dump_yaml(_clean(run.config)).encode()
    if path == run.layout.manifest or path.name == SEAL:
        data = _clean(read_checked(path))
        return (json.dumps({**data, "checksum": hash_of(data)}, indent=2, sort_keys=True) + "\n").encode()
    if path == run.layout.events:
        lines = [{key: value for key, value in event.items() if key not in _PRIVATE} for event in run.events()]
        return "".join(json.dumps(_clean(line), sort_keys=True) + "\n" for line in lines).encode()
    if path.parent == run.path and path.suffix in (".json", ".html"):
        return _plain(path.read_text(encoding="utf-8")).encode()
    return None


def _clean(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _clean(found) for key, found in value.items()}
    if isinstance(value, list):
        return [_clean(found) for found in value]
    if not isinstance(value, str) or value in _defaults():
        return value
    if re.match(r"\w+://", value):
        return ""
    if value.startswith(("/", "~")):
        return Path(value).name
    return _plain(value)


@cache
def _defaults() -> set[str]:
    """Returns the texts that stand in every configuration."""
    return {value for _, value in flatten(plain(Config())) if isinstance(value, str)}


def _plain(text: str) -> str:
    """Returns a text without this machine's and this user's names, and without absolute paths of the user's home."""
    text = text.replace(str(Path.home()), "~") if str(Path.home()) != "/" else text
    for name, stands in ((socket.gethostname(), "host"), (_user(), "user")):
        if len(name) > 2:
            text = re.sub(rf"\b{re.escape(name)}\b", stands, text)
    return text


def _user() -> str:
    try:
        return getpass.getuser()
    except (OSError, KeyError):
        return ""
