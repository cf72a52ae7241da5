"""Writes files: a reader sees the old file or the new one, never a part.

Nothing else changes the state of a run, or what a stage seals. Checkpoints of a training and logs are written by those
who train and log, in places that nobody relies on before the stage is sealed. All changes go through one object,
``disk``, a system call at a time, so that a test can let the n-th of them fail, or be the last.
"""

import contextlib
import errno
import io
import json
import os
import secrets
import threading
from collections.abc import Callable, Collection, Iterable, Iterator
from fnmatch import fnmatch
from pathlib import Path
from typing import Any, BinaryIO, cast

from agentr.errors import DataError, RunError
from agentr.outside import parse_json, read_file
from agentr.secrets import cleaned, redact

#: Bytes that are copied, or collected before they are written, at a time.
CHUNK = 1 << 20


#: Each is called with a path that is about to change, and raises if this process must not change it.
guards: list[Callable[[Path], None]] = []


def _guard(path: Path) -> None:
    for guard in tuple(guards):
        guard(path)


class Disk:
    """The system calls that change files."""

    def create(self, path: Path) -> int:
        _guard(path)
        return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666)

    def append_to(self, path: Path) -> int:
        _guard(path)
        return os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT, 0o666)

    def write(self, descriptor: int, data: bytes | memoryview) -> int:
        return os.write(descriptor, data)

    def cut(self, descriptor: int, size: int) -> None:
        os.ftruncate(descriptor, size)

    def sync(self, descriptor: int) -> None:
        os.fsync(descriptor)

    def rename(self, old: Path, new: Path) -> None:
        _guard(new)
        old.replace(new)

    def make_folder(self, path: Path) -> None:
        _guard(path)
        path.mkdir()

    def set_mode(self, path: Path, mode: int) -> None:
        path.chmod(mode)

    def link(self, path: Path, target: Path) -> None:
        _guard(path)
        path.symlink_to(target)

    def unlink(self, path: Path) -> None:
        _guard(path)
        path.unlink()

    def remove_folder(self, path: Path) -> None:
        _guard(path)
        path.rmdir()


disk = Disk()


@contextlib.contextmanager
def disk_errors(path: Path) -> Iterator[None]:
    """Turns a full disk, a missing permission or a folder that is gone into an error that names the path and the
    remedy.

    Raises:
        RunError: ``path`` could not be written, or what goes into it not be read. Files that were finished before are
            whole.
    """
    try:
        yield
    except OSError as error:
        if isinstance(error.filename, str) and not _becomes(path, Path(error.filename)):
            path = Path(error.filename)
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            place = (
                "memory (/dev/shm is this machine's), or set policy.sync=files,"
                if path.is_relative_to("/dev/shm")
                else "space"
            )
            hint = f"Free some {place} and start the same run again: it continues where it stopped."
            raise RunError(f"no space left on the device while writing {path}", hint=hint) from error
        if error.errno == errno.EFBIG:
            hint = "Raise the limit (ulimit -f, a quota) and start the same run again: it continues where it stopped."
            raise RunError(f"{path} cannot be written: it is larger than this process may write", hint=hint) from error
        if error.errno in (errno.EACCES, errno.EROFS, errno.EPERM):
            hint = "Ask for permission there, or name another place (run.dir, --out)."
            raise RunError(f"{path} cannot be read or written: {error.strerror}", hint=hint) from error
        if error.errno in (errno.ENAMETOOLONG, errno.ELOOP, errno.EEXIST):
            hint = "Choose another, shorter name (run.name, run.dir, --out)."
            raise RunError(f"{path} cannot be read or written: {error.strerror}", hint=hint) from error
        if error.errno in (errno.ENOENT, errno.ENOTDIR):
            hint = "Was its folder moved or deleted? Put it back, or give its new place, and start the same run again."
            raise RunError(f"{path} cannot be written: its folder is gone", hint=hint) from error
        raise


def _becomes(path: Path, named: Path) -> bool:
    """Whether this is a path under the name that it has until it is whole, or lies below that."""
    return named.parent in (path.parent, Path()) or f".{path.name}.part" in named.parts


