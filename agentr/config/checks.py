"""Checks of a configuration that types alone cannot make: ranges of numbers, and rules between keys.

A range stands beside its field (``number``). A rule between the fields of one section is a method ``problems`` of its dataclass; rules
between sections are ``Config.problems``. ``find_problems`` collects them all, so that a person mends a file once.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field, fields, is_dataclass
from typing import Any

_RANGE = "range"


@dataclass(frozen=True)
class Problem:
    """One thing that is wrong.

    Attributes:
        key: Full name of the key, such as ``train[0].dpo.beta``.
        message: What is wrong, with the value.
        hint: What to do about it.
    """

    key: str
    message: str
    hint: str = ""

    def __str__(self) -> str:
        return f"{self.key}: {self.message}." + (f" {self.hint}" if self.hint else "")

    def within(self, section: str) -> Problem:
        """Returns the same problem with its key below ``section``."""
        return Problem(f"{section}.{self.key}" if section else self.key, self.message, self.hint)


@dataclass(frozen=True)
class Range:
    """Bounds of a number; None where there is none. Of a list, the bounds of each element."""

    least: float | None = None
    above: float | None = None
    most: float | None = None
    below: float | None = None

    def __contains__(self, value: float) -> bool:
        return (
            math.isfinite(value)
            and (self.least is None or value >= self.least)
            and (self.above is None or value > self.above)
            and (self.most is None or value <= self.most)
            and (self.below is None or value < self.below)
        )

    def __str__(self) -> str:
        words = {"at least": self.least, "above": self.above, "at most": self.most, "below": self.below}
        return " and ".join(f"{word} {bound:g}" for word, bound in words.items() if bound is not None) or "finite"


def number(
    default: Any, *, least: float | None = None, above: float | None = None, most: float | None = None, below: float | None = None
) -> Any:
    """A configuration field that holds a number, or a list of numbers, within bounds.

    Args:
        default: The default; a list is copied for each configuration.
    """
    metadata = {_RANGE: Range(least, above, most, below)}
    if isinstance(default, list):
        return field(default_factory=lambda: list(default), metadata=metadata)
    return field(default=default, metadata=metadata)


def share(default: Any) -> Any:
    """A configuration field that holds a share, a reward or a probability: from 0 to 1."""
    return number(default, least=0, most=1)


def range_of(config: Any, name: str) -> Range | None:
    """Returns the bounds of a field of a configuration dataclass, or None if it has none."""
    return next(f.metadata.get(_RANGE) for f in fields(config) if f.name == name)


def find_problems(config: Any, section: str = "") -> Iterator[Problem]:
    """Yields everything that is wrong in a configuration dataclass and in those that it holds.

    Args:
        section: Prefix of the keys that are named.
    """
    for each in fields(config):
        key, value = f"{section}{each.name}", getattr(config, each.name)
        values = value if isinstance(value, list) else [value]
        if bounds := each.metadata.get(_RANGE):
            wrong = [v for v in values if v is not None and v not in bounds]
            if wrong:
                yield Problem(key, f"{', '.join(f'{v:g}' for v in wrong)} is out of range", f"Give a number {bounds}.")
        for index, inner in enumerate(values):
            if is_dataclass(inner):
                yield from find_problems(inner, f"{key}[{index}]." if isinstance(value, list) else f"{key}.")
    for cls in type(config).__mro__:  # a section that extends another has the rules of both
        if rules := vars(cls).get("problems"):
            yield from (problem.within(section.rstrip(".")) for problem in rules(config))
