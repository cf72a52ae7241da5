r"""Reads an answer once into what it means: one grammar for LaTeX, for what Python and sympy print, and for what people write.

A reading takes the whole answer or none of it: what the grammar does not know is a text, which equals the same text alone. So nothing that is
left over is overlooked. Nothing is run, and the work is bounded by the answer's length.
"""

from __future__ import annotations

import re
import unicodedata
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from env_servers.mathtool import wording

#: Longer answers are texts: one that holds every number holds the right one, too.
MAX_CHARS = 400
#: Deepest nesting, and the largest exponent of ten in a number.
MAX_DEPTH, MAX_EXPONENT = 40, 5000


@dataclass(frozen=True, slots=True)
class Term:
    """A meaning: an operator and what it is applied to.

    Attributes:
        head: ``number``, ``name``, ``text``, ``unit``, ``relation``, ``matrix``, a pair of brackets (``()``, ``[)``; ``,`` for a bare list),
            or an operator or function.
        args: Terms. Of a ``number`` its value and with how many decimals it was written (None: exactly); of ``name`` and ``text`` the
            letters; of ``unit`` a term and the unit; of ``relation`` signs and sides, in turn.
    """

    head: str
    args: tuple[Any, ...]


class Unreadable(ValueError):
    """Means nothing that the grammar knows."""


