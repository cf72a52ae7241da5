"""What comes from outside (somebody's run, configuration, archive or model) is read within limits, and as what it
should be."""

import errno
import json
import os
import stat
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from agentr.errors import DataError

T = TypeVar("T")

#: Bytes of a document, levels of lists and tables in it, and values in it, counted as often as they are named.
MOST, DEEPEST, VALUES = 256 << 20, 100, 20_000_000


def read_file(path: Path, most: int = MOST) -> bytes:
    """Reads a regular file. A pipe would be waited for, and a device may never end.

    Raises:
        OSError: It is missing, something else than a file, or larger than ``most``.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        found = os.fstat(descriptor)
        if not stat.S_ISREG(found.st_mode):
            folder = stat.S_ISDIR(found.st_mode)
            raise OSError(*((errno.EISDIR, "Is a directory") if folder else (errno.EINVAL, "it is no file")), str(path))
        if found.st_size > most:
            raise OSError(errno.EFBIG, f"it is larger than {most >> 20} MiB", str(path))
        with open(descriptor, "rb", closefd=False) as file:
            return file.read(most)
    finally:
        os.close(descriptor)


def parse_json(text: str | bytes) -> Any:
    """Returns what a text says in JSON.

    Raises:
        ValueError: It is none, or too deep.
    """
    try:
        return within(json.loads(text))
    except RecursionError:
        raise ValueError(f"it has more than {DEEPEST} levels") from None


def within(data: Any, values: int = VALUES) -> Any:
    """Returns plain data, if it is within the limits of a document.

    Raises:
        ValueError: It is not: it may hold itself, or one thing a million times.
    """
    holders, depth = [data] if isinstance(data, dict | list) else [], 0
    while holders:
        depth, values = depth + 1, values - sum(map(len, holders))
        if depth > DEEPEST or values < 0:
            raise ValueError(f"it has more than {DEEPEST} levels" if values >= 0 else "it has too many values")
        below = (holder.values() if isinstance(holder, dict) else holder for holder in holders)
        holders = [found for held in below for found in held if isinstance(found, dict | list)]
    return data


def typed(kind: type[T], data: Any, what: str) -> T:
    """Returns plain data as a dataclass or another type; keys that are not known are left out.

    Args:
        what: The file, for the error.

    Raises:
        DataError: A value is missing or has another type; the error names its key.
    """
    try:
        return msgspec.convert(data, kind, strict=False, str_keys=True)
    except msgspec.ValidationError as error:
        raise DataError(f"{what} is damaged: {error}") from None
