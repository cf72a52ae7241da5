r"""Grades answers: an answer is right if it means what the gold answer means (`reading.py`).

- Exact values are equal exactly; expressions, wherever both are defined over the reals, or over the complex numbers
  where ``i`` occurs.
- With a decimal on either side, values are equal within 1e-6 of the gold one; where the gold is a decimal, also if the
  answer, rounded to its digits, is the gold (below 0.1 that takes two digits: 0.0001 is not 0.00012). Only zero equals
  zero. An answer ``2.0`` is exactly 2.
- A unit, or what is counted, may be left out or added; two that differ are two answers. 50 %, 50 and 0.5 are one; so it
  is with degrees.
- ``(1, 2)`` has an order, ``\{1, 2\}`` and ``1, 2`` have none; ``1, 2`` may come as Python's list, set or tuple. A name
  before a value (``x = 27``) may be left out or added. ``0 < x < 1``, ``Interval.open(0, 1)`` and ``(0, 1)`` are one.
"""

import re
import threading
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

from env_servers.mathtool.reading import MAX_CHARS, Term, read
from env_servers.mathtool.signs import CONSTANTS, plain
from env_servers.mathtool.values import TooMuch, Values, names, terms

_BRACKETS = frozenset(a + b for a in "([" for b in ")]") | {"{}", ","}
#: A unit of one letter, which elsewhere is a factor; and a gold answer ``B. 13``, for which its letter will do.
_LETTER_UNIT = re.compile(r"(?<=\d) ([mgshlLJNWVACFK])\Z")
_CHOICE = re.compile(r"([A-Z])\s?[.:)]\s*(.+)")
_INFINITE = Term("name", ("oo",))
_LOWEST = Term("-", (read("0"), _INFINITE))
_REALS = Term("name", ("Reals",))
_LOCK = threading.RLock()

#: The ends of an interval, and whether each belongs to it.
_Interval = tuple[Term, bool, Term, bool]


@lru_cache(maxsize=4096)
def correct(answer: str, gold: str) -> bool:
    """Checks whether an answer is right. It takes a bounded time, whatever the answer is."""
    given, wanted = plain(answer), plain(gold)
    if not given or given == wanted:
        return bool(given)
    if choice := _CHOICE.fullmatch(wanted):
        return correct(answer, choice[1]) or correct(answer, choice[2])
    meant = read(wanted)
    if meant.head == "number":
        given = _LETTER_UNIT.sub(r" \\mathrm{\1}", given)
    with _LOCK:  # mpmath's contexts are not for several threads
        try:
            return len(given) <= MAX_CHARS and _Judge().equal(meant, read(given))
        except (TooMuch, RecursionError):
            return False


class _Judge:
    """One comparison."""

    def __init__(self) -> None:
        self._values = Values()

    def equal(self, gold: Term, answer: Term) -> bool:
        """Whether two terms mean the same."""
        gold, answer = _opened(gold), _opened(answer)
        heads = {gold.head, answer.head}
        if gold == answer or "text" in heads:
            return gold == answer
        if "relation" in heads and (found := self._related(gold, answer)) is not None:
            return found
        if heads & {"relation", "∪", "∩"} or _REALS in (gold, answer):
            one, other = _region(gold), _region(answer)
            return one is not None and other is not None and self._matched(one, other, self._same_interval)
        if heads & {"unit", "%", "°"}:
            return self._same_quantities(gold, answer)
        if "matrix" in heads:
            return len(gold.args) == len(answer.args) and all(map(self.equal, gold.args, answer.args))
        if heads & _BRACKETS:
            return heads <= _BRACKETS and self._same_lists(gold, answer)
        return self._values.equal(gold, answer)

    def _related(self, gold: Term, answer: Term) -> bool | None:
        """Compares equations, inequalities and named values; None if they are none."""
        (label, value), (label2, value2) = self._labelled(gold), self._labelled(answer)
        if gold.head == answer.head and len(gold.args) == len(answer.args) == 3:
            (left, sign, right), (left2, sign2, right2) = _turned(gold), _turned(answer)
            differences = Term("-", (left, right)), Term("-", (left2, right2))
            if sign == sign2 and self._values.proportional(*differences, positive=sign[0] == "<"):
                return True
        if (value, value2) == (gold, answer):
            return None
        return (not label or not label2 or label == label2) and self.equal(value, value2)

    def _labelled(self, term: Term) -> tuple[Term | None, Term]:
        """The name of a value, and the value; of anything else no name, and itself."""
        if term.head != "relation" or set(term.args[1::2]) != {"="}:
            return None, term
        sides: Sequence[Term] = term.args[::2]
        if len(sides) == 2 and not _is_label(sides[0]):
            sides = sides[::-1] if _is_label(sides[1]) else sides
        label, values = (sides[0], sides[1:]) if _is_label(sides[0]) else (None, sides)
        if (label or not names(*values)) and all(self.equal(values[-1], other) for other in values[:-1]):
            return label, values[-1]
        return None, term

    def _same_interval(self, gold: _Interval, answer: _Interval) -> bool:
        return gold[1::2] == answer[1::2] and self.equal(gold[0], answer[0]) and self.equal(gold[2], answer[2])

    def _same_lists(self, gold: Term, answer: Term) -> bool:
        kinds = (gold.head, answer.head)
        many = len(gold.args) > 2  # two in round or square brackets may be an interval
        labels = {self._labelled(item)[0] for item in gold.args}
        in_order = kinds == ("()", ",") or (many and kinds in (("[]", ","), ("[]", "()"), ("()", "[]")))
        if (
            in_order
            or (kinds[0] == kinds[1] and kinds[0] not in ("{}", ","))
            or (len(labels) > 1 and kinds[1] in ("()", "[]"))
        ):
            return len(gold.args) == len(answer.args) and all(map(self.equal, gold.args, answer.args))
        free = kinds[0] == "," or (kinds[0] == "{}" and kinds[1] in ("{}", ",", "[]"))
        return free and self._matched(gold.args, answer.args, self.equal)

    def _matched(self, gold: Sequence, answer: Sequence, same: Callable[[Any, Any], bool]) -> bool:
        """Whether each has its own equal on the other side, in any order."""
        left = list(answer)
        for item in gold if len(gold) == len(answer) else ():
            if (at := next((n for n, other in enumerate(left) if same(item, other)), None)) is None:
                return False
            del left[at]
        return len(gold) == len(answer)

    def _same_quantities(self, gold: Term, answer: Term) -> bool:
        (value, unit), (value2, unit2) = _quantity(gold), _quantity(answer)
        if unit and unit2 and unit != unit2:
            return False
        scaled = [Term(u, (v,)) if u in ("%", "°") else v for v, u in ((value, unit), (value2, unit2))]
        return self.equal(value, value2) or (scaled != [value, value2] and self._values.equal(*scaled))


