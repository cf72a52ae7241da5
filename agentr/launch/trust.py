"""What a run's configuration names that would be run, asked or read when somebody goes on with it."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from agentr.config.identity import flatten, plain
from agentr.config.schema import Config

#: Kinds of what is named, each told by the key or by the value.
_KINDS = {
    "variable": (r".*_env", r".+"),
    "program": (r"env\.python", r".+"),
    "code": (r".*", r".*\.py|[A-Za-z_][\w.]*:[A-Za-z_]\w*"),
    "address": (r".*", r"\w+://.+"),
}


def named(config: Mapping[str, Any]) -> Iterator[tuple[str, str, str]]:
    """Yields the kind, the key and the value of each program, file or module of code, address and variable that a configuration names.

    What agentr names by itself is left out.
    """
    ours = {value for _, value in flatten(plain(Config())) if isinstance(value, str)}
    for key, value in flatten(config):
        for text in value if isinstance(value, list) else [value]:
            if isinstance(text, str) and text and text not in ours:
                told = ((kind, re.fullmatch(keys, key) and re.fullmatch(values, text)) for kind, (keys, values) in _KINDS.items())
                yield from ((kind, key, text) for kind, fits in told if fits)


def needs_trust(config: Mapping[str, Any], say: Callable[[str], None]) -> None:
    """Says what will be run, asked and read by going on with a run. Every command that does so comes through here first.

    Args:
        config: The configuration that the run has stored, as plain data.
    """
    for kind, key, text in named(config):
        say(f"{kind} of {key}: {text}")
