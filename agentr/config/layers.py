"""The layers of a configuration: files with those that they include, sets of values for clusters, the command line."""

import difflib
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import yaml
from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException

from agentr.config.overlays import NAME, SECTION, take_overlay
from agentr.config.text import parse_texts, parse_yaml, read_text
from agentr.errors import ConfigError

#: The section of a file that has APIs by names of the user's, for the roles that name them.
ENDPOINTS = "endpoints"
#: How the names of configurations that are included end.
_ENDINGS = (".yaml", ".yml")


class Layer(NamedTuple):
    """A part of a configuration, and where it comes from."""

    source: str
    data: dict[str, Any]
    texts: Any = None
    """The same with each scalar as it is written, where that is known."""


def file_layers(path: Path, above: tuple[Path, ...]) -> list[Layer]:
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
        hint = (
            f"'agentr resume {path}' continues the run in it."
            if is_run
            else "Name a YAML file; see configs/ for examples."
        )
        raise ConfigError(f"{path} is a folder, not a configuration file", hint=hint) from error
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror}") from error
    if not isinstance(data, dict):
        raise ConfigError(
            f"{path} holds a {type(data).__name__}, not a mapping of sections", hint="See configs/ for examples."
        )
    names = data.pop("include", None) or []
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise ConfigError(
            f"{path}: include holds {names!r}, not a list of files", hint="For example: include: [base.yaml]"
        )
    included: list[Layer] = []
    for name in names:
        if (file := (path.parent / name).resolve()).suffix not in _ENDINGS:  # errors quote what a configuration holds
            raise ConfigError(f"{path}: include names {name!r}, and configurations end in {' or '.join(_ENDINGS)}")
        included += file_layers(file, (*above, path))
    layer = Layer(str(path), data, texts)
    for section in (section_of(layer, "method"), *_later_methods(layer)):
        if "type" in section:
            section["type"] = resolved_type(str(section["type"]), str(path))
    return [*included, *with_overlay(layer, path.parent)]


def with_overlay(layer: Layer, folder: Path) -> list[Layer]:
    """The layer, and under it the set of values for the kind of cluster that it names."""
    found = take_overlay(layer.data, layer.source, folder)
    return [layer] if found is None else [Layer(*found), layer]


def with_endpoints(layers: Sequence[Layer]) -> list[Layer]:
    """Returns the layers with the endpoints that roles name (``openai: NAME``) in the place of their names.

    Raises:
        ConfigError: There is no endpoint of a name.
    """
    known: dict[str, Any] = {}
    texts: dict[str, Any] = {}
    for layer in layers:
        known = overlaid(known, section_of(layer, ENDPOINTS))
        texts = overlaid(texts, layer.texts.get(ENDPOINTS) or {}) if isinstance(layer.texts, dict) else texts
    return [
        Layer(
            layer.source, _named(layer.data, known, layer.source), _named(layer.texts, {**known, **texts}, layer.source)
        )
        for layer in layers
    ]


def _named(value: Any, endpoints: dict[str, Any], source: str, key: str = "") -> Any:
    if isinstance(value, list):
        return [_named(one, endpoints, source, f"{key}[{index}]") for index, one in enumerate(value)]
    if isinstance(value, str) and key.endswith(".openai") and not value.startswith("${"):
        if value not in endpoints:
            near = difflib.get_close_matches(value, endpoints, n=1)
            hint = (
                f"Did you mean {near[0]!r}?"
                if near
                else f"The section {ENDPOINTS} has: {', '.join(endpoints) or 'none'}."
            )
            raise ConfigError(f"{source}: {key}: there is no endpoint {value!r}", hint=hint)
        return endpoints[value]
    if not isinstance(value, dict):
        return value
    inner = {name: one for name, one in value.items() if key or name != ENDPOINTS}
    return {
        name: one if name == "options" else _named(one, endpoints, source, f"{key}.{name}".lstrip("."))
        for name, one in inner.items()
    }


def _later_methods(layer: Layer) -> Iterator[dict[str, Any]]:
    for sections in section_of(layer, "from_round").values():
        if isinstance(sections, dict) and isinstance(sections.get("method"), dict):
            yield sections["method"]


def resolved_type(type: str, source: str) -> str:
    """The type of a method; a Python file relative to the YAML file that names it."""
    return str((Path(source).parent / type).resolve()) if type.endswith(".py") else type


def parse_overrides(overrides: Sequence[str], texts: bool = False) -> dict[str, Any]:
    for item in overrides:
        if "=" not in item:
            raise ConfigError(f"{item!r} is not of the form key=value", hint="For example: run.seed=1")
    overlays = [item for item in overrides if item.startswith(f"{SECTION}=")]
    given = [item.partition("=") for item in overrides if item not in overlays]
    try:
        data: Any = OmegaConf.to_container(
            OmegaConf.from_dotlist(
                [f"{key}={json.dumps(parse_texts(value) or '') if texts else value}" for key, _, value in given]
            )
        )
        if overlays:
            data[SECTION] = {NAME: overlays[-1].partition("=")[2], **data.get(SECTION, {})}
        if isinstance(data.get("from_round"), dict):  # its keys are numbers, and those of a command line are texts
            data["from_round"] = {
                int(key) if str(key).isdigit() else key: value for key, value in data["from_round"].items()
            }
        return data
    except (OmegaConfBaseException, yaml.YAMLError) as error:
        raise ConfigError(f"the overrides cannot be read: {error}") from error


def section_of(layer: Layer, name: str) -> dict[str, Any]:
    return mapping_of(layer.source, name, layer.data.get(name))


def mapping_of(source: str, key: str, value: Any) -> dict[str, Any]:
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


def overlaid(data: dict[str, Any], other: dict[str, Any]) -> dict[str, Any]:
    """Returns plain data with other data merged over it."""
    merged: Any = OmegaConf.to_container(OmegaConf.merge(data, other))
    return merged