def _opened(term: Term) -> Term:
    """A term with ± as a list of both, and a list of one as what is in it."""
    if term.head in ("{}", ","):
        term = Term(term.head, tuple(one for item in term.args for one in _both(item)))
    elif len(both := _both(term)) > 1:
        return Term(",", tuple(both))
    return _opened(term.args[0]) if term.head in _BRACKETS and len(term.args) == 1 else term


def _both(term: Term) -> list[Term]:
    def signed(term: Term, plus: bool) -> Term:
        head = {"±": "-+", "∓": "+-"}[term.head][plus] if term.head in ("±", "∓") else term.head
        return Term(head, tuple(signed(arg, plus) if isinstance(arg, Term) else arg for arg in term.args))

    return [signed(term, plus) for plus in (True, False)] if any(t.head in ("±", "∓") for t in terms(term)) else [term]


def _is_label(term: Term) -> bool:
    """Whether it names a value: ``x``, ``f(x)``, ``AB``, ``P(A)``, ``(x, y)``."""
    if term.head == "name":
        return term.args[0] not in CONSTANTS.values()
    if term.head == "*":
        return all(
            _is_label(t) and (t.head != "name" or t.args[0][0].isupper() or t.args[0] in ("angle", "triangle"))
            for t in term.args
        )
    return (term.head.endswith("()") or term.head == "abs") and bool(term.args) and all(map(_is_label, term.args))


def _quantity(term: Term) -> tuple[Term, str]:
    return (
        (term.args[0], term.args[1] if term.head == "unit" else term.head)
        if term.head in ("unit", "%", "°")
        else (term, "")
    )


def _turned(term: Term) -> tuple[Term, str, Term]:
    left, sign, right = term.args
    return (right, sign.replace(">", "<"), left) if sign[0] == ">" else (left, sign, right)


def _region(term: Term) -> list[_Interval] | None:
    """The intervals of a set of real numbers; None if it is no such set."""
    if term.head in ("∪", "∩"):
        one, other = map(_region, term.args)
        if one is None or other is None or term.head == "∪":
            return None if one is None or other is None else one + other
        (low,), (high,) = (
            sorted((one, other), key=lambda part: part[0][0] == _LOWEST)[:2]
            if len(one) == len(other) == 1
            else ([None], [None])
        )
        return (
            [(low[0], low[1], high[2], high[3])] if low and high and (low[2], high[0]) == (_INFINITE, _LOWEST) else None
        )
    if term.head in _BRACKETS - {"{}", ","} and len(term.args) == 2:
        return [(term.args[0], term.head[0] == "[", term.args[1], term.head[1] == "]")]
    if term.head in ("{}", "number"):
        return [(item, True, item, True) for item in (term.args if term.head == "{}" else (term,))]
    if term == _REALS:
        return [(_LOWEST, False, _INFINITE, False)]
    if term.head != "relation":
        return None
    sides, signs = term.args[::2], term.args[1::2]
    if set(signs) <= {">", ">="}:
        sides, signs = sides[::-1], [sign.replace(">", "<") for sign in signs[::-1]]
    if len(sides) == 2 and not set(signs) - {"<", "<=", "!="} and any(map(_is_label, sides)):
        at = [_is_label(side) for side in sides].index(True)
        end, closed = sides[1 - at], signs[0] == "<="
        below, above = (_LOWEST, False, end, closed), (end, closed, _INFINITE, False)
        return [below, above] if signs[0] == "!=" else [above if at else below]
    if len(sides) == 3 and set(signs) <= {"<", "<="} and _is_label(sides[1]):
        return [(sides[0], signs[0] == "<=", sides[2], signs[1] == "<=")]
    return None