#: What LaTeX's commands and unicode's signs are in the grammar; commands that are not here and no name in it make a text.
_COMMANDS = {
    **{"cdot": "*", "times": "*", "div": "/", "le": "<=", "leq": "<=", "leqslant": "<=", "ge": ">=", "geq": ">=", "geqslant": ">=", "lt": "<"},
    **{"gt": ">", "ne": "!=", "neq": "!=", "approx": "=", "pm": "±", "mp": "∓", "cup": "∪", "vee": "∪", "lor": "∪", "cap": "∩", "wedge": "∩"},
    **{"land": "∩", "in": "∈", "infty": "oo", "emptyset": "EmptySet", "varnothing": "EmptySet", "mid": "|", "vert": "|", "lvert": "|"},
    **{"rvert": "|", "{": "{", "}": "}", "lbrace": "{", "rbrace": "}", "%": "%", "_": "_", "colon": ":", "prime": "'", "circ": "°"},
    **{"degree": "°", "varphi": "phi", "varepsilon": "epsilon", "lg": "log10", "dfrac": "frac", "tfrac": "frac", "cfrac": "frac", "\\": "\\"},
    **{"dbinom": "binom", "tbinom": "binom"},
}
_SIGNS = str.maketrans(
    dict(zip("−–×·⋅∙÷∕⁄º∣∧∨’′≈⩽⩾", "--****///°|∩∪''=≤≥", strict=True)) | {"π": " pi ", "∞": " oo ", "∅": " EmptySet ", "ℝ": " Reals "}
)
_GREEK = "alpha beta gamma delta epsilon zeta eta theta iota kappa lambda lamda mu nu xi rho sigma tau upsilon phi chi psi omega".split()
CONSTANTS = {"pi": "pi", "e": "e", "E": "e", "i": "i", "I": "i", "oo": "oo", "inf": "oo", "infinity": "oo"}
_TRIGONOMETRIC = "sin cos tan sec csc cot sinh cosh tanh".split()
_FUNCTIONS = {
    **{name: name for name in "exp floor re im log root factorial binomial gcd lcm max min conjugate".split() + _TRIGONOMETRIC},
    **{before + name: "a" + name for name in _TRIGONOMETRIC for before in ("a", "arc", "ar")},
    **{"ln": "log", "Abs": "abs", "abs": "abs", "fabs": "abs", "ceil": "ceil", "ceiling": "ceil", "comb": "binomial", "real_root": "root"},
    **{"Max": "max", "Min": "min", "Rational": "/", "Fraction": "/", "Pow": "^", "log10": "log10", "log2": "log2", "sqrt": "sqrt"},
    **{"cbrt": "cbrt", "Eq": "=", "Ne": "!=", "Lt": "<", "Le": "<=", "Gt": ">", "Ge": ">=", "Contains": "∈", "Union": "∪", "Or": "∪"},
    **{"And": "∩", "Intersection": "∩", "FiniteSet": "{}", "Tuple": "()", "Point": "()", "Point2D": "()", "Point3D": "()", "Interval": "[]"},
    **{"Intervalopen": "()", "IntervalLopen": "(]", "IntervalRopen": "[)", "Matrix": "matrix", "MutableDenseMatrix": "matrix"},
    **dict.fromkeys("Integer Float int float mpf mpc Decimal float64 int64 complex list tuple set array sorted".split(), "same"),
}
_RELATIONS = {"=": "=", "==": "=", ":=": "=", "∈": "=", "<": "<", "≤": "<=", "<=": "<=", ">": ">", "≥": ">=", ">=": ">=", "≠": "!=", "!=": "!="}
_OTHERS = "frac binom begin end lfloor rfloor lceil rceil EmptySet Reals True False angle triangle ell".split()
_MATRICES = frozenset({"matrix", "pmatrix", "bmatrix", "Bmatrix", "smallmatrix"})
_KNOWN = {*_GREEK, *(name.title() for name in _GREEK), *CONSTANTS, *_FUNCTIONS, *_OTHERS, *_MATRICES}
_DIGITS = r"(?:\d{1,3}(?:,\d{3})+(?!\d)|\d+)(?:\.\d+|\.(?![\d.]))?|\.\d+"
_TEN = r"\s*(?:\*|\\times|\\cdot)\s*10\s*(?:\^|\*\*)\s*(?:\{\s*([-+]?\d+)\s*\}|([-+]?\d+))"
_NUMBER = re.compile(rf"({_DIGITS})(?:[eE]([-+]?\d+)|{_TEN})?|(\d*)\.(\d*)\\overline\s*\{{(\d+)\}}")
_REPEATING = r"\d*\.\d*\\overline\s*\{\d+\}"
_TOKEN = re.compile(rf"\s*(?P<number>{_REPEATING}|{_NUMBER.pattern})|\s*\\(?P<command>[A-Za-z]+|\S)|\s*(?P<word>@?[A-Za-z]+\d*)|\s*(?P<sign>\*\*|[<>!:=]=|\S)")
_UPRIGHT = re.compile(r"\\(?:text(?:bf|it|rm|normal)?|mathrm|mathbf|mathit|mbox|operatorname|boldsymbol)\s*\{([^{}]*)\}")
_SPACING = re.compile(r"\\(?:left|right)\s*\.?(?![A-Za-z])|\\(?:[,;:! ]|q?quad(?![a-z])|thinspace|displaystyle|[bB]igg?[lr]?(?![a-z]))|~")


def boxed(text: str) -> str:
    r"""The content of the last ``\boxed{}`` of a text; empty without one."""
    start = text.rfind("\\boxed{")
    if start < 0:
        return ""
    depth = 0
    for end in range(start + len("\\boxed"), len(text)):
        depth += {"{": 1, "}": -1}.get(text[end], 0)
        if depth == 0:
            return text[start + len("\\boxed{") : end].strip()
    return ""


def plain(text: str) -> str:
    r"""An answer without what only dresses it: ``\boxed{}``, marks of Markdown and of formulas, invisible signs, a full stop."""
    text = boxed(text) or text
    text = "".join(c for c in text if unicodedata.category(c) != "Cf").replace("`", " ").strip()
    for mark in (r"\*\*\*", r"\*\*", r"\*", "__", "_"):
        text = re.sub(rf"(?<![^\s(]){mark}(?![\s*_])(.+?)(?<![\s*_]){mark}(?=[\s.,:;!?)]|\Z)", r"\1", text)
    text = re.sub(r"\\[\[\]()]|\$\$", " ", text)
    text = re.sub(r"(?<!\\)\$((?:[^$\\]|\\.)*)\$", r" \1 ", text)
    text = re.sub(r"\\?\$\s*([-+]?[\d.,]*\d)", r"\1 dollars ", text.strip())
    return re.sub(r"(?<![.\s])\s*[.,;]\Z", "", " ".join(text.split()))


