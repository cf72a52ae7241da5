"""Compares the values of two terms: exactly as fractions, else by mpmath at fixed points, to a hundred digits."""

import math
import operator
import random
from collections.abc import Callable, Iterator
from fractions import Fraction
from functools import cache
from typing import Any

from env_servers.mathtool.reading import Term
from env_servers.mathtool.signs import CONSTANTS

#: Decimals agree within so much of the gold value.
TOLERANCE = Fraction(1, 10**6)
#: Digits of the two evaluations: of equal values the second is closer than the first.
DIGITS = (60, 120)
#: Larger values are none: bits of an exact one, of a magnitude, of the magnitude of a function's argument.
MAX_BITS, MAX_MAGNITUDE, MAX_ARGUMENT = 200_000, 1_000_000, 10_000
#: Points of a comparison, and evaluated terms of a judgement.
POINTS, MAX_WORK = 12, 40_000
IMAGINARY = Term("name", ("i",))
_FUNCTIONS = frozenset(
    "sin cos tan sec csc cot asin acos atan asec acsc acot sinh cosh tanh sech csch coth asinh acosh atanh exp "
    "factorial binomial floor ceil re im conj".split()
)
_EXACT: dict[str, Callable[..., Any]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "/": operator.truediv,
    "abs": abs,
    "min": min,
    "max": max,
    "%": lambda a: a / 100,
    "[]": lambda a: a,
}


class TooMuch(Exception):
    """Would take too long."""


class Undefined(ArithmeticError):
    """Has no value there, or one that is too large."""


def terms(*roots: Term) -> Iterator[Term]:
    """All terms in these terms, themselves included."""
    for root in roots:
        yield root
        yield from terms(*(arg for arg in root.args if isinstance(arg, Term)))


def names(*roots: Term) -> set[str]:
    """The variables in these terms."""
    return {term.args[0] for term in terms(*roots) if term.head == "name"} - set(CONSTANTS.values())


class Values:
    """Values of the terms of one judgement, with its share of work."""

    def __init__(self) -> None:
        self._work = 0

    def equal(self, gold: Term, answer: Term) -> bool:
        """Whether two terms have the same value wherever both are defined: over the reals, or else over the complex
        numbers."""
        variables = names(gold, answer)
        points = POINTS if variables else 1
        for complex_ in (False, True)[IMAGINARY in terms(gold, answer) :]:
            agreed = 0
            for n in range(points):
                found = self._equal_at(gold, answer, _point(variables, n), complex_)
                if found is False:
                    return False
                agreed += found is True
            if agreed >= min(2, points):
                return True
        return False

    def proportional(self, gold: Term, answer: Term, positive: bool) -> bool:
        """Whether one term is a constant times another."""
        variables, ratios = names(gold, answer), []
        for n in range(POINTS if variables else 0):
            try:
                wanted, given = (self._at(term, _point(variables, n), DIGITS[0], False) for term in (gold, answer))
                ratios.append(_real(_context(DIGITS[0]), given) / _real(_context(DIGITS[0]), wanted))
            except ArithmeticError:
                continue
        near = 1e-6 if _has_decimal(gold) or _has_decimal(answer) else 1e-40
        return len(ratios) > 1 and all(
            r != 0 and (r > 0 or not positive) and abs(r - ratios[0]) <= abs(r) * near for r in ratios
        )

    def _equal_at(self, gold: Term, answer: Term, point: dict[str, Fraction], complex_: bool) -> bool | None:
        """Whether two terms have the same value at a point; None if one has none there."""
        context = _context(DIGITS[1])
        try:
            (low, low2), (wanted, given) = (
                [self._at(t, point, digits, complex_) for t in (gold, answer)] for digits in DIGITS
            )
            if wanted == given:
                return True
            close, exact = False, isinstance(wanted, Fraction) and isinstance(given, Fraction)
            if not exact:
                low, low2 = _real(_context(DIGITS[0]), low), _real(_context(DIGITS[0]), low2)
                wanted, given = _real(context, wanted), _real(context, given)
                if context.isinf(wanted) or context.isinf(given):
                    return False
                error = abs(given - wanted)
                close = bool(
                    error <= 1e-40 * abs(low2 - low) or error <= context.mpf(10) ** -100 * max(abs(wanted), abs(given))
                )
            if close or wanted == 0 or given == 0 or not (_has_decimal(gold) or _is_decimal(answer)):
                return close
            error, size = _fraction(abs(given - wanted)), _fraction(abs(wanted))
        except Undefined:
            return None
        if error <= size * TOLERANCE or gold.head != "number" or gold.args[1] is None:
            return error <= size * TOLERANCE
        last = Fraction(10) ** -gold.args[1]  # of the gold's digits
        return error <= last / 2 and size >= min(Fraction(1, 10), 10 * last)

    def _at(self, term: Term, point: dict[str, Fraction], digits: int, complex_: bool) -> Any:
        """The value of a term at a point: a fraction where that is exact, else a number of mpmath's."""
        self._work += 1
        if self._work > MAX_WORK:
            raise TooMuch
        context = _context(digits)
        if term.head == "number":
            return term.args[0]
        if term.head == "name":
            name = term.args[0]
            if name in ("Reals", "True", "False"):
                raise Undefined
            return (
                point[name]
                if name in point
                else +{"pi": context.pi, "e": context.e, "i": context.j, "oo": context.inf}[name]
            )
        args = [self._at(arg, point, digits, complex_) for arg in term.args if isinstance(arg, Term)]
        try:
            value = _applied(context, term.head, args, complex_)
        # of mpmath
        except (
            ValueError,
            TypeError,
            IndexError,
            ArithmeticError,
            NotImplementedError,
            context.NoConvergence,
        ) as error:
            raise Undefined from error
        if isinstance(value, Fraction):
            if max(value.numerator.bit_length(), value.denominator.bit_length()) <= MAX_BITS:
                return value
            value = _real(context, value)
        if isinstance(value, context.mpc) and (value.imag == 0 or not complex_):
            if value.imag != 0:
                raise Undefined
            value = value.real
        if context.isnan(value) or (
            value != 0 and not context.isinf(value) and abs(context.mag(value)) > MAX_MAGNITUDE
        ):
            raise Undefined
        return value


