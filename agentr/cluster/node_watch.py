"""A process on each node that says how the node is.
It is there before anything goes wrong: on a full disk no process of Ray's starts."""

import shutil
import socket
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from agentr.cluster.nodes import ClusterNode, nodes, on_node
from agentr.cluster.ray_private import session_folder

#: Seconds within which a lookout answers, and a server of Ray's.
ANSWER_S = 10.0
#: How HTTP/2, which Ray's servers speak, begins: the preface and empty settings. The server answers with its own.
_GREETING = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes([0, 0, 0, 4, 0, 0, 0, 0, 0])


@dataclass(frozen=True)
class DiskSpace:
    """A disk as one of its users sees it: the run directory's, or the one that Ray's own files are on."""

    path: str
    free: int


def disks(run_dir: str) -> list[DiskSpace]:
    """Returns the disks that a run writes to on this node. A folder that cannot be asked about is left out."""
    found = []
    for path in (run_dir, session_folder()):
        with suppress(OSError):
            found.append(DiskSpace(path, shutil.disk_usage(path).free)) if path else None
    return found


class NodeWatch:
    """The process on a node."""

    def disks(self, run_dir: str) -> list[DiskSpace]:
        return disks(run_dir)


class Lookouts:
    """The lookouts of all nodes but the driver's own, which needs none. They end with the driver."""

    def __init__(self) -> None:
        self._actors: dict[str, Any] = {}

    def post(self, there: Sequence[ClusterNode]) -> None:
        """Starts a lookout on each of the nodes that has none. Does not wait for them."""
        import ray

        own = ray.get_runtime_context().get_node_id()
        actor: Any = ray.remote(NodeWatch)
        for node in there:
            if node.id != own and node.id not in self._actors:
                self._actors[node.id] = actor.options(
                    num_cpus=0, max_restarts=0, scheduling_strategy=on_node(node.id)
                ).remote()

    def ask(self, run_dir: Path) -> dict[ClusterNode, list[DiskSpace] | str]:
        """Returns the disks of each node that is alive in the head's eyes; of one that does not answer in time, in
        words what it does."""
        import ray
        from ray.exceptions import RayError

        there = nodes()
        self.post(there)
        asked = {node: self._actors[node.id].disks.remote(str(run_dir)) for node in there if node.id in self._actors}
        found: dict[ClusterNode, list[DiskSpace] | str] = {
            node: disks(str(run_dir)) for node in there if node not in asked
        }
        refs = list(asked.values())
        ready, _ = ray.wait(refs, num_returns=len(refs), timeout=ANSWER_S) if refs else ([], [])
        for node, ref in asked.items():
            try:
                found[node] = ray.get(ref, timeout=0) if ref in ready else ""
            except RayError as error:
                self._actors.pop(node.id)  # the next one who asks finds another
                found[node] = f"no process of the run lives or starts there: {type(error).__name__}"
        with ThreadPoolExecutor(max(1, min(32, len(there)))) as pool:
            for node, silent in zip(there, pool.map(lambda node: silence(node.address, node.port), there), strict=True):
                if silent:
                    found[node] = silent
                elif found[node] == "":
                    found[node] = f"its raylet answers, and its lookout says nothing within {ANSWER_S:g} s"
        return found


def silence(address: str, port: int) -> str:
    """Returns in words how a server of Ray's is silent, or nothing if it answers a greeting: of one that is frozen the
    kernel still takes connections."""
    where = f"{address}:{port}"
    try:
        connection = socket.create_connection((address, port), ANSWER_S)
    except TimeoutError:
        return f"{where} takes no connection within {ANSWER_S:g} s"
    except OSError as error:
        return f"{where} takes no connection: {error.strerror}"
    with connection, suppress(OSError):
        connection.settimeout(ANSWER_S)
        connection.sendall(_GREETING)
        try:
            connection.recv(1)
        except TimeoutError:
            return f"{where} takes a connection and says nothing within {ANSWER_S:g} s"
    return ""
