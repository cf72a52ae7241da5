"""What a configuration says of its environment, held against the registry of environments.
Nothing is loaded or started for it."""

import difflib
from collections.abc import Collection, Iterator, Mapping
from dataclasses import fields, is_dataclass, replace
from pathlib import Path
from typing import Any

from agentr.config.checks import Problem
from agentr.config.named import may_run
from agentr.config.openenv import openenv_options
from agentr.config.schema import Config, EnvProtocol, TaskSelection
from agentr.errors import ConfigError
from env_servers.seeds import SPLITS


def environment_problems(config: Config) -> Iterator[Problem]:
    """Yields unknown environments, options and splits, and a number of worked examples that the environment does not
    have."""
    from env_servers import registry

    if config.env.protocol is not EnvProtocol.agentr and not config.env.url:
        yield Problem(
            "env.url", f"env.protocol = {config.env.protocol} needs a server that runs already", "Give its address."
        )
        return
    if config.env.protocol is EnvProtocol.openenv:
        yield from _openenv_problems(config, registry.ENVIRONMENTS)
    if config.env.url:  # a server that runs already is asked when it is reached
        return
    try:
        if config.env.name not in registry.ENVIRONMENTS:
            may_run(f"the environment {config.env.name}")
        known = registry.about(config.env.name)
    except ConfigError as error:
        yield Problem("env.name", error.message, error.hint)
        return
    except registry.UnknownEnvironment as error:
        yield Problem("env.name", str(error).rstrip("."), "See `agentr list environments`.")
        return
    for name in config.env.options:
        if name not in known.options:
            near = difflib.get_close_matches(name, known.options, n=1)
            hint = f"Did you mean {near[0]!r}?" if near else f"It has: {', '.join(known.options) or 'none'}."
            yield Problem(f"env.options.{name}", f"{config.env.name} has no such option", hint)
    if not known.splits:  # its class writes the specification itself, when it is made
        return
    for key, selection, training in _selections(config):
        if selection.split not in known.splits:
            message = f"{config.env.name} has no split {selection.split!r}"
            yield Problem(key, message, f"Its splits: {', '.join(known.splits)}.")
        elif training and not known.splits[selection.split] and not config.env.allow_leaks:
            message = (
                f"the split {selection.split!r} of {config.env.name} is held out, and this selection is trained on"
            )
            trainable = ", ".join(name for name, train in known.splits.items() if train)
            yield Problem(
                key, message, f"Choose of {trainable}; or set env.allow_leaks=true, and reports will show it."
            )
    if config.prompt.examples > known.examples:
        message = f"{config.prompt.examples} are asked for, and {config.env.name} has {known.examples} worked examples"
        yield Problem("prompt.examples", message, "Lower it, or add examples to the environment's spec.yaml.")


def placed(name: str, options: Mapping[str, Any], folder: Path) -> dict[str, Any]:
    """Returns options of an environment that comes along, the files that they name below a folder; of others, as they
    are."""
    from env_servers import registry

    try:
        paths = registry.about(name).paths if name in registry.ENVIRONMENTS else ()
    except registry.UnknownEnvironment:  # who checks the configuration says so
        paths = ()
    return {key: _below(folder, value) if key in paths else value for key, value in options.items()}


def _below(folder: Path, value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _below(folder, one) for key, one in value.items()}
    relative = isinstance(value, str) and value and not value.startswith(("~", "${"))
    return str((folder / value).absolute()) if relative else value


def _openenv_problems(config: Config, taken: Collection[str]) -> Iterator[Problem]:
    """Yields what is wrong about an OpenEnv server, as far as it can be known without asking it."""
    if config.env.name in taken:
        message = f"{config.env.name!r} is an environment of agentr's, and the server at env.url another one"
        yield Problem("env.name", message, "Give it a name of its own: tasks and trees will carry it.")
    try:
        options = openenv_options(config.env.options)
    except ConfigError as error:
        yield Problem("env.options", error.message, error.hint)
        return
    if options.tasks == "server":
        return
    for key, selection, training in _selections(config):
        if selection.split not in SPLITS:
            yield Problem(
                key, f"{config.env.name} has no split {selection.split!r}", f"Its splits: {', '.join(SPLITS)}."
            )
        elif training and not SPLITS[selection.split] and not config.env.allow_leaks:
            message = (
                f"the split {selection.split!r} of {config.env.name} is held out, and this selection is trained on"
            )
            yield Problem(key, message, "Choose train; or set env.allow_leaks=true, and reports will show it.")


def _selections(config: Config) -> Iterator[tuple[str, TaskSelection, bool]]:
    """The selections of tasks by the keys of their splits, and whether they are trained on."""
    if config.warm_start.enabled:
        yield from (
            (f"warm_start.tasks[{index}].split", selection, True)
            for index, selection in enumerate(config.warm_start.tasks)
        )
    yield "collect.tasks.split", config.collect.tasks, True
    yield "eval.tasks.split", config.eval.tasks, False
    if config.eval.select:
        yield "eval.select", replace(config.eval.tasks, split=config.eval.select), False
    yield from ((f"{key}.split", selection, False) for key, selection in _of_method(config.method, "method"))


def _of_method(section: Any, prefix: str) -> Iterator[tuple[str, TaskSelection]]:
    """Selections that a method has of its own: of held-out tasks, by which it watches its training."""
    for each in fields(section):
        value = getattr(section, each.name)
        if isinstance(value, TaskSelection):
            yield f"{prefix}.{each.name}", value
        elif is_dataclass(value):
            yield from _of_method(value, f"{prefix}.{each.name}")
