"""Numbers that know where they come from: each carries the formula that made it and the sources of its inputs."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

#: Binary units of bytes.
_BYTES = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")


@dataclass(frozen=True)
class Number:
    """A number made of others by arithmetic; ``explain`` tells how.

    Attributes:
        value: In ``unit``.
        text: How it stands in a formula: its name once it has one, before that the expression.
        inputs: The named numbers of the expression.
        unit: ``B``, ``s``, ``FLOP`` and so on; empty for a count.
        source: Of a given number, where it is from.
        formula: Of a named number, the expression.
    """

    value: float
    text: str
    inputs: tuple[Number, ...] = ()
    unit: str = ""
    source: str = ""
    formula: str = ""

    def named(self, name: str, unit: str = "") -> Number:
        """Returns the same under a name, by which it stands in further formulas."""
        return Number(self.value, name, self.inputs, unit or self.unit, self.source, self.text)

    def shown(self) -> str:
        """Returns the value as people read it."""
        return shown(self.value, self.unit)

    def explain(self) -> str:
        """Returns the formula with its values, then those of its inputs, each once."""
        return "\n".join(_lines(self, set(), 0))

    # arithmetic -------------------------------------------------------------------------------------------------------

    def __add__(self, other: Number | float) -> Number:
        return _made(self, other, "+", self.value + _value(other))

    __radd__ = __add__  # a sum begins with 0

    def __sub__(self, other: Number | float) -> Number:
        return _made(self, other, "-", self.value - _value(other))

    def __mul__(self, other: Number | float) -> Number:
        return _made(self, other, "*", self.value * _value(other))

    __rmul__ = __mul__

    def __truediv__(self, other: Number | float) -> Number:
        return _made(self, other, "/", self.value / _value(other) if _value(other) else math.inf)


def given(name: str, value: float, source: str, unit: str = "") -> Number:
    """Returns a number that is not computed.

    Args:
        source: Where it is from: a file, a data sheet, a run, a guess.
    """
    return Number(float(value), name, (), unit, source)


def most(*numbers: Number | float) -> Number:
    """Returns the largest."""
    return _of("max", numbers, max(map(_value, numbers)))


def least(*numbers: Number | float) -> Number:
    """Returns the smallest."""
    return _of("min", numbers, min(map(_value, numbers)))


def up(number: Number) -> Number:
    """Returns the next whole number."""
    return _of("ceil", (number,), math.ceil(number.value))


def shown(value: float, unit: str) -> str:
    """Returns a value with its unit."""
    if math.isinf(value):
        return "no end"
    if unit == "B":
        size = max(0, min(len(_BYTES) - 1, int(math.log(value, 1024)))) if value >= 1 else 0
        return f"{value / 1024**size:.3g} {_BYTES[size]}" if size else f"{value:.0f} B"
    if float(value).is_integer() and abs(value) < 1e15:
        return f"{value:,.0f} {unit}".strip()
    return f"{value:.4g} {unit}".strip()


def _value(number: Number | float) -> float:
    return number.value if isinstance(number, Number) else float(number)


def _text(number: Number | float, tight: bool) -> str:
    if not isinstance(number, Number):
        return f"{number:g}"
    loose = not (number.formula or number.source) and any(sign in number.text for sign in (" + ", " - "))
    return f"({number.text})" if tight and loose else number.text


def _inputs(*numbers: Number | float) -> tuple[Number, ...]:
    found: dict[str, Number] = {}
    for number in numbers:
        if isinstance(number, Number):
            named = number.formula or number.source
            found |= {one.text: one for one in ((number,) if named else number.inputs)}
    return tuple(found.values())


def _made(one: Number, other: Number | float, sign: str, value: float) -> Number:
    if sign == "+" and not isinstance(other, Number) and not other:
        return one
    tight = sign in "*/"
    text = f"{_text(one, tight)} {sign} {_text(other, tight or sign == '-')}"
    unit = one.unit if sign in "+-" or not isinstance(other, Number) else ""
    return Number(value, text, _inputs(one, other), unit)


def _of(function: str, numbers: tuple[Number | float, ...], value: float) -> Number:
    unit = next((number.unit for number in numbers if isinstance(number, Number)), "")
    text = f"{function}({', '.join(_text(number, False) for number in numbers)})"
    return Number(value, text, _inputs(*numbers), unit)


def _lines(number: Number, told: set[str], depth: int) -> Iterator[str]:
    indent = "  " * depth
    if number.text in told:
        return
    told.add(number.text)
    if number.source and not number.formula:
        yield f"{indent}{number.text} = {number.shown()}   ({number.source})"
        return
    yield f"{indent}{number.text} = {number.formula or number.text} = {number.shown()}"
    for part in number.inputs:
        yield from _lines(part, told, depth + 1)
