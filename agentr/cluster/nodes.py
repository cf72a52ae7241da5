"""The nodes of the cluster that this process has joined."""

from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class ClusterNode:
    """A node that is alive.

    Attributes:
        port: Of its raylet.
    """

    id: str
    address: str
    labels: dict[str, str] = field(hash=False)
    cpus: float
    gpus: float
    port: int = 0

    @property
    def name(self) -> str:
        role = self.labels.get("agentr-role")
        return f"{self.address} ({role})" if role else self.address


def nodes() -> list[ClusterNode]:
    """Returns the nodes that are alive, by their addresses."""
    import ray

    found = [_node(entry) for entry in ray.nodes() if entry["Alive"]]
    return sorted(found, key=lambda node: (node.address, node.id))


def on_node(node_id: str) -> Any:
    """Returns the scheduling strategy that puts a task or an actor on a node, and nowhere else."""
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    return NodeAffinitySchedulingStrategy(node_id, soft=False)


def own_address() -> str:
    """Returns the address by which other nodes reach this one."""
    import ray

    return ray.util.get_node_ip_address()


def _node(entry: dict[str, Any]) -> ClusterNode:
    resources = entry["Resources"]
    return ClusterNode(
        entry["NodeID"],
        entry["NodeManagerAddress"],
        entry.get("Labels") or {},
        resources.get("CPU", 0.0),
        resources.get("GPU", 0.0),
        entry["NodeManagerPort"],
    )