@cache
def _context(digits: int) -> Any:
    from mpmath import MPContext

    context = MPContext()
    context.dps = digits
    return context


def _has_decimal(term: Term) -> bool:
    return any(t.head == "number" and t.args[1] is not None for t in terms(term))


def _is_decimal(answer: Term) -> bool:
    """Whether an answer is a decimal or has one; Python's ``2.0`` is the integer."""
    return _has_decimal(answer) and not (
        answer.head == "number" and answer.args[0].denominator == 1 and answer.args[1] > 0
    )


def _real(context: Any, value: Any) -> Any:
    return context.mpf(value.numerator) / value.denominator if isinstance(value, Fraction) else context.convert(value)


def _fraction(value: Any) -> Fraction:
    if isinstance(value, Fraction):
        return value
    _, mantissa, exponent, _ = value._mpf_
    if abs(exponent) > MAX_BITS:
        raise Undefined
    return Fraction(int(mantissa)) * Fraction(2) ** exponent


def _point(variables: set[str], n: int) -> dict[str, Fraction]:
    """The same point for the same variables; each is small, of middle size, negative or large."""
    point = {}
    for name in variables:
        chance = random.Random(f"{name} {n}")
        low, high = chance.choice(((1, 9), (11, 39), (-29, -3), (51, 399)))
        point[name] = Fraction(chance.randint(low * 100, high * 100) * 2 + 1, 2003)
    return point


def _applied(context: Any, head: str, args: list[Any], complex_: bool) -> Any:
    """The value of an operator or a function; a fraction where the arguments are and that is exact."""
    exact = all(isinstance(arg, Fraction) for arg in args)
    if head in ("^", "sqrt", "cbrt", "root"):
        exponent = {
            "^": lambda: args[1],
            "sqrt": lambda: Fraction(1, 2),
            "cbrt": lambda: Fraction(1, 3),
            "root": lambda: 1 / args[1],
        }[head]()
        return _power(context, args[0], exponent, complex_)
    if head in ("factorial", "binomial") and exact and all(arg.denominator == 1 and 0 <= arg <= 2000 for arg in args):
        return Fraction((math.factorial if head == "factorial" else math.comb)(*map(int, args)))
    if head in ("gcd", "lcm") and all(arg.denominator == 1 for arg in args):
        return Fraction((math.gcd if head == "gcd" else math.lcm)(*map(int, args)))
    numbers = [_real(context, arg) for arg in args]
    if head in _EXACT:
        return _EXACT[head](*(args if exact else numbers))
    if any(number and not context.isinf(number) and abs(context.mag(number)) > MAX_ARGUMENT for number in numbers):
        raise Undefined
    if head in ("log", "log2", "log10"):
        base = {"log2": 2, "log10": 10}.get(head) or (numbers[1] if len(numbers) > 1 else context.e)
        return context.log(numbers[0]) / context.log(base)
    if head == "°":
        return numbers[0] * context.pi / 180
    if head.endswith("()") and head != "()":  # a function that nobody knows: one value for each argument
        return Fraction(
            random.Random(f"{head} {[context.nstr(number, 30) for number in numbers]}").randrange(1, 10**9), 10**8 + 7
        )
    if head not in _FUNCTIONS or (head[-1] in "hp" and abs(numbers[0]) > 10**5):  # exp, sinh and the like
        raise Undefined
    return getattr(context, head)(*numbers)


def _power(context: Any, base: Any, exponent: Any, complex_: bool) -> Any:
    if isinstance(exponent, Fraction):
        if isinstance(base, Fraction) and exponent.denominator == 1:
            if max(base.numerator.bit_length(), base.denominator.bit_length()) * abs(exponent) <= MAX_BITS:
                return base**exponent.numerator
        elif not complex_ and base < 0 and exponent.denominator % 2:  # the real root
            return _power(context, -base, exponent, complex_) * (-1) ** exponent.numerator
    base, exponent = _real(context, base), _real(context, exponent)
    if base != 0 and not context.isinf(base) and abs(exponent) * (abs(context.mag(base)) + 1) > MAX_MAGNITUDE:
        raise Undefined
    return base**exponent
