"""Programs that run: each is started, waited for, answered and ended here, and no more than so many live at a time.

The one that waits longest for an answer is ended when there is room for no other; whoever needs it begins it again, and
gives it the recorded answers (`environment.py`).
"""

import asyncio
import contextlib
import dataclasses
import json
import os
import shutil
import struct
import tempfile
import threading
import time
import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from env_servers.base import Unavailable
from env_servers.observation import Answer, CallStatus, OtherAnswer
from env_servers.program.calls import Call
from env_servers.program.grading import is_share
from env_servers.program.others import Heard, Others
from env_servers.program.requests import BadRequest, Request
from env_servers.sandbox import launch
from env_servers.sandbox.programs import HOME, PORT
from env_servers.sandbox.sandbox import Zygote, ZygoteFailed, in_memory, kill

if TYPE_CHECKING:
    from env_servers.program.gateway import Gateway

#: What the machine is called inside.
HOST_NAME = "agent"
#: Bytes of a program's output that are kept: the last ones.
KEPT = 1 << 14
#: A program's environment variables, beside its key and those of the options.
_ENVIRONMENT = {
    "PATH": os.environ.get("PATH", os.defpath),
    "HOME": f"{HOME}/home",
    "TMPDIR": "/tmp",
    "LANG": "C.UTF-8",
    "TZ": "UTC",
    "PYTHONUTF8": "1",
    "PYTHONHASHSEED": "0",
    "PYTHONDONTWRITEBYTECODE": "1",
    "AGENTR_SEED": "0",
    "OPENAI_BASE_URL": f"http://127.0.0.1:{PORT}/v1",
    "OPENAI_API_BASE": f"http://127.0.0.1:{PORT}/v1",
    "ANTHROPIC_BASE_URL": f"http://127.0.0.1:{PORT}",
    "AGENTR_REPORT": f"http://127.0.0.1:{PORT}/report",
    "AGENTR_TASK": f"{HOME}/task.json",
    # Traces would go, with their key, to a place that is not there, and be waited for.
    "OPENAI_AGENTS_DISABLE_TRACING": "1",
}


@dataclass(frozen=True)
class Limits:
    """Limits of one program.

    Attributes:
        first_call_s: Seconds from its start to its first call.
        step_s: Seconds from an answer to its next call or its end.
        hold_s: Seconds for which a call may wait for its answer; clients give up later than that.
        total_s: Seconds from its start to its end.
        memory_mb: Memory of all its processes together.
        processes: Processes at the same time.
        output_mb: What it may print.
        early_s: Seconds for which, in a replay, a call that is not the next recorded one may wait for that to come.
    """

    first_call_s: float = 120.0
    step_s: float = 600.0
    hold_s: float = 240.0
    total_s: float = 3600.0
    memory_mb: float = 4096
    processes: float = 256
    output_mb: float = 64
    early_s: float = 5.0


@dataclass(frozen=True)
class Report:
    """What a program reports of its last answer; what it does not say is None."""

    action: str | None = None
    observation: str | None = None
    reward: float | None = None
    valid: bool = True
    status: str = "ok"
    scores: Mapping[str, float] = dataclasses.field(default_factory=dict)

    @classmethod
    def read(cls, data: Any) -> "Report":
        """Raises:
        BadRequest: It is no report.
        """
        kinds = {"action": str, "observation": str, "reward": object, "valid": bool, "status": str, "scores": dict}
        if not isinstance(data, dict) or not data.keys() <= kinds.keys():
            raise BadRequest(f"a report is an object of {', '.join(kinds)}, not {str(data)[:200]}")
        for key, value in data.items():
            numbers = [value] if key == "reward" else value.values() if isinstance(value, dict) else []
            if not isinstance(value, kinds[key]) or not all(map(is_share, numbers)):
                raise BadRequest(f"{key} of a report is {str(value)[:100]!r}")
        if data.get("status", "ok") not in list(CallStatus):
            raise BadRequest(f"the status of a report is one of {', '.join(CallStatus)}")
        return cls(**data)


