"""Several hosts on one machine, for tests of what breaks only between hosts.

A host is a set of namespaces (network, processes, mounts, name, IPC). Its 127.0.0.1, ``/tmp`` and ``/dev/shm`` are its
own; its address ``127.9.0.x`` exists only on the bridge between the hosts, which leads nowhere else. The machine's
other files, its cores, memory and devices are common to all.

No namespace has a name, and the bridge is in one of its own. So nothing of the machine's network is touched, and any
number of ``Hosts`` exist side by side with the same addresses. A host lives as long as its first process, which ends
when its standard input does: with the process that made it, however that ends. So nothing is left behind.

    with Hosts(3, shared=tmp_path, hide=[tmp_path / "run"]) as hosts:
        ray = RayHosts(hosts, tmp_path / "ray")
        ray.head(hosts[0])
        ray.worker(hosts[1], labels={"agentr-role": "env"})
        ray.wait(2)
        hosts[0].run("ray", "status", env=ray.environment())
        hosts[1].cut()
"""

from __future__ import annotations

import ctypes
import os
import secrets
import select
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from functools import cache
from pathlib import Path
from shlex import quote
from types import TracebackType
from typing import Any, Self

import pytest

_REPOSITORY = Path(__file__).resolve().parents[1]
_CLONE_NEWPID = 0x20000000
#: Seconds within which namespaces come and go; both take milliseconds on an idle machine.
_PATIENCE_S = 30.0
#: What holds namespaces open: ends with its standard input. As the first process of a PID namespace it inherits
#: orphans; with SIGCHLD ignored the kernel reaps them.
_HOLD = "echo ready; exec env --ignore-signal=CHLD cat"


@cache
def unavailable() -> str:
    """Says why hosts cannot be made here, by trying each thing they need; "" if they can."""
    if sys.platform != "linux":
        return "hosts are Linux namespaces"
    if os.geteuid() != 0:
        return "hosts need root"
    if missing := [command for command in ("ip", "mount", "nsenter", "unshare") if shutil.which(command) is None]:
        return f"hosts need the commands {', '.join(missing)}"
    parts = (
        "mount -t tmpfs tmpfs /tmp",
        "mount -t proc proc /proc",
        "echo 1 > /proc/sys/net/ipv4/conf/all/route_localnet",
        "ip link add bridge type bridge",
        "ip link add host type veth peer name eth0",
    )
    command = ("unshare", "--mount", "--uts", "--ipc", "--net", "--pid", "--kill-child", "sh", "-exc", "\n".join(parts))
    try:
        subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=_PATIENCE_S, check=True
        )
    except subprocess.TimeoutExpired:
        return f"hosts cannot be made: no namespaces within {_PATIENCE_S:g} s"
    except subprocess.CalledProcessError as error:
        return f"hosts cannot be made: {error.stderr.strip()}"
    return ""


