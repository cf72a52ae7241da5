"""The registry: environments described without loading, and the walls around their folders."""

import subprocess
import sys
import tomllib

import pytest

from env_servers.base import Environment
from env_servers.registry import (
    ENVIRONMENTS,
    BadOptions,
    UnknownEnvironment,
    about,
    client_dialect,
    client_dialects,
    describe,
    load,
)
from tests.env_servers.support import ROOT

DESCRIBED = {found.name: found for found in describe()}
#: Those that can be made without options.
ALONE = sorted(name for name, found in DESCRIBED.items() if not found.needed)


def available(name: str) -> Environment:
    if not DESCRIBED[name].available:
        pytest.skip(f"{name} is not available here; `agentr list environments` says why")
    return load(name)


def test_about_says_what_a_configuration_is_checked_against():
    found = about("textcraft")
    assert (found.name, found.title, found.options, found.step_limit) == (
        "textcraft",
        "TextCraft",
        ("recipes", "distractors", "goals", "renamed"),
        20,
    )
    assert found.splits == {"train": True, "dev": False, "test": False, "agentgym_train": True, "agentgym_test": False}
    assert found.available and found == DESCRIBED["textcraft"]
    assert about("mathtool").examples == 1 and about("mathtool").needed == ()
    assert about("program").needed == ("command", "tasks")
    with pytest.raises(BadOptions, match="program needs the options command and tasks:"):
        load("program")
    with pytest.raises(BadOptions, match="program needs the option tasks:"):
        load("program", {"command": ["true"]})


def test_about_knows_splits_that_need_files_or_options():
    assert (about("sciworld").splits["eto_train"], about("sciworld").splits["eto_dev"]) == (True, False)
    assert (about("alfworld").splits["agentgym_train"], about("alfworld").splits["agentgym_test"]) == (True, False)
    assert about("webshop").splits["human_train"]


@pytest.mark.parametrize("name", ALONE)
def test_about_agrees_with_the_loaded_environment(name: str):
    spec = available(name).spec
    found = about(name)
    assert {split: s.train for split, s in spec.splits.items()}.items() <= found.splits.items()
    assert (found.title, found.step_limit, found.examples) == (spec.title, spec.step_limit, len(spec.examples))


def test_about_a_class_that_lives_elsewhere():
    found = about("tests.env_servers.support:Counter")
    assert found.options == ("fast", "can_fork", "noisy", "die_at_start", "look_up_s", "parallel")
    assert (found.splits, found.step_limit, found.examples) == ({}, 0, 0), "it writes its specification itself"
    assert about("env_servers.textcraft:TextCraft").splits == about("textcraft").splits


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("textcarft", "no environment is called 'textcarft'; did you mean 'textcraft'\\?; known: alfworld, babyai"),
        ("xyzzy", "no environment is called 'xyzzy'; known: alfworld"),
        ("no.such.module:X", "cannot import"),
        ("os:path", "not a subclass of Environment"),
    ],
)
def test_about_refuses_an_unknown_name(name: str, reason: str):
    with pytest.raises(UnknownEnvironment, match=reason):
        about(name)


def test_about_loads_nothing_heavy():
    script = (
        "import sys\nfrom env_servers.registry import ENVIRONMENTS, about\nfor name in ENVIRONMENTS: about(name)\n"
        "print(*sys.modules.keys() & {'fastapi', 'uvicorn', 'minigrid', 'sympy', 'py4j', 'torch', 'agentr'})"
    )
    done = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == ""


@pytest.mark.parametrize("name", ALONE)
def test_every_stratum_is_a_label_of_the_tasks(name: str):
    environment = available(name)
    strata = environment.spec.strata
    assert strata, "success is broken down by something"
    for split in ("train", "dev", "test"):
        tasks = environment.split(split)
        for stratum in strata:
            values = {task.labels[stratum] for task in tasks}  # a KeyError names a stratum that is no label
            assert 1 < len(values) <= 32, f"{stratum} of {split} has {len(values)} values"


def test_client_dialects_are_found_in_the_environments_folders():
    assert client_dialects() == ["alfworld", "babyai", "sciworld", "searchqa", "textcraft", "webshop"]
    assert client_dialect("household") is None and client_dialect("mathtool") is None
    dialect = client_dialect("webshop")
    assert dialect is not None and dialect.reset(7) == {"session_id": 7} and dialect.text == "state"
    with pytest.raises(UnknownEnvironment):
        client_dialect("nothing")


def test_the_import_contracts_name_every_module():
    """A module that no contract names would be a hole in the wall."""
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["importlinter"][
        "contracts"
    ]
    independent = next(c["modules"] for c in contracts if c["type"] == "independence")
    assert set(independent) == {f"env_servers.{name}" for name in ENVIRONMENTS}
    forbidden = next(
        c["forbidden_modules"] for c in contracts if c["type"] == "forbidden" and c["source_modules"] == ["agentr"]
    )
    allowed = {
        f"env_servers.{name}"
        for name in (
            "protocol",
            "seeds",
            "observation",
            "registry",
            "conformance",
            "serving",
            "records",
            "turns",
            "connections",
        )
    }
    folder = ROOT / "env_servers"
    modules = {f"env_servers.{file.stem}" for file in folder.glob("*.py") if not file.stem.startswith("__")}
    modules |= {f"env_servers.{file.parent.name}" for file in folder.glob("*/__init__.py")}
    assert set(forbidden) == modules - allowed
