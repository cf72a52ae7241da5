"""Comparing answers: exact match and token F1 over normalised text, as SQuAD and HotpotQA do (Rajpurkar et al. 2016,
Yang et al. 2018)."""

import re
import string
import unicodedata
from collections import Counter
from collections.abc import Iterable

_PUNCTUATION = str.maketrans("", "", string.punctuation)
#: Answers for which a share of common words means nothing.
CLOSED = frozenset({"yes", "no", "noanswer"})


def normalise(text: str) -> str:
    """Lower case, composed, without punctuation, articles and superfluous spaces; what is nothing else (``A``, ``+``)
    keeps those."""
    text = unicodedata.normalize("NFC", text.lower())
    return " ".join(re.sub(r"\b(a|an|the)\b", " ", text.translate(_PUNCTUATION)).split()) or " ".join(text.split())


def exact_match(answer: str, golds: Iterable[str]) -> float:
    """1 if the answer equals one of ``golds`` after normalisation, else 0."""
    given = normalise(answer)
    return float(any(given == normalise(gold) for gold in golds))


def f1(answer: str, golds: Iterable[str]) -> float:
    """Highest F1 in [0, 1] of the answer's words against those of a gold answer."""
    return max((_f1(normalise(answer), normalise(gold)) for gold in golds), default=0.0)


def _f1(given: str, gold: str) -> float:
    if given == gold:
        return 1.0
    if given in CLOSED or gold in CLOSED:
        return 0.0
    words, wanted = given.split(), gold.split()
    common = sum((Counter(words) & Counter(wanted)).values())
    return 2 * common / (len(words) + len(wanted)) if common else 0.0


def final_answer(text: str) -> str:
    r"""Extracts the answer proper: the content of the last ``\boxed{..}``, if there is one, without ``\text{..}``
    around words."""
    start = text.rfind(r"\boxed{")
    if start >= 0:
        start += len(r"\boxed{")
        depth, end = 1, start
        while end < len(text) and depth:
            depth += {"{": 1, "}": -1}.get(text[end], 0)
            end += 1
        text = text[start : end - 1] if not depth else text[start:]
    return re.sub(r"\\text\{([^{}]*)\}", r"\1", text).strip()
