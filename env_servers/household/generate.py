"""Our own problems, each a pure function of its id ``split/type-number`` (``train/clean-0017``).

A *layout* is a room with its receptacles. ``train`` and ``dev`` share 20 layouts a room, ``test`` has eight of its own,
as ALFWorld's seen and unseen scenes. What a problem asks for is its *goal*: layout, type, object and target. Goals are
divided between ``train`` and ``dev`` by a fixed draw of each, so that no goal is in both; where things lie is drawn
anew for every problem.
"""

import random
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from itertools import groupby
from operator import itemgetter

from env_servers.alfred.catalogue import catalogue
from env_servers.alfred.problem import TREATMENTS, Goal, Problem, Receptacle, TaskType, Thing

#: Problems of each type in each split, before those are left out whose demonstration is too long.
SIZES = {"train": 360, "dev": 30, "test": 30}
SEEN_LAYOUTS, UNSEEN_LAYOUTS = range(20), range(20, 28)
#: Part of the seen layouts' goals that belongs to ``train``.
TRAIN_SHARE = 0.85
#: How much likelier a thing is in a place than in the next of its usual places.
FALLOFF = 0.6
#: Part of the things that lie in an unusual place.
MISPLACED = 0.1
TYPES = {
    "place": TaskType.PLACE,
    "look": TaskType.LOOK,
    "clean": TaskType.CLEAN,
    "heat": TaskType.HEAT,
    "cool": TaskType.COOL,
    "two": TaskType.TWO,
}
STATEMENTS = {
    TaskType.PLACE: ("put a {kind} in {target}.", "put some {kind} on {target}."),
    TaskType.LOOK: ("look at {kind} under the {target}.", "examine the {kind} with the {target}."),
    TaskType.CLEAN: ("put a clean {kind} in {target}.", "clean some {kind} and put it in {target}."),
    TaskType.HEAT: ("put a hot {kind} in {target}.", "heat some {kind} and put it in {target}."),
    TaskType.COOL: ("put a cool {kind} in {target}.", "cool some {kind} and put it in {target}."),
    TaskType.TWO: ("put two {kind} in {target}.", "find two {kind} and put them in {target}."),
}


@dataclass(frozen=True, eq=False)
class Layout:
    """A room with its receptacles, before anything lies in them."""

    room: str
    number: int
    receptacles: dict[str, Receptacle]

    @property
    def name(self) -> str:
        return f"{self.room}-{self.number}"

    @cached_property
    def by_kind(self) -> dict[str, list[str]]:
        """The receptacles of each kind."""
        found: dict[str, list[str]] = {}
        for name, receptacle in self.receptacles.items():
            found.setdefault(receptacle.kind, []).append(name)
        return found


@dataclass(frozen=True)
class Generated:
    """A problem of ours with what one may stratify by."""

    problem: Problem
    layout: Layout

    @property
    def goal(self) -> str:
        """The problem's identity."""
        return _identity(self.layout, self.problem.goal)


def ids(split: str) -> list[str]:
    """The ids of a split, types in turn."""
    return [f"{split}/{name}-{number:04d}" for number in range(SIZES[split]) for name in TYPES]


def generate(task_id: str) -> Generated | None:
    """The problem of an id; None if it is not one of ours."""
    match = re.fullmatch(r"(train|dev|test)/([a-z]+)-([0-9]{4})", task_id)
    if match is None or match[2] not in TYPES or int(match[3]) >= SIZES[match[1]]:
        return None
    split, type_ = match[1], TYPES[match[2]]
    rng = random.Random(f"household/{task_id}")
    while True:
        layout = _layout(rng.choice(_rooms(type_)), rng.choice(UNSEEN_LAYOUTS if split == "test" else SEEN_LAYOUTS))
        if goals := _goals(layout, type_, split):
            return Generated(_furnish(layout, rng.choice(goals), rng), layout)


def _split_of(layout: Layout, goal: Goal) -> str:
    if layout.number in UNSEEN_LAYOUTS:
        return "test"
    return "train" if random.Random(f"household/split/{_identity(layout, goal)}").random() < TRAIN_SHARE else "dev"


def _identity(layout: Layout, goal: Goal) -> str:
    return f"{layout.name}/{goal.type}/{goal.kind}/{goal.target}"


def _rooms(type_: TaskType) -> Sequence[str]:
    if type_ in (TaskType.HEAT, TaskType.COOL):
        return ("kitchen",)
    if type_ is TaskType.CLEAN:
        return ("kitchen", "kitchen", "bathroom")
    if type_ is TaskType.LOOK:
        return ("bedroom", "livingroom")
    return ("kitchen", "bedroom", "livingroom", "bathroom")


@cache
def _layout(room: str, number: int) -> Layout:
    rng = random.Random(f"household/layout/{room}/{number}")
    names = [
        (kind, f"{kind} {n}")
        for kind, (low, high) in sorted(catalogue().rooms[room].items())
        for n in range(1, rng.randint(low, high) + 1)
    ]
    return Layout(room, number, {name: catalogue().receptacle(kind, place) for place, (kind, name) in enumerate(names)})


