"""Pairs of a gold answer and an answer that are equal, or different, by the way in which they are made.

They are printed by sympy, by Python and by hand: by no code of the grader. ``python -m tests.env_servers.pairs`` prints
the table of docs/environments.md; with ``--all`` also each pair that is judged wrongly. It asks a `MathTool`, so that
other commits can be asked, too: ``PYTHONPATH=THEIRS:. python tests/env_servers/pairs.py``.
"""

import gzip
import json
import random
import re
import sys
import tempfile
from collections.abc import Callable, Iterator
from fractions import Fraction
from pathlib import Path
from typing import Any

#: Gold, answer, whether they are equal.
Pair = tuple[str, str, bool]
SIZE = 300
KINDS: dict[str, Callable[[random.Random], Iterator[Pair]]] = {}
_VULGAR = {
    Fraction(1, 2): "½",
    Fraction(1, 4): "¼",
    Fraction(3, 4): "¾",
    Fraction(1, 3): "⅓",
    Fraction(2, 3): "⅔",
    Fraction(1, 8): "⅛",
}
_FULL_WIDTH = str.maketrans("0123456789", "０１２３４５６７８９")
_POWERS = str.maketrans("0123456789-", "⁰¹²³⁴⁵⁶⁷⁸⁹⁻")


def kind(name: str) -> Callable:
    def add(make: Callable[[random.Random], Iterator[Pair]]) -> Callable:
        KINDS[name] = make
        return make

    return add


def pairs(name: str, size: int = SIZE) -> list[Pair]:
    """The first pairs of a kind: so many equal, and so many different ones."""
    found: dict[bool, list[Pair]] = {True: [], False: []}
    made: set[Pair] = set()
    source, tries = KINDS[name](random.Random(name)), 0
    while min(map(len, found.values())) < size and tries < 200 * size:
        tries += 1
        pair = next(source)
        if pair not in made and len(found[pair[2]]) < size:
            made.add(pair)
            found[pair[2]].append(pair)
    return found[True] + found[False]


# printers -------------------------------------------------------------------------------------------------------------


def latex_fraction(value: Fraction, command: str = "frac") -> str:
    sign = "-" if value < 0 else ""
    body = (
        f"\\{command}{{{abs(value.numerator)}}}{{{value.denominator}}}"
        if value.denominator > 1
        else str(abs(value.numerator))
    )
    return sign + body


def dressed(chance: random.Random, text: str) -> str:
    """A value as people wrap it."""
    ways = ("{}", "${}$", "\\boxed{{{}}}", "\\({}\\)", "\\[ {} \\]", "{}.", " {} ", "$\\boxed{{{}}}$", "$$ {} $$")
    return chance.choice(ways).format(text)


def fraction(chance: random.Random) -> Fraction:
    return Fraction(chance.randint(-60, 60) or 7, chance.randint(2, 40))


def expression(chance: random.Random, letters: str = "xyabn") -> Any:
    """An expression of one or two letters whose form is of one of ten kinds, with numbers drawn; never a constant."""
    import sympy as s

    x, y = s.symbols(chance.sample(letters, 2))
    a, b, c = (chance.randint(2, 12) for _ in range(3))
    p, q = s.Rational(chance.randint(1, 9), chance.randint(2, 9)), s.Integer(chance.randint(2, 5))
    return chance.choice(
        [
            lambda: a * x**2 + b * x - c,
            lambda: (x + a) * (x - b) ** q,
            lambda: (a * x + b) / (x**2 + c),
            lambda: p * s.pi * x**q + a,
            lambda: s.sqrt(a * x**2 + b) - c,
            lambda: s.sin(a * x) + s.cos(x) ** q,
            lambda: a * s.exp(-b * x) + p,
            lambda: s.log(x**2 + a) / b,
            lambda: (a * x + b * y) ** 2 - c * x * y,
            lambda: a ** (x + b) + s.Abs(y - c),
            lambda: s.tan(x / a) * y + p,
            lambda: s.asin(x / a) + s.sqrt(y),
            lambda: s.cbrt(x**2 + a) * b,
        ]
    )()


