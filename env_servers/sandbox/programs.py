"""The process from which programs are forked, and process 1 of each: it makes the program's world, relays its calls to
the gateway, and ends everything that the program started.

With ``preload`` that process is the program's own Python, which has imported those modules: a program is then not
executed, but run by the fork.

A program's world is the same in each session: its folder is `HOME`, whatever the folder is outside; the file system of
the machine can be read and not written, but for /dev, /run and /tmp, which are its own; there is no network, but for an
address at which the gateway answers.
"""

import contextlib
import fcntl
import importlib
import json
import os
import runpy
import select
import shutil
import signal
import socket
import struct
import sys
import threading
import time
import types
from importlib.machinery import SourceFileLoader
from pathlib import Path
from typing import Any, NoReturn

from env_servers.sandbox import kernel
from env_servers.sandbox.launch import DEVICES
from env_servers.sandbox.zygote import serve, taken_over

#: Where a program's folder is, and where the gateway answers it.
HOME, PORT = "/tmp/agent", 8080
#: Seconds between two looks at what a program takes.
LOOK_S = 0.5
_SIOCSIFFLAGS, _UP, _PAGE = 0x8914, 0x41, os.sysconf("SC_PAGE_SIZE")


class _Runs(BaseException):
    """Takes a fork of the process that has imported its modules out to where that began, to run a program there."""


def main() -> None:
    """Serves the socket on descriptor 0 until its other end is closed."""
    config = json.loads(sys.argv[1])
    for name in [name for name in sys.modules if name.partition(".")[0] == "env_servers"]:
        del sys.modules[name]  # a program may have a package of that name
    for name in config["preload"]:
        try:
            importlib.import_module(name)
        except Exception as error:  # noqa: BLE001 - a package may raise anything
            sys.exit(f"preload: {name} cannot be imported: {type(error).__name__}: {error}")
        if len([*Path("/proc/self/task").iterdir()]) > 1:
            sys.exit(f"preload: {name} starts a thread, which its forks would not have; leave it out")
    more = kernel.CLONE_NEWNET | kernel.CLONE_NEWUTS
    try:
        serve(taken_over(), lambda *descriptors: _first_process(config, *descriptors), more)
    except _Runs as runs:
        command = runs.args[0]
    else:
        _clean(config["folders"])  # the server was killed
        return
    _run(*command)  # not in the handler, whose error would be the context of the program's own


def _run(first: str, *arguments: str) -> None:
    """Runs a script or a module in this process, as its Python would."""
    if first == "-m":
        sys.argv, sys.path[0] = [*arguments], str(Path.cwd())
        runpy.run_module(arguments[0], run_name="__main__", alter_sys=True)
    else:
        script = Path(first).absolute()
        sys.argv, sys.path[0] = [first, *arguments], str(script.parent)
        loader = SourceFileLoader("__main__", str(script))
        sys.modules["__main__"] = module = types.ModuleType("__main__")
        module.__file__, module.__loader__ = str(script), loader
        loader.exec_module(module)


def _clean(folders: str) -> None:
    """Ends what runs, and removes the programs' folders."""
    if os.getpid() == 1:  # of namespaces of its own: not behind a script that starts a Python
        with contextlib.suppress(ProcessLookupError):
            os.kill(-1, signal.SIGKILL)
    shutil.rmtree(folders, ignore_errors=True)


def _first_process(config: dict[str, Any], request: int, output: int, status: int) -> NoReturn:
    """Process 1 of a program's namespaces; it writes how the program ended to ``status``."""
    reason = b""
    try:
        os.setsid()
        with open(request, encoding="utf-8") as file:
            asked = json.load(file)
        folder = os.open(asked["folder"], os.O_PATH)
        _make_world(config, folder)
        listener = socket.create_server(("127.0.0.1", PORT), backlog=128)
        program = os.fork()
        if program == 0:
            listener.close()
            _program(asked, output, bool(config["preload"]))
        os.close(output)
        threading.Thread(
            target=_accept, args=(listener, f"/proc/self/fd/{folder}/{asked['gateway']}"), daemon=True
        ).start()
        ended = _wait(program, asked["limits"])
        reason = struct.pack("i", ended) if isinstance(ended, int) else f"={ended}".encode()
    except Exception as error:  # noqa: BLE001 - whatever it is, nobody else could report it
        reason = f"!{type(error).__name__}: {error}".encode()
    os.write(status, reason)
    os._exit(0)


