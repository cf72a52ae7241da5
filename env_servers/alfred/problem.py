"""A problem: one room, what lies where at the start, and the goal. Everything here is fixed during an episode.

Names are ``kind number``, as the texts write them: ``cabinet 3`` is a receptacle of the kind ``cabinet``. The order of
a problem's receptacles and things is the order in which texts list them.
"""

from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property


class TaskType(StrEnum):
    """The six types of tasks, under ALFWorld's names."""

    PLACE = "pick_and_place_simple"
    """Put an object into or onto a receptacle."""
    LOOK = "look_at_obj_in_light"
    """Hold an object beside a lamp that was turned on."""
    CLEAN = "pick_clean_then_place_in_recep"
    """Place an object that was cleaned at a sink."""
    HEAT = "pick_heat_then_place_in_recep"
    """Place an object that was heated with a microwave."""
    COOL = "pick_cool_then_place_in_recep"
    """Place an object that was cooled with a fridge."""
    TWO = "pick_two_obj_and_place"
    """Place two objects of a kind into or onto the same receptacle."""


#: What is done to the object before it is placed: the action's verb, the mark it leaves, and the kind of receptacle it
#: needs.
TREATMENTS = {
    TaskType.CLEAN: ("clean", "clean", "sinkbasin"),
    TaskType.HEAT: ("heat", "hot", "microwave"),
    TaskType.COOL: ("cool", "cool", "fridge"),
}


@dataclass(frozen=True)
class Goal:
    """The goal of a task.

    Attributes:
        kind: Kind of the object.
        target: Kind of the receptacle that it goes to; the kind of lamp for ``LOOK``.
    """

    type: TaskType
    kind: str
    target: str


@dataclass(frozen=True)
class Receptacle:
    """Something that holds things. ``place`` is where one stands to reach it; several receptacles may share a place."""

    kind: str
    place: int
    openable: bool = False


@dataclass(frozen=True)
class Thing:
    """An object.
    ``can`` says what is possible with it: take, clean, heat, cool, slice, use (a lamp), contain (it is a vessel)."""

    kind: str
    can: frozenset[str]


@dataclass(frozen=True)
class Problem:
    """See the module's text.

    Attributes:
        statement: The task in words.
        where: The receptacle of each thing at the start.
        marks: What is true at the start besides (see `rules.HouseholdState.marks`).
        fits: For each kind of receptacle the kinds of things that may be put there.
        start: Place of the agent at the start; None is the middle of the room.
    """

    statement: str
    goal: Goal
    receptacles: dict[str, Receptacle]
    things: dict[str, Thing]
    where: dict[str, str]
    marks: frozenset[str]
    fits: dict[str, frozenset[str]]
    start: int | None = None

    @cached_property
    def candidates(self) -> tuple[str, ...]:
        """The things that may serve the goal."""
        needs = TREATMENTS[self.goal.type][0] if self.goal.type in TREATMENTS else None
        return tuple(
            n for n, t in self.things.items() if t.kind == self.goal.kind and (needs is None or needs in t.can)
        )

    @cached_property
    def lamps(self) -> tuple[str, ...]:
        """The lamps that may serve a ``LOOK`` goal."""
        return tuple(n for n, t in self.things.items() if t.kind == self.goal.target and "use" in t.can)

    @cached_property
    def at(self) -> dict[int, tuple[str, ...]]:
        """The receptacles of each place."""
        places: dict[int, tuple[str, ...]] = {}
        for name, receptacle in self.receptacles.items():
            places[receptacle.place] = (*places.get(receptacle.place, ()), name)
        return places