def constant(chance: random.Random) -> Any:
    import sympy as s

    a, b, c = (chance.randint(2, 30) for _ in range(3))
    p = s.Rational(chance.randint(1, 9), chance.randint(2, 9))
    return chance.choice(
        [
            lambda: a + b * s.sqrt(c),
            lambda: s.pi * s.Rational(a, b),
            lambda: (a - s.sqrt(b)) / c,
            lambda: a * s.sqrt(b) * s.pi,
            lambda: s.log(a) + p,
            lambda: s.E ** (-p) * a,
            lambda: s.sin(s.pi / (a + 3)) + b,
            lambda: s.Rational(a, b) - s.sqrt(s.sqrt(c) + 1),
            lambda: s.Integer(2) ** a - b,
            lambda: s.cbrt(a) + s.atan(p),
        ]
    )()


def changed(chance: random.Random, made: Any) -> Any:
    """Another value: one integer of it is another one, and so is the value where its letters have one."""
    import sympy as s

    integers = sorted({n for n in s.preorder_traversal(made) if n.is_Integer and n not in (0, 1, -1, 2)}, key=str)
    point = {x: s.Rational(7 + 4 * n, 11) for n, x in enumerate(sorted(made.free_symbols, key=str))}
    new = [made.xreplace({n: n + chance.choice([1, 2, 5])}) for n in integers] + [made + 1, -made]
    chance.shuffle(new)
    return next(other for other in new if abs(s.N((other - made).subs(point), 30)) > 1e-3)


def printed(made: Any) -> list[str]:
    """What sympy prints of it: as LaTeX and as Python."""
    import sympy as s

    return [
        s.latex(made),
        str(made),
        s.latex(made, fold_short_frac=True),
        s.latex(made, mul_symbol="dot"),
        s.latex(made, ln_notation=True),
    ]


# kinds ----------------------------------------------------------------------------------------------------------------


@kind("integers")
def _(chance: random.Random) -> Iterator[Pair]:
    while True:
        value = chance.randint(-99, 99) if chance.random() < 0.3 else chance.randint(-(10**7), 10**7)
        ways = (
            str(value),
            f"{value:,}",
            f"{value:,}".replace(",", "{,}"),
            f"{value:,}".replace(",", ",\\!"),
            f"{value}.0",
            f"+{value}".replace("+-", "-"),
        )
        yield str(value), dressed(chance, chance.choice(ways)), True
        other = chance.choice((value + 1, -value or 1, value * 10 or 2, value + 1000, int(f"{value}1")))
        yield str(value), dressed(chance, chance.choice((str(other), f"{other:,}", f"{other}.0"))), False


@kind("decimals and Python's floats")
def _(chance: random.Random) -> Iterator[Pair]:
    while True:
        value = fraction(chance)
        gold = chance.choice((latex_fraction(value), str(value)))
        yield gold, repr(float(value)), True
        digits = chance.randint(1, 4)
        if abs(value) >= 1:
            yield f"{float(value):.{digits}f}", repr(float(value)), True
            yield f"{float(value):.{digits}f}", latex_fraction(value), True
        yield gold, repr(float(value) * (1 + chance.choice((-1, 1)) * 10 ** -chance.uniform(1, 5))), False
        yield (
            f"{float(value):.{digits}f}",
            repr(round(float(value), digits) + chance.choice((-3, -1, 1, 2)) * 10**-digits),
            False,
        )


@kind("tiny and huge numbers")
def _(chance: random.Random) -> Iterator[Pair]:
    while True:
        ten, mantissa = chance.choice((-1, 1)) * chance.randint(4, 90), chance.randint(1, 99) / 10
        value = mantissa * 10.0**ten
        ways = [
            repr(value),
            f"{mantissa} \\times 10^{{{ten}}}",
            f"{mantissa} \\cdot 10^{{{ten}}}",
            f"{mantissa}*10**{ten}",
            f"{mantissa}e{ten}",
        ]
        ways += [f"{mantissa} × 10{str(ten).translate(_POWERS)}", f"{mantissa}*10^({ten})"] + [
            f"{value:.{abs(ten) + 1}f}"
        ] * (-12 < ten < 0)
        yield chance.choice(ways[:3]), chance.choice(ways), True
        other = chance.choice(
            (
                f"{mantissa * 2}e{ten}",
                f"{mantissa}e{ten + 1}",
                f"{mantissa}e{-ten}",
                f"-{mantissa}e{ten}",
                f"{mantissa + 0.1:.1f}e{ten}",
                "0",
            )
        )
        yield chance.choice(ways), other, False
        two, base = chance.randint(20, 99), chance.randint(2, 9)
        yield (
            f"\\frac{{1}}{{{base}^{{{two}}}}}",
            chance.choice(
                (
                    f"{base}**-{two}",
                    f"1/{base}**{two}",
                    f"{base}^{{-{two}}}",
                    f"1/{base**two}",
                    repr(float(base) ** -two),
                )
            ),
            True,
        )
        yield (
            f"\\frac{{1}}{{{base}^{{{two}}}}}",
            chance.choice((f"{base}^{{-{two + 1}}}", f"1/{base**two + 1}", repr(float(base) ** -two * 1.001), "0")),
            False,
        )