@cache
def _things_of(room: str) -> tuple[str, ...]:
    """The kinds of things in a room, lamps left out."""
    return tuple(name for name, kind in catalogue().kinds.items() if room in kind.rooms and "take" in kind.can)


@cache
def _goals(layout: Layout, type_: TaskType, split: str) -> tuple[Goal, ...]:
    """The goals of a type that make sense in a layout and belong to a split."""
    goals = _sensible(layout, type_)
    return tuple(goal for goal in goals if _split_of(layout, goal) == split)


def _sensible(layout: Layout, type_: TaskType) -> list[Goal]:
    kinds = catalogue().kinds
    if type_ is TaskType.LOOK:
        return [Goal(type_, name, "desklamp") for name in _things_of(layout.room) if _places(name, layout)]
    verb, _, tool = TREATMENTS.get(type_, ("take", "", ""))
    return [
        Goal(type_, name, target)
        for name in _things_of(layout.room)
        for target in layout.by_kind
        if verb in kinds[name].can
        and target != tool
        and target in kinds[name].usual + kinds[name].also
        # else there is nowhere to find it
        and any(place != target and place in layout.by_kind for place in kinds[name].usual)
    ]


def _furnish(layout: Layout, goal: Goal, rng: random.Random) -> Problem:
    """A problem with the things that the goal needs, not yet where it wants them, and others."""
    fixed: list[tuple[str, str]] = []
    if goal.type is TaskType.LOOK:
        fixed.append((goal.target, home(goal.target, layout, rng)))
    wanted, others = numbers_of(layout, goal)
    for _ in range(rng.choice(wanted)):
        fixed.append((goal.kind, home(goal.kind, layout, rng, avoid=goal.target)))
    number = rng.randint(others[0], others[-1])
    fixed += [(name, home(name, layout, rng)) for name in rng.choices(kinds_of_others(layout, goal), k=number)]
    rng.shuffle(fixed)  # so that numbers reveal nothing
    where: dict[str, str] = {}
    for kind, lying in groupby(sorted(fixed, key=itemgetter(0)), key=itemgetter(0)):
        where |= {f"{kind} {number}": home for number, (_, home) in enumerate(lying, 1)}
    statement = rng.choice(STATEMENTS[goal.type]).format(kind=goal.kind, target=goal.target)
    things = {name: thing(name.rpartition(" ")[0]) for name in where}
    return Problem(
        statement, goal, layout.receptacles, things, where, frozenset(f"down {name}" for name in where), _fits()
    )


def numbers_of(layout: Layout, goal: Goal) -> tuple[Sequence[int], Sequence[int]]:
    """How many things of the goal's kind there may be, and how many others, each number as likely."""
    needed = 2 if goal.type is TaskType.TWO else 1
    places = len(layout.receptacles)
    return (needed, needed, needed + 1), range(places // 2, 3 * places // 2 + 1)


@cache
def kinds_of_others(layout: Layout, goal: Goal) -> tuple[str, ...]:
    """The kinds of things that lie about besides, each as likely."""
    return tuple(name for name in _things_of(layout.room) if name != goal.kind and _places(name, layout))


@cache
def thing(kind: str) -> Thing:
    return catalogue().thing(kind)


@cache
def _fits() -> dict[str, frozenset[str]]:
    return catalogue().fits


@cache
def _places(kind: str, layout: Layout, avoid: str = "") -> tuple[str, ...]:
    """The kinds of receptacles of a layout where a thing usually lies, likeliest first."""
    return tuple(place for place in catalogue().kinds[kind].usual if place in layout.by_kind and place != avoid)


@cache
def _also(kind: str, layout: Layout, avoid: str = "") -> tuple[str, ...]:
    return tuple(place for place in catalogue().kinds[kind].also if place in layout.by_kind and place != avoid)


def home(kind: str, layout: Layout, rng: random.Random, avoid: str = "") -> str:
    """A receptacle for a thing."""
    usual, also = _places(kind, layout, avoid), _also(kind, layout, avoid)
    if (also and rng.random() < MISPLACED) or not usual:
        place = rng.choice(also)
    else:
        place = rng.choices(usual, [FALLOFF**i for i in range(len(usual))])[0]
    return rng.choice(layout.by_kind[place])


@cache
def homes(kind: str, layout: Layout, avoid: str = "") -> dict[str, float]:
    """The probability of each receptacle that `home` may draw."""
    usual, also = _places(kind, layout, avoid), _also(kind, layout, avoid)
    misplaced = 1.0 if not usual else MISPLACED if also else 0.0
    falling = [FALLOFF**i for i in range(len(usual))]
    parts = [(place, (1 - misplaced) * each / sum(falling)) for place, each in zip(usual, falling, strict=True)]
    parts += [(place, misplaced / len(also)) for place in also]
    found: dict[str, float] = {}
    for place, part in parts:
        for name in layout.by_kind[place]:
            found[name] = found.get(name, 0.0) + part / len(layout.by_kind[place])
    return found
