"""Structured logs: one JSON object a line, with the run, the role, and the stage and the task that the line is about.

Modules log as usual, with ``logging``. What a line is about is set in one place each: the run and the role where a
process begins to record (`recording`), the stage and the task where work on them begins (`about`).
``agentr.observe.logs`` reads them.
"""

import io
import json
import logging
import os
import socket
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from agentr.secrets import cleaned

#: Logger of what a person has seen already: it is recorded, and shown nowhere else.
messages = logging.getLogger("agentr.messages")
messages.addHandler(logging.NullHandler())

_ABOUT: ContextVar[Mapping[str, Any] | None] = ContextVar("about", default=None)


@contextmanager
def about(**values: Any) -> Iterator[None]:
    """Adds to what is logged in the block, and in the tasks that it starts, what it is about: stage, round, arm,
    task."""
    token = _ABOUT.set({**current(), **values})
    try:
        yield
    finally:
        _ABOUT.reset(token)


def current() -> dict[str, Any]:
    """Returns what is being worked on, as given to ``about``; for a process that goes on with it."""
    return dict(_ABOUT.get() or {})


@contextmanager
def recording(path: Path | None, role: str, **always: Any) -> Iterator[None]:
    """Records this process's logs in a file while the block runs: of agentr from INFO on, of libraries from WARNING on.

    Args:
        path: None records nothing.
        role: The part of the run that this process is.
        always: What all lines are about, such as the run.
    """
    if path is None:
        yield
        return
    root, ours, handler = logging.getLogger(), logging.getLogger("agentr"), JsonLines(path, role=role, **always)
    # which a handler would silence
    added = [handler] if root.handlers or logging.lastResort is None else [handler, logging.lastResort]
    for each in added:
        root.addHandler(each)
    level = ours.level
    ours.setLevel(logging.INFO)
    try:
        yield
    finally:
        ours.setLevel(level)
        for each in added:
            root.removeHandler(each)


def own_file(folder: Path | None, role: str) -> Path | None:
    """Returns the file of a process of which there may be several, on machines that do not append to one file in
    turn."""
    return folder / f"{role}-{socket.gethostname()}-{os.getpid()}.jsonl" if folder is not None else None


def own_output() -> str:
    """Returns where this process's error output goes, for a message that sends a person there: a file, or the lines
    above the message."""
    with suppress(OSError):
        place = Path("/proc/self/fd/2").readlink()
        if place.is_file():
            return str(place)
    return "the output above"


class LogFile(io.TextIOBase):
    """A file to add text to, each with one write.
    What cannot be written is left out: whoever writes results reports a full disk."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._torn = False

    def write(self, text: str) -> int:
        data = b"\n" * self._torn + text.encode("utf-8", "replace")
        with suppress(OSError):
            descriptor = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o666)
            try:
                self._torn = os.write(descriptor, data) < len(data)
            finally:
                os.close(descriptor)
        return len(text)


class JsonLines(logging.Handler):
    """Appends each record as one line to a `LogFile`."""

    def __init__(self, path: Path, **always: Any) -> None:
        super().__init__()
        self.file = LogFile(path)
        self.always = always

    def emit(self, record: logging.LogRecord) -> None:
        with suppress(Exception):
            self.file.write(json.dumps(self.line(record), ensure_ascii=False, default=str) + "\n")

    def line(self, record: logging.LogRecord) -> dict[str, Any]:
        """Returns what a record says, as plain data."""
        line = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
            **self.always,
            **current(),
        }
        if record.exc_info:
            line["exception"] = logging.Formatter().formatException(record.exc_info)
        return cleaned(line)
