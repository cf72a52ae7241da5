"""What Ray knows of why a run does not get on: nodes that are gone or silent, full disks, places that there are not."""

from collections.abc import Iterator, Sequence
from pathlib import Path

from agentr.cluster.causes import Cause, CauseKind
from agentr.cluster.needs import shortages
from agentr.cluster.node_watch import DiskSpace, Lookouts, silence
from agentr.cluster.nodes import ClusterNode, nodes
from agentr.cluster.places import Places
from agentr.cluster.roles import Role

#: Free space below which a disk counts as full.
FULL_BYTES = 50 * 2**20


def check_head() -> Iterator[Cause]:
    """Yields that Ray's head is silent."""
    import ray

    if not ray.is_initialized():  # to ask for the address would start a cluster
        return
    address, _, port = ray.get_runtime_context().gcs_address.rpartition(":")
    if said := silence(address.strip("[]"), int(port)):
        hint = (
            "Is it alive, and its machine up? If it stays silent, end this run and start it again. Ray ends it a "
            "minute after its head."
        )
        yield Cause(CauseKind.head_silent, "the head of the Ray cluster does not answer", said, hint)


def check_nodes(known: Sequence[ClusterNode], there: Sequence[ClusterNode]) -> Iterator[Cause]:
    """Yields the nodes that are gone.

    Args:
        known: The nodes that were there when the run began.
        there: Those that are there now.
    """
    ids = {node.id for node in there}
    lost = [node.name for node in known if node.id not in ids]
    if lost:
        evidence = f"{len(known) - len(lost)} of {len(known)} nodes are alive"
        hint = (
            "Start it again, or a new one."
            if there
            else "None is left: end this run (Ctrl-C) and start it again; it goes on."
        )
        yield Cause(CauseKind.node_lost, f"lost: the node {', '.join(lost)}", evidence, hint)


def check_disks(run_dir: Path, lookouts: Lookouts) -> Iterator[Cause]:
    """Yields the nodes that do not answer, and the disks that are full: the run directory's once, Ray's with its
    node."""
    full: dict[str, tuple[DiskSpace, list[str]]] = {}
    for node, said in lookouts.ask(run_dir).items():
        if isinstance(said, str):
            hint = (
                "Is its network up, and is its disk or memory not full? Ray gives a node up after about a minute, and "
                "what ran there moves."
            )
            yield Cause(
                CauseKind.node_unreachable, f"the node {node.name} is alive for Ray, and does not answer", said, hint
            )
            continue
        for disk in said:
            if disk.free < FULL_BYTES:
                shared = disk.path == str(run_dir)
                full.setdefault(disk.path if shared else node.id, (disk, []))[1].append(node.name)
    for disk, names in full.values():
        where = f"{disk.path} on {', '.join(names)}"
        setting = "Free some space; the run goes on by itself."
        if disk.path != str(run_dir):
            setting = (
                "Free some space there, or start Ray with another --temp-dir: no process of Ray's starts on a full "
                "disk."
            )
        yield Cause(
            CauseKind.disk_full, f"the disk of {where} is full", f"{disk.free / 2**20:.0f} MiB are free", setting
        )


def check_places(places: Places, role: Role, what: str, evidence: str) -> Cause:
    """Returns why something waits for a place: the cluster has none, those there are taken, or nodes are to come.

    Args:
        what: What waits, such as ``rollout-0``.
        evidence: What Ray says of it.
    """
    there = nodes()
    short = shortages(places, places.needs(sum(node.gpus for node in there)), there)
    about = (f"{role.value} wants ", f"the role {role.value}:")
    mine = next((problem for problem in short if any(words in problem.message for words in about)), None)
    seen = (
        f"{evidence}; {mine.message}"
        if mine
        else f"{evidence}; the cluster has room for it, which something else takes"
    )
    if places.cluster.wait_s:
        hint = (
            "Does the cluster grow? See its autoscaler, and cluster.wait_s; policy.timeout_s is how long a call waits."
        )
        return Cause(CauseKind.resources_awaited, f"{what} waits for nodes that are to come", seen, hint)
    setting = "policy.engines or policy.tensor_parallel_size" if role is Role.engine else "trainer.workers"
    hint = (
        mine.hint
        if mine
        else f"Lower {setting}, add nodes, or end what takes them; cluster.nodes.{role.value} says where it may be."
    )
    return Cause(CauseKind.unschedulable, f"{what} cannot be placed", seen, hint)
