"""``Sandbox.run``: code in, output out. The outer side of `zygote.py`."""

import contextlib
import dataclasses
import json
import os
import secrets
import select
import signal
import socket
import struct
import subprocess
import tempfile
import threading
import time
import weakref
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum

from env_servers.sandbox import launch

#: Longest wait for a zygote to start (it imports its packages), to begin a call, and to be gone once killed; in
#: seconds.
START_S, SPAWN_S, KILL_S = 120.0, 20.0, 10.0

#: Imports the default packages and makes sympy build its tables, which would take a call some 0.3 s.
SETUP = """
import numpy, numpy.random, sympy
x = sympy.Symbol("x")
sympy.factor(x**2 - 1), sympy.solve(x**2 - 2), sympy.simplify((x**2 - x) / x), sympy.integrate(x**2), \
sympy.factorint(91)
"""


class SandboxFailure(RuntimeError):
    """The sandbox itself failed, twice: nothing is known about the code."""


class Status(StrEnum):
    """The way in which a run of code ended; `tool` says what that is to an agent (`CallStatus`)."""

    OK = "ok"
    #: An exception, or an exit status other than 0.
    ERROR = "error"
    #: Killed by a signal: a crash in native code, or out of memory where no exception could be raised.
    CRASH = "crash"
    #: Over the limit of CPU time or of time.
    TIMEOUT = "timeout"
    #: Over the limit of output; what was written before is kept.
    OUTPUT = "output"


@dataclass(frozen=True)
class Outcome:
    """The result of a call: standard output and error together, in the order written."""

    status: Status
    output: str


@dataclass(frozen=True)
class Limits:
    """Resource limits of one call.

    Attributes:
        cpu_s: CPU time of each of its processes, in seconds.
        wall_s: Time from its start to its end, in seconds.
        memory_mb: Address space of each of its processes beyond what the preloaded packages take, in MiB.
        processes: Processes and threads at the same time, its first one included. All together may take
            ``processes * memory_mb``.
        files_mb: Size of its private ``/tmp``, and of any file in it, in MiB.
        open_files: Open files of each of its processes.
        output_kb: Output, in KiB.
    """

    cpu_s: int = 5
    wall_s: float = 10.0
    memory_mb: int = 512
    processes: int = 8
    files_mb: int = 16
    open_files: int = 64
    output_kb: int = 64


class Sandbox:
    """Runs Python code: each call in processes of its own, without network, files of this machine, or traces of other
    calls.

    Thread-safe. The first call starts the zygote, which takes seconds for its imports; from then on a call costs some
    10 ms and the code's own time. Whatever draws by chance draws the same in every call (`cells.py`). The zygote ends
    with this object, and with this process.

    Args:
        packages: Installed distributions that the code may import beside the standard library, with everything that
            they need.
        setup: Code of ours that runs once, before the calls, and whose imports and caches they find.
        parallel: Calls at the same time; further ones wait.
        isolation: ``bubblewrap`` or ``unshare``; None takes the first that works.

    Raises:
        SandboxUnavailable: Nothing on this machine can isolate the code, or a package is missing.
    """

    def __init__(
        self,
        packages: Sequence[str] = ("numpy", "sympy", "mpmath"),
        setup: str = SETUP,
        limits: Limits | None = None,
        parallel: int = 8,
        isolation: str | None = None,
    ) -> None:
        self.isolation = isolation or launch.isolation()
        self.limits = limits or Limits()
        self._command = launch.command(self.isolation, packages, setup, dataclasses.asdict(self.limits))
        self._places = threading.BoundedSemaphore(parallel)
        self._lock = threading.Lock()
        self._zygote: Zygote | None = None

    def run(self, *cells: str) -> Outcome:
        """Runs cells one after another in one namespace; the output is that of the last.
        The limits hold for all together.

        Raises:
            SandboxFailure: The zygote could not be started, or died, twice.
        """
        failures = []
        mark = secrets.token_hex(16)
        with self._places, in_memory(json.dumps({"mark": mark, "cells": cells})) as request:
            for _ in range(2):
                try:
                    return self._run(request, mark.encode())
                except ZygoteFailed as error:
                    failures.append(str(error))
        raise SandboxFailure(f"the sandbox failed twice: {'; then '.join(dict.fromkeys(failures))}")

    def close(self) -> None:
        """Ends the zygote and all calls. A later call starts another one."""
        with self._lock:
            if self._zygote is not None:
                self._zygote.kill()
            self._zygote = None

    def _run(self, request: int, mark: bytes) -> Outcome:
        os.lseek(request, 0, os.SEEK_SET)
        with _pipe() as (output, output_end), _pipe() as (status, status_end):
            with self._lock:
                if self._zygote is None or not self._zygote.alive:
                    self._zygote = Zygote(self._command)
                zygote = self._zygote
                try:
                    handle = zygote.spawn(request, output_end.fileno(), status_end.fileno())
                except ZygoteFailed:
                    zygote.kill()
                    raise
            output_end.close()
            status_end.close()
            try:
                written, broken_limit = self._watch(handle, output.fileno(), mark)
            finally:
                kill(handle)
                os.close(handle)
            ended = status.read() if ready(status.fileno(), time.monotonic() + KILL_S) else b""
        if ended.startswith(b"!"):
            raise ZygoteFailed(f"a call could not be prepared: {ended[1:].decode(errors='replace')}")
        if not ended and broken_limit is None and not zygote.alive:
            raise ZygoteFailed("the zygote died during the call")
        return Outcome(broken_limit or _status(ended), written.decode(errors="backslashreplace"))

    def _watch(self, handle: int, output: int, mark: bytes) -> tuple[bytes, Status | None]:
        """The output of a process and its descendants after the mark, until they have ended or one of them breaks a
        limit."""
        deadline, most = time.monotonic() + self.limits.wall_s, self.limits.output_kb << 10
        written = bytearray()
        begun = False
        while ready(output, deadline):
            chunk = os.read(output, 1 << 16)
            if not chunk:  # the last one that could write has closed it, which need not be its end
                return bytes(written) if begun else b"", None if ready(handle, deadline) else Status.TIMEOUT
            written += chunk
            if not begun and (start := written.find(mark)) >= 0:
                begun = True
                del written[: start + len(mark)]
            if len(written) > most + (0 if begun else len(mark)):
                return bytes(written[:most]) if begun else b"", Status.OUTPUT
        return bytes(written) if begun else b"", Status.TIMEOUT


