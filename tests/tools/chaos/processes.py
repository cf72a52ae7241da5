"""The processes of a run on a cluster: found by the actors of its driver's job, signalled and measured by an actor on
their node.

Only actors of that one job are ever touched, and a process only if it is still Ray's.
"""

import os
import signal
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from agentr.cluster import ray_private
from agentr.cluster.nodes import on_node, own_address
from agentr.cluster.roles import Role, role_of
from tests.tools.chaos.faults import Part

#: Seconds within which an actor that signals or measures must answer; its process is started at the first call to a
#: node.
ANSWER_S = 60.0
#: Which part an actor is, by its role or its class.
_ROLES = {Role.engine: Part.engine, Role.environment: Part.supervisor, Role.coordinator: Part.coordinator}
_CLASSES = {"RayTrainWorker": Part.worker, "TrainController": Part.controller}


@dataclass(frozen=True)
class Process:
    """The actor of a part, or the server below it.

    Attributes:
        actor: Id of the actor; stays the same when Ray starts it again.
        node: Id of its node.
        name: Name of the actor; empty for those of Ray Train.
        state: In Ray's words: ALIVE, RESTARTING, DEAD, ...
    """

    part: Part
    actor: str
    pid: int
    node: str
    name: str
    state: str

    @property
    def alive(self) -> bool:
        return self.state == "ALIVE"


def job_of(driver: int) -> str:
    """Returns the id of the Ray job of a driver on this node, by its process; empty if it has not joined."""
    here = own_address()
    return next(
        (job["JobID"] for job in ray_private.jobs() if job["DriverPid"] == driver and job["DriverIPAddress"] == here),
        "",
    )


def actors(job: str) -> Iterator[Process]:
    """Yields the actors of a job's parts, those that are being started and those that are dead included."""
    import ray

    for entry in ray_private.actors_of(ray.JobID(bytes.fromhex(job))):
        role = role_of(entry["Name"])
        part = _ROLES[role] if role is not None else _CLASSES.get(entry["ActorClassName"].rpartition(".")[2])
        if part is not None:
            yield Process(
                part, entry["ActorID"], entry["Pid"], entry["Address"]["NodeID"], entry["Name"], entry["State"]
            )


def status_of(supervisor: str) -> Any:
    """Returns what a supervisor says of its server (`agentr.envs.server.ServerStatus`); None if it does not answer."""
    import ray
    from ray.exceptions import RayError

    try:
        return ray.get(ray.get_actor(supervisor, namespace="agentr").status.remote(), timeout=5.0)
    except (RayError, ValueError):
        return None


class Hands:
    """Actors that act on the nodes of a cluster for this process."""

    def __init__(self) -> None:
        self._there: dict[str, Any] = {}

    def of(self, node: str) -> Any:
        import ray

        if node not in self._there:
            remote: Any = ray.remote(Hand)
            self._there[node] = remote.options(num_cpus=0, max_restarts=-1, scheduling_strategy=on_node(node)).remote()
        return self._there[node]

    def ask(self, node: str, method: str, *arguments: Any) -> Any:
        """Returns what the actor on a node answers.

        Raises:
            RayError: The node is gone, or does not answer.
        """
        import ray

        return ray.get(getattr(self.of(node), method).remote(*arguments), timeout=ANSWER_S)


class Hand:
    """Signals and measures processes on its node."""

    def signal(self, pid: int, number: int, server: bool) -> int:
        """Signals an actor's process, or the environment server below it, and returns which one; 0 if there is none any
        more."""
        if not _is_rays(pid):
            return 0
        found = self.server(pid) if server else pid
        if found:
            os.kill(found, number)
        return found

    def thaw(self, pid: int) -> None:
        """Lets a frozen process go on, if it is still there."""
        if _state(pid) == "T":
            os.kill(pid, signal.SIGCONT)

    def server(self, supervisor: int) -> int:
        """Returns the process of a supervisor's server; 0 if there is none."""
        return next(
            (pid for pid in _children(supervisor) if "env_servers" in _command(pid) and _state(pid) not in ("Z", "X")),
            0,
        )

    def measure(self, pids: Sequence[int]) -> dict[int, tuple[float, int]]:
        """Returns MiB of memory and open file handles of processes, those left out that are gone."""
        found = {}
        for pid in pids:
            try:
                pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
                handles = len(list(Path(f"/proc/{pid}/fd").iterdir()))
            except (OSError, IndexError):
                continue
            if pages:  # else it has ended, and nobody has asked for its status yet
                found[pid] = pages * os.sysconf("SC_PAGE_SIZE") / 2**20, handles
        return found


def _is_rays(pid: int) -> bool:
    return _command(pid).startswith("ray::")


def _command(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
    except OSError:
        return ""


def _state(pid: int) -> str:
    """Returns the state of a process: R, S, T, Z, ...; empty if there is none."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (OSError, IndexError):
        return ""


def _children(pid: int) -> list[int]:
    found = []
    for task in Path(f"/proc/{pid}/task").glob("*/children"):
        try:
            found += [int(child) for child in task.read_text().split()]
        except OSError:
            continue
    return found
