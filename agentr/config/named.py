"""What a configuration names by ``module:name`` or by a file: code of a user's own, which only commands that run
something may run."""

import difflib
import importlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from agentr.errors import ConfigError

_looking = ContextVar("looking", default=False)


@contextmanager
def looking(really: bool = True) -> Iterator[None]:
    """Lets no code of a user's own be run while the block runs: it only looks."""
    before = _looking.set(really)
    try:
        yield
    finally:
        _looking.reset(before)


def only_looks() -> bool:
    """Returns whether the caller is ``looking``."""
    return _looking.get()


def may_run(what: str) -> None:
    """Refuses to run code that a configuration names, for those that only look.

    Raises:
        ConfigError: The caller is ``looking``.
    """
    if only_looks():
        raise ConfigError(
            f"{what} is code of its own, and whatever only looks runs none",
            hint="'agentr run --dry-run' takes --trust.",
        )


def imported(name: str, what: str, known: Iterable[str]) -> Any:
    """Imports what ``module:name`` names.

    Args:
        what: What it is, for the error.
        known: The names that agentr has of it.

    Raises:
        ConfigError: The name has no module, or cannot be imported.
    """
    module, _, attribute = name.partition(":")
    if not attribute:
        near = difflib.get_close_matches(name, known := list(known), n=1)
        hint = f"Did you mean {near[0]!r}?" if near else f"There are {', '.join(known)}; or module:name."
        raise ConfigError(f"there is no {what} {name!r}", hint=hint)
    may_run(f"the {what} {name}")
    try:
        return getattr(importlib.import_module(module), attribute)
    except (ImportError, AttributeError) as error:
        raise ConfigError(
            f"the {what} {name!r} cannot be imported: {error}", hint="Is its module on the PYTHONPATH?"
        ) from error
