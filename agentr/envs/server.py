"""Our own environment servers: each a child process under an actor that restarts it.

A child and not a server inside the actor: it may run under another interpreter with packages of its own, a crash in
native code takes only the child, and an environment that blocks does not stop the actor from noticing.
"""

import contextlib
import http.client
import json
import logging
import os
import re
import secrets
import select
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from urllib.parse import urlsplit

import env_servers
from agentr.backoff import Backoff
from agentr.cluster import metrics, push
from agentr.cluster.nodes import own_address
from agentr.cluster.restarts import Restarts
from agentr.config.identity import flatten
from agentr.config.schema import EnvConfig
from agentr.envs import scrape
from agentr.errors import InfraError
from agentr.logs import recording
from agentr.secrets import Secret, SecretKind
from agentr.store.files import make_folder
from env_servers.protocol import TOKEN_ENV

log = logging.getLogger(__name__)

#: Variables that a server gets of this process's: those of the system, of languages and accelerators, and of
#: environments' data. Not keys and tokens, unless an option of the environment names one (``key_env``).
_HANDED_ON = re.compile(
    r"(PATH|HOME|USER|LOGNAME|SHELL|LANG|LANGUAGE|TZ|TMPDIR|TEMP|TMP|COLUMNS|VIRTUAL_ENV|LD_LIBRARY_PATH|LD_PRELOAD|DISPLAY|SSL_CERT_\w+|"
    r"(LC|XDG|PYTHON|JAVA|JDK|OMP|MKL|OPENBLAS|CUDA|NVIDIA|TOKENIZERS|MALLOC|CONDA)_?\w*|\w+_(DATA|HOME|DIR|PATH|ROOT|CACHE)|"
    r"HF_HUB_OFFLINE|TRANSFORMERS_OFFLINE|(https?|no|all)_proxy|(HTTPS?|NO|ALL)_PROXY|(ALFWORLD|AGENTR_RETRIEVAL)_\w+|SERPER_API_KEY)$"
)

#: Bytes of the child's log that an error quotes.
LOG_TAIL = 2000
#: Seconds between two looks at the child's metrics.
METRICS_S = 5.0
RESTART_BACKOFF = Backoff(first_s=0.2, longest_s=30.0)


@dataclass(frozen=True)
class Supervision:
    """Rules for a child: when it counts as dead, and how often it is started again.

    Attributes:
        start_timeout_s: Deadline for a child to listen.
        poll_s: Time between two looks at its health, and the deadline of one.
        strikes: Failed looks in a row after which it is killed.
        max_restarts: Restarts within ``window_s``; one more and the server is given up.
        backoff: Waits before restarts, by their number within the window.
    """

    start_timeout_s: float = 60.0
    poll_s: float = 2.0
    strikes: int = 3
    max_restarts: int = 5
    window_s: float = 600.0
    backoff: Backoff = RESTART_BACKOFF


class ServerState(StrEnum):
    STARTING = "starting"
    """No child listens: the first is being started, or a dead one replaced."""
    UP = "up"
    FAILED = "failed"
    """Given up; ``ServerStatus.error`` says why."""
    STOPPED = "stopped"


@dataclass(frozen=True)
class ServerStatus:
    """A supervisor's view of its child; ``url``, ``epoch`` and ``pid`` are those of the last child that listened."""

    state: ServerState
    url: str = ""
    epoch: str = ""
    pid: int = 0
    restarts: int = 0
    error: str = ""


class _Killed(InfraError):
    """A child was killed before it listened."""


