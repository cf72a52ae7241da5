"""A Ray of one's own: what it cannot start without is said before, what a killed one left is not minded, and nothing of
it stays."""

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import psutil
import pytest

from tests.env_servers.support import wait_until

#: Starts Ray with files of so many bytes at most, and says so.
START = """
import resource, sys
from agentr.cluster.connect import connect
from agentr.methods import load
resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[1]), int(sys.argv[1])))
connect(load(None).cluster)
print("up", flush=True)
"""


def refused(limit: int = -1, **environment: str) -> str:
    """The error of a start in a process of its own."""
    command = [sys.executable, "-c", START, str(limit)]
    done = subprocess.run(
        command, env={**os.environ, **environment}, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 1, done.stderr
    return done.stderr


@pytest.mark.parametrize("limit", [120 * 1024, 200 * 2**20])
def test_files_that_may_not_be_as_large_as_the_object_store(limit: int) -> None:
    said = refused(limit)
    assert (
        f"may write files of {limit / 2**20:.1f} MiB at most, and Ray's object store is one of 201 MiB" in said
        and "ulimit -f" in said
    )


def test_a_disk_that_has_no_room_for_rays_files(tmp_path: Path) -> None:
    done = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(tmp_path)], capture_output=True, text=True
    )
    if done.returncode:
        pytest.skip(f"no small disk can be mounted here: {done.stderr.strip()}")
    try:
        assert f"{tmp_path} cannot be written: No space left on device" in (
            said := refused(RAY_TMPDIR=str(tmp_path))
        ), said
        assert "set RAY_TMPDIR" in said
    finally:
        subprocess.run(["umount", "-l", str(tmp_path)], check=True)


def test_a_folder_for_rays_files_that_is_none(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    assert "Ray cannot start on this machine" in refused(RAY_TMPDIR=str(tmp_path / "file"))


@pytest.mark.cluster
def test_a_start_does_not_mind_what_a_driver_left_that_was_killed_while_it_started() -> None:
    """Some of Ray's processes live on for a minute."""
    command = [sys.executable, "-c", START, "-1"]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("RAY_")}
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE) as first:
        wait_until(
            lambda: "raylet" in [child.name() for child in psutil.Process(first.pid).children()], "the raylet", 60.0
        )
        first.kill()
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120, check=False)
    assert done.stdout == "up\n", done.stderr


#: Starts a Ray and ends it, with and without its logs.
ENDS = """
from pathlib import Path
from agentr.cluster.connect import connect, leave
from agentr.cluster.ray_private import session_folder
from agentr.methods import load
for keep in (False, True):
    ray = connect(load(None).cluster)
    session = Path(session_folder())
    assert session.is_dir()
    leave(ray, keep_logs=keep)
    assert session.exists() is keep and session_folder() == "", keep
"""


@pytest.mark.cluster
def test_the_files_of_a_ray_go_with_it_unless_they_are_wanted() -> None:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("RAY_")}
    with tempfile.TemporaryDirectory(prefix="r", dir="/tmp") as folder:  # the paths of its sockets are short
        command = [sys.executable, "-c", ENDS]
        done = subprocess.run(
            command, env=environment | {"RAY_TMPDIR": folder}, capture_output=True, text=True, timeout=120, check=False
        )
    assert done.returncode == 0, done.stderr
