r"""Reads an answer once into what it means: one grammar for LaTeX, for what Python and sympy print, and for what people
write.

A reading takes the whole answer or none of it: what the grammar does not know is a text, which equals the same text
alone. So nothing is overlooked because it is left over. Nothing is run, and the work is bounded by the answer's length.
"""

import re
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from env_servers.mathtool import wording
from env_servers.mathtool.signs import (
    CLOSING,
    CONSTANTS,
    FUNCTIONS,
    KNOWN,
    MATRICES,
    NUMBER,
    RELATIONS,
    TRIGONOMETRIC,
    Unreadable,
    bare,
    tokens,
)

#: Longer answers are texts: one that holds every number holds the right one, too.
MAX_CHARS = 400
#: Deepest nesting, and the largest exponent of ten in a number.
MAX_DEPTH, MAX_EXPONENT = 40, 5000


@dataclass(frozen=True, slots=True)
class Term:
    """A meaning: an operator and what it is applied to.

    Attributes:
        head: ``number``, ``name``, ``text``, ``unit``, ``relation``, ``matrix``, a pair of brackets (``()``, ``[)``;
            ``,`` for a bare list), or an operator or function.
        args: Terms. Of a ``number`` its value and with how many decimals it was written (None: exactly); of ``name``
            and ``text`` the letters; of ``unit`` a term and the unit; of ``relation`` signs and sides, in turn.
    """

    head: str
    args: tuple[Any, ...]


def read(text: str) -> Term:
    """Reads a plain answer."""
    text = wording.unframed(text)
    try:
        if (value := wording.number(text)) is not None:
            return Term("number", (Fraction(value), None))
        if len(text) > MAX_CHARS or "@" in text or (re.fullmatch("[A-Za-z]{2,}", text) and text not in KNOWN):
            raise Unreadable(text)
        return _Parser(tokens(text)).whole()
    except Unreadable:
        return Term("text", (bare(text),))


def _number(text: str) -> Term:
    match = NUMBER.fullmatch(text)
    if match is None:
        raise Unreadable(text)
    digits, *tens, whole, fixed, again = match.groups()
    if again:
        value = Fraction(
            int(f"0{whole}{fixed}{again}") - int(f"0{whole}{fixed}"), 10 ** len(fixed) * (10 ** len(again) - 1)
        )
        return Term("number", (value, None))
    digits, ten = digits.replace(",", ""), int(next(filter(None, tens), "0"))
    if abs(ten) > MAX_EXPONENT:
        raise Unreadable(text)
    return Term(
        "number",
        (Fraction(digits) * Fraction(10) ** ten, len(digits.partition(".")[2]) - ten if "." in digits else None),
    )


def _integer(term: Term) -> int | None:
    return (
        term.args[0].numerator
        if term.head == "number" and term.args[1] is None and term.args[0].denominator == 1
        else None
    )


