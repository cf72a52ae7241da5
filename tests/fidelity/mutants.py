"""Changes to the code that a vector is about, for as long as a test takes."""

import importlib
import inspect
import sys
import textwrap
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from types import FunctionType
from typing import Any

import yaml


@dataclass(frozen=True)
class Mutant:
    """A change to agentr's code after which a rule no longer holds: a vector that could not fail would show nothing.

    Attributes:
        of: The function, as ``module:name``.
        text: A piece of its source.
        by: What stands in its place.
        also: Functions beside it that the rule is about: changes drawn in them are noticed, too.
    """

    of: str
    text: str
    by: str
    also: Sequence[str] = ()


#: By the rule's id.
MUTANTS = {
    rule: Mutant(**found)
    for rule, found in yaml.safe_load(Path(__file__).with_suffix(".yaml").read_text(encoding="utf-8")).items()
}


@contextmanager
def changed(mutant: Mutant) -> Iterator[None]:
    """Puts other code into the function that a mutant names, wherever it is imported."""
    function = function_of(mutant.of)
    source = body_of(function)
    assert mutant.text in source, f"{mutant.of} does not say {mutant.text!r} any more: name another piece of it"
    before = function.__code__
    function.__code__ = remade(function, source.replace(mutant.text, mutant.by)).__code__
    try:
        yield
    finally:
        function.__code__ = before


def function_of(name: str) -> FunctionType:
    """Returns a function, or a method, by ``module:name``."""
    module, _, path = name.partition(":")
    found: Any = importlib.import_module(module)
    for part in path.split("."):
        found = inspect.getattr_static(found, part)
    if isinstance(found, property):
        found = found.fget
    elif isinstance(found, cached_property):
        found = found.func
    elif isinstance(found, staticmethod | classmethod):
        found = found.__func__
    found = inspect.unwrap(found)
    assert isinstance(found, FunctionType), name
    return found


def body_of(function: FunctionType) -> str:
    """Returns the source of a function without its decorators."""
    lines = textwrap.dedent(inspect.getsource(function)).splitlines()
    first = next(place for place, line in enumerate(lines) if line.startswith(("def ", "async def ")))
    return "\n".join(lines[first:])


def remade(function: FunctionType, source: str) -> FunctionType:
    """Returns a function with another source in the same module; ``super()`` in it does not work, but its code does in
    the old one."""
    within = f"def made():\n    __class__ = None\n{textwrap.indent(source, '    ')}\n    return {function.__name__}\n"
    names: dict[str, Any] = dict(function.__globals__)
    exec(compile(f"from __future__ import annotations\n{within}", "<mutant>", "exec"), names)
    return names["made"]()


if __name__ == "__main__":
    from tests.fidelity.noticed import main

    sys.exit(main(sys.argv[1:]))
