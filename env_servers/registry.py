"""Finds environments by name: describes them without loading, and loads them."""

import argparse
import importlib
import inspect
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import Any

import yaml

from env_servers.base import Environment, Requirement, read_spec
from env_servers.classes import find_class
from env_servers.dialect import ClientDialect

__all__ = [
    "ENVIRONMENTS",
    "BadOptions",
    "ClientDialect",
    "Description",
    "Environment",
    "UnknownEnvironment",
    "about",
    "client_dialect",
    "client_dialects",
    "describe",
    "dialect_module",
    "load",
    "option",
]


def _discover() -> dict[str, str]:
    here = Path(__file__).parent
    return {
        file.parent.name: f"env_servers.{file.parent.name}:ENVIRONMENT" for file in sorted(here.glob("*/spec.yaml"))
    }


#: Name -> ``module:class``: every folder beside this file with a ``spec.yaml``, whose package says
#: ``ENVIRONMENT = ItsClass``.
ENVIRONMENTS = _discover()


class UnknownEnvironment(ValueError):
    """No environment has this name, or it cannot be loaded here."""


class BadOptions(ValueError):
    """The environment does not take these options."""


def load(name: str, options: Mapping[str, Any] | None = None) -> Environment:
    """Makes an environment.

    Args:
        name: A name of ``ENVIRONMENTS``, or ``module:class`` for an environment that lives elsewhere.
        options: Arguments of its class.

    Raises:
        UnknownEnvironment: The name is not known, or what it names cannot be loaded (data or packages missing).
        BadOptions: An option that the class does not have, or a value that it refuses.
    """
    cls = _find(name)
    options = dict(options or {})
    known = _options(cls)
    if unknown := sorted(options.keys() - known):
        raise BadOptions(f"{name} has no option {', '.join(unknown)}; it has {', '.join(known) or 'none'}")
    if missing := [option for option, needed in known.items() if needed and option not in options]:
        plural = "s" if len(missing) > 1 else ""
        raise BadOptions(f"{name} needs the option{plural} {' and '.join(missing)}: there is no default")
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


@dataclass(frozen=True, kw_only=True)
class Description:
    """Facts about an environment that are known without making an instance of it.

    Attributes:
        splits: Each split by name, and whether it may be trained on. Holds every split that the environment can have,
            those included that need files or options. Empty where the class writes its specification itself: not known,
            then.
        options: Names of the options: the parameters of the class.
        needed: Those of them that have no default.
        paths: Those of them that name files.
        step_limit: Actions an episode may take, without options; 0 if not known.
        examples: Number of worked examples in the specification, without options.
        requirements: Things needed from outside, each with whether it was found here.
        fault: Reason why its package cannot be used at all; empty if it can.
    """

    name: str
    title: str
    splits: Mapping[str, bool] = field(default_factory=dict)
    options: tuple[str, ...] = ()
    needed: tuple[str, ...] = ()
    paths: tuple[str, ...] = ()
    step_limit: int = 0
    examples: int = 0
    requirements: tuple[Requirement, ...] = ()
    fault: str = ""

    @property
    def missing(self) -> list[Requirement]:
        """Requirements that must be here and are not."""
        return [r for r in self.requirements if not (r.present or r.optional)]

    @property
    def available(self) -> bool:
        """Whether the environment can be served here."""
        return not (self.fault or self.missing)


def about(name: str) -> Description:
    """Describes one environment, whether or not it can be loaded here.
    Fast: its package is imported, and nothing is loaded.

    Args:
        name: As for `load`.

    Raises:
        UnknownEnvironment: The name is not known, or its package cannot be used.
    """
    cls = _find(name)
    parameters = _options(cls)
    known = Description(
        name=name,
        title=name,
        options=tuple(parameters),
        needed=tuple(option for option, needed in parameters.items() if needed),
        paths=getattr(cls, "paths", ()),
        requirements=tuple(cls.requirements()),
    )
    folder = getattr(cls, "folder", None)
    if folder is None or not (folder / "spec.yaml").is_file():
        return known
    try:
        spec = read_spec(folder)
    except (ValueError, yaml.YAMLError) as error:
        raise UnknownEnvironment(f"the specification of {name} cannot be used: {error}") from error
    splits = {split: found.train for split, found in spec.splits.items()} | dict(cls.optional_splits)
    return replace(known, title=spec.title, splits=splits, step_limit=spec.step_limit, examples=len(spec.examples))


def describe() -> list[Description]:
    """Describes every registered environment, by name; one that is broken has a ``fault``."""
    found = []
    for name in sorted(ENVIRONMENTS):
        try:
            found.append(about(name))
        except UnknownEnvironment as error:
            found.append(Description(name=name, title=name, fault=str(error)))
    return found


def client_dialect(name: str) -> ClientDialect | None:
    """Finds the words in which AgentGym's server of an environment is asked; None if AgentGym has none.

    Raises:
        UnknownEnvironment: The name is not known, or its package cannot be used.
    """
    return getattr(dialect_module(_find(name)), "CLIENT", None)


def client_dialects() -> list[str]:
    """The registered environments that AgentGym has servers of."""
    return [name for name in sorted(ENVIRONMENTS) if client_dialect(name) is not None]


def dialect_module(cls: type[Environment]) -> ModuleType | None:
    """Imports the module ``agentgym`` beside an environment's class; None if there is none."""
    package = cls.__module__.rpartition(".")[0]
    module = f"{package}.agentgym"
    if package in ("", "env_servers") or find_spec(module) is None:
        return None
    return importlib.import_module(module)


def _options(cls: type[Environment]) -> dict[str, bool]:
    """The parameters of the class, and whether each must be given."""
    found = inspect.signature(cls).parameters.values()
    return {p.name: p.default is p.empty for p in found if p.kind is not p.VAR_KEYWORD}


def _find(name: str) -> type[Environment]:
    try:
        return find_class(ENVIRONMENTS.get(name, name), Environment, ENVIRONMENTS)
    except ValueError as error:
        raise UnknownEnvironment(str(error)) from error