class Program:
    """A program that runs. Used by one thread of the environment at a time.

    Attributes:
        folder: Its folder outside; ``work`` in it is where it works.
        used: When it last was answered or waited for, by the monotonic clock.
        refused: Why the last of its requests that could not be read was refused.
        heard: What other models answered it.
    """

    def __init__(
        self,
        gateway: "Gateway",
        zygote: Zygote,
        folder: Path,
        asked: dict[str, Any],
        limits: Limits,
        others: Sequence[OtherAnswer],
    ) -> None:
        self.folder, self.limits, self.used = folder, limits, time.monotonic()
        self.answers = 0
        self.report, self.refused, self.heard = Report(), "", Heard(others)
        self._gateway = gateway
        self._changed = threading.Condition()
        self._calls: list[Call] = []
        self._ended: str | None = None
        self._printed, self._output = 0, bytearray()
        self._key = gateway.admit(self)
        self._out = -1
        asked["environment"] |= {"OPENAI_API_KEY": self._key, "ANTHROPIC_API_KEY": self._key}
        output, output_end = os.pipe()
        status, status_end = os.pipe()
        try:
            with in_memory(json.dumps(asked)) as request:
                os.lseek(request, 0, os.SEEK_SET)
                handle = zygote.spawn(request, output_end, status_end)
        finally:
            os.close(output_end)
            os.close(status_end)
        self._out = output
        os.set_blocking(output, False)
        self.end = weakref.finalize(self, _end, gateway, self._key, handle, output, status, folder)
        self.end.atexit = True
        myself: weakref.ref[Program] = weakref.ref(self)
        gateway.soon(lambda: _read(gateway.loop, output, myself, Program._print))
        gateway.soon(lambda: _read(gateway.loop, status, myself, Program._finish))

    # in the gateway's thread ------------------------------------------------------------------------------------------

    def called(self, request: Request, again: bool) -> Call | None:
        with self._changed:
            if self._ended is not None:
                return None
            for call in self._calls:
                lost = call.left or (call.answered.done() and not call.delivered)
                if call.request == request and (again or lost):
                    call.left = False
                    self._changed.notify_all()
                    return call
            call = Call(request, self._gateway.loop.create_future())
            self._calls.append(call)
            self._changed.notify_all()
            return call

    def reported(self, report: Any) -> None:
        read = Report.read(report)
        with self._changed:
            self.report = read

    def lost(self) -> None:
        self._finish(b"=was given no answer")

    def _print(self, data: bytes) -> None:
        self._printed += len(data)
        self._output += data
        del self._output[:-KEPT]
        if self._printed > self.limits.output_mb * (1 << 20):
            self._finish(f"=printed more than {self.limits.output_mb:g} MB".encode())

    def _finish(self, how: bytes) -> None:
        with contextlib.suppress(OSError):  # what it printed last
            while data := os.read(self._out, 1 << 16):
                self._output += data
        with self._changed:
            if self._ended is None:
                self._ended = _how(how)
                self._changed.notify_all()

    # in a thread of the environment -----------------------------------------------------------------------------------

    @property
    def output(self) -> str:
        """The end of what it printed."""
        return self._output.decode(errors="backslashreplace")

    @property
    def ended(self) -> str | None:
        """How it ended, empty for status 0; None while it runs."""
        return self._ended

    def waits(self) -> list[Call]:
        """The calls that wait for an answer, in the order in which they came."""
        with self._changed:
            return [call for call in self._calls if call.waits]

    def wait(self, pick: Callable[[list[Call]], Call | None], seconds: float) -> Call | None:
        """Waits for a call that ``pick`` takes; None if the program ends, or the time is over.

        Raises:
            Unavailable: Another model gave it no answer.
        """
        deadline = time.monotonic() + seconds
        with self._changed:
            while True:
                found = pick([call for call in self._calls if call.waits])
                if self.heard.lost:
                    raise Unavailable(self.heard.lost, "Start it, or mend its place in env.options.models.")
                left = deadline - time.monotonic()
                if found is not None or self._ended is not None or left <= 0:
                    return found
                self._changed.wait(min(left, 0.5))

    def answer(self, call: Call, answer: Answer) -> None:
        """Answers a call."""
        self.answers += 1
        self.used, self.report, number = time.monotonic(), Report(), self.answers
        done = threading.Event()

        def settle() -> None:
            if not call.answered.done():
                call.answered.set_result((answer, number))
            done.set()

        self._gateway.soon(settle)
        done.wait()

    @property
    def held_too_long(self) -> bool:
        """Whether a call waits for its answer for longer than it may."""
        waits = self.waits()
        return bool(waits) and time.monotonic() - min(call.since for call in waits) > self.limits.hold_s