def read(text: str) -> Term:
    """Reads a plain answer."""
    text = wording.unframed(text)
    try:
        if (value := wording.number(text)) is not None:
            return Term("number", (Fraction(value), None))
        if len(text) > MAX_CHARS or (re.fullmatch("[A-Za-z]{2,}", text) and text not in _KNOWN):
            raise Unreadable(text)
        return _Parser(_tokens(_simplified(text))).whole()
    except (Unreadable, ZeroDivisionError):
        return Term("text", ("".join(_SPACING.sub(" ", _UPRIGHT.sub(r"\1", text)).split()).casefold(),))


def _simplified(text: str) -> str:
    """The same in fewer signs: upright words marked by ``@``, unicode's signs as ASCII's, without LaTeX's spaces."""

    def script(match: re.Match) -> str:
        kind = "_" if "<sub>" in unicodedata.decomposition(match[0][0]) else "^"
        return f"{kind}{{{unicodedata.normalize('NFKC', match[0]).translate(_SIGNS)}}}"

    def fraction(match: re.Match) -> str:
        return f" {unicodedata.normalize('NFKC', match[0]).translate(_SIGNS)} "

    def greek(match: re.Match) -> str:
        name = unicodedata.name(match[0]).split()
        return f" {name[-1].title() if 'CAPITAL' in name else name[-1].lower()} " if name[-1].lower() in _GREEK else match[0]

    text = re.sub("[⁰¹²³⁴-⁹⁺⁻ⁿ]+|[₀-₉]+", script, text)
    text = re.sub("[¼-¾⅐-⅞]", fraction, text).translate(_SIGNS)
    text = re.sub("[α-ωΑ-Ω]", greek, unicodedata.normalize("NFKC", text).translate(_SIGNS))
    text = re.sub(r"(?<=\d)(?:\\!|\{,\}|,(?=\\!)|\\,(?=\d{3}))(?:\\!|\s)*(?=\d)", ",", text)
    text = _UPRIGHT.sub(lambda match: " " + re.sub("[A-Za-z]+", r"@\g<0>", match[1]) + " ", text)
    text = re.sub(r"\b(?:sympy|c?math|np|numpy|sp|mpmath|S)\.(?=[A-Za-z])|\\mathbb(?=\{R\})", "", _SPACING.sub(" ", text))
    text = re.sub(r"\^\s*(?:\{\s*(\\circ|\\prime)\s*\}|(\\circ|\\prime|°))", r"\1\2", text.replace("Interval.", "Interval"))
    text = re.sub(r"(?<=\()(['\"])([-+.\w/]+)\1(?=\))|^(['\"])(.*)\3$", r"\2\4", text.strip())
    text = re.sub(r"(?<=[\])])\s*U\s*(?=[\[(])", "∪", re.sub(r"(?<=\))\s*([|&])\s*(?=\()", lambda m: "∪∩"["|&".index(m[1])], text))
    text = re.sub(r"(?<=\d)j\b", "*I", re.sub(r"(?<=\d )m/s\b", "@m/@s", text))
    return re.sub(r",?\s*@?\b(?:and|or)\b\s*", ", ", text.replace("{R}", " Reals "))


