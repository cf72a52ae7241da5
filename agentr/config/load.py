"""Reading a configuration: schema, preset, included files, the file itself, command-line overrides; later ones win.
A layer that names another method than those below it starts from that method's defaults; another environment, without options.

A file may describe APIs in its section ``endpoints``, by names that roles give in the place of an API's own keys.
It may give values for several methods in its section ``methods``, by type; those of the method that runs are laid under ``method``:
so one file can hold a task's settings for every method that is compared on it.
"""

from __future__ import annotations

import copy
import dataclasses
import difflib
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import is_dataclass
from datetime import date
from enum import Enum
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple, Protocol, get_args, get_type_hints

import yaml
from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException

from agentr.config.chat_template import template_text
from agentr.config.checks import UNKNOWN, Problem, parse, rules
from agentr.config.environment import environment_problems
from agentr.config.files import file_problems
from agentr.config.identity import flatten, plain
from agentr.config.literal import literal, resolvers, users
from agentr.config.overlays import NAME, SECTION, replace, take_overlay
from agentr.config.schema import Config, MethodConfig
from agentr.config.text import parse_texts, parse_yaml, read_text
from agentr.errors import ConfigError


class MethodClass(Protocol):
    """What a method tells the loader about itself. Each method does."""

    name: str
    title: str
    Config: type[MethodConfig]
    #: Fragments of a whole configuration, by the preset's name.
    presets: Mapping[str, Mapping[str, Any]]

    @classmethod
    def check(cls, config: Config) -> Iterator[Problem]:
        """Yields what is wrong in a configuration of this method, besides what its own section says."""
        ...


class FindMethod(Protocol):
    """Finds a method by its type; an empty one is the default."""

    def __call__(self, type: str) -> MethodClass:
        """Raises ConfigError for a type that is not known."""
        ...


class Layer(NamedTuple):
    """A part of a configuration, and where it comes from."""

    source: str
    data: dict[str, Any]
    texts: Any = None
    """The same with each scalar as it is written, where that is known."""


#: The section of a file that has APIs by names of the user's, for the roles that name them.
ENDPOINTS = "endpoints"
#: How the names of configurations that are included end.
_ENDINGS = (".yaml", ".yml")


class Reading(NamedTuple):
    """A configuration, and where its values are from."""

    config: Config
    origins: dict[str, str]
    """The layer that gave a key its value, by the full keys of all that are not at their default."""

    def lines(self) -> Iterator[str]:
        """Yields each key with its value and where it is from."""
        for key, value in flatten(plain(self.config)):
            yield f"{key}: {json.dumps(value, default=str, ensure_ascii=False)}  # {_origin(key, self.origins) or 'default'}"


def load(
    path: Path | None,
    overrides: Sequence[str] = (),
    base: Path | None = None,
    *,
    find: FindMethod,
    files: bool = True,
    whole: bool = False,
) -> Reading:
    """Reads and checks a configuration.

    Args:
        path: YAML file; its key ``include`` lists files, relative to it, that are merged first. None means defaults.
        overrides: ``key=value`` pairs, as on the command line.
        base: Another such file, which ``path`` is laid over.
        find: Finds the method that ``method.type`` names.
        whole: The file is one that a run has stored, and says all there was to say when it was: a key that came later has its default,
            whatever the preset has for it now.
        files: Whether the files, the model and the environment that it names must be there, as at the start of a run.

    Raises:
        ConfigError: A file is missing or broken; or all that is wrong: unknown keys, wrong types, numbers out of range, values that
            contradict each other, names that do not exist.
    """
    layers = [layer for file in (base, path) if file is not None for layer in _read(file, ())]
    layers = [Layer(layer.source, literal(layer.data), literal(layer.texts)) for layer in layers] if whole else layers
    layers += _with_overlay(Layer("the command line", _dotlist(overrides), _dotlist(overrides, texts=True)), Path())
    _require(problem for layer in layers for problem in resolvers(layer.source, layer.data))
    layers = _with_endpoints(layers)
    replace([layer.data for layer in layers], "method", "type")
    replace([layer.data for layer in layers], "env", "name", owned=("options",))
    method = find(next((str(t) for layer in reversed(layers) if (t := _section(layer, "method").get("type"))), ""))
    problems: list[Problem] = []
    by_type = _by_type(layers)
    layers = [_selected(_as_texts(layer, method, find), method, find, problems) for layer in layers]
    merged, origins = _merged(method.Config, layers if whole else [_preset(method, layers), *layers], problems)
    _complete_changes(merged, by_type)
    config = _parsed(merged, method.Config, origins, problems)
    problems += rules(config)
    if not problems:
        problems += _later_problems(config, find, files)
    problems += method.check(config)
    if files:
        problems += [*file_problems(config), *environment_problems(config)]
    try:
        config.model.chat_template = template_text(config.model.chat_template, files=not whole)
    except ConfigError as error:
        problems.append(Problem("", error.message, error.hint))
    _require(dataclasses.replace(problem, source=problem.source or _origin(problem.key, origins)) for problem in problems)
    return Reading(config, origins)


