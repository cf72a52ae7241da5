"""The reference of all configuration keys, made from the schema itself:

python -m agentr.config.reference > docs/configuration.md
"""

from __future__ import annotations

import ast
import inspect
from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from enum import StrEnum
from typing import Any

from agentr.config import methods, schema
from agentr.config.load import FREE_KEYS, plain

_HEAD = """\
# Configuration

Made from `agentr/config/schema.py` and `methods.py` by `python -m agentr.config.reference`. A configuration is YAML with these sections;
`include: [file]` merges other files first; on the command line any key can be set as `section.key=value`. An unknown key or a wrong type
is an error.

Keys marked with * may differ when a run is continued; all others say what the run is.
"""


def documented(cls: type) -> dict[str, str]:
    """The docstrings of a class's attributes: the string literals that stand below them."""
    (body,) = ast.parse(inspect.getsource(cls)).body
    assert isinstance(body, ast.ClassDef)
    found = {}
    for statement, following in zip(body.body, body.body[1:], strict=False):
        text = following.value.value if isinstance(following, ast.Expr) and isinstance(following.value, ast.Constant) else None
        target = getattr(statement, "target", None) or (getattr(statement, "targets", None) or [None])[0]
        if isinstance(target, ast.Name) and isinstance(text, str):
            found[target.id] = " ".join(text.split())
    return found


def reference() -> str:
    """The whole page."""
    return _HEAD + "".join(_section(name, value) for name, value in vars(schema.Config()).items()) + _choices()


def _section(name: str, value: Any) -> str:
    default = value[0] if isinstance(value, list) else value
    lines = [f"\n## {name}{'[i]' if isinstance(value, list) else ''}\n"]
    lines.append(f"\n{inspect.getdoc(type(default))}\n" if _has_doc(default) else "")
    lines.append("\n| key | default | |\n|---|---|---|\n")
    lines += (f"| `{key}`{'*' if free else ''} | `{shown}` | {text} |\n" for key, shown, text, free in _rows(name, default, ""))
    return "".join(lines)


def _has_doc(value: Any) -> bool:
    # A dataclass without a docstring has its signature there.
    doc = inspect.getdoc(type(value)) or ""
    return not doc.startswith(type(value).__name__ + "(")


def _rows(section: str, value: Any, prefix: str) -> Iterator[tuple[str, str, str, bool]]:
    texts = documented(type(value))
    for field in fields(value):
        key, default = f"{prefix}{field.name}", getattr(value, field.name)
        if is_dataclass(default):
            yield from _rows(section, default, f"{key}.")
        else:
            shown = plain(default)
            free = f"{section}.{key}".startswith(FREE_KEYS)
            yield key, "" if shown == "" else str(shown), texts.get(field.name, ""), free


def _choices() -> str:
    lines = ["\n## Choices\n"]
    for name, value in (vars(schema) | vars(methods)).items():
        if isinstance(value, type) and issubclass(value, StrEnum) and value.__module__ in (schema.__name__, methods.__name__):
            texts = {choice: f" ({text.rstrip('.')})" for choice, text in documented(value).items()}
            lines.append(f"\n**{name}**: " + "; ".join(f"`{m.value}`{texts.get(m.name, '')}" for m in value) + "\n")
    return "".join(lines)


if __name__ == "__main__":
    print(reference(), end="")