class Programs:
    """Starts programs, at most ``most`` at a time.

    Args:
        command: The program and its arguments.
        workdir: Copied into each program's folder; it starts there.
        environment: More environment variables.
        preload: Modules that the command's Python imports once, before all programs.
        others: Models that are not ours.
        isolation: How programs are isolated; None takes the first way that works.

    Raises:
        SandboxUnavailable: Nothing on this machine can isolate them.
    """

    def __init__(
        self,
        command: Sequence[str],
        workdir: Path | None,
        environment: Mapping[str, str],
        limits: Limits,
        most: int,
        others: Others,
        preload: Sequence[str] = (),
        isolation: str | None = None,
    ) -> None:
        self.limits, self.most, self._others = limits, most, others
        self.starts = 0
        self._command, self._workdir, self._environment = [*command], workdir, dict(environment)
        self._root = Path(tempfile.mkdtemp(prefix="agentr-programs-"))
        self._remove = weakref.finalize(self, shutil.rmtree, self._root, ignore_errors=True)
        seen = _below_tmp([*self._command, *self._environment.values()])
        self._zygote_command = launch.bare_command(
            isolation or launch.isolation(),
            "env_servers.sandbox.programs",
            {"host_name": HOST_NAME, "seen": seen, "folders": str(self._root), "preload": [*preload]},
            self._command[0] if preload else "",
        )
        self._gateway: Gateway | None = None
        self._zygote: Zygote | None = None
        self._lock = threading.Lock()
        self._waiting: dict[Any, Program] = {}
        self._live = 0
        self._room = threading.Condition(self._lock)

    def start(self, task: Mapping[str, Any], others: Sequence[OtherAnswer] = ()) -> Program:
        """Starts a program on a task.

        Args:
            others: What other models answered when it was started before.

        Raises:
            Unavailable: There is no room, since all that live are at work.
        """
        self._make_room()
        try:
            return self._started(task, others)
        except BaseException:  # whatever it is goes on to the caller; the room is nobody's
            self.gone()
            raise

    def stop(self) -> None:
        """Ends all programs, and removes their folders."""
        with self._lock:
            if self._zygote is not None:
                self._zygote.kill()  # it is process 1 of all
            self._remove()

    def gone(self) -> None:
        """A program was ended."""
        with self._room:
            self._live -= 1
            self._room.notify()

    def rest(self, owner: Any, program: Program) -> None:
        """A program that waits for an answer may be ended, until `wake`: its owner begins it again."""
        with self._room:
            self._waiting[owner] = program
            self._room.notify()

    def wake(self, owner: Any) -> bool:
        """Returns whether an owner's program still waits; from here on it is not ended."""
        with self._room:
            return self._waiting.pop(owner, None) is not None

    def _make_room(self) -> None:
        with self._room:
            if not self._room.wait_for(lambda: self._live < self.most or self._waiting, self.limits.step_s):
                raise Unavailable(f"all {self.most} programs that may live are at work", "Raise env.options.live.")
            if self._live >= self.most:
                longest = min(self._waiting, key=lambda owner: self._waiting[owner].used)
                self._waiting.pop(longest).end()
            else:
                self._live += 1

    def _started(self, task: Mapping[str, Any], others: Sequence[OtherAnswer]) -> Program:
        with self._lock:
            self.starts += 1
            if self._gateway is None:
                from env_servers.program.gateway import Gateway  # with its server, which a description does not need

                self._gateway = Gateway(self._root, self._others)
            folder = Path(tempfile.mkdtemp(dir=self._root))
            folder.chmod(0o755)
        (folder / "home").mkdir()
        if self._workdir is None:
            (folder / "work").mkdir()
        else:
            shutil.copytree(self._workdir, folder / "work", symlinks=True)
        (folder / "task.json").write_text(json.dumps(task, ensure_ascii=False), encoding="utf-8")
        os.link(self._root / "gateway", folder / "gateway")
        limits = {name: getattr(self.limits, name) for name in ("memory_mb", "processes", "total_s")}
        asked = {"folder": str(folder), "gateway": "gateway", "command": self._command, "limits": limits}
        asked["environment"] = {**_ENVIRONMENT, **self._environment}
        with self._lock:
            for last in (False, True):
                try:
                    if self._zygote is None or not self._zygote.alive:
                        self._zygote = Zygote(self._zygote_command)
                    return Program(self._gateway, self._zygote, folder, asked, self.limits, others)
                except ZygoteFailed as failed:
                    self._zygote = None
                    if last:
                        raise Unavailable(f"programs cannot be started: {failed}") from failed
        raise AssertionError("unreachable")


def _below_tmp(texts: Iterable[str]) -> list[str]:
    """The folders of /tmp that a command or environment names, by itself or behind links: a program has a /tmp of its
    own, and sees them there."""
    named = [part for text in texts for part in text.split(os.pathsep) if part.startswith("/")]
    paths = {
        Path(place(above))
        for part in named
        for above in (part, *Path(part).parents)
        for place in (os.path.normpath, os.path.realpath)
    }
    found = {Path(*path.parts[:3]) for path in paths if path.parts[:2] == ("/", "tmp") and len(path.parts) > 2}
    return sorted(str(folder) for folder in found if folder.is_dir())


def _end(gateway: "Gateway", key: str, handle: int, output: int, status: int, folder: Path) -> None:
    gateway.dismiss(key)
    kill(handle)
    os.close(handle)

    def close() -> None:
        for descriptor in (output, status):
            gateway.loop.remove_reader(descriptor)
            os.close(descriptor)

    with contextlib.suppress(RuntimeError):  # the loop is closed
        gateway.soon(close)
    shutil.rmtree(folder, ignore_errors=True)


def _read(
    loop: asyncio.AbstractEventLoop,
    descriptor: int,
    program: "weakref.ref[Program]",
    take: Callable[[Program, bytes], None],
) -> None:
    """Gives a program what can be read from a descriptor, until its end."""

    def ready() -> None:
        try:
            data = os.read(descriptor, 1 << 16)
        except BlockingIOError:  # `_finish` has read it
            return
        found = program()
        if data and found is not None:
            take(found, data)
        else:
            loop.remove_reader(descriptor)
            if found is not None and take is Program._finish:
                take(found, b"=was killed")

    loop.add_reader(descriptor, ready)


def _how(status: bytes) -> str:
    """Says how a program ended; empty for status 0."""
    if status[:1] in (b"=", b"!"):
        return status[1:].decode(errors="replace")
    code = os.waitstatus_to_exitcode(struct.unpack("i", status)[0])
    return "" if code == 0 else f"ended with status {code}" if code > 0 else f"was ended by signal {-code}"
