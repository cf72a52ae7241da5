"""The reference of all configuration keys, made from the sections' classes and the methods:

python -m tests.docs.configuration > docs/configuration.md
"""

import inspect
from collections import Counter
from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from functools import cache
from typing import Any

from agentr.config.identity import flatten, is_free, plain
from agentr.config.json_schema import section_schema, unwrapped
from agentr.config.schema import Config, MethodConfig
from agentr.methods import methods

_HEAD = """\
# Configuration

Made from `agentr/config/` and `agentr/methods/` by `python -m tests.docs.configuration`.

- A configuration is YAML with these sections. Six layers lie over each other, and later values win: the defaults \
below, the preset that
  `method.preset` names, files (`include: [file]` merges others first), the set of values that `cluster: NAME` names, \
the command line
  (`section.key=value`; one of an element of a list as `train[0].steps=10`), and what `from_round` changes in a round.
  `agentr run --dry-run --origins` shows which of them a value is from.
- `agentr config schema` prints a JSON schema, by which editors complete and check a file whose first line is
  `# yaml-language-server: $schema=schema.json`. Each file in `configs/` has such a line.
- Several roles may ask the same API: the section `endpoints` describes it once, by a name of yours, and `openai: \
NAME` stands in the
  roles.
- `method.type` names the method; each method has keys of its own in the section `method`. A file that serves several \
methods (a base of
  `agentr compare`) gives their values in the section `methods`, by type: only those of the method that runs are used.
- Everything is checked when a configuration is read: unknown keys, keys of another method, wrong types, numbers out \
of range, values
  that contradict each other, environments, options, splits, files and models that do not exist. All problems are \
listed at once.
- Keys marked with * may differ when a run is continued; all others say what the run is.
"""


#: What a section that stands in several places is called there.
_NAMES = {
    "TrainConfig": "a training",
    "TaskSelection": "a selection of tasks",
    "SamplingConfig": "a sampling",
    "OpenAIConfig": "an endpoint",
    "AdvisorConfig": "an adviser",
    "UCTConfig": "a UCT search",
    "MixtureConfig": "a mixture",
    "OnlineConfig": "online methods",
    "BranchingConfig": "online methods that branch",
    "MethodConfig": "method",
    "ImitationConfig": "methods that imitate",
    "PreferenceConfig": "methods that prefer",
    "ExtraPairs": "pairs of a file",
}


def reference() -> str:
    """Returns the whole page."""
    config, parts = Config(), [_HEAD]
    for name, value in vars(config).items():
        section = value[0] if isinstance(value, list) and value else value
        if name == "method":
            parts += _methods()
        elif not is_dataclass(section):
            text = _schema(Config)["properties"][name]["description"]
            parts.append(f"\n## {name}{'*' if is_free(name) else ''}\n\n{_cell(text)}\n")
        elif not (isinstance(value, list) and _shared(type(section))):
            parts.append(f"\n## {name}\n\n{_doc(type(section))}\n{_table(name, section)}")
        else:
            parts.append(
                f"\n## {name}[i]\n\n{_schema(Config)['properties'][name]['description']} Keys: "
                f"{_link(type(section))}.\n"
            )
    for cls in sorted(filter(_shared, _uses()), key=lambda cls: _NAMES[cls.__name__]):
        if not issubclass(cls, MethodConfig):
            parts.append(f"\n## {_NAMES[cls.__name__].capitalize()}\n\n{_doc(cls)}\n{_table('', cls())}")
    return "".join(parts)


def keys() -> int:
    """Returns how many keys the page describes."""
    return reference().count("\n| `")


def undescribed() -> list[str]:
    """Returns the keys without a description."""
    sections = [*_uses(), *(method.config_class for method in methods().values())]
    found = [(cls, name, value) for cls in sections for name, value in _schema(cls)["properties"].items()]
    return [
        f"{cls.__name__}.{name}"
        for cls, name, value in found
        if not (value.get("description") or "$ref" in str(value) or name == "type")
    ]


@cache
def _schema(cls: type) -> dict[str, Any]:
    return section_schema(cls)


@cache
def _uses() -> Counter[type]:
    """How often each class of sections stands in a configuration: as a section, or below several methods."""
    found = Counter[type]()

    def walk(section: Any) -> None:
        found[type(section)] += 1
        for each in fields(section):
            value = getattr(section, each.name)
            inner = value[0] if isinstance(value, list) and value else value
            if is_dataclass(inner) and each.name != "method":
                walk(inner)

    walk(Config())
    for method in methods().values():
        for base in method.config_class.__mro__[1:]:
            if is_dataclass(base) and base is not MethodConfig and issubclass(base, MethodConfig) and base not in found:
                walk(base())
        inherited = {
            each.name for base in method.config_class.__mro__[1:] if is_dataclass(base) for each in fields(base)
        }
        section = method.config_class()
        for each in fields(section):
            value = getattr(section, each.name)
            inner = value[0] if isinstance(value, list) and value else value
            if is_dataclass(inner) and each.name not in inherited:
                walk(inner)
    return found


