"""Atomic writes: a reader sees the old file or the new one, never a part."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import secrets
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from agentr.errors import DataError, RunError


@contextlib.contextmanager
def disk_errors(path: Path) -> Iterator[None]:
    """Turns a full disk or a missing permission into an error that names the path and the remedy.

    Raises:
        RunError: ``path`` could not be written. Files that were finished before are whole.
    """
    try:
        yield
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise RunError(
                f"no space left on the device while writing {path}",
                hint="Free some space and start the same run again: it continues where it stopped.",
            ) from error
        if error.errno in (errno.EACCES, errno.EROFS, errno.EPERM):
            raise RunError(f"{path} cannot be written: {error.strerror}", hint="Choose another run.dir.") from error
        raise


def write_bytes(path: Path, data: bytes) -> None:
    """Writes a file that survives a crash right after the call: temporary name, fsync, rename."""
    with disk_errors(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        # Not tempfile's: it makes files that nobody else may read, whatever the umask.
        temporary = path.with_name(f".{path.name[:40]}.{secrets.token_hex(6)}.part")
        try:
            with temporary.open("xb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            temporary.replace(path)
        except BaseException:  # also when interrupted: no part may stay behind
            temporary.unlink(missing_ok=True)
            raise


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
        shutil.rmtree(temporary, ignore_errors=True)
        temporary.mkdir(parents=True)
        try:
            yield temporary
            for path in temporary.rglob("*"):
                if path.is_file():
                    with path.open("rb") as file:
                        os.fsync(file.fileno())
            shutil.rmtree(folder, ignore_errors=True)
            temporary.replace(folder)
        except BaseException:  # also when interrupted
            shutil.rmtree(temporary, ignore_errors=True)
            raise


def write_json(path: Path, data: Any) -> None:
    """Writes readable JSON atomically."""
    write_bytes(path, (json.dumps(data, indent=2, sort_keys=True, default=str) + "\n").encode())


def read_json(path: Path) -> Any:
    """Reads JSON.

    Raises:
        DataError: The file is missing or is not JSON.
    """
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise DataError(f"{path} does not exist") from error
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise DataError(f"{path} is damaged: {error}") from error


def append_line(path: Path, data: Any) -> None:
    """Appends one JSON line with a single write, so that lines of several processes do not mix."""
    with disk_errors(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        line = (json.dumps(data, sort_keys=True, separators=(",", ":"), default=str) + "\n").encode()
        descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o666)
        try:
            os.write(descriptor, line)
        finally:
            os.close(descriptor)


def read_lines(path: Path) -> list[Any]:
    """Reads the lines of a JSON-lines file. Skips a torn last line, which a killed writer leaves.

    Raises:
        DataError: A line before the last is damaged.
    """
    if not path.exists():
        return []
    lines = path.read_bytes().split(b"\n")
    found: list[Any] = []
    for number, line in enumerate(lines):
        if not line:
            continue
        try:
            found.append(json.loads(line))
        except ValueError as error:
            if number == len(lines) - 1:
                break
            raise DataError(f"{path}, line {number + 1} is damaged: {error}", hint="Delete the file to start this unit anew.") from error
    return found
