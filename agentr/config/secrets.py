"""Secrets that a configuration names by environment variables.
They are read where the driver runs, and handed on as arguments."""

import re
from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from typing import Any

from agentr.config.checks import Problem
from agentr.config.identity import flatten, plain
from agentr.config.policy import PolicyBackend, Who
from agentr.config.schema import Config, EnvConfig
from agentr.secrets import NAMES, Secret, SecretKind, redact

#: Keys that name variables, by how they end, and what their values let one into.
_KEYS = {"api_key_env": SecretKind.API, "token_env": SecretKind.ENVIRONMENT}


def secrets_of(config: Config) -> dict[str, Secret]:
    """Reads what a configuration names, as far as it is there, by the names of the variables."""
    named = {
        str(name): _KEYS[key.rpartition(".")[2]]
        for key, name in flatten(plain(config))
        if name and key.rpartition(".")[2] in _KEYS
    }
    read = {name: Secret.read(kind, name) for name, kind in sorted(named.items())}
    return {name: secret for name, secret in read.items() if secret}


def env_token(env: EnvConfig) -> Secret:
    """Reads the token of a server that runs already: only the variable that the configuration names is sent to its
    ``env.url``."""
    return (
        Secret.read(SecretKind.ENVIRONMENT, env.token_env)
        if env.token_env
        else Secret(SecretKind.ENVIRONMENT, "env.token_env", "")
    )


def without_secrets(config: Any) -> dict[str, Any]:
    """Returns a configuration as full keys with values, for others to read: less what may be a secret, in a value or in
    an address."""
    found = {}
    for key, value in flatten(plain(config)):
        value = (
            "(not shown)"
            if value and NAMES.search(re.sub(r"\W", "_", key))
            else redact(value)
            if isinstance(value, str)
            else value
        )
        found[key] = value
    return found


def missing_secrets(config: Config) -> Iterator[Problem]:
    """Yields the secrets that will be needed and are not in this process's environment."""
    needed = [("env.token_env", config.env.token_env)] if config.env.url and config.env.token_env else []
    needed += list(_used(config, ""))
    there = secrets_of(config)
    for key, name in needed:
        if name not in there:
            yield Problem(
                key, f"the environment variable {name} is not set", "Export it where the run is started or submitted."
            )


def _used(section: Any, prefix: str) -> Iterator[tuple[str, str]]:
    """The variables with keys of APIs that are asked."""
    api = getattr(section, "openai", None)
    if api is not None and (
        getattr(section, "backend", None) is PolicyBackend.openai or getattr(section, "who", None) is Who.openai
    ):
        yield f"{prefix}openai.api_key_env", api.api_key_env
    for each in fields(section):
        value = getattr(section, each.name)
        if is_dataclass(value):
            yield from _used(value, f"{prefix}{each.name}.")