def _make_world(config: dict[str, Any], folder: int) -> None:
    seen = {place: os.open(place, os.O_PATH) for place in (*config["seen"], *DEVICES)}
    kernel.mount("", "/", flags=kernel.MS_REC | kernel.MS_PRIVATE)
    kernel.restrict_mount("/", kernel.MOUNT_ATTR_RDONLY, recursive=True)
    # Root keeps root's files without its capabilities: disks, settings of the kernel, sockets of services.
    covered = [place for place in ("/tmp", "/dev", "/run") if Path(place).is_dir()]
    for place in covered:
        kernel.mount("tmpfs", place, "tmpfs", kernel.MS_NOSUID | kernel.MS_NODEV, "mode=1777")
    kernel.mount("proc", "/proc", "proc", kernel.MS_RDONLY | kernel.MS_NOSUID | kernel.MS_NODEV)
    Path("/dev/shm").mkdir(mode=0o1777)
    for name, target in (("fd", ""), ("stdin", "/0"), ("stdout", "/1"), ("stderr", "/2")):
        Path("/dev", name).symlink_to(f"/proc/self/fd{target}")
    for place, descriptor in seen.items():
        if place in DEVICES:
            Path(place).touch()
        else:
            Path(place).mkdir(parents=True)
        kernel.mount(f"/proc/self/fd/{descriptor}", place, flags=kernel.MS_BIND)
    Path(HOME).mkdir()
    kernel.mount(f"/proc/self/fd/{folder}", HOME, flags=kernel.MS_BIND)
    kernel.restrict_mount(HOME, 0, recursive=False, lifted=kernel.MOUNT_ATTR_RDONLY)
    socket.sethostname(config["host_name"])
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as control:
        fcntl.ioctl(control, _SIOCSIFFLAGS, struct.pack("16sh14x", b"lo", _UP))


def _program(asked: dict[str, Any], output: int, imported: bool) -> NoReturn:
    command, environment = asked["command"], asked["environment"]
    try:
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.dup2(output, 1)
        os.dup2(output, 2)
        os.closerange(3, 1 << 20)
        os.chdir(f"{HOME}/work")
        kernel.drop_capabilities()
        for number in (signal.SIGPIPE, signal.SIGXFSZ):  # which Python ignores, and its children then would, too
            signal.signal(number, signal.SIG_DFL)
        if not imported:
            os.execvpe(command[0], command, environment)
    except OSError as error:
        os.write(2, f"{command[0]}: {error.strerror}\n".encode())
        os._exit(127)
    os.environ.clear()
    os.environ.update(environment)
    time.tzset()
    raise _Runs(command[1:])


def _wait(program: int, limits: dict[str, float]) -> int | str:
    """Returns the program's exit status, or the limit that it broke. What it started and left behind ends with this
    process."""
    poll, began = select.poll(), time.monotonic()
    poll.register(os.pidfd_open(program), select.POLLIN)
    while True:
        if poll.poll(LOOK_S * 1000):
            return os.waitpid(program, 0)[1]
        processes, pages = 0, 0
        for entry in Path("/proc").iterdir():
            if entry.name.isdigit() and entry.name != "1":
                with contextlib.suppress(OSError):
                    pages += int((entry / "statm").read_text().split()[1])
                    processes += 1
        if processes > limits["processes"]:
            return f"had more than {limits['processes']:g} processes"
        if pages * _PAGE > limits["memory_mb"] * (1 << 20):
            return f"took more than {limits['memory_mb']:g} MB of memory"
        if time.monotonic() - began > limits["total_s"]:
            return f"ran for more than {limits['total_s']:g} s"
        # orphans
        while (found := os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)) and found.si_pid != program:
            os.waitpid(found.si_pid, 0)


def _accept(listener: socket.socket, gateway: str) -> None:
    while True:
        asking, _ = listener.accept()
        answering = socket.socket(socket.AF_UNIX)
        try:
            answering.connect(gateway)
        except OSError:
            asking.close()
            continue
        for one, other in ((asking, answering), (answering, asking)):
            threading.Thread(target=_pump, args=(one, other), daemon=True).start()


def _pump(one: socket.socket, other: socket.socket) -> None:
    """Passes on what one side sends, its end, and a connection that it broke off as one that is broken off."""
    try:
        while part := one.recv(1 << 16):
            other.sendall(part)
        other.shutdown(socket.SHUT_WR)
    except OSError:
        for side in (one, other):
            with contextlib.suppress(OSError):
                side.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                side.shutdown(socket.SHUT_RDWR)
                side.close()
