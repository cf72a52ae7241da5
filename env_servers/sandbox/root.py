"""Builds the root file system of the sandbox, inside new namespaces, and executes the zygote in it: bubblewrap's work,
without it."""

import json
import os
import socket
import sys
from pathlib import Path

from env_servers.sandbox import kernel
from env_servers.sandbox.launch import DEVICES, HOST_NAME, View

_OLD = "/old"


def main() -> None:
    """``argv[1]``: the view as JSON; then the command to execute."""
    build(View(**json.loads(sys.argv[1])))
    socket.sethostname(HOST_NAME)
    os.execv(sys.argv[2], sys.argv[2:])


def build(view: View) -> None:
    """Replaces the root of this process's mount namespace by what ``view`` says.

    Raises:
        OSError: A mount failed.
    """
    kernel.mount("", "/", flags=kernel.MS_REC | kernel.MS_PRIVATE)
    kernel.mount("tmpfs", "/tmp", "tmpfs")  # any folder will do: what it hides is seen again under the old root
    os.chdir("/tmp")
    Path("old").mkdir()
    kernel.pivot_root(".", "old")
    os.chdir("/")
    for inside, outside in view.binds.items():
        _bind(outside, inside, kernel.MOUNT_ATTR_RDONLY | kernel.MOUNT_ATTR_NOSUID)
    for device in DEVICES:
        _bind(device, device, kernel.MOUNT_ATTR_NOSUID)
    for inside, target in view.links.items():
        Path(inside).parent.mkdir(parents=True, exist_ok=True)
        Path(inside).symlink_to(target)
    for inside in view.covered:
        kernel.mount("tmpfs", inside, "tmpfs", kernel.MS_RDONLY)
    for folder in ("/proc", "/tmp"):
        Path(folder).mkdir()
    kernel.mount("proc", "/proc", "proc")
    kernel.unmount(_OLD)
    Path(_OLD).rmdir()
    kernel.restrict_mount("/", kernel.MOUNT_ATTR_RDONLY, recursive=False)
    os.chdir("/tmp")


def _bind(outside: str, inside: str, attributes: int) -> None:
    source, target = Path(_OLD + outside), Path(inside)
    target.parent.mkdir(parents=True, exist_ok=True)
    if source.is_dir():
        target.mkdir(exist_ok=True)
    else:
        target.touch()
    kernel.mount(str(source), inside, flags=kernel.MS_BIND | kernel.MS_REC)
    kernel.restrict_mount(inside, attributes, recursive=True)