@kind("fractions and mixed numbers")
def _(chance: random.Random) -> Iterator[Pair]:
    while True:
        whole, part = chance.randint(1, 30), Fraction(chance.randint(1, 11), 12)
        part = chance.choice([part, *_VULGAR])
        value, sign = whole + part, chance.choice(("", "-"))
        small = f"{part.numerator}/{part.denominator}"
        mixed = [
            f"{whole} {small}",
            f"{whole}{latex_fraction(part)}",
            f"{whole} {latex_fraction(part, 'dfrac')}",
            f"{whole} + {small}",
        ]
        mixed = [f"{sign}{text}" for text in mixed[: 3 if sign else 4]] + (
            [f"{sign}{whole}{_VULGAR[part]}"] if part in _VULGAR else []
        )
        signed = -value if sign else value
        alone = [
            str(signed),
            latex_fraction(signed),
            latex_fraction(signed, "dfrac"),
            f"Rational({signed.numerator}, {signed.denominator})",
        ]
        alone += [
            f"Fraction({signed.numerator}, {signed.denominator})",
            f"({signed.numerator})/({signed.denominator})",
            repr(float(signed)),
        ]
        yield chance.choice(alone[:3]), chance.choice(mixed + alone), True
        yield chance.choice(mixed[:2]), chance.choice(alone), True
        others = (
            whole * part,
            part,
            Fraction(whole),
            value + 1,
            1 / value,
            whole + part + Fraction(1, 12),
            Fraction(int(f"{whole}{part.numerator}"), part.denominator),
        )
        other = chance.choice([o for o in others if o != value])
        yield chance.choice(alone[:3]), chance.choice((str(other), latex_fraction(other), repr(float(other)))), False
        yield latex_fraction(whole * part if whole * part != value else value + 1), chance.choice(mixed[:2]), False


@kind("numbers with roots, pi, e, logarithms")
def _(chance: random.Random) -> Iterator[Pair]:
    while True:
        made = constant(chance)
        ways = printed(made)
        yield ways[0], dressed(chance, chance.choice(ways)), True
        yield ways[0], repr(float(made)), True
        yield chance.choice(ways[:2]), chance.choice(printed(changed(chance, made))), False
        yield ways[0], repr(float(changed(chance, made))), False


@kind("expressions")
def _(chance: random.Random) -> Iterator[Pair]:
    import sympy as s

    while True:
        made = expression(chance)
        ways = printed(made) + printed(s.expand(made))
        yield s.latex(made), dressed(chance, chance.choice(ways)), True
        yield s.latex(made), chance.choice(printed(changed(chance, made))), False
        yield s.latex(made), str(made) + chance.choice((" + 1", " + x", "/2", " + z")), False


@kind("complex numbers")
def _(chance: random.Random) -> Iterator[Pair]:
    import sympy as s

    while True:
        re_, im = (s.Rational(chance.randint(-20, 20) or 3, chance.choice((1, 1, 2, 3))) for _ in range(2))
        made = re_ + im * s.I * chance.choice((1, 1, s.sqrt(3)))
        yield (
            s.latex(made),
            chance.choice((str(made), s.latex(made), str(complex(made)), repr(complex(made)).strip("()"))),
            True,
        )
        other = chance.choice((s.conjugate(made), -made, made + 1, made + s.I, s.re(made), s.im(made)))
        yield s.latex(made), chance.choice((str(other), s.latex(other), str(complex(other)))), False


