"""Isolates the zygote: by bubblewrap, or by ``unshare`` of util-linux and `root.py`.

Either way the zygote is process 1 of its own namespaces (processes, mounts, network without any interface, IPC, host
name) and its file system is what ``View`` lists, read-only. Where neither works there is no sandbox: running the code
unprotected is not offered.
"""

import importlib.metadata
import json
import os
import platform
import subprocess
import sys
import sysconfig
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from env_servers.sandbox import kernel

#: Where the packages and this package's own code are seen inside.
PACKAGES = "/packages"
OWN_CODE = "/own"
ISOLATIONS = ("bubblewrap", "unshare")
#: User and group of the code where the zygote is root.
NOBODY = 65534
DEVICES = ("/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom")
#: The zygote's environment variables: none of this process's own, which may hold secrets.
ENVIRONMENT = {
    "PATH": "/usr/bin:/bin",
    "HOME": "/tmp",
    "LANG": "C.UTF-8",
    "PYTHONUTF8": "1",
    "PYTHONHASHSEED": "0",
    "PYTHONDONTWRITEBYTECODE": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "OMP_NUM_THREADS": "1",
}
#: What the machine is called inside.
HOST_NAME = "sandbox"
_BWRAP = ["bwrap", "--new-session", "--as-pid-1", "--cap-add", "ALL", "--unshare-pid", "--unshare-net", "--unshare-ipc"]
_BWRAP += ["--unshare-cgroup-try", "--unshare-uts", "--hostname", HOST_NAME]
_UNSHARE = ["unshare", "--mount", "--fork", "--pid", "--net", "--ipc", "--uts", "--cgroup"]
#: What the zygote does again for each call.
_AS_A_CALL = ["unshare", "--mount", "--fork", "--pid", "--ipc"]


class SandboxUnavailable(RuntimeError):
    """Code cannot be isolated on this machine, or the sandbox lacks a package."""


@dataclass
class View:
    """The file system that the sandbox sees.

    Attributes:
        binds: Read-only: path inside -> path outside, parents before children.
        links: Symbolic links: path inside -> target.
        covered: Paths inside that are empty in place of what a bind would show.
    """

    binds: dict[str, str] = field(default_factory=dict)
    links: dict[str, str] = field(default_factory=dict)
    covered: list[str] = field(default_factory=list)


def isolation() -> str:
    """``bubblewrap`` or ``unshare``: the first that works here.

    Raises:
        SandboxUnavailable: Neither does.
    """
    for name in ISOLATIONS:
        if not failure_of(name):
            return name
    raise SandboxUnavailable(
        f"the sandbox needs Linux namespaces ({'; '.join(map(failure_of, ISOLATIONS))}). Install bubblewrap (apt "
        "install bubblewrap) and allow namespaces: on the host, sysctl kernel.unprivileged_userns_clone=1 or "
        "kernel.apparmor_restrict_unprivileged_userns=0; for a container, --cap-add SYS_ADMIN --security-opt "
        "seccomp=unconfined --security-opt apparmor=unconfined"
    )


def available() -> bool:
    """Checks whether code can be isolated here."""
    return not all(failure_of(name) for name in ISOLATIONS)


@cache
def failure_of(name: str) -> str:
    """Tries a way to isolate code, once, in some 50 ms; returns the reason why it fails, empty if it works."""
    if sys.platform != "linux" or platform.machine() not in kernel.MACHINES:
        return f"this is {sys.platform} on {platform.machine()}, not Linux on {' or '.join(kernel.MACHINES)}"
    command = [*_bwrap(), "--ro-bind", "/", "/"] if name == "bubblewrap" else _unshare()
    try:
        subprocess.run(
            [*command, *_AS_A_CALL, "true"],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=30,
            check=True,
        )
    except FileNotFoundError:
        return f"{command[0]} is not installed"
    except (OSError, subprocess.SubprocessError) as error:
        return f"{command[0]} does not work: {getattr(error, 'stderr', '') or error}".strip()
    return ""


