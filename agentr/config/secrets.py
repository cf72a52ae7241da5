"""Secrets that a configuration names by environment variables. They are read where the driver runs, and handed on as arguments."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from typing import Any

from agentr.config.checks import Problem
from agentr.config.identity import flatten, plain
from agentr.config.policy import PolicyBackend, Who
from agentr.config.schema import Config


class Secrets(dict[str, str]):
    """Values by the names of their variables, which are never shown."""

    def __repr__(self) -> str:
        return f"Secrets({', '.join(self)})"

    @classmethod
    def of(cls, config: Config) -> Secrets:
        """Reads what a configuration names, as far as it is there."""
        names = {str(value) for key, value in flatten(plain(config)) if key.endswith(("api_key_env", "token_env")) and value}
        return cls({name: os.environ[name] for name in sorted(names) if os.environ.get(name)})


#: Names of values that are secrets themselves: options of an environment or of a reward may hold such.
_SECRET = re.compile(r"(^|[_.])(key|token|secret|password|passwd|credentials?)$", re.IGNORECASE)


def without_secrets(config: Any) -> dict[str, Any]:
    """Returns a configuration as full keys with values, for others to read: less what may be a secret, in a value or in an address."""
    found = {}
    for key, value in flatten(plain(config)):
        if _SECRET.search(key) and value:
            value = "(not shown)"
        elif isinstance(value, str):
            value = re.sub(r"(\w+://)[^/@\s]*@", r"\1", value)
        found[key] = value
    return found


def missing_secrets(config: Config) -> Iterator[Problem]:
    """Yields the secrets that will be needed and are not in this process's environment."""
    needed = [("env.token_env", config.env.token_env)] if config.env.url and config.env.token_env else []
    needed += list(_used(config, ""))
    for key, name in needed:
        if not os.environ.get(name):
            yield Problem(key, f"the environment variable {name} is not set", "Export it where the run is started or submitted.")


def _used(section: Any, prefix: str) -> Iterator[tuple[str, str]]:
    """The variables with keys of APIs that are asked."""
    api = getattr(section, "openai", None)
    if api is not None and (getattr(section, "backend", None) is PolicyBackend.openai or getattr(section, "who", None) is Who.openai):
        yield f"{prefix}openai.api_key_env", api.api_key_env
    for each in fields(section):
        value = getattr(section, each.name)
        if is_dataclass(value):
            yield from _used(value, f"{prefix}{each.name}.")