class EnvServer:
    """Supervises one server process. The constructor returns once it listens, so a restarted actor is ready by itself.

    One thread starts, watches and restarts the child, and lives as long as this object does: the kernel kills the child
    when the thread that started it ends (`env_servers.serving.die_with_parent`), so it dies with this process even on
    SIGKILL.

    Args:
        config: Name, options and interpreter of the environment. Another interpreter needs env_servers installed.
        token: Bearer token; reaches the child in its environment, never on a command line.
        log_path: Where the child's output is appended.
        host: Address to bind; empty for the node's own, so that other nodes reach it. Never 0.0.0.0.
        restarts: Counts how often this supervisor itself is started.
        run, number: Of the run and of the server, for its metrics.

    Raises:
        InfraError: The first child did not listen in time, or ended by itself; quotes its log. One that was killed is
            started again.
    """

    def __init__(
        self,
        config: EnvConfig,
        token: str | Secret,
        log_path: str,
        *,
        host: str = "127.0.0.1",
        supervision: Supervision | None = None,
        restarts: Restarts | None = None,
        run: str = "",
        number: int = 0,
    ) -> None:
        self._number = number
        self._starts = restarts.count() if restarts is not None else 0
        self._rules = supervision or Supervision()
        self._log_path = Path(log_path)
        make_folder(self._log_path.parent)
        self._token = Secret(SecretKind.ENVIRONMENT, TOKEN_ENV, token)
        self._command, self._environ = _command(config, host or own_address()), _environ(config, self._token)
        self._status = ServerStatus(ServerState.STARTING)
        self._restarted: deque[float] = deque()
        self._stopping = threading.Event()
        self._settled = threading.Event()
        self._child: subprocess.Popen[bytes] | None = None
        self._thread = threading.Thread(target=self._supervise, name=f"env-server-{config.name}", daemon=True)
        self._thread.start()
        self._settled.wait(self._rules.start_timeout_s + 10.0)
        if self._status.state is not ServerState.UP:
            error = self._status.error or "it did not settle"
            self.stop()
            raise InfraError(f"the environment server {config.name!r} did not start: {error}")
        self._pusher = push.start(run, f"env-{number}", self._samples, METRICS_S)

    def status(self) -> ServerStatus:
        return self._status

    def url(self) -> str:
        """The base URL of the child.

        Raises:
            InfraError: None listens now; it says whether that may change.
        """
        status = self._status
        if status.state is ServerState.UP:
            return status.url
        if status.state is ServerState.STARTING:
            raise InfraError("the environment server is being restarted", hint="Try again in a few seconds.")
        raise InfraError(f"the environment server is {status.state}: {status.error}", hint=f"See {self._log_path}.")

    def stop(self) -> None:
        """Ends the child: SIGTERM, and SIGKILL after 3 s."""
        self._stopping.set()
        for end in (subprocess.Popen.terminate, subprocess.Popen.kill):
            if self._child is not None and self._child.poll() is None:
                end(self._child)
            self._thread.join(3.0)

    def _samples(self) -> Iterator[metrics.MetricSample]:
        """The summary of the child, and what it counts."""
        status = self._status
        yield metrics.MetricSample(metrics.RESTARTS, self._starts, {"part": f"supervisor-{self._number}"})
        yield metrics.MetricSample(metrics.RESTARTS, status.restarts)
        counted = ""
        with contextlib.suppress(OSError, http.client.HTTPException):
            counted = (
                scrape.fetch(status.url, self._token, self._rules.poll_s) if status.state is ServerState.UP else ""
            )
        yield metrics.MetricSample(metrics.ENV_UP, float(bool(counted)))
        yield from scrape.samples(counted)

    # the supervising thread -------------------------------------------------------------------------------------------

    def _supervise(self) -> None:
        reason = ""
        with recording(self._log_path.with_suffix(".jsonl"), "environment"):
            while not self._stopping.is_set():
                try:
                    child, line = self._launch()
                except InfraError as error:
                    reason = str(error)
                    if not (self._settled.is_set() or isinstance(error, _Killed)):  # wrong options fail every time
                        self._set(ServerState.FAILED, error=reason)
                        break
                else:
                    self._set(ServerState.UP, url=line["url"], epoch=line["epoch"], pid=child.pid)
                    self._settled.set()
                    reason = self._watch(child, line["url"])
                if self._stopping.is_set() or not self._may_restart(reason):
                    break
            if self._stopping.is_set():
                self._set(ServerState.STOPPED)
            self._settled.set()

    def _launch(self) -> tuple[subprocess.Popen[bytes], dict[str, str]]:
        """A child that listens, and the line that it printed."""
        with self._log_path.open("ab") as log:
            try:
                child = subprocess.Popen(
                    self._command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=log, env=self._environ
                )
            except OSError as error:
                raise InfraError(f"{self._command[0]} cannot be started: {error}") from error
        self._child = child
        if self._stopping.is_set():  # after stop() looked for a child to end
            child.kill()
        return child, _printed(child, self._rules.start_timeout_s, self._log_path)

    def _watch(self, child: subprocess.Popen[bytes], url: str) -> str:
        """Watches the child until it is dead; returns the cause."""
        strikes = 0
        while True:
            try:
                code = child.wait(self._rules.poll_s)
                return f"the process ended with status {code}"
            except subprocess.TimeoutExpired:
                pass
            strikes = 0 if _healthy(url, self._rules.poll_s) else strikes + 1
            if strikes >= self._rules.strikes:
                child.kill()
                child.wait()
                return f"{strikes} looks at {url}/health in a row failed"

    def _may_restart(self, reason: str) -> bool:
        """Waits for the time of the next restart; False if there must be none."""
        now = time.monotonic()
        while self._restarted and now - self._restarted[0] > self._rules.window_s:
            self._restarted.popleft()
        recent = len(self._restarted)
        if recent >= self._rules.max_restarts:
            self._set(
                ServerState.FAILED,
                error=f"given up after {recent} restarts within {self._rules.window_s:g} s, at last: {reason}",
            )
            log.error("the server was %s", self._status.error)
            return False
        log.warning("the server is started again: %s", reason)
        self._restarted.append(now)
        self._set(ServerState.STARTING, restarts=self._status.restarts + 1, error=reason)
        return not self._stopping.wait(self._rules.backoff.pause_s(recent))

    def _set(self, state: ServerState, **changes: str | int) -> None:
        """Replaces the status in one assignment: other threads read it without a lock."""
        self._status = ServerStatus(**{**vars(self._status), **changes, "state": state})


