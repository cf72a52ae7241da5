"""The expert: it knows which facts a question hangs on, looks each of them up, and answers."""

import random

from env_servers.base import ExpertStep
from env_servers.retrieval.world import Fact, World
from env_servers.searchqa.questions import Question, number

FIRST = (
    "I need {noun}. I look up {subject}.",
    "To answer this I have to find {noun}, so I search for {subject}.",
    "The question is about {subject}. I look for {noun}.",
)
DESCRIBED = (
    "I do not know yet what is meant by {noun}. I look up {subject} first.",
    "Before anything else I need {noun}, so I search for {subject}.",
    "{noun} comes first: I look up {subject}.",
)
FOUND = (
    "{known} is {phrase}. Now I need {noun}.",
    "I found {known}: {phrase}. The next thing to look up is {noun}.",
)
OTHER = (
    "{known}: {phrase}. For the comparison I also need {noun}.",
    "I have {known}: {phrase}. Now {noun}.",
)
DONE = (
    "I found {noun}: {phrase}. That is the answer.",
    "Now I know {noun}: {phrase}.",
)


COMPARED = (
    "Both numbers are known. I have Python compare them.",
    "I have both numbers now and let Python say which one it is.",
)


def demonstrate(question: Question, *, python: bool = False) -> list[ExpertStep] | None:
    """Searches and the answer, or None for a question whose facts are not known.

    Args:
        python: Numbers are compared by code.
    """
    if not question.facts:
        return None
    rng = random.Random(f"expert/{question.id}")
    chained = dict(question.labels)["type"] == "bridge"
    first, *rest = question.facts
    steps = [_look_up(rng.choice(DESCRIBED if chained else FIRST), first)]
    for known, fact in zip(question.facts, rest, strict=False):
        steps.append(_look_up(rng.choice(FOUND if chained else OTHER), fact, known))
    conclusion = _conclusion(question, rng)
    if python and (code := _comparison(question)):
        steps.append(ExpertStep(rng.choice(COMPARED), f"python: {code}"))
    return [*steps, ExpertStep(conclusion, f"answer: {question.answers[0]}")]


def _comparison(question: Question) -> str:
    """Code that finds which of two things has the larger or the smaller number; empty for a question that does not ask
    this."""
    right = [fact for fact in question.facts if fact.subject == question.answers[0]]
    others = [fact for fact in question.facts if fact.subject != question.answers[0]]
    if dict(question.labels)["type"] != "comparison" or not right:
        return ""
    numbers = {_said(fact): number(fact) for fact in question.facts}
    extreme = "max" if number(right[0]) > number(others[0]) else "min"
    return f"numbers = {numbers}\nprint({extreme}(numbers, key=numbers.get))"


def _look_up(thought: str, fact: Fact, known: Fact | None = None) -> ExpertStep:
    values = {"noun": _noun(fact), "subject": _said(fact)}
    if known is not None:
        values |= {"known": _noun(known), "phrase": known.phrase}
    return ExpertStep(_sentence(thought.format(**values)), f"search: {fact.subject}")


def _conclusion(question: Question, rng: random.Random) -> str:
    *_, before, last = (None, *question.facts)
    if before is None or dict(question.labels)["type"] == "bridge":
        return _sentence(rng.choice(DONE).format(noun=_noun(last), phrase=last.phrase))
    both = f"{_said(before)}: {before.phrase}; {_said(last)}: {last.phrase}."
    closing = {"yes": "They are the same.", "no": "They are not the same."}
    return _sentence(f"{both} {closing.get(question.answers[0], f'So the answer is {question.answers[0]}.')}")


def _said(fact: Fact) -> str:
    return World.fiction().entities[fact.subject].said


def _noun(fact: Fact) -> str:
    return fact.relation.noun.format(x=_said(fact))


def _sentence(text: str) -> str:
    return text[0].upper() + text[1:]
