"""What Ray keeps private and agentr uses, all of it: Ray says nowhere else which nodes drain, or what became of an
actor.

A new version of Ray is tried here first: ``tests/cluster/test_ray_private.py`` says for which one each of these was
seen to work.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ray.job_submission import JobSubmissionClient
    from ray.train.torch import TorchTrainer


def actor(handle: Any) -> dict[str, Any]:
    """Returns what Ray's table says of an actor; empty if it is not there."""
    from ray._private.state import actors

    return actors(handle._actor_id.hex()) or {}


def actors_of(job: Any) -> list[dict[str, Any]]:
    """Returns what Ray's table says of the actors of a job, those that are being started and those that are dead
    included."""
    from ray._private.state import actors

    return list(actors(job_id=job).values())


def jobs() -> list[dict[str, Any]]:
    """Returns what Ray's table says of each job."""
    from ray._private.state import jobs

    return jobs()


def draining_nodes() -> dict[str, int]:
    """Returns the nodes that are about to be taken away, by id, and when, in milliseconds since 1970; 0 if nobody
    said."""
    from ray._private.state import state

    return state.get_draining_nodes()


def free_resources() -> dict[str, dict[str, float]]:
    """Returns what is free on each node, by the node's id."""
    from ray._private.state import available_resources_per_node

    return available_resources_per_node()


def session_folder() -> str:
    """Returns the folder of Ray's own files on this node; empty where this process has joined no cluster."""
    import ray._private.worker as worker

    return worker._global_node.get_session_dir_path() if worker._global_node is not None else ""


def started_here() -> bool:
    """Returns whether this process started the cluster that it has joined."""
    import ray._private.worker as worker

    return worker._global_node is not None and worker._global_node.is_head()


def ignored_by_files(folder: Path) -> list[Callable[[Path], bool]]:
    """Returns what the .gitignore and the .rayignore of a folder leave out of what a job takes along."""
    from ray._private.runtime_env.packaging import get_excludes_from_ignore_files

    return get_excludes_from_ignore_files(folder, include_gitignore=True)


def hand_over(client: JobSubmissionClient, uri: str, file: Path) -> None:
    """Puts a file into the cluster's key-value store, through the dashboard."""
    client._upload_package(uri, str(file), include_gitignore=True, is_file=True)


def take(uri: str) -> bytes | None:
    """Takes out of the key-value store what was handed over; None if it is not there.
    Called on a node, before Ray is joined."""
    from ray._raylet import GcsClient  # pyright: ignore[reportAttributeAccessIssue]

    client = GcsClient(address=os.environ["RAY_ADDRESS"])
    found = client.internal_kv_get(uri.encode(), None)
    client.internal_kv_del(uri.encode(), False, None)
    return found


def post(key: str, value: bytes) -> None:
    """Puts a value into the key-value store of the cluster that this process has joined, in place of an earlier one."""
    from ray.experimental.internal_kv import _internal_kv_put

    _internal_kv_put(key, value, overwrite=True)


def posted(key: str) -> bytes | None:
    """Returns what was posted last; None if nothing was."""
    from ray.experimental.internal_kv import _internal_kv_get

    return _internal_kv_get(key)


def take_down(key: str) -> None:
    """Removes what was posted."""
    from ray.experimental.internal_kv import _internal_kv_del

    _internal_kv_del(key)


def trainer_without_idle_actors() -> type[TorchTrainer]:
    """Returns Ray Train's trainer, without two actors that are of no use to a trainer on a CPU.

    One actor splits Ray datasets among workers. The other returns the workers' resources after the controller was
    killed: a tenth of a core, which goes with the driver anyway. If a version lacks the overridden method, both actors
    start, as on GPUs.
    """
    from ray.train.torch import TorchTrainer

    class Plain(TorchTrainer):
        def _create_default_callbacks(self) -> list[Any]:
            callbacks = super()._create_default_callbacks()
            return [callback for callback in callbacks if type(callback).__name__ not in IDLE_CALLBACKS]

    return Plain


#: The callbacks of Ray Train that start these actors.
IDLE_CALLBACKS = ("DatasetsCallback", "PlacementGroupCleanerCallback")
