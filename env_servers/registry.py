"""The environments by name."""

from __future__ import annotations

import argparse
import inspect
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from env_servers.base import Environment, Requirement, read_spec
from env_servers.classes import find_class


def _discover() -> dict[str, str]:
    here = Path(__file__).parent
    return {file.parent.name: f"env_servers.{file.parent.name}:ENVIRONMENT" for file in sorted(here.glob("*/spec.yaml"))}


#: Name -> ``module:class``: every folder beside this file with a ``spec.yaml``, whose package says ``ENVIRONMENT = ItsClass``.
ENVIRONMENTS = _discover()


class UnknownEnvironment(ValueError):
    """No environment has this name, or it cannot be loaded here."""


class BadOptions(ValueError):
    """The environment does not take these options."""


def load(name: str, options: Mapping[str, Any] | None = None) -> Environment:
    """An environment.

    Args:
        name: A name of ``ENVIRONMENTS``, or ``module:class`` for an environment that lives elsewhere.
        options: Arguments of its class.

    Raises:
        UnknownEnvironment: The name is not known, or what it names cannot be loaded (data or packages missing).
        BadOptions: An option that the class does not have, or a value that it refuses.
    """
    cls = _find(name)
    options = dict(options or {})
    known = [p.name for p in inspect.signature(cls).parameters.values() if p.kind is not inspect.Parameter.VAR_KEYWORD]
    if unknown := sorted(options.keys() - known):
        raise BadOptions(f"{name} has no option {', '.join(unknown)}; it has {', '.join(known) or 'none'}")
    try:
        return cls(**options)
    except (TypeError, ValueError) as error:
        raise BadOptions(f"{name} refuses the options {options}: {error}") from error
    except RuntimeError as error:
        raise UnknownEnvironment(f"{name} cannot be loaded: {error}") from error


def option(text: str) -> tuple[str, Any]:
    """Parses ``name=value`` with a YAML value; for argparse.

    Raises:
        argparse.ArgumentTypeError: It is something else.
    """
    name, equals, value = text.partition("=")
    if not equals:
        raise argparse.ArgumentTypeError(f"{text!r} is not name=value")
    try:
        return name, yaml.safe_load(value)
    except yaml.YAMLError as error:
        raise argparse.ArgumentTypeError(f"{text!r}: the value is not YAML") from error


@dataclass(frozen=True)
class Description:
    """What is known about a registered environment without making an instance of it.

    Attributes:
        requirements: What it needs from outside, and whether that was found here.
        fault: Why its package cannot be used at all; empty if it can.
    """

    name: str
    title: str
    splits: tuple[str, ...] = ()
    requirements: tuple[Requirement, ...] = ()
    fault: str = ""

    @property
    def missing(self) -> list[Requirement]:
        """What must be here and is not."""
        return [r for r in self.requirements if not (r.present or r.optional)]

    @property
    def available(self) -> bool:
        """Whether it can be served here."""
        return not (self.fault or self.missing)


def describe() -> list[Description]:
    """Every registered environment, by name, whether or not it can be loaded here. Fast: nothing is loaded."""
    found = []
    for name in sorted(ENVIRONMENTS):
        try:
            cls = _find(name)
            spec = read_spec(cls.folder)
        except (UnknownEnvironment, ValueError) as error:
            found.append(Description(name, name, fault=str(error)))
        else:
            found.append(Description(name, spec.title, tuple(spec.splits), tuple(cls.requirements())))
    return found


def _find(name: str) -> type[Environment]:
    try:
        return find_class(ENVIRONMENTS.get(name, name), Environment, ENVIRONMENTS)
    except ValueError as error:
        raise UnknownEnvironment(str(error)) from error
