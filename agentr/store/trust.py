"""Who may continue a run: what a stranger's run names is run, asked and read only if the user says so.

A run that was started here is known by a record outside of it, in the user's state folder
(``$XDG_STATE_HOME/agentr/runs``, or ``~/.local/state/agentr/runs``). Its name is the hash of the run's frozen
configuration, so that a run may be moved, packed and unpacked, and one with another configuration is another run; it
holds the hash of each file of code that the configuration names.
"""

import hashlib
import json
import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from importlib.machinery import PathFinder
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import yaml

from agentr.config.identity import flatten, plain
from agentr.config.schema import Config
from agentr.config.text import read_yaml
from agentr.console import confirmed, warn
from agentr.errors import ConfigError, RunError
from agentr.outside import parse_json, read_file
from agentr.store.files import write_bytes

#: The variable that says ``--trust`` by the value 1, for jobs and schedulers.
VARIABLE = "AGENTR_TRUST"

_trusting = ContextVar("trusting", default=False)

#: Kinds of what is named, each known by the key or by the value.
_KINDS = {
    "variable": (r".*_env", r".+"),
    "program": (r"env\.python|env\.options\.command", r".+"),
    "code": (r".*", r".*\.py(:[A-Za-z_]\w*)?|[A-Za-z_][\w.]*:[A-Za-z_]\w*"),
    "address": (r".*", r"\w+://.+"),
}


class Untrusted(ConfigError):
    """A run that was not started here names what its user has not allowed. The command ends with this status."""

    status = 2


def named(config: Mapping[str, Any]) -> Iterator[tuple[str, str, str]]:
    """Yields the kind, the key and the value of each program, file or module of code, address and variable that a
    configuration names.

    What agentr names by itself is left out.
    """
    ours = {value for _, value in flatten(plain(Config())) if isinstance(value, str)}
    for key, value in flatten(config):
        for text in value if isinstance(value, list) else [value]:
            if isinstance(text, str) and text and text not in ours:
                named = (
                    (kind, re.fullmatch(keys, key) and re.fullmatch(values, text))
                    for kind, (keys, values) in _KINDS.items()
                )
                yield from ((kind, key, text) for kind, fits in named if fits)


@contextmanager
def trusting(really: bool = True) -> Iterator[None]:
    """Lets runs be gone on with that were not started here while the block runs: the user trusts them."""
    before = _trusting.set(really)
    try:
        yield
    finally:
        _trusting.reset(before)


def needs_trust(file: Path) -> None:
    """Lets a run be gone on with if it names nothing, was started here, or the user says so.

    Args:
        file: The configuration that the run has stored.

    Raises:
        Untrusted: It may not be.
    """
    try:
        root, config = file.parent, read_yaml(file)
    except (OSError, yaml.YAMLError):
        return  # who loads it says what is wrong
    found = (
        sorted({f"{kind} of {key}: {text}" for kind, key, text in named(config)}) if isinstance(config, dict) else []
    )
    if not found or _known(config):
        return
    if not (_trusting.get() or os.environ.get(VARIABLE) == "1"):
        warn(
            "\n  ".join(
                [
                    f"{root} was not started here, or its code has changed. Going on with it runs, asks and reads:",
                    *found,
                ]
            )
        )
        if not confirmed("Go on with it?"):
            raise Untrusted(
                f"{root} is not trusted", hint=f"If all of that is right, give --trust; or {VARIABLE}=1 for a job."
            )
    remember(root, config)


def remember(root: Path, config: Mapping[str, Any]) -> None:
    """Keeps that a run was started here, or is trusted. Where that cannot be kept, its next start asks."""
    if not any(named(config)):
        return
    record = _record(config)
    try:
        record.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        write_bytes(record, json.dumps({"run": str(root), "code": _code(config)}, indent=2).encode())
    except (OSError, RunError) as error:
        warn(f"{record} cannot be written: going on with {root} will need --trust ({error})")


def _known(config: Mapping[str, Any]) -> bool:
    try:
        return parse_json(read_file(_record(config)))["code"] == _code(config)
    except (OSError, ValueError, KeyError, TypeError):
        return False


def _record(config: Mapping[str, Any]) -> Path:
    state = Path(os.environ.get("XDG_STATE_HOME") or "~/.local/state").expanduser()
    # 'doctor --model' says it anew
    model = {key: value for key, value in config.get("model", {}).items() if key != "path"}
    digest = hashlib.sha256(json.dumps({**config, "model": model}, sort_keys=True).encode()).hexdigest()
    return state / "agentr" / "runs" / f"{digest}.json"


def _code(config: Mapping[str, Any]) -> dict[str, str]:
    """Returns the hash of each file of code by the name that leads to it; of what is not there, nothing."""
    names = sorted({text for kind, _, text in named(config) if kind == "code"})
    return {name: hashlib.sha256(read_file(file)).hexdigest() if (file := _file(name)) else "" for name in names}


def _file(name: str) -> Path | None:
    """Returns the file of ``FILE.py`` or ``module:name``, found without an import: that of a package would run the
    packages above it."""
    module = name.partition(":")[0]
    if module.endswith(".py"):
        return path if (path := Path(module).resolve()).is_file() else None
    parts = module.split(".")
    spec = find_spec(parts[0])
    for depth in range(2, len(parts) + 1):
        spec = spec and PathFinder.find_spec(".".join(parts[:depth]), spec.submodule_search_locations)
    return Path(spec.origin) if spec and spec.origin else None