def _command(config: EnvConfig, host: str) -> list[str]:
    own = ["serve", config.name, "--host", host, "--die-with-parent", str(os.getpid())]
    options = [word for name, value in config.options.items() for word in ("--option", f"{name}={json.dumps(value)}")]
    return [config.python or sys.executable, "-m", "env_servers", *own, *options]


def _environ(config: EnvConfig, token: Secret) -> dict[str, str]:
    named = {str(value) for key, value in flatten(config.options) if key.endswith("_env")}
    handed = {name: value for name, value in os.environ.items() if name in named or _HANDED_ON.match(name)}
    handed |= {TOKEN_ENV: token.reveal(), "PYTHONUNBUFFERED": "1"}
    if not config.python:
        # Our interpreter finds the package wherever this process did, installed or not.
        root = str(Path(env_servers.__file__).parents[1])
        handed["PYTHONPATH"] = os.pathsep.join(filter(None, [root, os.environ.get("PYTHONPATH")]))
    return handed


def _printed(child: subprocess.Popen[bytes], timeout_s: float, log_path: Path) -> dict[str, str]:
    """The line that a child prints once it listens.

    Raises:
        InfraError: There was none in time, and the child was killed; quotes the end of its log.
    """
    assert child.stdout is not None
    deadline, printed = time.monotonic() + timeout_s, b""
    with child.stdout as pipe:
        while not printed.endswith(b"\n"):
            left = deadline - time.monotonic()
            ready = left > 0 and select.select([pipe], [], [], left)[0]
            chunk = os.read(pipe.fileno(), 4096) if ready else b""
            if not chunk:
                child.kill()
                code = child.wait()
                how = f"ended with status {code}" if ready else f"did not listen within {timeout_s:g} s"
                failure, tail = _Killed if ready and code < 0 else InfraError, "(no log)"
                with contextlib.suppress(OSError):
                    tail = log_path.read_bytes()[-LOG_TAIL:].decode("utf-8", "replace").strip()
                raise failure(f"it {how}; the end of {log_path}: {tail}")
            printed += chunk
    return json.loads(printed)


def _healthy(url: str, timeout_s: float) -> bool:
    """Checks whether ``/health`` answers 200 in time. No proxy is ever asked."""
    connection = http.client.HTTPConnection(urlsplit(url).netloc, timeout=timeout_s)
    try:
        connection.request("GET", "/health")
        return connection.getresponse().status == 200
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()


def new_token() -> Secret:
    """A bearer token for one run."""
    return Secret(SecretKind.ENVIRONMENT, TOKEN_ENV, secrets.token_urlsafe(32))