# single files ---------------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def writing(path: Path) -> Iterator[BinaryIO]:
    """Writes a file that is whole if it exists, and survives a crash after the block: temporary name, fsync, rename.

    No folder is made: what was deleted under a process is not created anew.

    Raises:
        RunError: The disk is full or cannot be written, or the folder is gone. ``path`` is as it was.
    """
    with disk_errors(path):
        # Not tempfile's: it makes files that nobody else may read, whatever the umask.
        temporary = path.with_name(f".{path.name[:40]}.{secrets.token_hex(6)}.part")
        try:
            with _File(disk.create(temporary)) as raw, io.BufferedWriter(raw, CHUNK) as file:
                yield cast(BinaryIO, file)
                file.flush()
                disk.sync(raw.fileno())
            disk.rename(temporary, path)
        except BaseException:  # also when interrupted: no part may stay behind
            with contextlib.suppress(OSError):
                disk.unlink(temporary)
            raise
        _sync_folder(path.parent)


class _File(io.RawIOBase):
    """A file whose writes go through ``disk``."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    def fileno(self) -> int:
        return self._descriptor

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        return disk.write(self._descriptor, data)

    def close(self) -> None:
        if not self.closed:
            super().close()
            os.close(self._descriptor)


def write_bytes(path: Path, data: bytes) -> None:
    """Writes a file in one step; see ``writing``."""
    with writing(path) as file:
        file.write(data)


def write_json(path: Path, data: Any) -> None:
    """Writes readable JSON in one step."""
    write_bytes(path, (json.dumps(data, indent=2, sort_keys=True, default=str) + "\n").encode())


def append_line(path: Path, data: Any) -> None:
    """Appends one JSON line with a single write, so that lines of several processes do not mix.
    Secrets are left out."""
    append_bytes(
        path,
        (
            json.dumps(cleaned(data), sort_keys=True, separators=(",", ":"), default=lambda other: redact(str(other)))
            + "\n"
        ).encode(),
    )


#: Threads of a process mend and continue files of lines in turn. Each file has one process that adds to it.
_appending = threading.RLock()


def append_bytes(path: Path, data: bytes) -> None:
    """Appends whole lines with a single write, behind what is whole (`whole_lines`)."""
    with disk_errors(path), _appending:
        line = memoryview(data)
        descriptor = disk.append_to(path)
        try:
            size = os.fstat(descriptor).st_size
            if size and os.pread(descriptor, 1, size - 1) != b"\n":
                whole = whole_lines(os.pread(descriptor, size, 0))
                disk.write(descriptor, b"\n") if len(whole) > size else disk.cut(descriptor, len(whole))
            while line:  # a second write only if the disk is full: it fails
                line = line[disk.write(descriptor, line) :]
        finally:
            os.close(descriptor)


def whole_lines(data: bytes) -> bytes:
    """Returns a file of JSON lines without the half line at its end that a killed writer or a full disk left.

    A last line that lacks nothing but its line break gets it.
    """
    end = data.rfind(b"\n") + 1
    try:
        parse_json(data[end:])
    except ValueError:
        return data[:end]
    return data + b"\n"


def write_lines(path: Path, entries: Iterable[dict[str, Any]]) -> int:
    """Writes entries as JSON lines, one at a time, and returns their number."""
    count = 0
    with writing(path) as file:
        for entry in entries:
            file.write((json.dumps(entry, ensure_ascii=False) + "\n").encode())
            count += 1
    return count


def write_list(path: Path, entries: Iterable[dict[str, Any]]) -> int:
    """Writes entries as a JSON list, one at a time, and returns their number.
    The text is that of ``json.dumps`` with an indent of 1."""
    count = 0
    with writing(path) as file:
        for entry in entries:
            text = json.dumps(entry, ensure_ascii=False, indent=1).replace("\n", "\n ")
            file.write(f"{',' if count else '['}\n {text}".encode())
            count += 1
        file.write(b"\n]\n" if count else b"[]\n")
    return count


def write_link(path: Path, target: Path) -> None:
    """Makes a symbolic link, or lets an existing one point elsewhere, in one step."""
    with disk_errors(path):
        temporary = path.with_name(f".{path.name}.{secrets.token_hex(6)}.part")
        disk.link(temporary, target)
        disk.rename(temporary, path)


def remove(path: Path) -> None:
    """Deletes a file or a folder with all that is in it; nothing if it is not there."""
    with disk_errors(path), contextlib.suppress(FileNotFoundError):
        if path.is_dir() and not path.is_symlink():
            for below in path.iterdir():
                remove(below)
            disk.remove_folder(path)
        else:
            disk.unlink(path)


# folders --------------------------------------------------------------------------------------------------------------


def files_below(folder: Path, without: Collection[str] = ()) -> Iterator[Path]:
    """Yields what is below a folder and is none itself, in order: files, and links as they are. Others may delete
    meanwhile: what is gone is left out.

    Args:
        without: Patterns of names that are left out, with all that is below folders of such names.
    """
    try:
        with os.scandir(folder) as entries:
            found = sorted(entries, key=lambda entry: entry.name)
    except (FileNotFoundError, NotADirectoryError):
        return
    for entry in found:
        if any(fnmatch(entry.name, pattern) for pattern in without):
            continue
        if entry.is_dir(follow_symlinks=False):
            yield from files_below(Path(entry.path), without)
        else:
            yield Path(entry.path)


def make_folder(path: Path, below: Path | None = None) -> None:
    """Makes a folder if it is missing, but not the folders above.

    Args:
        below: Also make the folders between this one, which must exist, and ``path``.

    Raises:
        RunError: The folder above is gone.
    """
    with disk_errors(path):
        if path.is_dir():
            return
        if below is not None and path.parent != below:
            make_folder(path.parent, below)
        with contextlib.suppress(FileExistsError):
            disk.make_folder(path)


@contextlib.contextmanager
def write_aside(folder: Path) -> Iterator[Path]:
    """Writes a folder so that it is whole if it exists: temporary name, fsync, rename.

    Yields an empty folder beside ``folder``. When the body has filled it, it takes the place of ``folder``, which is
    deleted; if the body raises, ``folder`` stays as it was. The next attempt removes what a killed process left.

    Raises:
        RunError: The disk is full or cannot be written.
    """
    temporary = folder.with_name(f".{folder.name}.part")
    with disk_errors(folder):
        remove(temporary)
        disk.make_folder(temporary)
        try:
            yield temporary
            for path in temporary.rglob("*"):
                if path.is_file() and not path.is_symlink():
                    # safetensors writes files that nobody else may read, whatever the umask
                    disk.set_mode(path, 0o666 & ~_umask())
                    with path.open("rb") as file:
                        disk.sync(file.fileno())
            remove(folder)
            disk.rename(temporary, folder)
        except BaseException:  # also when interrupted
            with contextlib.suppress(OSError, RunError):
                remove(temporary)
            raise
        _sync_folder(folder.parent)


def _umask() -> int:
    """Returns the umask, without the moment of another one that ``os.umask`` would need."""
    status = Path("/proc/self/status").read_text(encoding="utf-8")
    return int(status.partition("Umask:")[2].split()[0], 8)


def copy_folder(source: Path, target: Path) -> None:
    """Copies a folder in one step: ``target`` is whole if it exists.
    Files that are being written (``*.part``) are left out."""
    with write_aside(target) as aside:
        _copy_into(source, aside)


def _copy_into(source: Path, target: Path) -> None:
    for path in sorted(source.iterdir()):
        copy = target / path.name
        if path.name.endswith(".part"):
            continue
        if path.is_symlink():
            disk.link(copy, path.readlink())
        elif path.is_dir():
            disk.make_folder(copy)
            _copy_into(path, copy)
        else:
            with path.open("rb") as old, _File(disk.create(copy)) as new:
                while data := memoryview(old.read(CHUNK)):
                    while data:
                        data = data[new.write(data) :]


def _sync_folder(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        disk.sync(descriptor)
    finally:
        os.close(descriptor)


# reading --------------------------------------------------------------------------------------------------------------


def read_json(path: Path) -> Any:
    """Reads JSON.

    Raises:
        DataError: The file is missing, may not be read, or is not JSON within the limits of `agentr.outside`.
    """
    try:
        return parse_json(read_file(path))
    except FileNotFoundError as error:
        raise DataError(f"{path} does not exist") from error
    except OSError as error:
        raise DataError(f"{path} may not be read: {error.strerror}") from error
    except ValueError as error:
        raise DataError(f"{path} is damaged: {error}") from error


def read_lines(path: Path) -> list[Any]:
    """Reads the whole lines of a file of JSON lines (`whole_lines`); none if it is not there.

    Raises:
        DataError: A line that was ended is damaged.
    """
    try:
        data = read_file(path)
    except FileNotFoundError:
        return []
    except OSError as error:
        raise DataError(f"{path} may not be read: {error.strerror}") from error
    found: list[Any] = []
    for number, line in enumerate(whole_lines(data).split(b"\n"), 1):
        try:
            if line:
                found.append(parse_json(line))
        except ValueError as error:
            hint = "'agentr doctor RUN --repair' keeps the lines that can be read."
            raise DataError(f"{path}, line {number} is damaged: {error}", hint=hint) from error
    return found
