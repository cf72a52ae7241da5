"""Finds classes by ``module:class``, so that others can add environments and retrievers without touching these
packages."""

import difflib
import importlib
import inspect
from collections.abc import Iterable
from typing import TypeVar

Base = TypeVar("Base")


def find_class(path: str, base: type[Base], known: Iterable[str]) -> type[Base]:
    """Imports the class at ``module:class``, a subclass of ``base``.

    Args:
        known: The short names that exist, for the error.

    Raises:
        ValueError: It is no such path, cannot be imported, or is something else.
    """
    kind = base.__name__
    module, colon, attribute = path.partition(":")
    if not colon:
        known = sorted(known)
        meant = [f"; did you mean {name!r}?" for name in difflib.get_close_matches(path, known, n=1)]
        raise ValueError(
            f"no {kind.lower()} is called {path!r}{''.join(meant)}; known: {', '.join(known)}, or module:class"
        )
    try:
        cls = getattr(importlib.import_module(module), attribute)
    except (ImportError, AttributeError) as error:
        raise ValueError(f"cannot import {path}: {error}") from error
    if not (inspect.isclass(cls) and issubclass(cls, base)):
        raise ValueError(f"{path} is not a subclass of {kind}")
    return cls
