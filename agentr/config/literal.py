"""What a configuration may refer to: keys of its own, and nothing else; what a run has stored refers to nothing."""

import re
from collections.abc import Iterator
from typing import Any

from agentr.config.checks import Problem
from agentr.config.identity import flatten

#: What refers to something, less those that refer to a key. An escaped one (\${) refers to nothing.
_RESOLVER = re.compile(r"(?<!\\)(?:\\\\)*\$\{(?![\w.\[\]-]+\})")
#: A user or a password in an address.
_USER = re.compile(r"\S*?://[^/?#\s]*@")


def resolvers(source: str, data: Any) -> Iterator[Problem]:
    """Yields the values that would be more than a key of the configuration: a variable, or what a function of
    OmegaConf's returns."""
    for key, value in flatten(data):
        if any(map(_RESOLVER.search, _texts(value))):
            hint = (
                "Secrets are named by their variable, as in env.token_env; on the command line the shell fills in "
                'others: key="$NAME".'
            )
            yield Problem(key, "only keys of the configuration stand in ${...}, such as ${run.seed}", hint, source)


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict | list):
        for below in value.values() if isinstance(value, dict) else value:
            yield from _texts(below)


def literal(data: Any) -> Any:
    """Returns what a run has stored, so that it is read as it stands there: nothing in it refers to anything."""
    if isinstance(data, dict):
        return {key: literal(value) for key, value in data.items()}
    if isinstance(data, list):
        return [literal(value) for value in data]
    return re.sub(r"(\\*)\$\{", lambda found: 2 * found[1] + "\\${", data) if isinstance(data, str) else data


def users(data: Any) -> Iterator[Problem]:
    """Yields addresses with a user or a password in plain data, which would be kept and shown."""
    for key, value in flatten(data):
        if any(map(_USER.match, _texts(value))):
            yield Problem(
                key,
                "the address has a user or a password in it",
                "Leave them out; env.token_env names a variable with a token.",
            )