class _Parser:
    """Recursive descent; what binds least comes first."""

    def __init__(self, tokens: list[str]) -> None:
        self._tokens = [*tokens, "", "", ""]
        self._at = self._depth = 0
        self._in_bars = False

    @property
    def _next(self) -> str:
        return self._tokens[self._at]

    def _take(self, *signs: str) -> str:
        """The next token if it is one of these, else nothing."""
        if self._next not in signs:
            return ""
        self._at += 1
        return self._tokens[self._at - 1]

    def _expect(self, *signs: str) -> str:
        if not (found := self._take(*signs)):
            raise Unreadable(f"{self._next!r} where {signs} is needed")
        return found

    def whole(self) -> Term:
        items = self._items("")
        if self._next or not items or self._tokens[self._at - 1] in (",", ";"):
            raise Unreadable("left over")
        return items[0] if len(items) == 1 else Term(",", tuple(items))

    def _items(self, *closing: str) -> list[Term]:
        found: list[Term] = []
        while self._next not in closing:
            found.append(self._relation())
            if not self._take(",", ";"):
                break
        return found

    def _relation(self) -> Term:
        found: list[Any] = [self._measured(self._sets())]
        while self._next in RELATIONS:
            found += [RELATIONS[self._take(self._next)], self._measured(self._sets())]
        if len(found) > 1:
            return Term("relation", tuple(found))
        while self._take(":"):
            found.append(self._sets())
        ratio = tuple(Term("/", (part, found[-1])) for part in found[:-1])
        return found[0] if not ratio else ratio[0] if len(ratio) == 1 else Term("()", ratio)

    def _sets(self) -> Term:
        found = self._sum()
        while sign := self._take("∪", "∩"):
            found = Term(sign, (found, self._sum()))
        return found

    def _sum(self) -> Term:
        found = self._product()
        while sign := self._take("+", "-", "±", "∓"):
            found = Term(sign, (found, self._product()))
        return found

    def _product(self) -> Term:
        found = self._factor()
        while not (self._next == "/" and wording.is_unit(self._tokens[self._at + 1])):
            if sign := self._take("*", "/"):
                found = Term(sign, (found, self._factor()))
            elif self._begins():
                found = Term("*", (found, self._power()))
            else:
                break
        return found

    def _begins(self) -> bool:
        """Whether a factor may begin here with no sign before it: no number may but after brackets, so that ``5 18`` is
        none."""
        token = self._next
        if token[:1].isalpha():
            called = token in FUNCTIONS and self._tokens[self._at + 1] in ("(", "{", "^", "_")
            return token not in ("end", "rfloor", "rceil") and (called or not wording.known(token))
        return (
            token in ("(", "{", "√", "∛")
            or (token == "|" and not self._in_bars)
            or (token.isdigit() and self._tokens[self._at - 1] == ")")
        )

    def _factor(self) -> Term:
        self._depth += 1
        if self._depth > MAX_DEPTH:
            raise Unreadable("nested too deeply")
        if sign := self._take("-", "+", "±", "∓"):
            found = self._factor()
            if sign == "-" and found.head == "number":
                found = Term("number", (-found.args[0], found.args[1]))
            elif sign != "+":
                found = Term(sign, (Term("number", (Fraction(0), None)), found))
        else:
            found = self._power()
        self._depth -= 1
        return found

    def _power(self) -> Term:
        found = self._atom()
        while sign := self._take("!", "%", "°"):
            found = Term("factorial" if sign == "!" else sign, (found,))
        return Term("^", (found, self._factor())) if self._take("^", "**") else found

    def _atom(self) -> Term:
        token = self._next
        if token[:1].isdigit() or (token[:1] == "." and len(token) > 1):
            return self._numeral()
        self._at += 1
        if token in CLOSING:
            return self._group(token)
        if token in ("√", "∛"):
            return Term("sqrt" if token == "√" else "cbrt", (self._atom(),))
        if re.fullmatch("@[A-Za-z]", token) or (
            token[:1].isalpha() and (not wording.known(token) or token in FUNCTIONS)
        ):
            return self._named(token.lstrip("@"))
        raise Unreadable(f"{token!r} begins nothing")

    def _numeral(self) -> Term:
        """A number; also a mixed one (``1 1/4``) and one in another base (``2516_8``)."""
        found = _number(self._tokens[self._at])
        self._at += 1
        if self._take("_"):
            if not (base := self._script()).isdigit():
                raise Unreadable(base)
            return Term("unit", (found, f"base {base}"))
        start = self._at
        if _integer(found) is not None and (
            self._next == "frac" or (self._next.isdigit() and self._tokens[self._at + 1] == "/")
        ):
            part = self._argument if self._take("frac") else self._atom
            above, _, below = part(), self._take("/"), part()
            if 0 < (_integer(above) or 0) < (_integer(below) or 0):
                return Term("+", (found, Term("/", (above, below))))
            self._at = start
        return found

    def _group(self, opening: str) -> Term:
        outside, self._in_bars = self._in_bars, opening == "|"
        name, sign = self._tokens[self._at : self._at + 2]
        if opening == "{" and name.isalpha() and sign in ("|", "∈") and "|" in self._tokens[self._at :]:  # {x | 0 < x}
            self._at = self._tokens.index("|", self._at) + 1
        elif opening == "{" and sign == ":":  # {x: 1, y: 2}
            self._tokens[self._at :] = ["=" if token == ":" else token for token in self._tokens[self._at :]]
        closing = (CLOSING[opening],) if len(CLOSING[opening]) > 2 else tuple(CLOSING[opening])
        items = self._items(*closing)
        one = len(items) == 1 and self._tokens[self._at - 1] != ","
        sign = self._expect(*closing)
        self._in_bars = outside
        if opening in ("|", "lfloor", "lceil") and one:
            return Term({"|": "abs"}.get(opening, opening[1:]), tuple(items))
        return items[0] if one and opening != "[" else Term(opening + sign, tuple(items))

    def _argument(self) -> Term:
        """What a command of LaTeX is applied to: a group, or one digit or letter."""
        if self._next.isdigit() and len(self._next) > 1:
            self._tokens[self._at : self._at + 1] = [self._next[0], self._next[1:]]
            self._at += 1
            return _number(self._tokens[self._at - 1])
        return self._atom()

    def _script(self) -> str:
        """An index as it is written."""
        start, end = self._at, self._at + 1
        if self._take("{"):
            start, end = (
                self._at,
                self._tokens.index("}", self._at) if "}" in self._tokens[self._at :] else len(self._tokens) - 1,
            )
            self._at = end
            self._expect("}")
        else:
            self._at += bool(self._next)
        return "".join(self._tokens[start:end]) or self._expect("an index")

    def _named(self, name: str) -> Term:
        if name in ("frac", "binom"):
            return Term("/" if name == "frac" else "binomial", (self._argument(), self._argument()))
        if name == "begin":
            return self._matrix()
        if name == "EmptySet":
            return Term("{}", ())
        if name in FUNCTIONS:
            return self._applied(FUNCTIONS[name])
        if name in CONSTANTS:
            return Term("name", (CONSTANTS[name],))
        name = re.sub(r"^([A-Za-z])(\d+)$", r"\1_\2", name)
        if self._take("_"):
            name += f"_{self._script()}"
        while self._take("'"):
            name += "'"
        if name[0] in "fgFG" and self._take("("):
            return Term(f"{name}()", (self._group("("),))
        return Term("name", (name,))

    def _applied(self, function: str) -> Term:
        index: tuple[Term, ...] = ()
        if function == "sqrt" and self._take("["):
            index = (self._sum(),)
            self._expect("]")
        elif self._take("_"):
            index = (self._argument(),)
        power = self._factor() if self._take("^") else None
        if self._take("("):
            args = self._group("[").args  # as brackets that stay where there is one argument
        elif function == "sqrt" or self._next == "{":
            found = self._atom()
            args = found.args if found.head == "{}" else (found,)
        else:
            found = self._factor()
            while self._begins() and self._next not in FUNCTIONS:
                found = Term("*", (found, self._power()))
            args = (found,)
        if power is not None and _integer(power) == -1 and function in TRIGONOMETRIC:
            function, power = f"a{function}", None
        found = _made(function, args + index)
        return found if power is None else Term("^", (found, power))

    def _matrix(self) -> Term:
        kind, rows = self._script(), [[]]
        while self._next != "end":
            rows[-1].append(self._sum())
            if self._take("\\"):
                rows.append([])
            elif not self._take("&") and self._next != "end":
                raise Unreadable(self._next)
        self._at += 1
        if self._script() != kind or kind not in MATRICES:
            raise Unreadable(kind)
        return Term("matrix", tuple(Term("[]", tuple(row)) for row in rows if row))

    def _measured(self, value: Term) -> Term:
        """With the unit, or what is counted, that follows."""
        unit: list[str] = []
        while token := self._next:
            after = self._tokens[self._at + 1]
            if unit and token == "/" and len(after) == 1:  # km/h
                after = self._tokens[self._at + 1] = f"@{after}"
            if times := wording.MULTIPLES.get(token.lstrip("@")):
                value = Term("*", (value, Term("number", (Fraction(times), None))))
            elif wording.is_unit(token):
                unit.append(wording.unit(token))
            elif unit and token in ("^", "**"):
                self._at += 1
                unit.append(f"^{self._script()}")
                continue
            elif (token := token.lstrip("@")) in ("/", "per", "of") and wording.is_unit(after):
                unit += [] if token == "of" else ["/"]
            else:
                break
            self._at += 1
        return Term("unit", (value, " ".join(sorted(filter(None, unit))))) if unit else value


def _made(function: str, args: tuple[Term, ...]) -> Term:
    """What a function of LaTeX, Python or sympy makes."""
    size = len(args)
    if size == 0:
        return Term("{}", ())
    if size == 1 and function in ("same", "/", "()", "∪", "∩"):
        return args[0]
    if function in ("∪", "∩"):
        return Term(function, (args[0], _made(function, args[1:])))
    if size == 2 and function in RELATIONS:
        return Term("relation", (args[0], function, args[1]))
    if function == "matrix":
        return Term("matrix", tuple(row if row.head == "[]" else Term("[]", (row,)) for row in args[0].args))
    if function == "[]":
        infinite = [Term("name", ("oo",)) in (end, *end.args) for end in args[:2]]
        left, right = (
            end or mark == Term("name", ("True",)) for end, mark in zip(infinite, (*args[2:], "", ""), strict=False)
        )
        return Term(f"{'[('[left]}{'])'[right]}", args[:2])
    return Term("root" if function == "sqrt" and size == 2 else function, args)
