"""Which of the changes drawn in the functions that rules name are noticed by those rules' vectors.

Each change is noticed, or stands in ``equivalent.yaml`` with the reason why nothing could notice it: by function, then
by change. A sample is tried in the tests, all of it by hand, which takes minutes: ``python -m tests.fidelity.mutants
[words of a function's name]``.
"""

from __future__ import annotations

import contextlib
import signal
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import yaml

from agentr.fidelity.rules import Rule, read_rules
from agentr.fidelity.verify import differs
from tests.fidelity.drawn import Drawn, draw
from tests.fidelity.mutants import MUTANTS

EQUIVALENT = Path(__file__).parent / "equivalent.yaml"
#: Seconds of CPU after which a change is an endless loop: of rules about losses, which load a trainer, and of others.
_LIMITS = {True: 60.0, False: 5.0}


class Endless(Exception):
    """Raised in a change that does not end."""


def named() -> dict[str, list[Rule]]:
    """Returns the rules that name each function of the project, the quick ones first."""
    found: dict[str, list[Rule]] = defaultdict(list)
    for rule in sorted(read_rules(), key=slow):
        mutant = MUTANTS.get(rule.id)
        for function in dict.fromkeys([*mutant.also, mutant.of] if mutant else []):
            if not function.startswith("trl."):  # a library's: its changes are not ours to draw
                found[function].append(rule)
    return dict(found)


def slow(rule: Rule) -> bool:
    """Returns whether a rule is about a loss."""
    return rule.check.startswith("losses.")


def equivalent() -> dict[str, dict[str, str]]:
    """Returns why changes are equivalent: by function, then by change."""
    return yaml.safe_load(EQUIVALENT.read_text(encoding="utf-8")) or {}


def noticed(drawn: Drawn, rules: Sequence[Rule]) -> str:
    """Returns the rule whose vectors notice a change; empty if none does."""
    with drawn.made():
        for rule in rules:
            with _limited(_LIMITS[slow(rule)]):
                if differs(rule, published=True):
                    return rule.id
    return ""


@contextlib.contextmanager
def _limited(seconds: float) -> Iterator[None]:
    def stop(*_: object) -> None:
        raise Endless(f"it takes more than {seconds:g} s")

    before = signal.signal(signal.SIGPROF, stop)
    signal.setitimer(signal.ITIMER_PROF, seconds, 1.0)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)


@dataclass
class Count:
    """What came of the changes to a function."""

    drawn: int = 0
    noticed: int = 0
    equivalent: int = 0
    missed: int = 0

    def __add__(self, other: Count) -> Count:
        both = zip(vars(self).values(), vars(other).values(), strict=True)
        return Count(*(one + more for one, more in both))


def tried(function: str, rules: Sequence[Rule], known: Mapping[str, str]) -> tuple[Count, list[str]]:
    """Tries all changes to a function.

    Args:
        known: Changes that are equivalent.

    Returns:
        What came of them, and what is wrong: other changes that are not noticed, and entries of the list that are
        noticed or no changes.
    """
    count, wrong, left = Count(), list[str](), dict(known)
    for drawn in draw(function):
        count.drawn += 1
        by = noticed(drawn, rules)
        listed = left.pop(drawn.change, None)
        if by:
            count.noticed += 1
            wrong += [] if listed is None else [f"{function}: {drawn.change} is listed, and {by} notices it"]
        elif listed:
            count.equivalent += 1
        else:
            count.missed += 1
            wrong.append(f"{function}: {drawn.change} is not noticed")
    return count, wrong + [f"{function}: {change} is listed, and is no change" for change in left]


def main(words: Sequence[str]) -> int:
    """Tries all changes to the functions whose names hold one of the words, prints what came of them, and returns the
    exit status."""
    known, total, wrong = equivalent(), Count(), list[str]()
    print(f"{'function':60} {'rules':>5} {'drawn':>5} {'noticed':>7} {'equivalent':>10} {'not noticed':>11} {'s':>5}")
    rules: set[str] = set()
    for function, about in sorted(named().items()):
        if words and not any(word in function for word in words):
            continue
        began = time.perf_counter()
        count, faults = tried(function, about, known.get(function, {}))
        total, wrong = total + count, wrong + faults
        rules |= {rule.id for rule in about}
        _line(function, len(about), count, time.perf_counter() - began)
    _line("all", len(rules), total, 0)
    print(*wrong, sep="\n")
    broken = [rule.id for rule in read_rules() if rule.id in rules and differs(rule, published=True)]
    if broken:
        print(f"after all changes were taken back, these differ: {', '.join(broken)}")
    return bool(wrong or broken)


def _line(name: str, rules: int, count: Count, seconds: float) -> None:
    numbers = f"{count.drawn:5} {count.noticed:7} {count.equivalent:10} {count.missed:11}"
    print(f"{name:60} {rules:5} {numbers} {seconds:5.0f}", flush=True)
