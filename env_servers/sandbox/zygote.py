"""The process inside the sandbox: it has imported its packages already and forks for each call.

The zygote never sees a call's code or output: with each request it receives three descriptors (the code, a pipe for the
output, a pipe for the exit status), hands them to a new process and answers with a descriptor of that process, through
which the other side watches and kills it. So nothing of one call is left in memory that the next one inherits.

A call is two processes. The first is process 1 of the call's own namespaces (processes, mounts, IPC) and does the
mounts; when it ends, for whatever reason, the kernel ends all that the call has started. The second gives up every
privilege and runs the code.
"""

import contextlib
import gc
import json
import os
import resource
import site
import socket
import struct
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from env_servers.sandbox import kernel
from env_servers.sandbox.cells import run_cells

#: Descriptors of the second process while it prepares. The zygote has its socket and /dev/null there, so those of a
#: request are higher.
OUTPUT, STATUS = 3, 4


def main() -> None:
    """Serves the socket on descriptor 0 until its other end is closed. ``argv[1]``: what ``Sandbox`` wants, as JSON."""
    if kernel.stop_moving_addresses():  # so that what prints an address prints the same one in every server
        os.execv(sys.orig_argv[0], sys.orig_argv)
    config, control = json.loads(sys.argv[1]), taken_over()
    exec(config["setup"], {})
    sys.path.remove(config["own_code"])
    for name in [name for name in sys.modules if name.partition(".")[0] == "env_servers"]:
        del sys.modules[name]
    site.setquit()
    Path("/proc/self/oom_score_adj").write_text("1000")
    config["base_bytes"] = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    serve(control, lambda *descriptors: _first_process(config, *descriptors))


def taken_over() -> socket.socket:
    """Returns the socket on descriptor 0, on which there is nothing any more."""
    control = socket.socket(fileno=os.dup(0))
    os.dup2(os.open(os.devnull, os.O_RDWR), 0)
    return control


def serve(control: socket.socket, first_process: Callable[[int, int, int], object], namespaces: int = 0) -> None:
    """Forks for each request on a socket, until its other end is closed.

    Args:
        first_process: What process 1 of the request's own namespaces does: with a request, a pipe for output, and one
            for how it ended. It must not return.
        namespaces: Those that it has beside processes, mounts and IPC.
    """
    gc.collect()
    gc.freeze()
    socket.send_fds(control, [b"r"], [os.pidfd_open(os.getpid())])
    while True:
        message, descriptors, _, _ = socket.recv_fds(control, 1, 3)
        if not message:
            return
        _forget_ended_calls()
        child = kernel.fork_into(kernel.CLONE_NEWPID | kernel.CLONE_NEWNS | kernel.CLONE_NEWIPC | namespaces)
        if child == 0:
            first_process(*descriptors)
        handle = os.pidfd_open(child)
        socket.send_fds(control, [b"c"], [handle])
        for descriptor in (handle, *descriptors):
            os.close(descriptor)


def _forget_ended_calls() -> None:
    with contextlib.suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass


def _first_process(config: dict[str, Any], request: int, output: int, status: int) -> None:
    with _reporting(status):
        os.setsid()  # a process group reaches beyond the namespace of its processes
        kernel.mount("tmpfs", "/proc", "tmpfs", kernel.MS_RDONLY)
        size = f"mode=1777,size={config['limits']['files_mb']}m,nr_inodes=4096"
        kernel.mount("tmpfs", "/tmp", "tmpfs", kernel.MS_NOSUID | kernel.MS_NODEV, size)
        os.chdir("/tmp")
        child = os.fork()
        if child == 0:
            _second_process(config, request, output, status)
        ended = 0
        while ended != child:
            ended, code = os.waitpid(-1, 0)
        os.write(status, struct.pack("i", code))
    os._exit(0)


def _second_process(config: dict[str, Any], request: int, output: int, status: int) -> None:
    with _reporting(status):
        with open(request, encoding="utf-8") as file:
            asked = json.load(file)
        os.dup2(output, OUTPUT, inheritable=False)
        os.dup2(status, STATUS, inheritable=False)
    with _reporting(STATUS):
        os.closerange(STATUS + 1, 1 << 20)
        _give_up_privileges(config)
    os.close(STATUS)
    code = 1
    try:
        code = run_cells(asked["cells"], OUTPUT, asked["mark"].encode())
    finally:
        os._exit(code)


def _give_up_privileges(config: dict[str, Any]) -> None:
    limits = config["limits"]
    for resource_, value in (
        (resource.RLIMIT_AS, config["base_bytes"] + (limits["memory_mb"] << 20)),
        (resource.RLIMIT_FSIZE, limits["files_mb"] << 20),
        (resource.RLIMIT_NOFILE, limits["open_files"]),
        (resource.RLIMIT_CORE, 0),
        (resource.RLIMIT_MEMLOCK, 0),
    ):
        resource.setrlimit(resource_, (value, value))
    resource.setrlimit(resource.RLIMIT_CPU, (limits["cpu_s"], limits["cpu_s"] + 1))  # SIGXCPU, then SIGKILL
    if config["uid"] is not None:
        os.setgroups([])
        os.setresgid(*[config["uid"]] * 3)
        os.setresuid(*[config["uid"]] * 3)
    # RLIMIT_NPROC, set within a user namespace, counts the user's processes there: with one of its own, only those of
    # this call.
    with contextlib.suppress(OSError):
        kernel.unshare(kernel.CLONE_NEWUSER)
    resource.setrlimit(resource.RLIMIT_NPROC, (limits["processes"], limits["processes"]))
    kernel.drop_capabilities()
    kernel.filter_system_calls()


@contextlib.contextmanager
def _reporting(status: int) -> Iterator[None]:
    """Reports a failure of the block through ``status`` and ends the process."""
    try:
        yield
    except Exception as error:  # noqa: BLE001 - whatever it is, nobody else could report it
        os.write(status, f"!{type(error).__name__}: {error}".encode())
        os._exit(1)
