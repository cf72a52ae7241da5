"""The wheel as a user has it: installed into an environment of its own, without this repository, without a network,
without Node."""

import re
import shutil
import subprocess
import sys
import sysconfig
import urllib.request
import venv
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from agentr.ui.show import address
from tests.ui.conftest import made  # noqa: F401 - a fixture

ROOT = Path(__file__).parent.parent
PACKAGES = ("agentr", "env_servers", "ray_jobs")


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built of a copy: setuptools leaves its work in the source, and takes what it finds there the next time."""
    source, out = tmp_path_factory.mktemp("source"), tmp_path_factory.mktemp("wheel")
    for name in PACKAGES:
        shutil.copytree(
            ROOT / name, source / name, ignore=shutil.ignore_patterns("__pycache__", "node_modules", "*.egg-info")
        )
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source / name)
    build = "import sys; from setuptools import build_meta; build_meta.build_wheel(sys.argv[1])"
    done = subprocess.run(
        [sys.executable, "-c", build, str(out)], cwd=source, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-3000:]
    (found,) = out.glob("*.whl")
    return found


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An environment with the wheel and, of the packages that it needs, those of this one."""
    folder = tmp_path_factory.mktemp("installed")
    venv.create(folder / "venv", with_pip=False)
    python = folder / "venv/bin/python"
    command = [
        sys.executable,
        "-m",
        "pip",
        "--python",
        str(python),
        "install",
        "--quiet",
        "--no-deps",
        "--no-index",
        str(wheel),
    ]
    subprocess.run(command, check=True, capture_output=True)
    (site,) = (folder / "venv/lib").glob("python*/site-packages")
    # A line of a .pth file adds a folder, but not that folder's own .pth files: the editable agentr stays out.
    (site / "others.pth").write_text(sysconfig.get_path("purelib") + "\n")
    return folder / "venv/bin"


def environment(installed: Path, home: Path) -> dict[str, str]:
    return {"PATH": str(installed), "HOME": str(home), "LANG": "C.UTF-8"}


def agentr(installed: Path, home: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [*_alone(), str(installed / "agentr"), *arguments]
    return subprocess.run(
        command, cwd=home, env=environment(installed, home), capture_output=True, text=True, check=False
    )


def _alone() -> list[str]:
    """What runs a command without a network, where the system allows it."""
    unshare = shutil.which("unshare")
    allowed = (
        unshare
        and subprocess.run([unshare, "--net", "--map-root-user", "true"], capture_output=True, check=False).returncode
        == 0
    )
    return [str(unshare), "--net", "--map-root-user"] if allowed else []


def test_the_wheel_holds_every_file_but_the_source_of_the_pages(wheel: Path) -> None:
    held = {name for name in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in name}
    listed = subprocess.run(["git", "ls-files", *PACKAGES], cwd=ROOT, capture_output=True, text=True, check=False)
    if listed.returncode:
        pytest.skip("not in a Git checkout")
    wanted = {name for name in listed.stdout.split("\n") if name and not name.startswith("agentr/ui/web/")}
    assert held == wanted, "see [tool.setuptools.package-data] in pyproject.toml"


@pytest.mark.slow
def test_the_pages_are_served_and_written_by_what_is_installed(installed: Path, made: Path, tmp_path: Path) -> None:  # noqa: F811
    where = subprocess.run(
        [installed / "python", "-c", "import agentr; print(agentr.__file__)"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
    )
    assert Path(where.stdout.strip()).is_relative_to(installed.parent), where
    with served(installed, made, tmp_path) as page:
        for name, said in (("", "app.js"), ("app.js", "addEventListener"), ("app.css", "--"), ("api/home", '"first"')):
            with urllib.request.urlopen(page + name, timeout=60) as answer:
                assert said in answer.read().decode(), name
    done = agentr(installed, tmp_path, "report", str(made / "first"), "--tree", "door", "--out", "door.html")
    assert done.returncode == 0, done.stderr
    text = (tmp_path / "door.html").read_text()
    assert address("tree", run="run", stage="rounds/01/revise", key="door") in text and len(text) > 100_000


@contextmanager
def served(installed: Path, runs: Path, home: Path) -> Iterator[str]:
    command = [str(installed / "agentr"), "ui", str(runs), "--port", "0"]
    process = subprocess.Popen(
        command, cwd=home, env=environment(installed, home), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    try:
        assert process.stdout is not None
        said = ""
        while not (found := re.search(r"http://\S+", said)):
            line = process.stdout.readline()
            assert line, f"agentr ui ended: {said}"
            said += line
        yield found[0]
    finally:
        process.terminate()
        process.communicate(timeout=60)
