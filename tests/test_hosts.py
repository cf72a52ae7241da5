"""Simulated hosts: separate where real ones are, together where a test says so, and gone without a trace."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.hosts import Host, Hosts, RayHosts, needs_hosts

pytestmark = [needs_hosts, pytest.mark.cluster]

#: Sends its host's name to whoever connects, then whatever it is sent.
_SERVER = """
import socket, threading

def serve(connection):
    connection.sendall(socket.gethostname().encode())
    while data := connection.recv(100):
        connection.sendall(data)

server = socket.create_server(("0.0.0.0", 7000))
while True:
    threading.Thread(target=serve, args=(server.accept()[0],), daemon=True).start()
"""

#: Talks to the server over one connection, without end, and writes each answer.
_CLIENT = """
import socket, sys, time

connection = socket.create_connection((sys.argv[1], 7000))
while data := connection.recv(100):
    print(data.decode(), flush=True)
    time.sleep(0.05)
    connection.sendall(b".")
"""


#: Writes the name of the host that answers at an address.
_ASK = """
import socket, sys

print(socket.create_connection((sys.argv[1], 7000), 5).recv(100).decode())
"""


def _serve(host: Host, log: Path) -> None:
    host.start("python", "-ISc", _SERVER, log=log)
    _until(lambda: _ask(host, "127.0.0.1") == host.name, "the server listens")


def _ask(host: Host, address: str) -> str:
    """Name of the host that answers a host at an address; "" if none does."""
    return host.run("python", "-ISc", _ASK, address, check=False).stdout.strip()


def _until(condition: Callable[[], object], what: str, timeout_s: float = 20.0) -> None:
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, f"not within {timeout_s} s: {what}"
        time.sleep(0.05)


def _grows(file: Path) -> Callable[[], bool]:
    size = file.stat().st_size if file.exists() else 0
    return lambda: file.exists() and file.stat().st_size > size


def _network(host: Host) -> str:
    """The name of its network namespace, the same seen from any process."""
    return host.run("readlink", "/proc/self/ns/net").stdout.strip()


def _inhabitants(network: str) -> list[int]:
    """Processes of this machine in a network namespace; zombies are in none any more."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if str((process / "ns/net").readlink()) == network:
                found.append(int(process.name))
        except OSError:  # it ended meanwhile
            continue
    return found


def test_hosts_reach_each_other_by_their_addresses_and_nobody_else(tmp_path: Path) -> None:
    with Hosts(2) as hosts, Hosts(2) as others:
        _serve(hosts[0], tmp_path / "log")
        assert _ask(hosts[0], "127.9.1.1") == ""  # lo is 127.0.0.1 alone
        assert _ask(hosts[1], "127.0.0.1") == ""
        assert _ask(hosts[1], hosts[0].address) == "host1"
        assert _ask(hosts[1], "host1") == "host1"
        assert hosts[1].run("hostname").stdout.strip() == "host2"

        assert others[0].address == hosts[0].address
        assert _ask(others[1], others[0].address) == ""
        outside = subprocess.run(
            [sys.executable, "-ISc", _ASK, hosts[0].address], capture_output=True, text=True, timeout=60
        )
        assert "host1" not in outside.stdout


