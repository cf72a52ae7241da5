"""Grades answers: numbers and equal texts at once, all others by math-verify in the sandbox.

The whole answer counts. Words around a value may be there (``The answer is 27``, ``27 apples``, ``x = 27``); a second value, a denial or a
factor makes it another answer (``28, 27``, ``not 27``, ``27x``). That is between the published ways: Hendrycks' comparison of texts, which
takes no words, and a model that judges.

math-verify parses LaTeX, which may take for ever on what an agent writes, or run what sympy makes of it: hence the sandbox.
"""

from __future__ import annotations

import re
from fractions import Fraction
from functools import lru_cache

from env_servers.boxed import boxed
from env_servers.sandbox import Sandbox, Status

#: Longer answers are wrong: a text that holds every number holds the right one, too.
MAX_ANSWER_CHARS = 400
#: Imported once by the sandbox; the check makes math-verify build its parser.
SETUP = "import math_verify\nmath_verify.verify(math_verify.parse('$\\\\frac12$'), math_verify.parse('$0.5$'))\n"
PACKAGES = ("math-verify", "latex2sympy2_extended", "antlr4-python3-runtime")
_CHECK = """
from math_verify import parse, verify
gold, answer = {gold!r}, {answer!r}
if not verify(parse(f"${{gold}}$"), parse(f"${{answer}}$")):  # as one formula: of a text, math-verify takes the last number
    raise SystemExit(1)
"""
_NUMBER = re.compile(r"([-+]?)(\d+|\d{1,3}(?:,\d{3})+)?(\.\d+)?")
_FRACTION = re.compile(r"(.+)/(.+)|(-?)\\[dt]?frac\{(.+)\}\{(.+)\}")
#: Words that lead to a value and say nothing about it.
_LEAD = re.compile(
    r"(?:(?:so|thus|hence|therefore|then|the|final|answer|result|value|total|is|are|it|we|get|have|there|equals|which|about|approximately)"
    r"[,:]?\s+)+(?=\S)",
    re.IGNORECASE,
)
#: What may follow a number: a unit, or what is counted. Not what changes it.
_UNIT = re.compile(
    r"(?:(?!(?:or|and|minus|plus|times|percent|hundred|thousand|million|billion|trillion|dozen|half|pi|mod|factorial|squared|cubed)\b)"
    r"[a-z]{2,}(?:/[a-z]+)?(?:\^?[23])?[,.]?(?:\s+|\Z)){1,6}",
    re.IGNORECASE,
)
_DENIAL = re.compile(r"\b(?:not|never|neither|nor|cannot)\b|n['’]t\b", re.IGNORECASE)
#: Numbers that agree to so many decimals are equal, as in math-verify.
_DECIMALS = 6


class Grader:
    """Thread-safe; remembers its last judgements."""

    def __init__(self, sandbox: Sandbox) -> None:
        self._sandbox = sandbox
        self._same = lru_cache(maxsize=4096)(self._verified)

    def correct(self, answer: str, gold: str) -> bool:
        """Checks whether an answer is right.

        Raises:
            SandboxFailure: It takes math-verify to say so, and the sandbox does not work.
        """
        answer, gold = plain(answer), plain(gold)
        if answer == gold:
            return True
        if not answer or len(answer) > MAX_ANSWER_CHARS or (_DENIAL.search(answer) and not _DENIAL.search(gold)):
            return False
        answer = bare(answer)
        given, expected = number(answer), number(gold)
        if given is not None and expected is not None:
            return round(given * 10**_DECIMALS) == round(expected * 10**_DECIMALS) and bool(given) is bool(expected)
        return self._same(answer, gold)

    def _verified(self, answer: str, gold: str) -> bool:
        return self._sandbox.run(_CHECK.format(gold=gold, answer=answer)).status is Status.OK


def plain(text: str) -> str:
    r"""An answer without its wrapping: ``\boxed{}``, dollar signs, a full stop, spaces."""
    text = boxed(text) or text
    text = re.sub(r"^\\[(\[]|\\[)\]]$|\\[,;!]|\\text\{\s*\}", "", text.strip())
    return " ".join(text.replace("\\$", "").strip("$").split()).removesuffix(".")


def bare(text: str) -> str:
    """A plain answer without words before it, and a number also without those after it."""
    text = text[lead.end() :] if (lead := _LEAD.match(text)) else text
    value, _, unit = text.partition(" ")
    return value if number(value) is not None and _UNIT.fullmatch(unit) else text


def number(text: str) -> Fraction | None:
    """A plain integer, decimal or fraction, also with commas between the thousands; None for anything else."""
    if match := _NUMBER.fullmatch(text):
        digits = f"{(match[2] or '').replace(',', '')}{match[3] or ''}"
        return Fraction(match[1] + digits) if digits else None
    if match := _FRACTION.fullmatch(text):
        above, below = number((match[1] or match[4]).strip()), number((match[2] or match[5]).strip())
        if above is not None and below:
            return above / below * (-1 if match[3] else 1)
    return None
