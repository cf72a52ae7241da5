"""Configurations as text: YAML, read and written by libyaml where PyYAML has it, which is ten times as fast."""

from pathlib import Path
from typing import Any

import yaml

from agentr.outside import DEEPEST, read_file, within

#: Bytes of a configuration, and values in it, counted as often as they are named.
MOST, VALUES = 8 << 20, 100_000
_SAFE: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_BASE = getattr(yaml, "CBaseLoader", yaml.BaseLoader)
_DUMPER = getattr(yaml, "CSafeDumper", yaml.SafeDumper)


class _Loader(_SAFE):
    """Refuses a key that is given twice, of which YAML's readers take the last."""

    def construct_mapping(self, node: Any, deep: bool = False) -> dict[Any, Any]:
        lines: dict[Any, int] = {}
        for key, _ in node.value:
            line = key.start_mark.line + 1
            if isinstance(key.value, str) and (before := lines.setdefault((key.tag, key.value), line)) != line:
                raise yaml.YAMLError(f"the key {key.value!r} is given twice, on lines {before} and {line}")
        return super().construct_mapping(node, deep)


def parse_yaml(text: str) -> Any:
    """Returns what a text says in YAML.

    Raises:
        yaml.YAMLError: It is none, gives a key twice, or is deeper or larger than a configuration.
    """
    return _loaded(text, _Loader)


def parse_texts(text: str) -> Any:
    """Returns the same with each scalar as it is written: ``on`` is no truth value, ``007`` no number."""
    return _loaded(text, _BASE)


def _loaded(text: str, loader: Any) -> Any:
    depth = 0
    for event in yaml.parse(text, loader):  # without libyaml's recursion, which ends the process
        depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
        if depth > DEEPEST:
            raise yaml.YAMLError(f"it has more than {DEEPEST} levels")
    try:
        return within(yaml.load(text, loader), VALUES)
    except (ValueError, TypeError, RecursionError) as error:  # dates that there are not, keys that are lists
        raise yaml.YAMLError(str(error)) from error


def read_text(path: Path) -> str:
    """Returns the text of a configuration.

    Raises:
        OSError: It is missing, no file, or larger than a configuration.
        yaml.YAMLError: It is not UTF-8.
    """
    try:
        return read_file(path, MOST).decode("utf-8")
    except UnicodeDecodeError as error:
        raise yaml.YAMLError(f"it is not UTF-8: {error.reason}") from error


def read_yaml(path: Path) -> Any:
    """Returns what a file says in YAML; see ``parse_yaml`` and ``read_text``."""
    return parse_yaml(read_text(path))


def dump_yaml(data: Any) -> str:
    """Returns plain data as YAML, keys in their order."""
    return yaml.dump(data, Dumper=_DUMPER, sort_keys=False, allow_unicode=True)
