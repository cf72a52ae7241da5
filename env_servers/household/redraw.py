"""Another household that fits what was seen of one: things that were not seen lie elsewhere, and may be others.

`generate` draws how many things there are and, for each by itself, its kind and where it lies; numbers are dealt to the
things of a kind in random order. What lies in the receptacles that were seen, with its numbers, leaves this for the
rest: *u* unseen things of a kind of which *o* were seen have the weight a^u / (o + u)!, where *a* is the probability
that a thing drawn is of that kind and lies where nobody looked; *N* things in all have the weight N!; and a number that
was seen means that there are as many.
"""

import math
import random
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace

from env_servers.alfred.catalogue import catalogue
from env_servers.alfred.problem import Problem, TaskType
from env_servers.household.generate import Generated, Layout, home, homes, kinds_of_others, numbers_of, thing
from env_servers.household.rules import HouseholdState

Numbers = Mapping[str, set[int]]


def redrawn(state: HouseholdState, made: Generated, rng: random.Random) -> HouseholdState:
    """Returns the state in a household that is drawn from the distribution of `generate`, given what was seen."""
    layout, goal = made.layout, made.problem.goal
    looked = frozenset(name for name in layout.receptacles if f"seen {name}" in state.marks)
    known = {name: at for name, at in state.where.items() if not at or at in looked}
    numbers: dict[str, set[int]] = {}
    for name in known:
        numbers.setdefault(_kind(name), set()).add(_number(name))
    wanted, others = numbers_of(layout, goal)
    unseen = _unseen((goal.kind,), wanted, numbers, layout, looked, rng, goal.target)
    unseen |= _unseen(kinds_of_others(layout, goal), others, numbers, layout, looked, rng)
    if goal.type is TaskType.LOOK and goal.target not in numbers:
        unseen[goal.target] = 1
    drawn: dict[str, str] = {}
    for kind, number in unseen.items():
        taken = numbers.get(kind, set())
        free = [n for n in range(1, len(taken) + number + 1) if n not in taken]
        avoid = goal.target if kind == goal.kind else ""
        drawn |= {f"{kind} {n}": _elsewhere(kind, layout, looked, rng, avoid) for n in free}
    problem = furnished(state.problem, {**drawn, **known})
    gone = state.where.keys() - known.keys()
    about = {mark for mark in state.marks if not any(mark.partition(" ")[2] == name for name in gone)}
    return replace(state, problem=problem, where=dict(problem.where), marks=about | {f"down {name}" for name in drawn})


def furnished(problem: Problem, where: Mapping[str, str]) -> Problem:
    """Returns the problem with other things in it, in the order in which texts list them."""
    order = sorted(where, key=lambda name: (_kind(name), _number(name)))
    return replace(
        problem,
        things={name: thing(_kind(name)) for name in order},
        where={name: where[name] for name in order},
        marks=frozenset(f"down {name}" for name in order),
    )


def is_thing(name: str) -> bool:
    """Checks whether a text is the name of something that may lie about."""
    return re.fullmatch("[a-z]+ [1-9][0-9]?", name) is not None and _kind(name) in catalogue().kinds


def _unseen(
    kinds: Sequence[str],
    totals: Sequence[int],
    numbers: Numbers,
    layout: Layout,
    looked: frozenset[str],
    rng: random.Random,
    avoid: str = "",
) -> dict[str, int]:
    """Draws how many things of each kind nobody saw.

    Args:
        kinds: What a thing may be, each as likely.
        totals: How many things there may be in all, each number as likely.
        numbers: Those of the seen things, by kind.
        avoid: A kind of receptacle where none of them lies.
    """
    seen = sum(len(numbers.get(kind, ())) for kind in kinds)
    most = max(totals) - seen
    weights = []
    for kind in kinds:
        own = numbers.get(kind, set())
        share = sum(part for name, part in homes(kind, layout, avoid).items() if name not in looked) / len(kinds)
        least = max(own, default=0) - len(own)
        weights.append([share**u / math.factorial(len(own) + u) if u >= least else 0.0 for u in range(most + 1)])
    # ways[k][m]: the weight of all ways to have m unseen things of the kinds from k on
    ways = [[1.0] + [0.0] * most]
    for own in reversed(weights):
        ways.append([sum(own[u] * ways[-1][m - u] for u in range(m + 1) if own[u]) for m in range(most + 1)])
    ways.reverse()
    possible = [total for total in totals if total >= seen]
    left = rng.choices(possible, [math.factorial(total) * ways[0][total - seen] for total in possible])[0] - seen
    found: dict[str, int] = {}
    for kind, own, rest in zip(kinds, weights, ways[1:], strict=True):
        found[kind] = rng.choices(range(left + 1), [own[u] * rest[left - u] for u in range(left + 1)])[0]
        left -= found[kind]
    return found


def _elsewhere(kind: str, layout: Layout, looked: frozenset[str], rng: random.Random, avoid: str) -> str:
    while (place := home(kind, layout, rng, avoid)) in looked:
        pass
    return place


def _kind(name: str) -> str:
    return name.rpartition(" ")[0]


def _number(name: str) -> int:
    return int(name.rpartition(" ")[2])
