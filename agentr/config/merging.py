"""Layers over each other, and the configuration that they come to; or all that is wrong with it, each with the layer
that it is from."""

import copy
import dataclasses
import difflib
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from typing import Any

from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException

from agentr.config.checks import UNKNOWN, Problem, parse
from agentr.config.identity import flatten, plain
from agentr.config.layers import Layer, overlaid
from agentr.config.literal import literal, users
from agentr.config.schema import Config, MethodConfig
from agentr.errors import ConfigError


def require_none(problems: Iterable[Problem]) -> None:
    """Raises ConfigError with all problems, each once."""
    found = list(dict.fromkeys(map(str, problems)))
    if len(found) > 1:
        raise ConfigError(
            f"{len(found)} things are wrong in the configuration:\n" + "\n".join(f"- {problem}" for problem in found)
        )
    if found:
        raise ConfigError(found[0])


def merge_layers(
    method: type[MethodConfig], layers: Sequence[Layer], problems: list[Problem]
) -> tuple[dict[str, Any], dict[str, str]]:
    """Returns the layers over each other and over the defaults, as plain data; and which of them gave the keys their
    values.

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
        changed = {
            key: layer.source
            for key, value in after.items()
            if key in given or key not in before or before[key] != value
        }
        origins = {key: origin for key, origin in origins.items() if key in after} | changed
        before = after
    try:
        data: Any = OmegaConf.to_container(merged, resolve=True)
    except OmegaConfBaseException as error:
        source = next((layer.source for layer in reversed(layers) if layer.data), "the configuration")
        raise ConfigError(f"{source}: {str(error).splitlines()[0]} (key {error.full_key!r}).") from error
    return data, origins


@cache
def _defaults(method: type[MethodConfig]) -> Any:
    """The configuration that says nothing but its method. It is merged over, which copies it, and never changed."""
    return OmegaConf.create(literal(plain(Config(method=method()))))


def _indexed(value: Any, below: Any, source: str, problems: list[Problem], key: str = "") -> Any:
    """Returns values in which those for elements of a list (``train[0].steps=10``) have become the list, completed from
    ``below``."""
    if not isinstance(value, dict):
        return value
    if not isinstance(below, list):
        under = below if isinstance(below, dict) else {}
        return {
            n: _indexed(found, under.get(n), source, problems, f"{key}.{n}" if key else str(n))
            for n, found in value.items()
        }
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
            elements[int(index)] = (
                overlaid(own, completed) if isinstance(own, dict) and isinstance(completed, dict) else completed
            )
    return elements


def parse_config(
    data: dict[str, Any], method: type[MethodConfig], origins: Mapping[str, str], problems: list[Problem]
) -> Config:
    """Returns the configuration.
    What is refused is added to ``problems`` and has its default, so that the rest is looked at, too."""
    require_none(users(data))  # an address with a password, which other errors would quote
    while True:
        own, wrong = parse(method, data["method"], "method")
        config, other = parse(Config, {**data, "method": own or method()})
        if config is not None and not wrong:
            return config
        before = copy.deepcopy(data)
        for problem in (*wrong, *other):
            value = _drop(data, problem.key)
            if problem.message != UNKNOWN:
                problems.append(dataclasses.replace(problem, source=origin_of(problem.key, origins)))
                continue
            for key, _ in flatten(value, problem.key):
                hint = _near(key, plain(Config(method=method())))
                problems.append(dataclasses.replace(problem, key=key, hint=hint, source=origin_of(key, origins)))
        if data == before:  # what is refused cannot be taken out
            require_none(problems)


def origin_of(key: str, origins: Mapping[str, str]) -> str:
    """Returns the layer that gave a key its value, or what is below or above it; empty for a default."""
    related = (
        origin
        for given, origin in origins.items()
        if f"{given}.".startswith((f"{key}.", f"{key}[")) or key.startswith(f"{given}[")
    )
    return origins.get(key) or next(related, "")


def _drop(data: Any, key: str) -> Any:
    """Takes a key out of nested data, and returns its value; with an element of a list goes the list, which has a
    default."""
    *above, last = re.findall(r"[^.\[\]]+|\[\d+\]", key)
    for depth, part in enumerate(above):
        inner = data[int(part[1:-1])] if part.startswith("[") else data.get(part)
        if not isinstance(inner, dict | list) or (
            isinstance(inner, list) and depth + 1 == len(above) and last.startswith("[")
        ):
            last = part
            break
        data = inner
    return (
        data.pop(int(last) if last.isdigit() and int(last) in data else last, None) if isinstance(data, dict) else None
    )


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
    of = (
        f"{section} of {known['method']['type']}" if section.split(".")[0] == "method" else section or "a configuration"
    )
    return f"Keys of {of}: {', '.join(k.rpartition('.')[2] for k in keys if k.rpartition('.')[0] == section)}."


def _paths(data: Any, prefix: str = "") -> Iterator[str]:
    for name, value in data.items():
        yield f"{prefix}{name}"
        inner = value[0] if isinstance(value, list) and value else value
        if isinstance(inner, dict):
            yield from _paths(inner, f"{prefix}{name}.")