class ZygoteFailed(Exception):
    """Something failed that is not the code's doing."""


class Zygote:
    """A running zygote. Its owner calls ``spawn`` from one thread at a time.

    Raises:
        ZygoteFailed: It does not start.
    """

    def __init__(self, command: Sequence[str]) -> None:
        self._control, theirs = socket.socketpair()
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 - lives as long as the zygote
        with theirs:
            self._process = subprocess.Popen(
                command,
                stdin=theirs.fileno(),
                stdout=subprocess.DEVNULL,
                stderr=self._errors,
                env=launch.ENVIRONMENT,
                cwd="/",
                start_new_session=True,
            )
        try:
            self._handle = self._receive(START_S)
        except ZygoteFailed:
            self._process.kill()
            self._process.wait()
            raise
        self.kill = weakref.finalize(self, _end_zygote, self._process, self._control, self._handle)

    @property
    def alive(self) -> bool:
        return self.kill.alive and not ready(self._handle, 0)

    def spawn(self, *descriptors: int) -> int:
        """Begins a call with its request, output and status; a descriptor of its first process.

        Raises:
            ZygoteFailed: The zygote is gone.
        """
        try:
            socket.send_fds(self._control, [b"c"], descriptors)
        except OSError as error:
            raise ZygoteFailed(f"the zygote is gone ({error}): {self._said()}") from error
        return self._receive(SPAWN_S)

    def _receive(self, timeout_s: float) -> int:
        self._control.settimeout(timeout_s)
        try:
            _, descriptors, _, _ = socket.recv_fds(self._control, 1, 1)
        except OSError as error:
            raise ZygoteFailed(f"the zygote does not answer ({error}): {self._said()}") from error
        if not descriptors:
            raise ZygoteFailed(f"the zygote ended: {self._said()}")
        return descriptors[0]

    def _said(self) -> str:
        self._errors.seek(0)
        return self._errors.read().decode(errors="replace").strip()[-2000:]


def _end_zygote(process: subprocess.Popen, control: socket.socket, handle: int) -> None:
    kill(handle)  # before it can see the end of its socket
    control.close()
    os.close(handle)
    process.kill()
    process.wait()


def kill(handle: int) -> None:
    """Kills a process that is the first of its namespace, and with it all others there; returns when they are gone."""
    with contextlib.suppress(ProcessLookupError):
        signal.pidfd_send_signal(handle, signal.SIGKILL)
    ready(handle, time.monotonic() + KILL_S)


def ready(descriptor: int, deadline: float) -> bool:
    """Waits until there is something to read, or, for a process, until it has ended; False if the deadline passes
    first."""
    poll = select.poll()
    poll.register(descriptor, select.POLLIN)
    return bool(poll.poll(max(0.0, deadline - time.monotonic()) * 1000))


def _status(ended: bytes) -> Status:
    """Interprets an exit status as ``wait`` gives it; without one the first process was killed (out of memory)."""
    if not ended:
        return Status.CRASH
    code = os.waitstatus_to_exitcode(struct.unpack("i", ended)[0])
    if code == -signal.SIGXCPU:
        return Status.TIMEOUT
    return Status.CRASH if code < 0 else Status.ERROR if code else Status.OK


@contextlib.contextmanager
def _pipe() -> Iterator[tuple]:
    """The reading and the writing end of a pipe, as unbuffered files."""
    reading, writing = os.pipe()
    with os.fdopen(reading, "rb", buffering=0) as output, os.fdopen(writing, "wb", buffering=0) as end:
        yield output, end


@contextlib.contextmanager
def in_memory(text: str) -> Iterator[int]:
    """A descriptor of a file that holds ``text`` and has no name."""
    descriptor = os.memfd_create("request")
    try:
        with open(descriptor, "wb", closefd=False) as file:
            file.write(text.encode())
        yield descriptor
    finally:
        os.close(descriptor)
