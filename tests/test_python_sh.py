"""The script that finds a Python for the installation, among pretended ones."""

import shutil
import subprocess
import tomllib
from pathlib import Path

import pytest

LOCKS = Path(__file__).parents[1] / "locks"

#: As pyenv's for a version that is not chosen: it is on the PATH and starts nothing.
STUB = 'echo "pyenv: python: command not found" >&2; exit 127'


def pretended(place: Path, version: str, *, ensurepip: bool = True, starts: bool = True) -> Path:
    """Writes a script that answers as an interpreter does."""
    place.parent.mkdir(parents=True, exist_ok=True)
    answers = (
        f'case "$*" in *python_version*) echo {version} ;; *ensurepip*) exit {int(not ensurepip)} ;; *) exit 9 ;; esac'
    )
    place.write_text(f"#!/bin/sh\n{answers if starts else STUB}\n")
    place.chmod(0o755)
    return place


@pytest.fixture
def tools(tmp_path: Path) -> Path:
    """A folder of the programs that the scripts use, which has no Python."""
    folder = tmp_path / "tools"
    folder.mkdir()
    for name in ("bash", "cut", "dirname", "env", "head", "sh", "sort"):
        (folder / name).symlink_to(shutil.which(name) or pytest.fail(f"{name} is not here"))
    return folder


def run(tools: Path, *command: str | Path, path: str = "") -> subprocess.CompletedProcess[str]:
    """Runs a script with folders a, b and so on of ``path`` beside that of the tools on its PATH."""
    home = tools.parent
    environment = {"PATH": ":".join([*(str(home / name) for name in path.split()), str(tools)]), "HOME": str(home)}
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, check=False)


def test_the_versions_are_those_that_the_package_allows() -> None:
    allowed = tomllib.loads((LOCKS.parent / "pyproject.toml").read_text())["project"]["requires-python"]
    (line,) = [line for line in (LOCKS / "python.sh").read_text().splitlines() if line.startswith("VERSIONS=")]
    versions = [int(version.removeprefix("3.")) for version in line.split('"')[1].split()]
    assert allowed == f">=3.{versions[0]},<3.{versions[-1] + 1}" and versions == list(
        range(versions[0], versions[-1] + 1)
    )


def test_a_name_that_does_not_start_is_none(tools: Path) -> None:
    pretended(tools.parent / "a/python3.11", "3.11.9", starts=False)
    pretended(tools.parent / "a/python3.12", "3.12.1", starts=False)
    wanted = pretended(tools.parent / "b/python3.12", "3.12.3")
    assert run(tools, LOCKS / "python.sh", path="a b").stdout == f"{wanted}\n"


def test_a_name_that_starts_another_version_is_none(tools: Path) -> None:
    pretended(tools.parent / "a/python3.11", "3.9.2")
    wanted = pretended(tools.parent / "b/python3.11", "3.11.2")
    assert run(tools, LOCKS / "python.sh", path="a b").stdout == f"{wanted}\n"


def test_the_first_name_wins_and_of_one_name_the_first_on_the_path(tools: Path) -> None:
    pretended(tools.parent / "a/python3.12", "3.12.1")
    wanted = pretended(tools.parent / "b/python3.11", "3.11.7")
    pretended(tools.parent / "c/python3.11", "3.11.2")
    assert run(tools, LOCKS / "python.sh", path="a b c").stdout == f"{wanted}\n"


def test_one_that_cannot_make_an_environment_is_passed_over(tools: Path) -> None:
    pretended(tools.parent / "a/python3.11", "3.11.2", ensurepip=False)
    wanted = pretended(tools.parent / "b/python3.12", "3.12.3")
    assert run(tools, LOCKS / "python.sh", path="a b").stdout == f"{wanted}\n"


@pytest.mark.parametrize("smallest", ["3.11.2", "3.11.9"])
def test_the_smallest_is_that_of_the_lowest_full_version(tools: Path, smallest: str) -> None:
    pretended(tools.parent / "a/python3.11", "3.11.10")
    pretended(tools.parent / "a/python3.12", "3.12.1")
    pretended(tools.parent / ".pyenv/versions/3.11.12/bin/python3.11", "3.11.12")
    wanted = pretended(tools.parent / "b/python3.11", smallest)
    assert run(tools, LOCKS / "python.sh", "smallest", path="a b").stdout == f"{wanted}\n"


def test_pyenv_has_more_than_its_stubs_start(tools: Path) -> None:
    pretended(tools.parent / "a/python3.12", "3.12.1", starts=False)
    wanted = pretended(tools.parent / ".pyenv/versions/3.12.1/bin/python3.12", "3.12.1")
    assert run(tools, LOCKS / "python.sh", path="a").stdout == f"{wanted}\n"


def test_what_to_install_is_said(tools: Path) -> None:
    pretended(tools.parent / "a/python3.12", "3.12.3", ensurepip=False)
    bare = run(tools, LOCKS / "python.sh", path="a")
    assert (bare.returncode, bare.stdout) == (1, "") and "sudo apt install python3.12-venv" in bare.stderr
    none = run(tools, LOCKS / "python.sh")
    assert (none.returncode, none.stdout) == (1, "") and "needs Python 3.11 or 3.12 with its module venv" in none.stderr
    assert "sudo apt install python3-venv" in none.stderr and none.stderr.count("\n") == 1


def test_nothing_is_made_without_a_python(tools: Path) -> None:
    done = run(tools, LOCKS / "install.sh", tools.parent / "venv", "cpu")
    assert (
        done.returncode != 0 and done.stderr.startswith("agentr needs Python") and not (tools.parent / "venv").exists()
    )


def test_an_environment_that_was_left_without_pip_is_made_anew(tools: Path) -> None:
    """As ``python3 -m venv`` leaves one where ensurepip is missing."""
    pretended(tools.parent / "venv/bin/python", "3.12.3", ensurepip=False)
    done = run(tools, LOCKS / "install.sh", tools.parent / "venv", "cpu")
    assert done.returncode != 0 and done.stderr.startswith("agentr needs Python")