def at_round(config: Config, round_: int, find: FindMethod) -> Config:
    """Returns the configuration that holds in a round: with what ``from_round`` changes up to it.

    Raises:
        ConfigError: A change is not one: unknown keys, wrong types.
    """
    changes = [config.from_round[number] for number in sorted(config.from_round) if number <= round_]
    if not changes:
        return config
    data = literal({**plain(config), "from_round": {}})
    for change in map(literal, changes):
        given = change.get("method") or {}
        if given.get("type", data["method"]["type"]) != data["method"]["type"]:
            data["method"] = {"type": given["type"]}
            data = _over(data, _preset(find(given["type"]), [Layer("", change)]).data)
        data = _over(data, change)
    problems: list[Problem] = []
    later = find(data["method"]["type"]).Config
    merged, origins = _merged(later, [Layer(f"from_round up to {round_}", data)], problems)
    found = _parsed(merged, later, origins, problems)
    _require(problems)
    return found


def _later_problems(config: Config, find: FindMethod, files: bool) -> Iterator[Problem]:
    """What is wrong in the configuration of later rounds."""
    if any(config.problems()):  # rounds that there are not, sections that cannot change
        return
    for number in config.from_round:
        try:
            later = at_round(config, number, find)
        except ConfigError as error:
            yield Problem("", error.message, error.hint)
            continue
        problems = [*rules(later), *find(later.method.type).check(later)]
        problems += [*file_problems(later), *environment_problems(later)] if files else []
        yield from (dataclasses.replace(problem, source=f"from round {number}") for problem in problems)


def _by_type(layers: Sequence[Layer]) -> dict[str, dict[str, Any]]:
    """The values that files give for methods by type, for those that come later."""
    found: dict[str, dict[str, Any]] = {}
    for layer in layers:
        for name, values in _mapping(layer.source, "methods", layer.data.get("methods")).items():
            key, type = f"methods.{name}", _resolved(str(name), layer.source)
            found[type] = _over(found.get(type, {}), _mapping(layer.source, key, values))
    return found


@cache
def _defaults(method: type[MethodConfig]) -> Any:
    """The configuration that says nothing but its method. It is merged over, which copies it, and never changed."""
    return OmegaConf.create(literal(plain(Config(method=method()))))


def _over(data: dict[str, Any], other: dict[str, Any]) -> dict[str, Any]:
    """Returns plain data with other data merged over it."""
    merged: Any = OmegaConf.to_container(OmegaConf.merge(data, other))
    return merged


def _complete_changes(merged: dict[str, Any], by_type: Mapping[str, dict[str, Any]]) -> None:
    """Puts the values that files give for a method by its type under those of the round from which it runs."""
    changes = merged["from_round"]
    for sections in changes.values() if isinstance(changes, dict) else ():
        given = sections.get("method") if isinstance(sections, dict) else None
        if isinstance(given, dict) and (values := by_type.get(str(given.get("type", "")))):
            sections["method"] = _over(values, given)


def _require(problems: Iterable[Problem]) -> None:
    """Raises ConfigError with all problems, each once."""
    found = list(dict.fromkeys(map(str, problems)))
    if len(found) > 1:
        raise ConfigError(f"{len(found)} things are wrong in the configuration:\n" + "\n".join(f"- {problem}" for problem in found))
    if found:
        raise ConfigError(found[0])


# layers ---------------------------------------------------------------------------------------------------------------