def _items(chance: random.Random) -> list:
    import sympy as s

    values = [
        s.Integer(chance.randint(-20, 20)),
        s.Rational(chance.randint(1, 50), 7),
        s.sqrt(chance.choice((2, 3, 5, 7))),
        s.pi / chance.randint(2, 6),
    ]
    values += [s.Integer(chance.randint(21, 90)) for _ in range(3)]
    return chance.sample(list(dict.fromkeys(values)), chance.randint(2, 4))


@kind("lists, sets, tuples")
def _(chance: random.Random) -> Iterator[Pair]:
    import sympy as s

    def tex(items: list, between: str = ", ") -> str:
        return between.join(map(s.latex, items))

    while True:
        items = _items(chance)
        mixed = chance.sample(items, len(items))
        last = changed(chance, items[-1]) if items[-1] != 0 else s.Integer(1)
        other = [*items[:-1], last] if last not in items else items[:-1]
        free = (
            tex(mixed),
            f"\\{{{tex(mixed)}\\}}",
            str(mixed),
            str(s.FiniteSet(*mixed)),
            f"{{{', '.join(map(str, mixed))}}}",
            ", ".join(map(str, mixed)),
        )
        free = (
            *free,
            tex(mixed, "; "),
            " and ".join(map(s.latex, mixed)),
            ", ".join(f"x = {s.latex(i)}" for i in mixed),
        )
        yield chance.choice((tex(items), f"\\{{{tex(items)}\\}}")), chance.choice(free[:6]), True
        yield tex(items), chance.choice(free), True
        yield (
            f"({tex(items)})",
            chance.choice((str(tuple(items)), f"\\left({tex(items)}\\right)", f"({tex(items, ',')})")),
            True,
        )
        yield (
            tex(items),
            chance.choice(
                (tex(other), str(other), s.latex(items[0]), tex([*items, s.Integer(91)]), f"\\{{{tex(other)}\\}}")
            ),
            False,
        )
        yield (
            f"({tex(items)})",
            chance.choice((str(tuple(other)), str(tuple(items[::-1])), f"\\{{{tex(other)}\\}}", s.latex(items[0]))),
            False,
        )


@kind("intervals and inequalities")
def _(chance: random.Random) -> Iterator[Pair]:
    import sympy as s

    x = s.Symbol("x", real=True)
    while True:
        low, high = sorted(
            (
                s.Rational(chance.randint(-20, 20), chance.choice((1, 1, 2))),
                s.Integer(chance.randint(21, 40)) * chance.choice((1, s.sqrt(2))),
            ),
            key=float,
        )
        left, right = chance.random() < 0.5, chance.random() < 0.5
        low, high = chance.choice(((low, high), (low, high), (-s.oo, high), (low, s.oo)))
        left, right = left or low == -s.oo, right or high == s.oo

        def ways(low: Any, high: Any, left: bool, right: bool) -> list[str]:
            made = s.Interval(low, high, left, right)
            tex = f"{'(' if left else '['}{s.latex(low)}, {s.latex(high)}{')' if right else ']'}"
            found = [
                tex,
                s.latex(made),
                str(made),
                str(made.as_relational(x)),
                f"x \\in {tex}",
                tex.replace("\\infty", "∞"),
            ]
            if low != -s.oo and high != s.oo:
                signs = ["<" if left else "\\le", "<" if right else "\\leq"]
                found += [
                    f"{s.latex(low)} {signs[0]} x {signs[1]} {s.latex(high)}",
                    f"{low} {signs[0]} x {signs[1]} {high}".replace("\\leq", "<=").replace("\\le", "≤"),
                ]
            elif low == -s.oo:
                found.append(f"x {'<' if right else '<='} {high}")
            else:
                found.append(f"x {'>' if left else '>='} {high if low == -s.oo else low}")
            return found

        same = ways(low, high, left, right)
        yield same[0], chance.choice(same), True
        yield chance.choice((same[0], same[-1])), chance.choice(same), True
        flips = [(low, high, not left, right)] * (low != -s.oo) + [(low, high, left, not right)] * (high != s.oo)
        moves = [(low - 1, high, left, right)] * (low != -s.oo) + [(low, high + 1, left, right)] * (high != s.oo)
        yield same[0], chance.choice(ways(*chance.choice(flips + moves))), False
        if high != s.oo and low != -s.oo:
            gap = high + chance.randint(1, 5)
            both = [
                f"{same[0]} \\cup ({s.latex(gap)}, \\infty)",
                str(s.Union(s.Interval(low, high, left, right), s.Interval.open(gap, s.oo))),
            ]
            both += [
                str(s.Union(s.Interval(low, high, left, right), s.Interval.open(gap, s.oo)).as_relational(x)),
                both[0].replace("\\cup", "∪"),
            ]
            yield both[0], chance.choice(both), True
            yield (
                both[0],
                chance.choice(
                    [same[0], same[2], both[1].replace("open", "Lopen").replace(f"({gap}, oo", f"({gap + 1}, oo")]
                ),
                False,
            )


