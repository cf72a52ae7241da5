"""Sets of values for kinds of clusters: ``cluster=gpu_cluster``, or ``cluster: my_cluster.yaml`` in a file.

A set is a part of a configuration that is laid over the file (or under the other keys of the file) that names it. Those
that agentr has are in ``clusters/``.
"""

import difflib
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any

import yaml

from agentr.config.text import parse_texts, parse_yaml, read_text
from agentr.errors import ConfigError

#: The section that may be a name.
SECTION = "cluster"
#: Where an override keeps the name while other keys of the section are given beside it.
NAME = "<name>"
_FOLDER = Path(__file__).parent / "clusters"


def overlays() -> list[str]:
    """Returns the names of the sets that agentr has."""
    return sorted(path.stem for path in _FOLDER.glob("*.yaml"))


def take_overlay(data: dict[str, Any], source: str, folder: Path) -> tuple[str, dict[str, Any], Any] | None:
    """Takes the name of a set out of a part of a configuration, and returns where the set is from, its values, and
    their texts.

    Args:
        data: Loses the name.
        folder: A file is relative to it.

    Raises:
        ConfigError: There is no such set, or its file is broken.
    """
    given = data.get(SECTION)
    if isinstance(given, dict) and NAME in given:
        name = given.pop(NAME)
    elif isinstance(given, str):
        name = data.pop(SECTION)
    else:
        return None
    path = folder / name if name.endswith((".yaml", ".yml")) else _FOLDER / f"{name}.yaml"
    try:
        text = read_text(path)
        values, texts = parse_yaml(text), parse_texts(text)
    except FileNotFoundError as error:
        near = difflib.get_close_matches(name, overlays(), n=1)
        hint = f"Did you mean {near[0]}?" if near else f"There are {', '.join(overlays())}; or give a YAML file."
        raise ConfigError(f"{source}: there is no cluster {name!r}", hint=hint) from error
    except (OSError, yaml.YAMLError) as error:
        raise ConfigError(f"{path} cannot be read: {error}") from error
    if not isinstance(values, dict) or isinstance(values.get(SECTION), str):
        raise ConfigError(f"{path} holds no sections with keys", hint="For example: cluster: {wait_s: 600}")
    return f"cluster {name}", values, texts


def replace(layers: Sequence[dict[str, Any]], section: str, name: str, owned: Collection[str] | None = None) -> None:
    """Takes what a section names, or its keys ``owned``, out of the layers from the one that names it, where a later
    one names another."""
    begin, named = 0, ""
    for place, layer in enumerate(layers):
        given = layer.get(section)
        now = str((isinstance(given, dict) and given.get(name)) or named)
        for other in layers[begin:place] if named not in ("", now) else ():
            if isinstance(found := other.get(section), dict):
                other[section] = {key: value for key, value in found.items() if owned is not None and key not in owned}
        if now != named:
            begin, named = place, now