def _tokens(text: str) -> list[str]:
    """Numbers, names and signs. Any other word of up to three letters is as many factors (``xy``)."""
    found: list[str] = []
    for match in _TOKEN.finditer(text.rstrip()):
        number, command, word, sign = match["number"], match["command"], match["word"], match["sign"]
        if command and command not in _COMMANDS and command not in _KNOWN:
            raise Unreadable(text)
        if word and (power := re.fullmatch(r"(@?[A-Za-z]+)([23])", word)) and wording.is_unit(power[1]):
            found += [power[1], "^", power[2]]
            continue
        token = (number or (_COMMANDS.get(command, command) if command else word) or sign).strip()
        if word and not wording.known(word) and word.lstrip("@") not in _KNOWN:
            if not (letters := re.fullmatch(r"@?([A-Za-z]\d*)|([A-Za-z]{2,3}\d*)", word)):
                raise Unreadable(text)
            found += re.findall(r"[A-Za-z]\d*", word)
        else:
            found.append(token if wording.known(token) else token.lstrip("@"))
    return found


def _number(text: str) -> Term:
    match = _NUMBER.fullmatch(text)
    if match is None:
        raise Unreadable(text)
    digits, *tens, whole, fixed, again = match.groups()
    if again:
        value = Fraction(int(f"0{whole}{fixed}{again}") - int(f"0{whole}{fixed}"), 10 ** len(fixed) * (10 ** len(again) - 1))
        return Term("number", (value, None))
    digits, ten = digits.replace(",", ""), int(next(filter(None, tens), "0"))
    if abs(ten) > MAX_EXPONENT:
        raise Unreadable(text)
    return Term("number", (Fraction(digits) * Fraction(10) ** ten, len(digits.partition(".")[2]) - ten if "." in digits else None))


