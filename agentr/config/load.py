"""Reading a configuration: schema, preset, included files, the file itself, command-line overrides; later ones win.
A layer that names another method than those below it starts from that method's defaults; another environment, without
options.

A file may describe APIs in its section ``endpoints``, by names that roles give in the place of an API's own keys.
It may give values for several methods in its section ``methods``, by type; those of the method that runs are laid under
``method``: so one file can hold a task's settings for every method that is compared on it.
"""

import dataclasses
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import is_dataclass
from datetime import date
from enum import Enum
from pathlib import Path
from typing import Any, NamedTuple, Protocol, get_args, get_type_hints

from omegaconf import OmegaConf

from agentr.config.chat_template import template_text
from agentr.config.checks import Problem, rules
from agentr.config.environment import environment_problems, placed
from agentr.config.files import file_problems
from agentr.config.identity import flatten, plain
from agentr.config.layers import (
    Layer,
    file_layers,
    mapping_of,
    overlaid,
    parse_overrides,
    resolved_type,
    section_of,
    with_endpoints,
    with_overlay,
)
from agentr.config.literal import literal, resolvers
from agentr.config.merging import merge_layers, origin_of, parse_config, require_none
from agentr.config.overlays import replace
from agentr.config.schema import Config, EnvConfig, MethodConfig
from agentr.errors import ConfigError


class MethodClass(Protocol):
    """What the loader asks of a method. Each method has it."""

    name: str
    title: str
    config_class: type[MethodConfig]
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


