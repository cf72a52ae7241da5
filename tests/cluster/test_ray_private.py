"""What agentr uses of Ray that Ray keeps private: in one module, and seen to work with the version that is
installed."""

import inspect
import re
from importlib.metadata import version
from pathlib import Path

import pytest

from agentr.cluster import ray_private
from tests.docs.pages import ROOT

#: The version with which each was seen to work, by the tests of draining, submission, doctor, training and chaos.
SEEN = "2.60.0"


def test_it_was_seen_to_work_with_this_ray() -> None:
    assert version("ray") == SEEN, (
        "run tests/cluster, tests/train, tests/jobs and tests/chaos with the new Ray, and say so here"
    )


def test_nothing_else_reaches_into_ray() -> None:
    private = re.compile(r"ray\._(?!_)|from ray import _|\._actor_id\b|_upload_package")
    found = {
        path.relative_to(ROOT): line.strip()
        for top in ("agentr", "env_servers", "ray_jobs")
        for path in (ROOT / top).rglob("*.py")
        for line in path.read_text(encoding="utf-8").splitlines()
        if private.search(line) and path != Path(ray_private.__file__)
    }
    assert not found


def test_what_it_uses_is_there() -> None:
    """Each name, and what it is called with: seen in seconds after a change of Ray's version."""
    from ray._private import state, worker
    from ray._private.runtime_env.packaging import get_excludes_from_ignore_files
    from ray._raylet import InnerGcsClient
    from ray.experimental import internal_kv
    from ray.job_submission import JobSubmissionClient
    from ray.train.torch import TorchTrainer
    from ray.train.v2._internal.callbacks import datasets, placement_group_callback

    def takes(function: object, *names: str) -> bool:
        return set(names) <= inspect.signature(function).parameters.keys()  # type: ignore[arg-type]

    assert takes(state.actors, "actor_id", "job_id") and takes(state.jobs) and takes(state.available_resources_per_node)
    assert callable(state.state.get_draining_nodes) and hasattr(worker, "_global_node")
    assert takes(get_excludes_from_ignore_files, "include_gitignore")
    assert takes(JobSubmissionClient._upload_package, "include_gitignore", "is_file")
    assert callable(InnerGcsClient.internal_kv_get) and callable(InnerGcsClient.internal_kv_del)
    assert takes(internal_kv._internal_kv_put, "key", "value", "overwrite") and callable(internal_kv._internal_kv_get)
    assert callable(internal_kv._internal_kv_del) and callable(TorchTrainer._create_default_callbacks)
    assert all(
        any(hasattr(module, name) for module in (datasets, placement_group_callback))
        for name in ray_private.IDLE_CALLBACKS
    )


@pytest.mark.parametrize("lines", [["*.log"], ["data/", "!data/kept"], []])
def test_files_that_are_ignored_stay(tmp_path: Path, lines: list[str]) -> None:
    (tmp_path / ".gitignore").write_text("\n".join(lines))
    left_out = [
        path
        for path in (tmp_path / "a.log", tmp_path / "b.txt")
        if any(rule(path) for rule in ray_private.ignored_by_files(tmp_path))
    ]
    assert left_out == ([tmp_path / "a.log"] if "*.log" in lines else [])