@kind("equations")
def _(chance: random.Random) -> Iterator[Pair]:
    import sympy as s

    x, y = s.symbols("x y")
    while True:
        value, made = constant(chance), expression(chance, "xab")
        yield (
            f"x = {s.latex(value)}",
            chance.choice(
                (str(value), f"x = {value}", f"Eq(x, {value})", f"[{value}]", f"{{x: {value}}}", f"{value} = x")
            ),
            True,
        )
        yield s.latex(value), chance.choice((f"x = {value}", f"x={s.latex(value)}", f"Eq(x, {value})")), True
        yield (
            f"y = {s.latex(made)}",
            chance.choice((f"y = {made}", str(made), f"Eq(y, {made})", f"y={s.latex(made)}")),
            True,
        )
        a, b, c = chance.randint(2, 9), chance.randint(2, 9), chance.randint(2, 9)
        line = a * x + b * y - c
        yield (
            f"{s.latex(line)} = 0",
            chance.choice(
                (
                    f"{a}x + {b}y = {c}",
                    f"{2 * line} = 0",
                    f"y = {s.latex((c - a * x) / b)}",
                    f"Eq({a * x + b * y}, {c})",
                    f"{c} = {a * x + b * y}",
                )
            ),
            True,
        )
        yield (
            f"{s.latex(line)} = 0",
            chance.choice(
                (f"{a}x + {b}y = {c + 1}", f"{a}x - {b}y = {c}", f"{line + x} = 0", f"{line}", "0", f"y = {c}")
            ),
            False,
        )
        yield (
            f"x = {s.latex(value)}",
            chance.choice(
                (
                    f"y = {value}",
                    f"x = {changed(chance, value)}",
                    f"x > {value}",
                    f"{changed(chance, value)} = x",
                    f"x != {value}",
                )
            ),
            False,
        )
        yield (
            f"x = {a}, y = {a + b}",
            chance.choice(
                (f"{{x: {a}, y: {a + b}}}", f"y = {a + b}, x = {a}", f"x={a} and y={a + b}", f"({a}, {a + b})")
            ),
            True,
        )
        yield (
            f"x = {a}, y = {a + b}",
            chance.choice((f"{{x: {a + b}, y: {a}}}", f"({a + b}, {a})", f"x = {a}", f"x = {a}, z = {a + b}")),
            False,
        )


@kind("matrices and vectors")
def _(chance: random.Random) -> Iterator[Pair]:
    import sympy as s

    def tex(rows: list, kind: str = "pmatrix") -> str:
        return (
            f"\\begin{{{kind}}} " + " \\\\ ".join(" & ".join(map(s.latex, row)) for row in rows) + f" \\end{{{kind}}}"
        )

    while True:
        height, width = chance.randint(2, 3), chance.randint(1, 3)
        rows = [
            [s.Rational(chance.randint(-12, 12), chance.choice((1, 1, 1, 3))) for _ in range(width)]
            for _ in range(height)
        ]
        yield (
            tex(rows),
            chance.choice(
                (
                    str(s.Matrix(rows)),
                    tex(rows, "bmatrix"),
                    s.latex(s.Matrix(rows)),
                    str(rows),
                    repr(s.ImmutableMatrix(rows)),
                )
            ),
            True,
        )
        other = [row[:] for row in rows]
        other[chance.randrange(height)][chance.randrange(width)] += chance.choice((1, -1, s.Rational(1, 3)))  # pyright: ignore[reportCallIssue]
        turned = s.Matrix(rows).T.tolist()
        yield (
            tex(rows),
            chance.choice((str(s.Matrix(other)), tex(other), str(other), *([tex(turned)] if turned != rows else []))),
            False,
        )


