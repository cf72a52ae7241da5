"""Actions that make sense: searches for the names in a question and in what was found, and a guess."""

import re
from collections.abc import Sequence

#: Most searches suggested at a time.
MOST = 16
_WORD = r"[A-Z](?:\.|[\w'’-]*)"
_NAME = re.compile(rf"{_WORD}(?: (?:(?:of|of the) )?{_WORD})*")
_SMALL_WORD_BEFORE = re.compile(r"(?:^|\W)[a-z]+,? $")
_ASKING = re.compile(r"(?:What|Which|Who|Whom|Whose|Where|When|Why|How|In|On|At|For|From|Into|Over|With|To) ")
#: Not the number of a passage.
_NUMBER = re.compile(r"(?<![\[\d,])\d[\d,]{0,15}")
_YES_OR_NO = re.compile(r"(?:Is|Are|Was|Were|Do|Does|Did|Has|Have|Had|Can|Could) ")


def suggest(question: str, queries: Sequence[str], texts: Sequence[str], titles: Sequence[str]) -> list[str]:
    """Canonical actions in a fixed order.

    Args:
        queries: The searches so far.
        texts: What the agent read of each.
        titles: Of the passages found, in the order in which they were found.
    """
    closed = _YES_OR_NO.match(question)
    asked = _ASKING.sub("", _YES_OR_NO.sub("", question, count=1), count=1)
    named = _NAME.findall(asked)
    read = _names(texts[-1]) if texts else []
    done = {query.casefold() for query in queries}
    wanted = [
        query for query in dict.fromkeys([question, *named, *read, *titles]) if query and query.casefold() not in done
    ]
    new = [name for name in [*read, *titles] if name and name not in question]
    guesses = ["yes", "no"] if closed else [*new[:1], *named[:1]] or ["unknown"]
    return [*(f"search: {query}" for query in wanted[:MOST]), *(f"answer: {guess}" for guess in dict.fromkeys(guesses))]


def sums(texts: Sequence[str]) -> list[str]:
    """Code that makes something of the numbers that were read last, if there are two of them."""
    numbers = [int(digits.replace(",", "")) for digits in _NUMBER.findall(texts[-1])] if texts else []
    return [f"python: print({numbers[0]} - {numbers[1]})"] if len(numbers) > 1 else []


def _names(text: str) -> list[str]:
    """Spans of capitalised words: at the start of a sentence of two words at least, since there any word has a capital
    letter."""
    return [
        match[0]
        for match in _NAME.finditer(text)
        if " " in match[0] or _SMALL_WORD_BEFORE.search(text[max(0, match.start() - 20) : match.start()])
    ]
