"""Joins a Ray cluster, or starts one on this machine."""

import os
import resource
import secrets
import shutil
import signal
import socket
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from agentr.cluster.ray_private import session_folder, started_here
from agentr.config.cluster import ClusterConfig
from agentr.errors import InfraError
from agentr.secrets import Secret, SecretKind, quoted

#: Beginning of the names of modules whose classes are sent to other processes by value: those that were read from a
#: user's file.
BY_VALUE = "agentr_method_"

#: Shared memory of a local cluster's object store: trees and weights travel as files.
OBJECT_STORE_MIB = 200

#: What Ray writes to its folder at the least: logs of its processes.
_LEAST_BYTES = 4 * 2**20

#: Seconds within which a start of Ray must end once it is to.
_END_S = 3.0

_TOKEN_HINT = (
    "If it uses token authentication, set RAY_AUTH_MODE=token and RAY_AUTH_TOKEN (or RAY_AUTH_TOKEN_PATH) here too."
)


def connect(cluster: ClusterConfig) -> Any:
    """Joins a Ray cluster or starts one on this machine, and returns the ``ray`` module.

    A local cluster gets a token of its own, so that nobody else on the machine's network can use it. On a cluster that
    is joined the user's own ``RAY_AUTH_MODE`` and token apply.

    Raises:
        InfraError: The cluster cannot be joined; says what to check.
    """
    address = cluster.address or os.environ.get("RAY_ADDRESS", "")
    token = Secret.read(SecretKind.RAY, "RAY_AUTH_TOKEN")
    if not address:
        # Ray reads these once, when it is imported.
        os.environ["RAY_AUTH_MODE"] = "token"
        os.environ["RAY_AUTH_TOKEN"] = token.reveal() or secrets.token_hex(32)
        os.environ.setdefault("RAY_raylet_start_wait_time_s", "180")
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    import ray
    from ray.exceptions import RayError

    send_by_value()
    quiet = {"log_to_driver": False, "configure_logging": True, "logging_level": "ERROR", "namespace": "agentr"}
    with _own_signals():
        if not address:
            _start_here(ray, cluster, quiet)
            return ray
        try:
            ray.init(address=address, **quiet)
        except (ConnectionError, RuntimeError, ValueError, RayError) as error:
            hint = f"Is it up? {_TOKEN_HINT}"
            raise InfraError(f"the Ray cluster at {address!r} cannot be joined: {quoted(error)}", hint=hint) from None
    return ray


def leave(ray: Any, *, keep_logs: bool = False) -> None:
    """Leaves the cluster. One that ``connect`` started ends, and its files are deleted.

    Args:
        ray: What ``connect`` returned.
        keep_logs: Keep these files, for their logs.
    """
    own, session = started_here(), session_folder()
    ray.shutdown()
    if own and not keep_logs:
        shutil.rmtree(session, ignore_errors=True)


def is_rays(error: BaseException) -> bool:
    """Returns whether an error is one of Ray's.
    Ray is not imported for that: its errors come of a Ray that is there."""
    exceptions = sys.modules.get("ray.exceptions")
    return exceptions is not None and isinstance(error, exceptions.RayError)


def send_by_value() -> None:
    """Makes Ray send what is defined in users' files by value.
    Called once Ray may be imported: it reads its environment then."""
    import ray.cloudpickle

    for name, module in list(sys.modules.items()):
        if name.startswith(BY_VALUE):
            ray.cloudpickle.register_pickle_by_value(module)


def joined(cluster: ClusterConfig) -> bool:
    """Returns whether the cluster is one that was there before, not one that this process started."""
    return bool(cluster.address or os.environ.get("RAY_ADDRESS", ""))


def _start_here(ray: Any, cluster: ClusterConfig, quiet: dict[str, Any], attempts: int = 2) -> None:
    """Starts Ray on this machine.
    A start that fails is tried again: beside another one that starts, or on a busy machine, it may."""
    _require_room()
    for left in reversed(range(attempts)):
        try:
            ray.init(
                address="local",
                num_cpus=max(cluster.cpus or (os.cpu_count() or 1), 2),
                include_dashboard=cluster.dashboard,
                object_store_memory=OBJECT_STORE_MIB * 2**20,
                **quiet,
            )
            return
        except Exception as error:  # Ray raises no type of its own here
            ray.shutdown()
            if not left:
                hint = (
                    "Is the machine overloaded, or short of memory or disk? Ray's logs are in "
                    f"{_ray_folder()}/ray/session_latest/logs."
                )
                raise InfraError(f"Ray did not start on this machine: {error}", hint=hint) from error


def _require_room() -> None:
    """Checks that Ray may write what it needs to start: it would not report it, and be waited for.

    Raises:
        InfraError: A limit of this process, or of the disk that Ray's own files are on.
    """
    limit, wanted = resource.getrlimit(resource.RLIMIT_FSIZE)[0], (OBJECT_STORE_MIB + 1) * 2**20
    if limit != resource.RLIM_INFINITY and limit < wanted:
        hint = "Raise the limit (ulimit -f unlimited)."
        allowed = f"this process may write files of {limit / 2**20:.1f} MiB at most"
        raise InfraError(
            f"Ray cannot start on this machine: {allowed}, and Ray's object store is one of {wanted // 2**20} MiB",
            hint=hint,
        )
    folder = _ray_folder()
    try:
        Path(folder).mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder) as file:
            file.write(bytes(_LEAST_BYTES))
    except OSError as error:
        hint = "Free some space there, or set RAY_TMPDIR to a folder on another disk, whose path is short."
        raise InfraError(
            f"Ray cannot start on this machine: {folder} cannot be written: {error.strerror}", hint=hint
        ) from error


def _ray_folder() -> str:
    """Returns the folder below which Ray keeps its own files, by its own rules."""
    return os.environ.get("RAY_TMPDIR") or os.environ.get("TMPDIR") or "/tmp"


@contextmanager
def _own_signals() -> Iterator[None]:
    """Ends a start that is to end, and puts this process's handlers back that Ray replaces.

    Ray's own handlers end the process in the middle of whatever it does, with a status of theirs. While Ray waits for
    processes of its own in native code, no handler of Python's runs, and a signal to the process group ends what it
    waits for: a thread hears of it and ends this process. What Ray started ends with it.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    heard, hear = socket.socketpair()
    hear.setblocking(False)
    wakeup = signal.set_wakeup_fd(hear.fileno(), warn_on_full_buffer=False)
    threading.Thread(target=_end_in_time, args=(heard,), name="ray-start", daemon=True).start()
    try:
        yield
    except SystemExit as end:
        raise SystemExit(128 + signal.SIGTERM if end.code == signal.SIGTERM else end.code) from None
    finally:
        signal.set_wakeup_fd(wakeup)
        hear.close()
        for number, handler in before.items():
            if handler is not None:
                signal.signal(number, handler)


def _end_in_time(heard: socket.socket) -> None:
    with heard:
        number = next(
            (byte[0] for byte in iter(lambda: heard.recv(1), b"") if byte[0] in (signal.SIGTERM, signal.SIGHUP)), 0
        )
        heard.settimeout(_END_S)
        try:
            while number and heard.recv(1):
                pass
        except TimeoutError:
            sys.stderr.write(
                "stopped while Ray started; what is finished is kept. Start the same run again: it goes on.\n"
            )
            os._exit(128 + number)