_DENIALS = """is wrong|is incorrect|is not right|is impossible|, no|or so they say|dozens|dozen|millions|thousand|\
hundreds|halves|thirds|
quarters|squared|cubed|factorial|over seven|out of ten|below zero|minus one|plus two|times three|divided by two|\
but maybe four|
or 43|and 44|to 50|less than x|at most|at least|or more|or less|ish|maybe|perhaps|not sure|I guess|unless x = 0|fails|
does not work|never|nope|pi|x|i|!|^2|crores|lakhs|gross|score|mod 5|percentage points more|+ C|- 1|/ 2|* 3|? No, 43|\
; 43|, 43|
is too small|was my first guess|contradicts the premise|tenths|hundredths|modulo 7|th root of 2|if n is even|\
would be an error|
bananas is wrong|is false|is bigger|is the wrong answer|is not the answer|and a half|point five|degrees below zero|
thousand dollars|million people|dozen eggs|wrong|incorrect|false|undefined|e-05|e3|k|M"""
_BEFORE = """not {}|no, not {}|anything but {}|never {}|more than {}|less than {}|at most {}|twice {}|half of {}|\
the square of {}|minus {}|
the wrong answer is {}|it cannot be {}|the answer is not {}|it isn't {}|about twice {}|the opposite of {}|one over {}|\
1/{}|
sqrt({})|-{}|the answer plus one is {}|nor {}|double {}|41 or {}|41 and {}|41, {}|10{}|the incorrect value is {}|\
x > {}|is it {}?|
rather not {}|everything except {}|square root of {}|two times {}|the negative of the answer is {}|log {}"""


@kind("words that make it another answer")
def _(chance: random.Random) -> Iterator[Pair]:
    after, before = ([text.strip() for text in texts.replace("\n", "").split("|")] for texts in (_DENIALS, _BEFORE))
    while True:
        value = chance.randint(3, 400)
        yield str(value), str(value), True
        yield str(value), f"{value} {chance.choice(after)}", False
        yield str(value), chance.choice(before).format(value), False
        gold = latex_fraction(Fraction(value, 401))
        yield gold, f"{gold} {chance.choice(after)}", False


_THINGS = """apples|books|students|dollars|marbles|eggs|hours|minutes|cars|cookies|people|children|tickets|points|\
miles|meters|feet|kg|cm^2|
km/h|m/s|square feet|years|days|cents|pages|boxes|pieces of candy|gallons of milk|miles per hour|square meters|cm|km|\
liters|
inches|ways|red marbles|years old|girls|cats|trees""".replace("\n", "").split("|")
_LEADS = """The answer is {}|the final answer is: {}|So the answer is {}.|Answer: {}|Therefore, the total is {}|x = {}|\
We get {}|It is {}|
= {}|So we get {}.|Final answer: \\({}\\)|The number of apples is {}|The total cost is {}|Thus, the value of x is \
{}|There are {}|
{} is the answer|{} is the final answer|approximately {}|The result is ${}$|The area is {}|The answer is \\boxed{{{}}}|
**Answer:** {}|The probability is {}|Hence the sum is {}"""


@kind("sentences, units, things")
def _(chance: random.Random) -> Iterator[Pair]:
    leads = [text.strip() for text in _LEADS.replace("\n", "").split("|")]
    while True:
        value, thing = chance.randint(2, 900), chance.choice(_THINGS)
        yield str(value), f"{value} {thing}", True
        yield str(value), chance.choice(leads).format(value), True
        yield (
            str(value),
            chance.choice(leads).format(f"{value} {thing}") if chance.random() < 0.3 else f"{value}\\text{{ {thing}}}",
            True,
        )
        yield f"{value} \\text{{ {thing}}}", chance.choice((f"{value}", f"{value} {thing}")), True
        other = value + chance.choice((1, 10, -1))
        yield str(value), f"{other} {thing}", False
        yield str(value), chance.choice(leads).format(other), False
        thing, another = chance.sample(
            ("apples", "kg", "hours", "miles per hour", "dollars", "cm", "cats", "cents", "gallons of milk"), 2
        )
        yield f"{value} \\text{{ {thing}}}", f"{value} {another}", False