class Reading(NamedTuple):
    """A configuration, and where its values are from."""

    config: Config
    origins: dict[str, str]
    """The layer that gave a key its value, by the full keys of all that are not at their default."""

    def lines(self) -> Iterator[str]:
        """Yields each key with its value and where it is from."""
        for key, value in flatten(plain(self.config)):
            yield (
                f"{key}: {json.dumps(value, default=str, ensure_ascii=False)}  # "
                f"{origin_of(key, self.origins) or 'default'}"
            )


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
        whole: The file is one that a run has stored, and is complete as of then: a key that came later
            has its default, whatever the preset has for it now.
        files: Whether the files, the model and the environment that it names must be there, as at the start of a run.

    Raises:
        ConfigError: A file is missing or broken; or all that is wrong: unknown keys, wrong types, numbers out of range,
            values that contradict each other, names that do not exist.
    """
    layers = [layer for file in (base, path) if file is not None for layer in file_layers(file, ())]
    layers = [Layer(layer.source, literal(layer.data), literal(layer.texts)) for layer in layers] if whole else layers
    layers += with_overlay(
        Layer("the command line", parse_overrides(overrides), parse_overrides(overrides, texts=True)), Path()
    )
    require_none(problem for layer in layers for problem in resolvers(layer.source, layer.data))
    layers = with_endpoints(layers)
    replace([layer.data for layer in layers], "method", "type")
    replace([layer.data for layer in layers], "env", "name", owned=("options",))
    if not whole:
        _place_options(layers)
    method = find(next((str(t) for layer in reversed(layers) if (t := section_of(layer, "method").get("type"))), ""))
    problems: list[Problem] = []
    by_type = _by_type(layers)
    layers = [_selected(_as_texts(layer, method, find), method, find, problems) for layer in layers]
    merged, origins = merge_layers(
        method.config_class, layers if whole else [_preset(method, layers), *layers], problems
    )
    _complete_changes(merged, by_type)
    config = parse_config(merged, method.config_class, origins, problems)
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
    require_none(
        dataclasses.replace(problem, source=problem.source or origin_of(problem.key, origins)) for problem in problems
    )
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
            data = overlaid(data, _preset(find(given["type"]), [Layer("", change)]).data)
        data = overlaid(data, change)
    problems: list[Problem] = []
    later = find(data["method"]["type"]).config_class
    merged, origins = merge_layers(later, [Layer(f"from_round up to {round_}", data)], problems)
    found = parse_config(merged, later, origins, problems)
    require_none(problems)
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


def _place_options(layers: Sequence[Layer]) -> None:
    """Makes the files that options of the environment name absolute: they are relative to the file that names them, and
    those of the command line to the current folder."""
    sections = [(section_of(layer, "env"), Path(layer.source).parent) for layer in layers]
    name = next((str(env["name"]) for env, _ in reversed(sections) if env.get("name")), EnvConfig.name)
    for env, folder in sections:
        if isinstance(env.get("options"), dict):
            env["options"] = placed(name, env["options"], folder)


def _by_type(layers: Sequence[Layer]) -> dict[str, dict[str, Any]]:
    """The values that files give for methods by type, for those that come later."""
    found: dict[str, dict[str, Any]] = {}
    for layer in layers:
        for name, values in mapping_of(layer.source, "methods", layer.data.get("methods")).items():
            key, type = f"methods.{name}", resolved_type(str(name), layer.source)
            found[type] = overlaid(found.get(type, {}), mapping_of(layer.source, key, values))
    return found


def _complete_changes(merged: dict[str, Any], by_type: Mapping[str, dict[str, Any]]) -> None:
    """Puts the values that files give for a method by its type under those of the round from which it runs."""
    changes = merged["from_round"]
    for sections in changes.values() if isinstance(changes, dict) else ():
        given = sections.get("method") if isinstance(sections, dict) else None
        if isinstance(given, dict) and (values := by_type.get(str(given.get("type", "")))):
            sections["method"] = overlaid(values, given)


def _selected(layer: Layer, method: MethodClass, find: FindMethod, problems: list[Problem]) -> Layer:
    """The layer with the values of its ``methods`` for the method that runs under those of its ``method``; the others
    are checked too."""
    data = dict(layer.data)
    given = mapping_of(layer.source, "methods", data.pop("methods", None))
    for name, found in given.items():
        key = f"methods.{name}"
        values, other = mapping_of(layer.source, key, found), find(resolved_type(str(name), layer.source))
        if other.name == method.name:
            data["method"] = OmegaConf.to_container(OmegaConf.merge(values, section_of(layer, "method")))
        else:
            merged, origins = merge_layers(
                other.config_class, [Layer(f"{layer.source}, {key}", {"method": values})], problems
            )
            parse_config(merged, other.config_class, origins, problems)
    return Layer(layer.source, data)


def _as_texts(layer: Layer, method: MethodClass, find: FindMethod) -> Layer:
    """The layer in which what a key wants as a text, or as a name, is what is written: YAML reads ``on`` and ``007``
    otherwise."""
    sections: dict[str, Any] = {**get_type_hints(Config), "method": method.config_class}
    sections["from_round"] = dict.fromkeys(section_of(layer, "from_round"), sections)
    sections["methods"] = {
        name: find(resolved_type(str(name), layer.source)).config_class for name in section_of(layer, "methods")
    }

    def read(value: Any, text: Any, kind: Any) -> Any:
        kinds = get_type_hints(kind) if is_dataclass(kind) else kind if isinstance(kind, dict) else {}
        inner = get_args(kind)[-1] if get_args(kind) else None
        if isinstance(value, dict) and isinstance(text, dict):
            return {key: read(found, text.get(str(key)), kinds.get(key, inner)) for key, found in value.items()}
        if isinstance(value, list) and isinstance(text, list):
            return [read(found, one, inner) for found, one in zip(value, text, strict=True)]
        named = (
            isinstance(kind, type)
            and issubclass(kind, str | Enum)
            and (isinstance(value, bool | int | float | date) or text == "")
        )
        number = kind in (int, float) and isinstance(value, bool)  # yes is no number
        return text if (named or number) and isinstance(text, str) else value

    return Layer(layer.source, read(layer.data, layer.texts, sections))


def _preset(method: MethodClass, layers: Sequence[Layer]) -> Layer:
    name = next((p for layer in reversed(layers) if (p := section_of(layer, "method").get("preset"))), "default")
    presets = {"default": {}, **method.presets}
    if not isinstance(name, str) or name not in presets:
        hint = f"Presets: {', '.join(presets)}."
        raise ConfigError(f"method.preset = {name!r} is not known for {method.name}", hint=hint)
    return Layer(f"preset {name}", dict(presets[name]))