def _read(path: Path, above: tuple[Path, ...]) -> list[Layer]:
    """The layers of a file: those that it includes, then its own."""
    if path in above:
        raise ConfigError(f"{path} includes itself", hint="Remove the circle from the 'include' lists.")
    try:
        text = read_text(path)
        data, texts = parse_yaml(text) or {}, parse_texts(text)
    except FileNotFoundError as error:
        raise ConfigError(f"there is no configuration file {path}", hint="See configs/ for examples.") from error
    except yaml.YAMLError as error:
        raise ConfigError(f"{path} is not valid YAML: {error}") from error
    except IsADirectoryError as error:
        is_run = (path / "config.yaml").exists()
        hint = f"'agentr resume {path}' continues the run in it." if is_run else "Name a YAML file; see configs/ for examples."
        raise ConfigError(f"{path} is a folder, not a configuration file", hint=hint) from error
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror}") from error
    if not isinstance(data, dict):
        raise ConfigError(f"{path} holds a {type(data).__name__}, not a mapping of sections", hint="See configs/ for examples.")
    names = data.pop("include", None) or []
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise ConfigError(f"{path}: include holds {names!r}, not a list of files", hint="For example: include: [base.yaml]")
    included: list[Layer] = []
    for name in names:
        if (file := (path.parent / name).resolve()).suffix not in _ENDINGS:  # errors quote what a configuration holds
            raise ConfigError(f"{path}: include names {name!r}, and configurations end in {' or '.join(_ENDINGS)}")
        included += _read(file, (*above, path))
    layer = Layer(str(path), data, texts)
    for section in (_section(layer, "method"), *_later_methods(layer)):
        if "type" in section:
            section["type"] = _resolved(str(section["type"]), str(path))
    return [*included, *_with_overlay(layer, path.parent)]


def _with_overlay(layer: Layer, folder: Path) -> list[Layer]:
    """The layer, and under it the set of values for the kind of cluster that it names."""
    found = take_overlay(layer.data, layer.source, folder)
    return [layer] if found is None else [Layer(*found), layer]


def _with_endpoints(layers: Sequence[Layer]) -> list[Layer]:
    """The layers with the endpoints that roles name (``openai: NAME``) in the place of their names."""
    endpoints: dict[str, Any] = {}
    for layer in layers:
        endpoints = _over(endpoints, _section(layer, ENDPOINTS))

    def named(value: Any, source: str, key: str = "") -> Any:
        if isinstance(value, list):
            return [named(one, source, f"{key}[{index}]") for index, one in enumerate(value)]
        if isinstance(value, str) and key.endswith(".openai") and not value.startswith("${"):
            if value not in endpoints:
                near = difflib.get_close_matches(value, endpoints, n=1)
                hint = f"Did you mean {near[0]!r}?" if near else f"The section {ENDPOINTS} has: {', '.join(endpoints) or 'none'}."
                raise ConfigError(f"{source}: {key}: there is no endpoint {value!r}", hint=hint)
            return endpoints[value]
        if not isinstance(value, dict):
            return value
        inner = {name: (f"{key}.{name}" if key else str(name), one) for name, one in value.items() if key or name != ENDPOINTS}
        return {name: one if name == "options" else named(one, source, at) for name, (at, one) in inner.items()}

    return [Layer(layer.source, named(layer.data, layer.source), layer.texts) for layer in layers]


def _later_methods(layer: Layer) -> Iterator[dict[str, Any]]:
    for sections in _section(layer, "from_round").values():
        if isinstance(sections, dict) and isinstance(sections.get("method"), dict):
            yield sections["method"]


def _resolved(type: str, source: str) -> str:
    """The type of a method; a Python file relative to the YAML file that names it."""
    return str((Path(source).parent / type).resolve()) if type.endswith(".py") else type


def _dotlist(overrides: Sequence[str], texts: bool = False) -> dict[str, Any]:
    for item in overrides:
        if "=" not in item:
            raise ConfigError(f"{item!r} is not of the form key=value", hint="For example: run.seed=1")
    overlays = [item for item in overrides if item.startswith(f"{SECTION}=")]
    given = [item.partition("=") for item in overrides if item not in overlays]
    try:
        data: Any = OmegaConf.to_container(
            OmegaConf.from_dotlist([f"{key}={json.dumps(parse_texts(value) or '') if texts else value}" for key, _, value in given])
        )
        if overlays:
            data[SECTION] = {NAME: overlays[-1].partition("=")[2], **data.get(SECTION, {})}
        if isinstance(data.get("from_round"), dict):  # its keys are numbers, and those of a command line are texts
            data["from_round"] = {int(key) if str(key).isdigit() else key: value for key, value in data["from_round"].items()}
        return data
    except (OmegaConfBaseException, yaml.YAMLError) as error:
        raise ConfigError(f"the overrides cannot be read: {error}") from error


def _section(layer: Layer, name: str) -> dict[str, Any]:
    return _mapping(layer.source, name, layer.data.get(name))


