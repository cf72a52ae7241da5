"""What a configuration names by ``module:name``: parts of a user's own."""

from __future__ import annotations

import difflib
import importlib
from collections.abc import Iterable
from typing import Any

from agentr.errors import ConfigError


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
    try:
        return getattr(importlib.import_module(module), attribute)
    except (ImportError, AttributeError) as error:
        raise ConfigError(f"the {what} {name!r} cannot be imported: {error}", hint="Is its module on the PYTHONPATH?") from error