def test_files_are_private_shared_or_hidden(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAY_ADDRESS", "198.51.100.1:6379")
    mounts = Path("/proc/self/mounts").read_text()
    run = tmp_path / "run"
    name = f"{tmp_path.name}-{os.getpid()}"
    with Hosts(3, shared=tmp_path, hide=[run]) as hosts:
        assert Path("/proc/self/mounts").read_text() == mounts
        for folder in ("/tmp", "/dev/shm", "/tmp/home"):
            hosts[0].run("touch", f"{folder}/{name}")
            assert name in hosts[0].run("ls", folder).stdout
            assert name not in hosts[1].run("ls", folder).stdout
            assert not (Path(folder) / name).exists()

        hosts[0].run("touch", str(tmp_path / "for all"))
        assert (tmp_path / "for all").exists()
        assert "for all" in hosts[1].run("ls", ".", cwd=tmp_path).stdout

        for host in hosts:
            host.run("touch", str(run / f"of {host.name}"))
        assert [path.name for path in run.iterdir()] == ["of host1"]
        assert [host.run("ls", str(run)).stdout for host in hosts] == ["of host1\n", "of host2\n", "of host3\n"]

        seen = hosts[0].run("env", env={"RAY_TMPDIR": "/tmp"}).stdout.splitlines()
        assert [line for line in seen if line.startswith("RAY_")] == ["RAY_TMPDIR=/tmp"]
        assert "HOME=/tmp/home" in seen
    assert not list(Path("/tmp").glob(name))


def test_commands_fail_and_time_out_like_others(tmp_path: Path) -> None:
    with Hosts(1, shared=tmp_path) as hosts:
        with pytest.raises(subprocess.CalledProcessError) as error:
            hosts[0].run("sh", "-c", "echo why >&2; exit 3")
        assert error.value.returncode == 3
        assert any("why" in note for note in error.value.__notes__)
        assert hosts[0].run("sh", "-c", "kill -9 $$", check=False).returncode == -9

        beats = tmp_path / "beats"
        with pytest.raises(subprocess.TimeoutExpired):
            hosts[0].run("sh", "-c", f"(while :; do echo >> {beats}; sleep 0.05; done) & wait", timeout=1)
        assert beats.exists()
        init = hosts[0]._init.pid  # pyright: ignore[reportOptionalMemberAccess]
        _until(lambda: _inhabitants(_network(hosts[0])) == [init], "all that ran there has ended")

        process = hosts[0].start(
            "sh", "-c", "trap 'exit 7' TERM; echo ready; while :; do sleep 0.05; done", log=tmp_path / "log"
        )
        _until(lambda: (tmp_path / "log").read_text() == "ready\n", "the trap is set")
        process.terminate()
        assert process.wait(10) == 7


def test_a_cut_link_loses_packets_and_keeps_connections(tmp_path: Path) -> None:
    with Hosts(2) as hosts:
        _serve(hosts[0], tmp_path / "server")
        answers = tmp_path / "answers"
        client = hosts[1].start("python", "-ISc", _CLIENT, hosts[0].address, log=answers)
        _until(_grows(answers), "the server answers")

        hosts[0].cut()
        time.sleep(0.2)  # what is under way arrives
        grows = _grows(answers)
        assert _ask(hosts[1], hosts[0].address) == ""  # takes seconds
        assert not grows()
        assert _ask(hosts[0], hosts[0].address) == "host1"  # its own address is still there
        assert client.poll() is None

        hosts[0].join()
        _until(grows, "the connection goes on")
        assert client.poll() is None
        assert _ask(hosts[1], hosts[0].address) == "host1"


def test_a_killed_host_loses_all_its_processes_and_comes_back_empty(tmp_path: Path) -> None:
    stubborn = """
import os, signal, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
if os.fork() == 0:
    os.setsid()
    if os.fork():
        os._exit(0)
while True:
    print(os.getppid(), flush=True)
    time.sleep(0.05)
"""
    with Hosts(2, shared=tmp_path) as hosts:
        _serve(hosts[0], tmp_path / "server")
        client = hosts[1].start("python", "-ISc", _CLIENT, hosts[0].address, log=tmp_path / "answers")
        parents = tmp_path / "parents"
        process = hosts[0].start("python", "-ISc", stubborn, log=parents)
        _until(lambda: parents.exists() and {"0", "1"} <= set(parents.read_text().split()), "the daemon is an orphan")
        process.terminate()
        hosts[0].run("touch", "/tmp/old")
        network = _network(hosts[0])
        assert len(_inhabitants(network)) == 4  # the first one, the server, the stubborn one, the daemon

        hosts[0].kill()
        assert _inhabitants(network) == []
        assert process.returncode == -signal.SIGKILL
        assert not hosts[0].alive
        for use in (hosts[0].cut, hosts[0].join, lambda: hosts[0].run("true")):
            with pytest.raises(RuntimeError, match="host1 is dead"):
                use()
        client.wait(10)  # its connection was closed
        assert hosts[1].alive
        hosts[0].kill()

        hosts[0].boot()
        assert hosts[0].alive
        assert hosts[0].run("find", "/tmp", "-name", "old").stdout == ""
        _serve(hosts[0], tmp_path / "server")
        assert _ask(hosts[1], hosts[0].address) == "host1"
        with pytest.raises(RuntimeError, match="host1 is alive"):
            hosts[0].boot()


def test_orphans_leave_no_zombies() -> None:
    with Hosts(1) as hosts:
        hosts[0].run("sh", "-c", "(sleep 0.1 &) & wait")
        names = ("sh", "-c", "grep -h ^Name: /proc/[0-9]*/status")
        _until(lambda: "sleep" not in hosts[0].run(*names, check=False).stdout, "the orphan is gone")


def test_hosts_end_with_the_process_that_made_them(tmp_path: Path) -> None:
    maker = """
import sys, time
from pathlib import Path
from tests.hosts import Hosts

with Hosts(2) as hosts:
    hosts[1].start("setsid", "sh", "-c", "trap '' TERM; while :; do sleep 0.1; done", log=Path(sys.argv[1]))
    print(*(host.run("readlink", "/proc/self/ns/net").stdout.strip() for host in hosts), flush=True)
    time.sleep(300)
"""
    command = [sys.executable, "-c", maker, str(tmp_path / "log")]
    with subprocess.Popen(command, cwd=Path(__file__).parents[1], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        networks = process.stdout.readline().split()
        assert [len(_inhabitants(network)) > 0 for network in networks] == [True, True]
        process.kill()
    for network in networks:
        _until(lambda network=network: not _inhabitants(network), "the hosts end")


def test_a_failure_in_between_ends_all() -> None:
    with pytest.raises(ZeroDivisionError), Hosts(2) as hosts:
        networks = [_network(host) for host in hosts]
        raise ZeroDivisionError
    assert [_inhabitants(network) for network in networks] == [[], []]


_DRIVER = """
import json, socket, ray

ray.init(log_to_driver=False)

@ray.remote(num_cpus=1)
def where():
    return [socket.gethostname(), ray.util.get_node_ip_address()]

tasks = [where.options(label_selector={"agentr-role": role}).remote() for role in ("env", "rollout")]
cpus = {node["NodeManagerAddress"]: node["Resources"].get("CPU", 0) for node in ray.nodes()}
print(json.dumps({"where": ray.get(tasks, timeout=60), "cpus": cpus}))
"""

#: Status with which the head's dashboard answers a client.
_CALL = """
import os, sys, urllib.error, urllib.request
from pathlib import Path

headers = {"Authorization": "Bearer " + Path(os.environ["RAY_AUTH_TOKEN_PATH"]).read_text()} if sys.argv[1:] else {}
try:
    url = os.environ["RAY_API_SERVER_ADDRESS"] + "/api/jobs/"
    print(urllib.request.urlopen(urllib.request.Request(url, headers=headers), timeout=20).status)
except urllib.error.HTTPError as error:
    print(error.code)
"""


def test_ray_over_three_hosts(tmp_path: Path) -> None:
    # With Ray's own settings the head notices after half a minute.
    quick = {
        "RAY_health_check_period_ms": "1000",
        "RAY_health_check_timeout_ms": "2000",
        "RAY_health_check_failure_threshold": "3",
    }
    with Hosts(3, shared=tmp_path) as hosts:
        cluster = RayHosts(hosts, tmp_path / "ray", settings=quick)
        cluster.head(hosts[0])
        cluster.worker(hosts[1], labels={"agentr-role": "env"})
        cluster.worker(hosts[2], cpus=2, labels={"agentr-role": "rollout"})
        cluster.wait(3)

        environment = cluster.environment()
        assert Path(environment["RAY_AUTH_TOKEN_PATH"]).stat().st_mode & 0o777 == 0o600
        said = json.loads(hosts[0].run("python", "-c", _DRIVER, env=environment, timeout=120).stdout.splitlines()[-1])
        assert said["where"] == [["host2", hosts[1].address], ["host3", hosts[2].address]]
        assert said["cpus"] == {hosts[0].address: 0, hosts[1].address: 1, hosts[2].address: 2}
        calls = [
            hosts[2].run("python", "-ISc", _CALL, *token, env=environment).stdout for token in ([], ["with token"])
        ]
        assert calls == ["401\n", "200\n"]

        hosts[2].kill()
        with pytest.raises(TimeoutError, match=f"not 1 nodes within 0.1 s: alive are .*{hosts[1].address}"):
            cluster.wait(1, timeout_s=0.1)
        cluster.wait(2)
