"""Moves a run's parts off nodes that are about to be taken away.

A node drains when somebody who knows says so: the autoscaler, or a hook that a cloud's notice calls
(``ray drain-node``). Ray then puts nothing new there, and leaves what is there alone until the node is gone. So each
part that has a place elsewhere is ended by the run, and started there again, while the old node still lives: engines
and supervisors by Ray, coordinators by the driver, workers of the trainer by Ray Train, once they have a checkpoint. A
part that has no other place works on until its node goes.
"""

import os
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any

from agentr.cluster import ray_private
from agentr.cluster.nodes import nodes
from agentr.cluster.places import Places
from agentr.cluster.roles import Role, matches, role_of

#: Seconds between two looks at which nodes drain.
LOOK_S = 2.0


def draining() -> dict[str, float]:
    """Returns the nodes that are about to be taken away, by id, and how many seconds they have; 0 if nobody said."""
    now = time.time()
    return {
        node: max(0.0, deadline / 1000 - now) if deadline else 0.0
        for node, deadline in ray_private.draining_nodes().items()
    }


def elsewhere(labels: Mapping[str, str], gpus: float) -> bool:
    """Returns whether a node that stays has these labels and so many free GPUs."""
    going, free = draining(), ray_private.free_resources() if gpus else {}
    stay = [node for node in nodes() if node.id not in going and matches(node.labels, dict(labels))]
    return any(not gpus or free.get(node.id, {}).get("GPU", 0.0) >= gpus for node in stay)


class Draining:
    """Moves the engines, supervisors and coordinators of this process's job, in a thread of its own, until it is
    closed.

    Args:
        notify: Called with a message for each node that goes.
        event: Notes it in the run.
    """

    def __init__(self, places: Places, notify: Callable[[str], None], event: Callable[..., None]) -> None:
        self._places = places
        self._notify = notify
        self._event = event
        self._told: set[str] = set()
        self._moved: set[tuple[str, int]] = set()
        self._end = threading.Event()
        threading.Thread(target=self._run, name="draining", daemon=True).start()

    def close(self) -> None:
        self._end.set()

    def _run(self) -> None:
        from ray.exceptions import RayError

        while not self._end.wait(LOOK_S):
            try:
                self._look()
            # the head does not answer, or an actor is gone: look again
            except (RayError, OSError, RuntimeError, ValueError):
                continue

    def _look(self) -> None:
        import ray

        going = draining()
        if not going:
            return
        context: Any = ray.get_runtime_context()
        named = {node.id: node.name for node in nodes()}
        own = [entry for entry in ray_private.actors_of(context.job_id) if entry["State"] == "ALIVE"]
        for node, seconds in going.items():
            moved = [name for entry in own if entry["Address"]["NodeID"] == node and (name := self._move(entry))]
            here = (
                "; the driver is on it: submit the same run again if it dies" if node == context.get_node_id() else ""
            )
            if moved or (here and node not in self._told):
                what = f"moves: {', '.join(moved)}" if moved else "stays until it goes"
                self._notify(f"{named.get(node, node)} is taken away in {seconds:.0f} s; {what}{here}")
                self._event("node_drains", node=named.get(node, node), seconds=round(seconds), moved=moved)
            self._told.add(node)

    def _move(self, entry: dict[str, Any]) -> str:
        """Ends an actor that has a place elsewhere, so that it is started there; returns its name, or nothing."""
        import ray

        role, name = role_of(entry["Name"]), entry["Name"]
        if role is None or (entry["ActorID"], entry["Pid"]) in self._moved:
            return ""
        on_gpus = role is Role.engine and self._places.engines_on_gpu(ray.cluster_resources().get("GPU", 0))
        if not elsewhere(self._places.labels[role], self._places.policy.tensor_parallel_size if on_gpus else 0.0):
            return ""
        self._moved.add((entry["ActorID"], entry["Pid"]))
        # Ray starts engines and supervisors again; the driver hears of the death of a coordinator at once only if it is
        # to stay dead.
        ray.kill(ray.get_actor(name), no_restart=role is Role.coordinator)
        return name


def leave_in_time(labels: Mapping[str, str], gpu: bool, saved: Callable[[], object]) -> None:
    """Lets this process, a worker of the trainer, end soon after its node begins to drain, if there is another place
    for it.

    It ends once there is a new checkpoint, and at the latest when half of its time is over. Ray Train starts the
    workers again.

    Args:
        saved: Says what the newest checkpoint is.
    """
    import ray

    mine = ray.get_runtime_context().get_node_id()

    def watch() -> None:
        while (seconds := _seconds_left(mine)) is None:
            time.sleep(LOOK_S)
        deadline, before = time.monotonic() + seconds / 2, saved()
        while time.monotonic() < deadline and saved() == before:
            time.sleep(0.2)
        while not elsewhere(labels, 1.0 if gpu else 0.0):
            time.sleep(LOOK_S)
        os._exit(1)

    threading.Thread(target=watch, name="draining", daemon=True).start()


def _seconds_left(node: str) -> float | None:
    """Returns how many seconds a node has; None if it stays, or if the head does not answer."""
    from ray.exceptions import RayError

    try:
        return draining().get(node)
    except (RayError, OSError, RuntimeError):
        return None
