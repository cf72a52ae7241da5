"""Configurations as text: YAML, read and written by libyaml where PyYAML has it, which is ten times as fast."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from agentr.outside import DEEPEST, read_file, within

#: Bytes of a configuration, and values in it, counted as often as they are named.
MOST, VALUES = 8 << 20, 100_000
_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_DUMPER = getattr(yaml, "CSafeDumper", yaml.SafeDumper)


def parse_yaml(text: str) -> Any:
    """Returns what a text says in YAML.

    Raises:
        yaml.YAMLError: It is none, or deeper or larger than a configuration.
    """
    depth = 0
    for event in yaml.parse(text, _LOADER):  # without libyaml's recursion, which ends the process
        depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
        if depth > DEEPEST:
            raise yaml.YAMLError(f"it has more than {DEEPEST} levels")
    try:
        return within(yaml.load(text, _LOADER), VALUES)
    except (ValueError, TypeError, RecursionError) as error:  # dates that there are not, keys that are lists
        raise yaml.YAMLError(str(error)) from error


def read_yaml(path: Path) -> Any:
    """Returns what a file says in YAML.

    Raises:
        OSError: It is missing, no file, or larger than a configuration.
        yaml.YAMLError: It is none, or deeper or larger than a configuration.
    """
    try:
        return parse_yaml(read_file(path, MOST).decode("utf-8"))
    except UnicodeDecodeError as error:
        raise yaml.YAMLError(f"it is not UTF-8: {error.reason}") from error


def dump_yaml(data: Any) -> str:
    """Returns plain data as YAML, keys in their order."""
    return yaml.dump(data, Dumper=_DUMPER, sort_keys=False, allow_unicode=True)