def bare_command(how: str, module: str, config: dict[str, Any], python: str = "") -> list[str]:
    """The command line of a zygote that sees all files of this machine: ``main`` of a module of this package.

    Args:
        how: One of ``ISOLATIONS``.
        config: What ``main`` finds in ``argv[1]``, as JSON.
        python: Whose packages are there, too; this one, with the standard library alone, if not given.
    """
    code = f"sys.path.append({str(Path(__file__).parents[2])!r}); from {module} import main; sys.path.pop(); main()"
    start = [*_bwrap(), "--bind", "/", "/", "--dev-bind", "/dev", "/dev"] if how == "bubblewrap" else _unshare()
    return [*start, *([python, "-s", "-c", f"import sys; {code}"] if python else _python(code)), json.dumps(config)]


def command(how: str, packages: Sequence[str], setup: str, limits: dict[str, float]) -> list[str]:
    """The command line of a zygote.

    Args:
        how: One of ``ISOLATIONS``.
        packages: Distributions that the code may import, with everything that they need.
        setup: Code that the zygote runs once.
        limits: The fields of `sandbox.Limits`.

    Raises:
        SandboxUnavailable: A package is not installed.
    """
    view = _view(packages)
    config = {"setup": setup, "limits": limits, "own_code": OWN_CODE, "uid": NOBODY if _privileged() else None}
    zygote = [
        *_python(f"sys.path += {[OWN_CODE, PACKAGES]!r}; from env_servers.sandbox.zygote import main; main()"),
        json.dumps(config),
    ]
    if how == "unshare":
        own = str(Path(__file__).parents[2])
        build = f"sys.path.append({own!r}); from env_servers.sandbox.root import main; main()"
        return [*_unshare(), *_python(build), json.dumps(asdict(view)), *zygote]
    parents = {str(p): None for inside in (*view.binds, *DEVICES) for p in reversed(Path(inside).parents)}
    arguments = [word for parent in parents for word in ("--dir", parent)]  # otherwise only root may enter them
    for inside, outside in view.binds.items():
        arguments += ["--ro-bind", outside, inside]
    for inside, target in view.links.items():
        arguments += ["--symlink", target, inside]
    for inside in view.covered:
        arguments += ["--tmpfs", inside, "--remount-ro", inside]
    for device in DEVICES:
        arguments += ["--dev-bind", device, device]
    return [*_bwrap(), *arguments, "--proc", "/proc", "--dir", "/tmp", "--remount-ro", "/", "--chdir", "/tmp", *zygote]


def _python(code: str) -> list[str]:
    return [os.path.realpath(sys.executable), "-s", "-P", "-S", "-c", f"import sys; {code}"]


def _bwrap() -> list[str]:
    return _BWRAP if _privileged() else [*_BWRAP, "--unshare-user", "--uid", "0", "--gid", "0"]


def _unshare() -> list[str]:
    return _UNSHARE if _privileged() else [*_UNSHARE, "--user", "--map-root-user"]


def _privileged() -> bool:
    return os.geteuid() == 0


def _view(packages: Sequence[str]) -> View:
    view = View()
    for folder in ("/usr/lib", "/usr/lib64", "/lib", "/lib64"):
        if Path(folder).is_symlink():
            view.links[folder] = str(Path(folder).readlink())
        elif Path(folder).is_dir():
            view.binds[folder] = folder
    prefix = os.path.realpath(sys.base_prefix)
    for path in (f"{prefix}/lib", f"{prefix}/lib64", os.path.realpath(sys.executable), "/etc/ld.so.cache"):
        if Path(path).exists() and not Path(path).is_symlink():
            view.binds.setdefault(path, path)
    view.covered = [str(folder) for folder in Path(sysconfig.get_path("stdlib")).glob("*-packages")]
    own = Path(__file__).parent
    for path in (own.parent / "__init__.py", own.parent / "observation.py", own):
        view.binds[f"{OWN_CODE}/{path.relative_to(own.parents[1])}"] = str(path)
    for package in packages:
        for path in _files(package):
            view.binds[f"{PACKAGES}/{path.name}"] = str(path)
    return view


def _files(package: str) -> list[Path]:
    """The files and folders of an installed distribution that lie directly in ``site-packages``."""
    try:
        distribution = importlib.metadata.distribution(package)
    except importlib.metadata.PackageNotFoundError as error:
        raise SandboxUnavailable(f"the package {package} is not installed: pip install {package}") from error
    names = {file.parts[0] for file in distribution.files or ()} - {"..", "__pycache__"}
    return [Path(os.path.realpath(str(distribution.locate_file(name)))) for name in sorted(names)]