def _doc(cls: type) -> str:
    return unwrapped(inspect.getdoc(cls) or "")


def _shared(cls: type) -> bool:
    return cls.__name__ in _NAMES


def _link(cls: type) -> str:
    name = _NAMES[cls.__name__]
    return f"[{'those of ' if issubclass(cls, MethodConfig) else ''}{name}](#{name.replace(' ', '-').lower()})"


def _methods() -> Iterator[str]:
    yield f"\n## method\n\n{_doc(MethodConfig)}\n{_table('method', MethodConfig())}"
    bases = dict.fromkeys(
        base
        for method in methods().values()
        for base in reversed(method.config_class.__mro__[1:])
        if base is not MethodConfig and is_dataclass(base) and issubclass(base, MethodConfig)
    )
    for base in bases:
        of = ", ".join(f"`{name}`" for name, method in methods().items() if issubclass(method.config_class, base))
        yield f"\n### {_NAMES[base.__name__].capitalize()}\n\n{of}: {_doc(base)}\n{_table('method', base())}"
    for name, method in methods().items():
        presets = ", ".join(f"`{preset}`" for preset in dict.fromkeys(["default", *method.presets]))
        yield (
            f"\n### method: {{type: {name}}}\n\n{method.title}. [Its page]({method.page.removeprefix('docs/')}). "
            f"Presets: {presets}.\n"
        )
        base = method.config_class.__mro__[1]
        if base is not MethodConfig:
            yield f"\nKeys: {_link(base)}, and these.\n"
        yield _table("method", method.config_class())


def _table(section: str, value: Any) -> str:
    rows = list(_rows(section, value, ""))
    lines = ["\n| key | default | values | |\n|---|---|---|---|\n"] if rows else []
    for key, shown, values, text, free in rows:
        lines.append(f"| `{key}`{'*' if free else ''} | {f'`{shown}`' if shown else ''} | {values} | {_cell(text)} |\n")
    return "".join(lines)


def _cell(text: str) -> str:
    """Returns a text as a cell of a table: what would be HTML stays as it is written, and a bar ends no cell."""
    pieces = " ".join(text.split()).split("``")
    pieces[::2] = [piece.replace("<", "\\<") for piece in pieces[::2]]
    return "``".join(pieces).replace("|", "\\|")


def _rows(section: str, value: Any, prefix: str) -> Iterator[tuple[str, str, str, str, bool]]:
    """Key, default, values, description and whether it is free, of each key of a section that is not described
    elsewhere."""
    bases = [base for base in type(value).__mro__[1:] if is_dataclass(base) and _shared(base)]
    above = bases[0]() if bases else None
    for each in fields(value):
        key, default = f"{prefix}{each.name}", getattr(value, each.name)
        if (
            above is not None
            and hasattr(above, each.name)
            and (each.name == "type" or plain(getattr(above, each.name)) == plain(default))
        ):
            continue
        schema, listed = (
            _schema(type(value))["properties"][each.name],
            isinstance(default, list) and bool(default) and is_dataclass(default[0]),
        )
        text, inner = schema.get("description", ""), default[0] if listed else default
        name = f"{key}[i]" if listed else key
        if not is_dataclass(inner):
            shown = str(plain(default)) if plain(default) not in ("", None) else ""
            yield (
                key,
                shown,
                _values(schema, _schema(type(value)).get("$defs", {})),
                text,
                is_free(f"{section}.{key}"),
            )
        elif _shared(type(inner)):
            other = {
                name: found
                for name, found in flatten(plain(inner))
                if dict(flatten(plain(type(inner)()))).get(name) != found
            }
            yield name, ", ".join(f"{name}: {found}" for name, found in other.items()), _link(type(inner)), text, False
        else:
            yield from _rows(section, inner, f"{name}.")


def _values(schema: dict[str, Any], definitions: dict[str, Any]) -> str:
    """The values that a key takes: choices with what they mean, or a range."""
    for one in schema.get("anyOf", [schema]):
        choices = definitions.get(one.get("$ref", "").rpartition("/")[2], one)
        if "enum" in choices:
            texts = choices.get("markdownEnumDescriptions", [""] * len(choices["enum"]))
            return "; ".join(
                f"`{value}`" + (f": {_cell(text).rstrip('.')}" if text else "")
                for value, text in zip(choices["enum"], texts, strict=True)
            )
        if one.get("type") == "boolean":
            return "true, false"
        number = one.get("items", one) if one.get("type") == "array" else one
        if number.get("type") in ("integer", "number"):
            words = {
                "minimum": "at least",
                "exclusiveMinimum": "above",
                "maximum": "at most",
                "exclusiveMaximum": "below",
            }
            bounds = [f"{word} {number[bound]:g}" for bound, word in words.items() if bound in number]
            return ", ".join(
                [
                    "list of numbers" if one is not number else number["type"],
                    *([" and ".join(bounds)] if bounds else []),
                ]
            )
    return ""


if __name__ == "__main__":
    print(reference(), end="")
