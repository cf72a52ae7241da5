"""Who works on a run: a lock on a file in the run directory, which the kernel releases whenever the process dies.

It is a lock of an open file (``F_OFD_SETLK``), because one may ask who holds such a lock without taking it (``F_OFD_GETLK``): a process
that looks at a run never is in the way of one that starts it.
"""

from __future__ import annotations

import fcntl
import os
import socket
import struct
import time
from pathlib import Path
from typing import TextIO

from agentr.errors import RunError
from agentr.store.files import disk_errors

#: C's ``struct flock``: type, whence, start, length, process.
_FLOCK = "hhqqi"


class Owner:
    """The lock of a run directory.

    Args:
        path: Its file. It stays when the lock is released.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file: TextIO | None = None

    def take(self) -> None:
        """Takes the lock for this process.

        Raises:
            RunError: Another process has it; the error names it.
        """
        with disk_errors(self.path):
            file = self.path.open("a+", encoding="utf-8")
        try:
            fcntl.fcntl(file, fcntl.F_OFD_SETLK, _flock(fcntl.F_WRLCK))
        except (BlockingIOError, PermissionError):
            file.close()
            raise RunError(
                f"another driver works on {self.path.parent}: {_name(self.path)}",
                hint="Watch it with 'agentr status', or end that process first.",
            ) from None
        file.seek(0)
        file.truncate()
        file.write(f"pid {os.getpid()} on {socket.gethostname()}, since {time.strftime('%Y-%m-%d %H:%M:%S')}")
        file.flush()
        self._file = file

    def release(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None

    def check(self) -> None:
        """Checks that the file is still the one that was locked.

        Raises:
            RunError: The run directory was deleted, or another one stands in its place.
        """
        if self._file is None:
            return
        mine = os.fstat(self._file.fileno())
        try:
            there = self.path.stat()
        except OSError:
            there = None
        if there is None or (there.st_dev, there.st_ino) != (mine.st_dev, mine.st_ino):
            hint = "Was it moved or deleted? Put it back, or give its new place, and start the same run again."
            raise RunError(f"the run directory {self.path.parent} is gone while this process works on it", hint=hint)

    def look(self) -> str:
        """Returns the name of the process that has the lock, or nothing if none has it. Takes no lock itself."""
        try:
            file = self.path.open("r", encoding="utf-8")
        except OSError:
            return ""
        with file:
            answer = fcntl.fcntl(file, fcntl.F_OFD_GETLK, _flock(fcntl.F_RDLCK))
            return "" if struct.unpack(_FLOCK, answer)[0] == fcntl.F_UNLCK else _name(self.path)


def _flock(kind: int) -> bytes:
    return struct.pack(_FLOCK, kind, os.SEEK_SET, 0, 0, 0)


def _name(path: Path) -> str:
    return path.read_text(encoding="utf-8").strip() or "an unknown process"