def _mapping(source: str, key: str, value: Any) -> dict[str, Any]:
    """A section as a mapping; nothing is an empty one.

    Raises:
        ConfigError: It is something else.
    """
    if value is None:
        return {}
    if not isinstance(value, dict):
        hint = "For example: method: {type: eto}" if key == "method" else "See docs/configuration.md."
        raise ConfigError(f"{source}: {key} holds {value!r}, not keys with values", hint=hint)
    return value


def _selected(layer: Layer, method: MethodClass, find: FindMethod, problems: list[Problem]) -> Layer:
    """The layer with the values of its ``methods`` for the method that runs under those of its ``method``; the others are checked too."""
    data = dict(layer.data)
    given = _mapping(layer.source, "methods", data.pop("methods", None))
    for name, found in given.items():
        key = f"methods.{name}"
        values, other = _mapping(layer.source, key, found), find(_resolved(str(name), layer.source))
        if other.name == method.name:
            data["method"] = OmegaConf.to_container(OmegaConf.merge(values, _section(layer, "method")))
        else:
            merged, origins = _merged(other.Config, [Layer(f"{layer.source}, {key}", {"method": values})], problems)
            _parsed(merged, other.Config, origins, problems)
    return Layer(layer.source, data)


def _as_texts(layer: Layer, method: MethodClass, find: FindMethod) -> Layer:
    """The layer in which what a key wants as a text, or as a name, is what is written: YAML reads ``on`` and ``007`` otherwise."""
    sections: dict[str, Any] = {**get_type_hints(Config), "method": method.Config}
    sections["from_round"] = dict.fromkeys(_section(layer, "from_round"), sections)
    sections["methods"] = {name: find(_resolved(str(name), layer.source)).Config for name in _section(layer, "methods")}

    def read(value: Any, text: Any, kind: Any) -> Any:
        kinds = get_type_hints(kind) if is_dataclass(kind) else kind if isinstance(kind, dict) else {}
        inner = get_args(kind)[-1] if get_args(kind) else None
        if isinstance(value, dict) and isinstance(text, dict):
            return {key: read(found, text.get(str(key)), kinds.get(key, inner)) for key, found in value.items()}
        if isinstance(value, list) and isinstance(text, list):
            return [read(found, one, inner) for found, one in zip(value, text, strict=True)]
        named = isinstance(kind, type) and issubclass(kind, str | Enum) and (isinstance(value, bool | int | float | date) or text == "")
        number = kind in (int, float) and isinstance(value, bool)  # yes is no number
        return text if (named or number) and isinstance(text, str) else value

    return Layer(layer.source, read(layer.data, layer.texts, sections))


def _preset(method: MethodClass, layers: Sequence[Layer]) -> Layer:
    name = next((p for layer in reversed(layers) if (p := _section(layer, "method").get("preset"))), "default")
    presets = {"default": {}, **method.presets}
    if name not in presets:
        hint = f"Presets: {', '.join(presets)}."
        raise ConfigError(f"method.preset = {name!r} is not known for {method.name}", hint=hint)
    return Layer(f"preset {name}", dict(presets[name]))


# merging --------------------------------------------------------------------------------------------------------------


def _merged(method: type[MethodConfig], layers: Sequence[Layer], problems: list[Problem]) -> tuple[dict[str, Any], dict[str, str]]:
    """Returns the layers over each other and over the defaults, as plain data; and which of them gave the keys their values.

    Raises:
        ConfigError: A value refers to a key that there is not.
    """
    merged = _defaults(method)
    before, origins = dict(flatten(OmegaConf.to_container(merged))), {}
    for layer in layers:
        below = OmegaConf.to_container(merged)
        try:
            merged = OmegaConf.merge(merged, _indexed(layer.data, below, layer.source, problems))
        except OmegaConfBaseException as error:
            raise ConfigError(f"{layer.source}: {str(error).splitlines()[0]}.") from error
        after, given = dict(flatten(OmegaConf.to_container(merged))), dict(flatten(layer.data))
        changed = {key: layer.source for key, value in after.items() if key in given or key not in before or before[key] != value}
        origins = {key: origin for key, origin in origins.items() if key in after} | changed
        before = after
    try:
        data: Any = OmegaConf.to_container(merged, resolve=True)
    except OmegaConfBaseException as error:
        source = next((layer.source for layer in reversed(layers) if layer.data), "the configuration")
        raise ConfigError(f"{source}: {str(error).splitlines()[0]} (key {error.full_key!r}).") from error
    return data, origins


