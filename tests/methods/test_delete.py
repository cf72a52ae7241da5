"""A method goes with its folder: without it everything else of agentr works as before."""

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Set
from pathlib import Path

import pytest

from agentr.methods import methods

ROOT = Path(__file__).parents[2]
CONFIGS = sorted((ROOT / "configs").glob("*.yaml")) + sorted((ROOT / "configs/compare/tasks").glob("*.yaml"))
#: Run in a folder that has a copy of agentr for each method, without that method's: imports every module, asks for what
#: there is, loads and estimates configurations. The libraries are imported once, and each copy is looked at by a child
#: process, two at a time.
SCRIPT = """
import importlib, json, os, pkgutil, sys
from pathlib import Path

def import_all():
    for module in pkgutil.walk_packages(importlib.import_module("agentr").__path__, "agentr."):
        try:
            importlib.import_module(module.name)
        except ModuleNotFoundError as error:  # an extra that is not installed
            assert not error.name.startswith("agentr"), error

def look(gone, configs):
    sys.path.insert(0, os.path.abspath(gone))
    import_all()
    from agentr.errors import ConfigError
    from agentr.fidelity.verify import select, verify
    from agentr.cost.bounds import estimate
    from agentr.methods import __file__ as file, load, methods, plan_of
    assert Path(file).parents[2] == Path(gone).resolve(), file
    assert gone not in methods() and len(methods()) == 9
    try:
        load(None, ["method.type=" + gone], files=False)
        raise SystemExit("it is still there")
    except ConfigError as error:
        assert "is not known" in error.message, error
    rules = [rule for rule in select() if not rule.check.startswith("losses.")]  # those take seconds each
    assert rules and gone not in {rule.section for rule in rules}
    assert [(found.rule.id, found.difference) for found in verify(rules) if found.difference] == []
    for config in configs:
        assert estimate(plan_of(load(Path(config)))).text()

import_all()
for name in [name for name in sys.modules if name.split(".")[0] == "agentr"]:
    del sys.modules[name]
failed, looking = [], {}

def ended():
    child, status = os.wait()
    gone = looking.pop(child)
    if status:
        failed.append(gone)

for gone, configs in json.loads(sys.argv[1]).items():
    if len(looking) == 2:
        ended()
    if not (child := os.fork()):
        look(gone, configs)
        sys.stdout.flush()
        os._exit(0)
    looking[child] = gone
while looking:
    ended()
sys.exit(f"fails without {failed}" if failed else 0)
"""


def says(config: Path) -> str:
    """Returns a configuration's text, with those of what it includes and of the presets of methods that it names,
    without comments."""
    text = re.sub(r"#.*", "", config.read_text(encoding="utf-8"))
    presets = (ROOT / "agentr/methods" / name / "presets.yaml" for name in methods() if re.search(rf"\b{name}\b", text))
    text += "".join(path.read_text(encoding="utf-8") for path in presets if path.exists() and path != config)
    included = re.findall(r"[\w/.-]+\.yaml", "".join(re.findall(r"^include:.*$", text, re.MULTILINE)))
    return text + "".join(
        says(config.parent / name if (config.parent / name).exists() else ROOT / name) for name in included
    )


@pytest.mark.slow
@pytest.mark.installation
@pytest.mark.timeout(1000)
def test_the_others_work_without_it(tmp_path: Path) -> None:
    others: dict[str, list[str]] = {}
    for method in methods():
        shutil.copytree(
            ROOT / "agentr", tmp_path / method / "agentr", ignore=shutil.ignore_patterns("__pycache__", "web", "static")
        )
        shutil.rmtree(tmp_path / method / "agentr/methods" / method)
        # Without a method in it the default is meant, which is one, too.
        others[method] = [
            str(config) for config in CONFIGS if re.search(r"\btype: \w", text := says(config)) and method not in text
        ]
    assert all(others.values())
    command = [sys.executable, "-c", SCRIPT, json.dumps(others)]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=900)
    assert done.returncode == 0, done.stdout + done.stderr


#: What a copy of the project has of it.
COPIED = ("agentr", "configs", "docs", "env_servers", "examples", "ray_jobs", "tests", "README.md", "pyproject.toml")
#: Of a copy: that it is what its tests import.
COPY = """
import agentr.methods


def test_it_is_tested() -> None:
    assert agentr.methods.__file__ == {file!r}
    assert set(agentr.methods.methods()) == {kept!r}
"""
#: Methods without which another's own tests do not pass: docs/eto.md has a configuration of its baseline, too.
BESIDE = {"eto": {"rft"}}


def passes(copy: Path, kept: Set[str], *options: str) -> None:
    """Runs fast tests in a copy of the project that has these methods alone."""
    hidden = shutil.ignore_patterns("__pycache__", "web", "static", ".*")
    for name in COPIED:
        source = ROOT / name
        (shutil.copytree(source, copy / name, ignore=hidden) if source.is_dir() else shutil.copy(source, copy / name))
    for method in methods().keys() - kept:
        shutil.rmtree(copy / "agentr/methods" / method)
    file = str(copy / "agentr/methods/__init__.py")
    (copy / "tests/test_copy.py").write_text(COPY.format(file=file, kept=set(kept)))
    fast = ["-q", "-m", "not slow and not cluster and not chaos", "-p", "no:cacheprovider", "tests/test_copy.py"]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *fast, *options],
        cwd=copy,
        env={**os.environ, "PYTHONPATH": str(copy)},
        capture_output=True,
        text=True,
        timeout=580,
    )
    assert done.returncode == 0, done.stdout[-10_000:] + done.stderr


@pytest.mark.slow
@pytest.mark.installation
@pytest.mark.timeout(600)
def test_what_methods_share_is_tested_without_any(tmp_path: Path) -> None:
    """More than each alone: with all folders gone, the tests of exploring, training and rounds pass, and those of
    readers, which see what a method has left."""
    passes(tmp_path, frozenset(), "-n", "2", "tests/rounds", "tests/collect", "tests/train", "tests/read")


def own_tests(method: str) -> list[str]:
    """Returns the files of a method's own tests."""
    return [str(path.relative_to(ROOT)) for path in sorted((ROOT / "tests/methods").glob(f"test_{method}_*.py"))]


@pytest.mark.slow
@pytest.mark.by_hand
@pytest.mark.timeout(600)
@pytest.mark.parametrize("method", [method for method in methods() if own_tests(method)])
def test_its_own_tests_need_no_other(method: str, tmp_path: Path) -> None:
    passes(tmp_path, {method, *BESIDE.get(method, ())}, *own_tests(method))
