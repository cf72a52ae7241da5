"""Configurations as text: YAML, read and written by libyaml where PyYAML has it, which is ten times as fast."""

from __future__ import annotations

from typing import Any

import yaml

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
        yaml.YAMLError: It is none, or gives a key twice.
    """
    return yaml.load(text, _Loader)


def parse_texts(text: str) -> Any:
    """Returns the same with each scalar as it is written: ``on`` is no truth value, ``007`` no number."""
    return yaml.load(text, _BASE)


def dump_yaml(data: Any) -> str:
    """Returns plain data as YAML, keys in their order."""
    return yaml.dump(data, Dumper=_DUMPER, sort_keys=False, allow_unicode=True)