def _indexed(value: Any, below: Any, source: str, problems: list[Problem], key: str = "") -> Any:
    """Returns values in which those for elements of a list (``train[0].steps=10``) have become the list, completed from ``below``."""
    if not isinstance(value, dict):
        return value
    if not isinstance(below, list):
        under = below if isinstance(below, dict) else {}
        return {n: _indexed(found, under.get(n), source, problems, f"{key}.{n}" if key else str(n)) for n, found in value.items()}
    elements = list(below)
    for index, found in value.items():
        at = f"{key}[{index}]"
        if not str(index).isdigit():
            message = f"{key} is a list, and {index!r} is no place in it"
            problems.append(Problem("", message, f"Say {key}[0].{index} for its first element.", source))
        elif int(index) >= len(elements):
            hint = f"The length of the list is {len(elements)}, and places count from 0."
            problems.append(Problem("", f"{at} is not there", hint, source))
        else:
            own = elements[int(index)]
            completed = _indexed(found, own, source, problems, at)
            elements[int(index)] = _over(own, completed) if isinstance(own, dict) and isinstance(completed, dict) else completed
    return elements


def _parsed(data: dict[str, Any], method: type[MethodConfig], origins: Mapping[str, str], problems: list[Problem]) -> Config:
    """Returns the configuration. What is refused is added to ``problems`` and has its default, so that the rest is looked at, too."""
    _require(users(data))  # an address with a password, which other errors would quote
    while True:
        own, wrong = parse(method, data["method"], "method")
        config, other = parse(Config, {**data, "method": own or method()})
        if config is not None and not wrong:
            return config
        before = copy.deepcopy(data)
        for problem in (*wrong, *other):
            value = _drop(data, problem.key)
            if problem.message != UNKNOWN:
                problems.append(dataclasses.replace(problem, source=_origin(problem.key, origins)))
                continue
            for key, _ in flatten(value, problem.key):
                hint = _near(key, plain(Config(method=method())))
                problems.append(dataclasses.replace(problem, key=key, hint=hint, source=_origin(key, origins)))
        if data == before:  # what is refused cannot be taken out
            _require(problems)


def _origin(key: str, origins: Mapping[str, str]) -> str:
    """Returns the layer that gave a key its value, or what is below or above it; empty for a default."""
    related = (origin for given, origin in origins.items() if f"{given}.".startswith((f"{key}.", f"{key}[")) or key.startswith(f"{given}["))
    return origins.get(key) or next(related, "")


def _drop(data: Any, key: str) -> Any:
    """Takes a key out of nested data, and returns its value; with an element of a list goes the list, which has a default."""
    *above, last = re.findall(r"[^.\[\]]+|\[\d+\]", key)
    for depth, part in enumerate(above):
        inner = data[int(part[1:-1])] if part.startswith("[") else data.get(part)
        if not isinstance(inner, dict | list) or (isinstance(inner, list) and depth + 1 == len(above) and last.startswith("[")):
            last = part
            break
        data = inner
    return data.pop(int(last) if last.isdigit() and int(last) in data else last, None) if isinstance(data, dict) else None


def _near(key: str, known: Any) -> str:
    """Returns which key may be meant by one that there is not."""
    keys = list(dict.fromkeys(re.sub(r"\[\d+\]", "", at) for at in _paths(known)))
    plain_key = re.sub(r"\[\d+\]", "", key)
    # A misspelt last part beats a misspelt section: keys of a section look alike from afar.
    above, _, last = plain_key.rpartition(".")
    beside = [k.rpartition(".")[2] for k in keys if k.rpartition(".")[0] == above]
    if near := difflib.get_close_matches(last, beside, n=1, cutoff=0.6):
        return f"Did you mean {f'{above}.{near[0]}'.lstrip('.')!r}?"
    if above not in keys and (near := difflib.get_close_matches(plain_key, keys, n=1, cutoff=0.8)):
        return f"Did you mean {near[0]!r}?"
    section = plain_key.rpartition(".")[0]
    while section and section not in keys:
        section = section.rpartition(".")[0]
    of = f"{section} of {known['method']['type']}" if section.split(".")[0] == "method" else section or "a configuration"
    return f"Keys of {of}: {', '.join(k.rpartition('.')[2] for k in keys if k.rpartition('.')[0] == section)}."


def _paths(data: Any, prefix: str = "") -> Iterator[str]:
    for name, value in data.items():
        yield f"{prefix}{name}"
        inner = value[0] if isinstance(value, list) and value else value
        if isinstance(inner, dict):
            yield from _paths(inner, f"{prefix}{name}.")
