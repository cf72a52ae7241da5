"""Classes named as ``module:class``, by which others add environments and retrievers without touching these packages."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Iterable
from typing import TypeVar

Base = TypeVar("Base")


def find_class(path: str, base: type[Base], known: Iterable[str]) -> type[Base]:
    """The class at ``module:class``, a subclass of ``base``.

    Args:
        known: The names that exist besides, for the error.

    Raises:
        ValueError: It is no such path, cannot be imported, or is something else.
    """
    kind = base.__name__
    module, colon, attribute = path.partition(":")
    if not colon:
        raise ValueError(f"no {kind.lower()} is called {path!r}; known: {', '.join(sorted(known))}, or module:class")
    try:
        cls = getattr(importlib.import_module(module), attribute)
    except (ImportError, AttributeError) as error:
        raise ValueError(f"cannot import {path}: {error}") from error
    if not (inspect.isclass(cls) and issubclass(cls, base)):
        raise ValueError(f"{path} is not a subclass of {kind}")
    return cls