class Host:
    """One of ``Hosts``, which makes them.

    Attributes:
        name: Its host name, ``host1`` and so on. All hosts know the names of all.
        address: Its IPv4 address towards the other hosts.
    """

    def __init__(self, number: int, hosts: Hosts) -> None:
        self.name = f"host{number}"
        self.address = f"127.9.0.{10 + number}"
        self._hardware = f"02:00:7f:09:00:{10 + number:02x}"  # the same after a boot, as its peers remember it
        self._first = number == 1
        self._hosts = hosts
        self._init: subprocess.Popen[bytes] | None = None
        self._processes: list[subprocess.Popen[Any]] = []

    @property
    def alive(self) -> bool:
        """Whether it has been booted and not been killed since."""
        return self._init is not None and self._init.poll() is None

    def run(
        self,
        *command: str,
        env: Mapping[str, str] | None = None,
        cwd: Path | None = None,
        timeout: float = 60.0,
        check: bool = True,
    ) -> subprocess.CompletedProcess[str]:
        """Runs a command to its end and keeps what it writes.

        Args:
            command: Program and arguments; the programs of this Python's virtual environment are found first.
            env: Variables besides those of this process. Without it the command sees none of this process's ``RAY_*``.
            cwd: Folder as the host sees it; by default the repository.
            timeout: Seconds, after which the command and its process group are killed.
            check: Whether an exit status other than 0 is an error.

        Raises:
            RuntimeError: The host is dead.
            subprocess.TimeoutExpired: After ``timeout`` seconds.
            subprocess.CalledProcessError: With ``check``, if the command failed or was killed; notes tell what it
                wrote.
        """
        process = self._spawn(command, env, cwd, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        with process:
            try:
                stdout, stderr = process.communicate(timeout=timeout)
            except BaseException:  # also when interrupted
                with suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
                raise
        if check and process.returncode != 0:
            error = subprocess.CalledProcessError(process.returncode, command, stdout, stderr)
            error.add_note(f"on {self.name}:\n{stdout[-4000:]}{stderr[-4000:]}")
            raise error
        return subprocess.CompletedProcess(command, process.returncode, stdout, stderr)

    def start(
        self, *command: str, log: Path, env: Mapping[str, str] | None = None, cwd: Path | None = None
    ) -> subprocess.Popen[bytes]:
        """Starts a command, whose output is appended to a file of this machine. It ends with the host at the latest.

        The command leads a process group and is a child of this process: signals to the returned process reach it.

        Args:
            env: As in ``run``.
            cwd: As in ``run``.

        Raises:
            RuntimeError: The host is dead.
        """
        with log.open("ab") as file:
            return self._spawn(command, env, cwd, stdout=file, stderr=subprocess.STDOUT)

    def cut(self) -> None:
        """Cuts its link: packets from and to it are lost, its address and its connections stay.

        Raises:
            RuntimeError: The host is dead.
        """
        self._running()
        self._hosts.bridge(f"link set {self.name} down")

    def join(self) -> None:
        """Mends its link.

        Raises:
            RuntimeError: The host is dead.
        """
        self._running()
        self._hosts.bridge(f"link set {self.name} up")

    def kill(self) -> None:
        """Kills all its processes at once; returns when they are dead.

        Its memory, ``/tmp`` and link are gone with them. Its peers hear that their connections close, as when a machine
        is switched off by its operator; after ``cut`` they hear nothing, as in a power failure. Without effect on a
        dead host.

        Raises:
            subprocess.TimeoutExpired: A process does not die.
        """
        init, self._init = self._init, None
        if init is None:
            return
        init.kill()
        # A PID namespace ends only after the zombies of those that were born from outside are reaped outside, by us.
        for process in (*self._processes, init):
            process.wait(_PATIENCE_S)
        self._processes.clear()
        for pipe in (init.stdin, init.stdout):
            assert pipe is not None
            pipe.close()
        with suppress(RuntimeError):  # the kernel removes it too, some time after the namespace of its other side
            self._hosts.bridge(f"link del {self.name}")

    def boot(self) -> None:
        """Brings it up, with an empty ``/tmp`` and a link.

        Raises:
            RuntimeError: It is alive, or this machine does not let it be made.
        """
        if self.alive:
            raise RuntimeError(f"{self.name} is alive: kill it before you boot it")
        self.kill()  # clears up after one whose first process died by itself
        script = "\n".join((*self._mounts(), f"echo {self.name} > /proc/sys/kernel/hostname", _HOLD))
        command = ("unshare", "--mount", "--uts", "--ipc", "--net", "sh", "-ec", script)
        self._init = _hold(self.name, command, lambda libc: libc.unshare(_CLONE_NEWPID))
        try:
            self._connect(self._init.pid)
        except BaseException:  # also when interrupted
            self.kill()
            raise

    def _connect(self, pid: int) -> None:
        """Gives the network namespace of a process its addresses and a link to the bridge."""
        self._hosts.bridge(
            f"link add {self.name} type veth peer name eth0 address {self._hardware} netns {pid}",
            f"link set {self.name} master bridge up",
        )
        _ip(
            pid,
            "link set lo up",  # which gives it 127.0.0.1/8: all the others' addresses, where local routes come first
            "addr del 127.0.0.1/8 dev lo",
            "addr add 127.0.0.1/32 dev lo",
            f"addr add {self.address}/24 scope global dev eth0",
            "link set eth0 up",
        )

    def _mounts(self) -> Iterator[str]:
        """Shell commands that make its view of the file system.
        What stays visible below ``/tmp`` is bound into the new one before that covers the old one."""
        yield "mount -t tmpfs -o mode=1777 tmpfs /dev/shm"
        for folder in self._hosts.kept:
            target = Path("/dev/shm") / folder.relative_to("/tmp")
            yield f"mkdir -p {quote(str(target))}; mount --rbind {quote(str(folder))} {quote(str(target))}"
        yield "mount --move /dev/shm /tmp; mkdir /tmp/home"
        yield "mount -t tmpfs -o mode=1777 tmpfs /dev/shm"
        yield "mount -t proc proc /proc"
        yield "echo 1 > /proc/sys/net/ipv4/conf/all/route_localnet"
        names = ["127.0.0.1 localhost", *(f"{host.address} {host.name}" for host in self._hosts)]
        yield f"printf '%s\\n' {' '.join(quote(name) for name in names)} > /dev/shm/hosts"
        yield "mount --bind /dev/shm/hosts /etc/hosts; rm /dev/shm/hosts"
        for folder in () if self._first else self._hosts.hide:
            yield f"mount -t tmpfs tmpfs {quote(str(folder))}"

    def _spawn(
        self, command: Sequence[str], env: Mapping[str, str] | None, cwd: Path | None, **streams: Any
    ) -> subprocess.Popen[Any]:
        init = self._running()
        outer = {
            key: value
            for key, value in os.environ.items()
            if not key.startswith("RAY_") and key not in ("TMPDIR", "TMP", "TEMP")
        }
        inner = {
            "PATH": f"{Path(sys.executable).parent}:{os.environ.get('PATH', os.defpath)}",
            "HOME": "/tmp/home",
            "GLOO_SOCKET_IFNAME": "eth0",
        }
        enter = (
            "nsenter",
            f"--target={init.pid}",
            "--mount",
            "--uts",
            "--ipc",
            "--net",
            "env",
            f"--chdir={cwd or _REPOSITORY}",
            "--",
        )
        namespace = os.open(f"/proc/{init.pid}/ns/pid", os.O_RDONLY)
        try:
            process = _popen(
                (*enter, *command),
                lambda libc: libc.setns(namespace, _CLONE_NEWPID),
                env=outer | inner | dict(env or {}),
                stdin=subprocess.DEVNULL,
                **streams,
            )
        finally:
            os.close(namespace)
        self._processes = [known for known in self._processes if known.poll() is None] + [process]
        return process

    def _running(self) -> subprocess.Popen[bytes]:
        if self._init is None or not self.alive:
            raise RuntimeError(f"{self.name} is dead: boot it first")
        return self._init


class Hosts:
    """Hosts that reach each other; a context manager that boots them, and kills them at its end."""

    def __init__(self, count: int, *, shared: Path | None = None, hide: Sequence[Path] = ()) -> None:
        """
        Args:
            shared: A folder that all hosts see at its own path although it is below ``/tmp``. Folders elsewhere, except
                in ``/dev/shm``, are seen anyway.
            hide: Folders, made if there are none, that only the first host sees; the others have an empty one of their
                own in each place.
        """
        self.hide = [folder.resolve() for folder in hide]
        needed = (shared, _REPOSITORY, Path(sys.prefix), Path(sys.base_prefix))
        #: Folders below /tmp that its hosts see: the shared one, and what Python needs if it is there.
        self.kept = [
            path for folder in needed if folder is not None and (path := folder.resolve()).is_relative_to("/tmp")
        ]
        self._hosts = [Host(number, self) for number in range(1, count + 1)]
        self._switch: subprocess.Popen[bytes] | None = None

    def __getitem__(self, index: int) -> Host:
        return self._hosts[index]

    def __iter__(self) -> Iterator[Host]:
        return iter(self._hosts)

    def __len__(self) -> int:
        return len(self._hosts)

    def __enter__(self) -> Self:
        """Boots all.

        Raises:
            RuntimeError: This machine does not let them be made.
        """
        try:
            for folder in self.hide:
                folder.mkdir(parents=True, exist_ok=True)
            self._switch = _hold("the bridge", ("unshare", "--net", "sh", "-ec", _HOLD), lambda libc: 0)
            self.bridge("link add bridge type bridge", "link set bridge up")
            for host in self._hosts:
                host.boot()
        except BaseException:  # also when interrupted
            self.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Kills all and takes their network away.

        Raises:
            subprocess.TimeoutExpired: A process does not die.
        """
        with ExitStack() as stack:
            if self._switch is not None:
                stack.enter_context(self._switch)  # closes its pipes and waits for it
                stack.callback(self._switch.kill)
            for host in self._hosts:
                stack.callback(host.kill)
        self._switch = None

    def bridge(self, *lines: str) -> None:
        """Runs ``ip`` where the bridge and its side of all links are.

        Raises:
            RuntimeError: A line failed, or the hosts are not up.
        """
        if self._switch is None:
            raise RuntimeError("the hosts are not up: use them in a with statement")
        _ip(self._switch.pid, *lines)


class RayHosts:
    """A Ray cluster on ``Hosts``, with token authentication. It ends with its hosts."""

    def __init__(self, hosts: Hosts, folder: Path, *, settings: Mapping[str, str] | None = None) -> None:
        """
        Args:
            folder: Where the token and the logs of ``ray start`` are; all hosts must see it.
            settings: Variables of Ray's daemons, such as ``RAY_health_check_timeout_ms``.
        """
        folder.mkdir(parents=True, exist_ok=True)
        self._hosts = hosts
        self._folder = folder
        self._daemons = {"RAY_raylet_start_wait_time_s": "180", **(settings or {})}
        self._token = folder / "token"
        self._token.touch(mode=0o600)
        self._token.write_text(secrets.token_hex(32))
        self._head: Host | None = None
        self._dashboard = False

    def head(
        self, host: Host, *, cpus: int = 0, labels: Mapping[str, str] | None = None, dashboard: bool = True
    ) -> None:
        """Starts the head; returns when nodes can join it.

        Args:
            dashboard: Whether it takes jobs.

        Raises:
            RuntimeError: It ended; with its log.
            TimeoutError: It does not answer.
        """
        self._head, self._dashboard = host, dashboard
        served = (f"--include-dashboard={dashboard}", f"--dashboard-host={host.address}", "--dashboard-port=8265")
        process = self._start(host, cpus, labels, "--head", "--port=6379", *served)
        deadline = time.monotonic() + 120
        probe = f"import socket; socket.create_connection(('{host.address}', 6379), 5)"
        while host.run(sys.executable, "-ISc", probe, check=False).returncode != 0:
            if process.poll() is not None:
                raise RuntimeError(f"the head on {host.name} ended:\n{self._log(host).read_text()[-4000:]}")
            if time.monotonic() > deadline:
                raise TimeoutError(f"the head on {host.name} does not answer:\n{self._log(host).read_text()[-4000:]}")
            time.sleep(0.1)

    def worker(self, host: Host, *, cpus: int = 1, labels: Mapping[str, str] | None = None) -> None:
        """Starts a node that joins the head; ``wait`` waits for it.

        Raises:
            RuntimeError: There is no head yet.
        """
        self._start(host, cpus, labels, f"--address={self.environment()['RAY_ADDRESS']}")

    def environment(self) -> dict[str, str]:
        """Returns the variables of clients, on any of the hosts.
        Drivers run on hosts that are nodes, others submit jobs.

        Raises:
            RuntimeError: There is no head yet.
        """
        head = self._known_head()
        return self._settings() | {
            "RAY_ADDRESS": f"{head.address}:6379",
            "RAY_API_SERVER_ADDRESS": f"http://{head.address}:8265",
        }

    def wait(self, nodes: int, timeout_s: float = 120.0) -> None:
        """Waits until exactly so many nodes are alive in the eyes of the head, and it takes jobs if it has a dashboard.

        Raises:
            RuntimeError: There is no head yet, or its host is dead.
            TimeoutError: After ``timeout_s`` seconds; with the last answer and the logs of the nodes.
        """
        command = (sys.executable, "-c", _WAIT, str(nodes), str(timeout_s), str(int(self._dashboard)))
        done = self._known_head().run(*command, env=self.environment(), timeout=timeout_s + 60, check=False)
        if done.returncode != 0:
            logs = "".join(
                f"\n{host.name}:\n{log.read_text()[-2000:]}"
                for host in self._hosts
                if (log := self._log(host)).exists()
            )
            raise TimeoutError(f"not {nodes} nodes within {timeout_s:g} s: {done.stdout}{done.stderr[-2000:]}{logs}")

    def _start(
        self, host: Host, cpus: int, labels: Mapping[str, str] | None, *arguments: str
    ) -> subprocess.Popen[bytes]:
        size = (
            "--object-store-memory=100000000",
            f"--num-cpus={cpus}",
            f"--node-ip-address={host.address}",
            "--disable-usage-stats",
        )
        labelled = ["--labels=" + ",".join(f"{key}={value}" for key, value in labels.items())] if labels else []
        command = ("ray", "start", "--block", *arguments, *size, *labelled)
        return host.start(*command, log=self._log(host), env=self._settings() | self._daemons)

    def _settings(self) -> dict[str, str]:
        """Variables of nodes and clients alike."""
        return {
            "HOME": "/tmp/home",
            "RAY_TMPDIR": "/tmp",
            "RAY_AUTH_MODE": "token",
            "RAY_AUTH_TOKEN_PATH": str(self._token),
            "RAY_USAGE_STATS_ENABLED": "0",
        }

    def _log(self, host: Host) -> Path:
        return self._folder / f"{host.name}.log"

    def _known_head(self) -> Host:
        if self._head is None:
            raise RuntimeError("the cluster has no head yet: start it with head()")
        return self._head


#: Asks the GCS itself, which answers without a driver of its own and without a dashboard.
_WAIT = """
import os, socket, sys, time
from ray._raylet import GcsClient
from ray.core.generated.gcs_pb2 import GcsNodeInfo
from ray.exceptions import RpcError

wanted, deadline, dashboard = int(sys.argv[1]), time.monotonic() + float(sys.argv[2]), sys.argv[3] == "1"
address = os.environ["RAY_ADDRESS"]
client = None
answer = "no answer"
while time.monotonic() < deadline:
    try:
        client = client or GcsClient(address=address)
        nodes = client.get_all_node_info(timeout=5).values()
        alive = sorted(node.node_manager_address for node in nodes if node.state == GcsNodeInfo.GcsNodeState.ALIVE)
        answer = f"alive are {alive}"
        if len(alive) == wanted:
            if dashboard:
                socket.create_connection((address.rpartition(":")[0], 8265), 5).close()
            sys.exit()
    except (OSError, RpcError) as error:
        answer = repr(error)
    time.sleep(0.2)
print(answer)
sys.exit(1)
"""


def _hold(name: str, command: Sequence[str], enter: Callable[[Any], int]) -> subprocess.Popen[bytes]:
    """Starts a process that says "ready" when its namespaces are, and holds them until its standard input ends."""
    process = _popen(command, enter, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    assert process.stdout is not None
    wait = select.poll()
    wait.register(process.stdout, select.POLLIN)
    said = process.stdout.readline() if wait.poll(_PATIENCE_S * 1000) else b"nothing in time"
    if said == b"ready\n":
        return process
    process.kill()
    rest, _ = process.communicate()
    raise RuntimeError(f"{name} cannot be made: {(said + rest).decode(errors='replace').strip()}")


def _popen(command: Sequence[str], enter: Callable[[Any], int], **options: Any) -> subprocess.Popen[Any]:
    """Starts a process from a thread that first lets ``enter`` say in which PID namespace its children are born.

    This holds for the thread alone. Commands that change the PID namespace themselves have to fork: signals to them
    would not reach what they started.
    """

    def spawn() -> subprocess.Popen[Any]:
        if enter(ctypes.CDLL(None, use_errno=True)) != 0:
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
        return subprocess.Popen(command, start_new_session=True, **options)

    with ThreadPoolExecutor(1) as thread:
        return thread.submit(spawn).result()


def _ip(pid: int, *lines: str) -> None:
    """Runs ``ip`` in the network namespace of a process.

    Raises:
        RuntimeError: A line failed.
    """
    command = ("nsenter", f"--net=/proc/{pid}/ns/net", "ip", "-batch", "-")
    done = subprocess.run(
        command, input="\n".join(lines), capture_output=True, text=True, timeout=_PATIENCE_S, check=False
    )
    if done.returncode != 0:
        raise RuntimeError(f"ip: {' / '.join(lines)}: {done.stderr.strip()}")


#: Marks a test that makes hosts.
needs_hosts = pytest.mark.skipif(bool(unavailable()), reason=unavailable())