@kind("Markdown, unicode, number words")
def _(chance: random.Random) -> Iterator[Pair]:
    marks = (
        "**{}**",
        "*{}*",
        "`{}`",
        "__{}__",
        "_{}_",
        "***{}***",
        "The final answer is **{}**.",
        "**Answer: {}**",
        "```\n{}\n```",
        "**${}$**",
        "\u200b{}",
        "{}\u00a0",
    )
    small = """zero one two three four five six seven eight nine ten
        eleven twelve thirteen fourteen fifteen sixteen seventeen eighteen nineteen""".split()
    tens = "twenty thirty forty fifty sixty seventy eighty ninety".split()
    while True:
        value = fraction(chance)
        for gold, changed_ in ((value, value + 1), (Fraction(value.numerator), Fraction(-value.numerator))):
            yield latex_fraction(gold), chance.choice(marks).format(latex_fraction(gold)), True
            yield latex_fraction(gold), chance.choice(marks).format(latex_fraction(changed_)), False
        n = chance.randint(2, 99)
        words = small[n] if n < 20 else tens[n // 10 - 2] + (f"-{small[n % 10]}" if n % 10 else "")
        yield (
            str(n),
            chance.choice(
                (words, words.title(), f"{n} ({words})", str(n).translate(_FULL_WIDTH), f"The answer is {words}.")
            ),
            True,
        )
        yield str(n + 1), chance.choice((words, f"{n + 1} ({words})", str(n).translate(_FULL_WIDTH))), False
        yield f"-{n}", chance.choice((f"−{n}", f"–{n}", f"﹣{n}", f"－{n}")), True
        yield str(n), chance.choice((f"−{n}", f"–{n}", f"√{n}", f"{n}²", f"½{n}")), False
        yield f"\\sqrt{{{n}}}", f"√{n}", True
        yield f"{n}x^{{{n}}} + \\pi", f"{n}x{str(n).translate(_POWERS)} + π", True
        yield f"{n}x^{{{n}}} + \\pi", f"{n}x{str(n + 1).translate(_POWERS)} + π", False
        yield "x \\le " + str(n), f"x ≤ {n}", True
        yield f"{n}\\alpha\\theta", f"{n}·θ×α", True


@kind("broken LaTeX, lists that go on")
def _(chance: random.Random) -> Iterator[Pair]:
    while True:
        n, m = chance.randint(2, 60), chance.randint(2, 9)
        yield f"{n}", f"\\boxed{{{n}}}", True
        yield f"{n}\\sqrt{{{m}}}", f"{n}\\sqrt({m})", True
        yield (
            f"{n}",
            chance.choice(
                (
                    f"{n}\\sqrt({m})",
                    f"{n}\\frac{{1}}",
                    f"{n}\\sqrt",
                    f"{n}^",
                    f"{n}\\foo",
                    f"{n}(",
                    f"{n}, ...",
                    f"{n}\\ldots",
                    f"{n} \\pm {m}",
                    f"{n}_",
                )
            ),
            False,
        )
        yield f"1 - \\frac{{{n}}}{{\\mathrm{{e}}}}", f"1 - {n}/e", True
        yield (
            f"1 - \\frac{{{n}}}{{\\mathrm{{e}}}}",
            chance.choice(
                (
                    f"1 + \\frac{{{n}}}{{\\mathrm{{e}}}}",
                    f"1 - \\frac{{{n}}}{{\\mathrm{{f}}}}",
                    f"1 - \\frac{{{n}}}",
                    "1",
                )
            ),
            False,
        )
        yield f"{n}, {n + m}, ...", f"{n}, {n + m}, ...", True
        yield (
            f"{n}, {n + m}, ...",
            chance.choice((f"{n}, {n + m}, {n + 2 * m}, ..", f"{n}, {n + m}", f"{n}, ...", f"{n}")),
            False,
        )
        yield f"\\frac{m}{m + 1 if m < 9 else 7}", f"\\frac{{{m}}}{{{m + 1 if m < 9 else 7}}}", True


_TEXTS = """July|August|Maria|Kevin|Lena|Otto|Paul|Rosa|sine|cosine|left|right|up|down|first|second|square|rectangle|\
acute|obtuse|collinear|
Monday|Wednesday|scalene|Alice|Bob|Charlie|north|south|west|prime|composite|rhombus|trapezoid|blue|green|heads|tails|\
increasing|
decreasing|convergent|Evelyn|Navin|east|ellipse|even|odd|hyperbola|Tuesday|yes|no|True|False|none|infinitely many|\
no solution|red|
circle|Friday|Thursday|parallel|the empty set|isosceles""".replace("\n", "").split("|")


@kind("texts and choices")
def _(chance: random.Random) -> Iterator[Pair]:
    while True:
        text, other = chance.sample(_TEXTS, 2)
        letter, wrong = chance.sample("ABCDE", 2)
        yield (
            f"\\text{{{text}}}",
            chance.choice(
                (text, text.title(), f"**{text}**", f"The answer is {text}.", f"\\boxed{{\\text{{{text}}}}}")
            ),
            True,
        )
        yield (
            f"\\text{{{text}}}",
            chance.choice((other, f"not {text}", f"{text} or {other}", f"{other} {text}", text[::-1])),
            False,
        )
        yield (
            f"\\text{{({letter})}}",
            chance.choice(
                (
                    letter,
                    f"({letter})",
                    f"\\text{{{letter}}}",
                    f"**{letter}**",
                    f"The answer is ({letter}).",
                    f"{letter}.",
                )
            ),
            True,
        )
        yield (
            f"\\text{{({letter})}}",
            chance.choice(
                (
                    wrong,
                    f"({wrong})",
                    f"{letter} or {wrong}",
                    f"({letter}{wrong})",
                    f"not {letter}",
                    f"{letter}, {wrong}",
                )
            ),
            False,
        )


def of_data(folder: Path, every: int = 1) -> Iterator[Pair]:
    """Pairs of the golds of public sets: one in another dress, and with another number in it.

    Args:
        every: Takes every so many of them.
    """
    lines = gzip.decompress((folder / "math" / "gsm8k_train.jsonl.gz").read_bytes()).decode().splitlines()[:400]
    golds = [json.loads(line)["answer"].rpartition("#### ")[2].strip() for line in lines]
    for name in ("math500_test", "aime24_test", "aime25_test"):
        golds += [
            str(json.loads(line)["answer"]) for line in (folder / "math" / f"{name}.jsonl").read_text().splitlines()
        ]
    chance = random.Random("data")
    for gold in golds[::every]:
        yield gold, dressed(chance, gold), True
        yield (
            gold,
            chance.choice(("The answer is {}", "**{}**", "final answer: \\({}\\)", "Answer: ${}$")).format(gold),
            True,
        )
        numbers = list(re.finditer(r"(?<![\d.,_^{])\d+(?![\d.,])", gold))
        if numbers and "_" not in gold:
            at = chance.choice(numbers)
            yield gold, f"{gold[: at.start()]}{int(at[0]) + 1}{gold[at.end() :]}", False
        yield (
            gold,
            chance.choice(("{} is wrong", "not {}", "{} or 91", "{}, 917", "1 + {} is false")).format(gold),
            False,
        )


def judge(all_pairs: list[Pair]) -> list[bool]:
    """What a `MathTool` says of each."""
    from env_servers.mathtool import MathTool

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "pairs.jsonl"
        path.write_text(
            "".join(json.dumps({"problem": f"Q{n}", "answer": gold}) + "\n" for n, (gold, _, _) in enumerate(all_pairs))
        )
        game = MathTool(test=str(path))
        tasks = [game.reset(task.id)[0] for task in game.split("test")]
        return [
            game.step(state, f"answer: {answer}").reward == 1.0
            for state, (_, answer, _) in zip(tasks, all_pairs, strict=True)
        ]


def main() -> None:
    everything = {name: pairs(name) for name in KINDS}
    if (folder := Path(__file__).parents[3] / "shared" / "data").is_dir():
        everything["golds of GSM8K, MATH-500 and AIME"] = list(of_data(folder))
    print("| kind | equal pairs | rejected | different pairs | accepted |\n|---|---|---|---|---|")
    for name, made in everything.items():
        said = judge(made)
        equal = [got for got, pair in zip(said, made, strict=True) if pair[2]]
        different = [got for got, pair in zip(said, made, strict=True) if not pair[2]]
        print(
            f"| {name} | {len(equal)} | {equal.count(False)} | {len(different)} | {different.count(True)} |", flush=True
        )
        if "--all" in sys.argv:
            for got, pair in zip(said, made, strict=True):
                if got != pair[2]:
                    print("   ", pair)


if __name__ == "__main__":
    main()
