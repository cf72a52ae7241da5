"""The reference of all configuration keys, made from the schema and the methods:

python -m tests.docs.configuration > docs/configuration.md
"""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from enum import Enum
from typing import Any

from agentr.config.checks import range_of
from agentr.config.identity import is_free, plain
from agentr.config.schema import Config
from agentr.methods import methods

_HEAD = """\
# Configuration

Made from `agentr/config/` and `agentr/methods/` by `python -m tests.docs.configuration`.

- A configuration is YAML with these sections. `include: [file]` merges other files first; later values win. On the command line any
  key can be set as `section.key=value`, one of an element of a list as `train[0].steps=10`.
- `method.type` names the method; each method has keys of its own in the section `method`. A file that serves several methods (a base of
  `agentr compare`) gives their values in the section `methods`, by type: only those of the method that runs are used.
- Everything is checked when a configuration is read: unknown keys, keys of another method, wrong types, numbers out of range, values
  that contradict each other, environments, options, splits, files and models that do not exist. All problems are listed at once.
- Keys marked with * may differ when a run is continued; all others say what the run is.
"""


def documented(cls: type) -> dict[str, str]:
    """Returns the docstrings of a class's attributes, inherited ones included: the string literals that stand below them."""
    found: dict[str, str] = {}
    for base in reversed(cls.__mro__):
        if base.__module__.startswith("agentr."):
            found |= _own(base)
    return found


def _own(cls: type) -> dict[str, str]:
    (body,) = ast.parse(textwrap.dedent(inspect.getsource(cls))).body
    assert isinstance(body, ast.ClassDef)
    found = {}
    for statement, following in zip(body.body, body.body[1:], strict=False):
        text = following.value.value if isinstance(following, ast.Expr) and isinstance(following.value, ast.Constant) else None
        target = getattr(statement, "target", None) or (getattr(statement, "targets", None) or [None])[0]
        if isinstance(target, ast.Name) and isinstance(text, str):
            found[target.id] = " ".join(text.split())
    return found


def reference() -> str:
    """Returns the whole page."""
    config = Config()
    parts = [_HEAD]
    for name, value in vars(config).items():
        if name == "method":
            parts += _methods()
        elif not _is_section(value):
            parts.append(f"\n## {name}{'*' if is_free(name) else ''}\n\n{documented(Config)[name]}\n")
        else:
            parts.append(_section(name, value[0] if isinstance(value, list) else value, isinstance(value, list)))
    return "".join(parts)


def _is_section(value: Any) -> bool:
    """Whether a value of the whole configuration is a section, or a list of them, and not a key by itself."""
    return is_dataclass(value) or (isinstance(value, list) and any(map(is_dataclass, value)))


def undocumented() -> list[str]:
    """Returns the keys without a description."""
    config = Config()
    sections = [
        (name, value[0] if isinstance(value, list) else value)
        for name, value in vars(config).items()
        if name != "method" and _is_section(value)
    ]
    sections += [("method", method.Config()) for method in methods().values()]
    return [f"{section}.{row[0]}" for section, value in sections for row in _rows(section, value, "") if not row[3]]


def _methods() -> Iterator[str]:
    for name, method in methods().items():
        presets = ", ".join(f"`{preset}`" for preset in ["default", *method.presets])
        yield f"\n## method: {{type: {name}}}\n\n{method.title}. [Its page]({method.page.removeprefix('docs/')}). Presets: {presets}.\n"
        yield _table("method", method.Config())


def _section(name: str, value: Any, many: bool) -> str:
    return f"\n## {name}{'[i]' if many else ''}\n\n{inspect.getdoc(type(value))}\n" + _table(name, value)


def _table(section: str, value: Any) -> str:
    lines = ["\n| key | default | values | |\n|---|---|---|---|\n"]
    for key, shown, values, text, free in _rows(section, value, ""):
        lines.append(f"| `{key}`{'*' if free else ''} | {f'`{shown}`' if shown else ''} | {values} | {_cell(text)} |\n")
    return "".join(lines)


def _cell(text: str) -> str:
    """Returns a text as a cell of a table: what would be HTML stays as it is written, and a bar ends no cell."""
    pieces = text.split("``")
    pieces[::2] = [piece.replace("<", "\\<") for piece in pieces[::2]]
    return "``".join(pieces).replace("|", "\\|")


def _rows(section: str, value: Any, prefix: str) -> Iterator[tuple[str, str, str, str, bool]]:
    """Key, default, values, description and whether it is free, of each key of a section."""
    texts = documented(type(value))
    for each in fields(value):
        key, default = f"{prefix}{each.name}", getattr(value, each.name)
        if is_dataclass(default):
            yield from _rows(section, default, f"{key}.")
            continue
        listed = isinstance(default, list) and len(default) > 0 and is_dataclass(default[0])
        shown = "[...]" if listed else str(plain(default)) if plain(default) not in ("", None) else ""
        text = texts.get(each.name, "")
        yield key, shown, _values(value, each.name, default), text, is_free(f"{section}.{key}")
        if listed:
            yield from _rows(section, default[0], f"{key}[i].")


def _values(section: Any, name: str, default: Any) -> str:
    """The values that a key takes: choices with what they mean, or a range."""
    if isinstance(default, Enum):
        texts = documented(type(default))
        return "; ".join(f"`{m.value}`" + (f": {texts[m.name].rstrip('.')}" if m.name in texts else "") for m in type(default))
    if isinstance(default, bool):
        return "true, false"
    bounds = range_of(section, name)
    kind = "list of numbers" if isinstance(default, list) else "integer" if isinstance(default, int) or default is None else "number"
    return f"{kind}, {bounds}" if bounds is not None else ""


if __name__ == "__main__":
    print(reference(), end="")