def _integer(term: Term) -> int | None:
    return term.args[0].numerator if term.head == "number" and term.args[1] is None and term.args[0].denominator == 1 else None


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
        if self._next in signs and self._next:
            self._at += 1
            return self._tokens[self._at - 1]
        return ""

    def _expect(self, *signs: str) -> str:
        if not (found := self._take(*signs)):
            raise Unreadable(f"{self._next!r} where {signs} is needed")
        return found

    def whole(self) -> Term:
        items = self._items()
        if self._next:
            raise Unreadable(self._next)
        return items[0] if len(items) == 1 else Term(",", tuple(items))

    def _items(self, *closing: str) -> list[Term]:
        found: list[Term] = []
        while self._next not in closing or not closing:
            found.append(self._relation())
            if not self._take(",", ";"):
                break
            self._take(",")
        return found

    def _relation(self) -> Term:
        found: list[Any] = [self._measured(self._union())]
        while self._next in _RELATIONS:
            found += [_RELATIONS[self._take(self._next)], self._measured(self._union())]
        if len(found) > 1:
            return Term("relation", tuple(found))
        while self._take(":"):
            found.append(self._union())
        ratio = tuple(Term("/", (part, found[-1])) for part in found[:-1])
        return found[0] if not ratio else ratio[0] if len(ratio) == 1 else Term("()", ratio)

    def _union(self) -> Term:
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
        while True:
            if self._next == "/" and self._unit_at(self._at + 1):
                return found
            if sign := self._take("*", "/"):
                found = Term(sign, (found, self._factor()))
            elif self._begins():
                found = Term("*", (found, self._power()))
            else:
                return found

    def _begins(self) -> bool:
        """Whether a factor may begin here with no sign before it: no number may but after brackets, so that ``5 18`` is none."""
        token = self._next
        if token[:1].isalpha():
            return token not in ("end", "rfloor", "rceil") and (not wording.known(token) or self._is_function())
        if token[:1].isdigit():
            return self._tokens[self._at - 1] == ")"
        return token in ("(", "{", "√", "∛") or (token == "|" and not self._in_bars)

    def _factor(self) -> Term:
        self._depth += 1
        if self._depth > MAX_DEPTH:
            raise Unreadable("nested too deeply")
        if sign := self._take("-", "+", "±", "∓"):
            of = self._factor()
            if sign == "-" and of.head == "number":
                found = Term("number", (-of.args[0], of.args[1]))
            else:
                found = of if sign == "+" else Term(sign, (Term("number", (Fraction(0), None)), of))
        else:
            found = self._power()
        self._depth -= 1
        return found

    def _power(self) -> Term:
        found = self._atom()
        while sign := self._take("!", "%", "°"):
            found = Term({"!": "factorial"}.get(sign, sign), (found,))
        return Term("^", (found, self._factor())) if self._take("^", "**") else found

    def _atom(self) -> Term:
        token = self._next
        if token[:1].isdigit() or (token[:1] == "." and len(token) > 1):
            return self._numeral()
        self._at += 1
        if token in ("(", "[", "{"):
            return self._group(token)
        if token == "|":
            self._in_bars, outside = True, self._in_bars
            found = Term("abs", (self._sum(),))
            self._expect("|")
            self._in_bars = outside
            return found
        if token in ("√", "∛"):
            return Term({"√": "sqrt", "∛": "cbrt"}[token], (self._atom(),))
        if re.fullmatch("@[A-Za-z]", token) or (token[:1].isalpha() and (not wording.known(token) or token in _FUNCTIONS)):
            return self._named(token.lstrip("@"))
        raise Unreadable(f"{token!r} begins nothing")

    def _numeral(self) -> Term:
        """A number; also a mixed one (``1 1/4``) and one in another base (``2516_8``)."""
        found = _number(self._tokens[self._at])
        self._at += 1
        if self._take("_"):
            return Term("unit", (found, f"base {self._script()}"))
        start, whole = self._at, _integer(found)
        if whole is None or not (self._next.isdigit() and self._tokens[self._at + 1] == "/" or self._next == "frac"):
            return found
        above, below = (self._argument(), self._argument()) if self._take("frac") else (self._atom(), self._expect("/") and self._atom())
        upper, lower = _integer(above), _integer(below)
        if upper is not None and lower is not None and 0 < upper < lower:
            return Term("+", (found, Term("/", (above, below))))
        self._at = start
        return found

    def _group(self, opening: str) -> Term:
        self._in_bars, outside = False, self._in_bars
        ahead = self._tokens[self._at : self._at + 2]
        if opening == "{" and ahead[0].isalpha() and ahead[1] in ("|", "∈") and "|" in self._tokens[self._at :]:  # {x | 0 < x}
            self._at = self._tokens.index("|", self._at) + 1
        if opening == "{" and ahead[1] == ":":  # {x: 1, y: 2}
            self._tokens[self._at :] = ["=" if token == ":" else token for token in self._tokens[self._at :]]
        closing = ("}",) if opening == "{" else (")", "]")
        items = self._items(*closing)
        bare = len(items) == 1 and opening != "[" and self._tokens[self._at - 1] != ","
        sign = self._expect(*closing)
        self._in_bars = outside
        return items[0] if bare else Term(opening + sign, tuple(items))

    def _argument(self) -> Term:
        """What a command of LaTeX is applied to: a group, or one digit or letter."""
        if self._next.isdigit() and len(self._next) > 1:
            digit, self._tokens[self._at] = self._next[0], self._next[1:]
            return _number(digit)
        return self._atom()

    def _script(self) -> str:
        """An index as it is written."""
        if self._next and not self._take("{"):
            self._at += 1
            return self._tokens[self._at - 1]
        start = self._at
        while self._next and self._next != "}":
            self._at += 1
        self._expect("}")
        return "".join(self._tokens[start : self._at - 1])

    def _named(self, name: str) -> Term:
        if name in ("frac", "binom"):
            return Term({"frac": "/", "binom": "binomial"}[name], (self._argument(), self._argument()))
        if name in ("lfloor", "lceil"):
            found = Term({"lfloor": "floor", "lceil": "ceil"}[name], (self._sum(),))
            self._expect(f"r{name[1:]}")
            return found
        if name == "begin":
            return self._matrix()
        if name == "EmptySet":
            return Term("{}", ())
        if name in _FUNCTIONS:
            return self._applied(_FUNCTIONS[name])
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
        power = None
        if function == "sqrt" and self._take("["):
            index = (self._sum(),)
            self._expect("]")
        if self._take("_"):
            index = (self._argument(),)
        if self._take("^"):
            power = self._factor()
        if self._take("("):
            self._at -= 1
            self._tokens[self._at] = "["  # so that one argument stays a list of one
            self._at += 1
            found = self._group("[")
            args = found.args
        elif self._next == "{":
            found = self._atom()
            args = found.args if found.head == "{}" else (found,)
        elif function == "sqrt":
            args = (self._atom(),)
        else:
            found = self._factor()
            while self._begins() and self._next not in _FUNCTIONS:
                found = Term("*", (found, self._power()))
            args = (found,)
        if power is not None and _integer(power) == -1 and function in _TRIGONOMETRIC:
            function, power = f"a{function}", None
        found = _made(function, args + index)
        return found if power is None else Term("^", (found, power))

    def _matrix(self) -> Term:
        kind, rows = self._script(), [[]]
        while (sign := self._next) != "end":
            rows[-1].append(self._sum())
            if (sign := self._expect("&", "\\", "end")) != "&":
                rows.append([])
            if sign == "end":
                self._at -= 1
        self._at += 1
        if self._script() != kind or kind not in _MATRICES:
            raise Unreadable(kind)
        return Term("matrix", tuple(Term("[]", tuple(row)) for row in rows if row))

    def _measured(self, value: Term) -> Term:
        """With the unit, or what is counted, that follows."""
        unit: list[str] = []
        while token := self._next:
            if unit and token == "/" and len(self._tokens[self._at + 1]) == 1:  # km/h
                self._tokens[self._at + 1] = f"@{self._tokens[self._at + 1]}"
            if times := wording.MULTIPLES.get(token.lstrip("@")):
                value = Term("*", (value, Term("number", (Fraction(times), None))))
            elif self._unit_at(self._at):
                unit.append(wording.unit(token))
            elif unit and token in ("^", "**"):
                self._at += 1
                unit.append(f"^{self._script()}")
                continue
            elif token.lstrip("@") in ("/", "per", "of") and self._unit_at(self._at + 1):
                unit += ["/"] * (token.lstrip("@") != "of")
            else:
                break
            self._at += 1
        name = " ".join(sorted(filter(None, unit)))
        return Term("unit", (value, name)) if unit else value

    def _is_function(self) -> bool:
        return self._next in _FUNCTIONS and self._tokens[self._at + 1] in ("(", "{", "^", "_")

    def _unit_at(self, at: int) -> bool:
        return wording.is_unit(self._tokens[at])


def _made(function: str, args: tuple[Term, ...]) -> Term:
    """What a function of LaTeX, Python or sympy makes."""
    if not args:
        return Term("{}", ())
    if function in ("same", "/", "()", "∪", "∩") and len(args) == 1 or function == "log" and len(args) > 2:
        return args[0]
    if function in ("∪", "∩"):
        return Term(function, (args[0], _made(function, args[1:])))
    if function in _RELATIONS:
        return Term("relation", (args[0], _RELATIONS[function], args[1]))
    if function == "sqrt" and len(args) == 2:
        function = "root"
    if function == "matrix":
        rows = args[0].args if len(args) == 1 else ()
        return Term("matrix", tuple(row if row.head == "[]" else Term("[]", (row,)) for row in rows))
    if function == "[]" and len(args) in (2, 4):
        left, right = (Term("name", ("oo",)) in (end, *end.args) or is_open.args == ("True",) for end, is_open in zip(args, args[2:] or args, strict=False))
        return Term(f"{'[('[left]}{'])'[right]}", args[:2])
    return Term(function, args)
