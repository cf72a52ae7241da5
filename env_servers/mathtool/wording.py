"""English around a value: what leads to it, numbers in words, units, what is counted.
All is listed: any other word is left over."""

import re
from functools import cache
from pathlib import Path

#: Words that may lead to a value, and those of them after which one may stand. Nothing here changes what the value is.
_LINKS = frozenset(
    "is are was were be equals get gets got have has had gives give makes obtain obtained so thus hence therefore then "
    "about approximately exactly roughly answer".split()
)
_LEADS = _LINKS | set(
    """the a an and final correct right result value solution total number amount sum product count area perimeter
    volume length width height radius distance speed time cost price probability ratio percentage average mean median
    remainder quotient minimum maximum smallest largest least greatest possible exact overall combined of for in it we i
    there equal which that this required desired all our my his her their its they he she will you can how many
    much""".split()
)
_STEP = re.compile(r"([A-Za-z]+(?:'s)?)(,?\s+|\s*[:=]\s*)(?=\S)")
_AFTER = re.compile(
    r"\s*,?\s+(?:is|are) (?:the|my|our) (?:final |correct |right )*(?:answers?|result|solution)\Z", re.IGNORECASE
)
_AGAIN = re.compile(r"(.*\d)\s*\(([A-Za-z][A-Za-z -]+)\)|([A-Za-z][A-Za-z -]+?)\s*\((\d+)\)")
_ONES = """zero one two three four five six seven eight nine ten
    eleven twelve thirteen fourteen fifteen sixteen seventeen eighteen nineteen""".split()
_TENS = "twenty thirty forty fifty sixty seventy eighty ninety".split()
_WORDS = {**{word: n for n, word in enumerate(_ONES)}, **{word: 10 * n for n, word in enumerate(_TENS, 2)}}
_POWERS = {"hundred": 100, "thousand": 10**3, "million": 10**6, "billion": 10**9, "trillion": 10**12}
#: What follows a number and multiplies it.
MULTIPLES = {word + end: times for word, times in {**_POWERS, "dozen": 12}.items() for end in ("", "s")}


def unframed(text: str) -> str:
    """A plain answer without the words that lead to it, and without its repetition in words, ``42 (forty-two)``."""
    text = re.sub(r"\bequal to\b", "equals", _AFTER.sub("", text))
    at = value = 0
    while (step := _STEP.match(text, at)) and (
        len(word := step[1].lower()) == 1 or word in _LEADS or word in _units()[1]
    ):
        at = step.end()
        if word in _LINKS or (len(word) > 1 and not step[2].isspace() and "," not in step[2]):
            value = at
    text = text[value:]
    if (again := _AGAIN.fullmatch(text)) and (said := number(again[2] or again[3])) is not None:
        digits = again[1] or again[4]
        return digits if digits.replace(",", "") == str(said) else text
    one = re.fullmatch(r"1 ([a-z]+)", text)
    return f"{text}s" if one and is_unit(f"{one[1]}s") else text


def number(text: str) -> int | None:
    """The number that English words say; None if they say none."""
    total = part = 0
    words = re.split(r"[\s-]+", text.lower().replace(" and ", " "))
    for word in words:
        if word in _WORDS:
            if part % 100 and not (part % 100 >= 20 and part % 10 == 0 and 0 < _WORDS[word] < 10):
                return None
            part += _WORDS[word]
        elif word == "hundred" and 0 < part < 10:
            part *= 100
        elif word in _POWERS and word != "hundred" and part:
            total, part = total + part * _POWERS[word], 0
        else:
            return None
    return total + part


@cache
def _units() -> tuple[dict[str, str], dict[str, str]]:
    """Units of measure, and things that are counted; each as it is written, with the one name for it."""
    lines = (Path(__file__).parent / "units.txt").read_text(encoding="utf-8").splitlines()
    names = [unit.split() for line in lines if line.startswith("= ") for unit in line[2:].split(",")]
    counted = {word: word for line in lines if line.startswith("- ") for word in line[2:].split()}
    adjectives = {word: "" for line in lines if line.startswith("-- ") for word in line[3:].split()}
    return {word: name[0] for name in names for word in name}, counted | adjectives


def is_unit(word: str) -> bool:
    """Whether a word is a unit, a counted thing, or one of the adjectives that go with them.
    ``@`` marks an upright word of LaTeX."""
    measures, counted = _units()
    return word in measures or (bare := word.lstrip("@")) in counted or (bare != word and (bare in measures))


def unit(word: str) -> str:
    """The one name of a unit; empty for an adjective."""
    measures, counted = _units()
    return measures.get(word) or measures.get(word.lstrip("@")) or counted.get(word.lstrip("@"), "")


def known(word: str) -> bool:
    """Whether a word is part of a unit."""
    return is_unit(word) or word.lstrip("@") in (*MULTIPLES, "per", "of")
