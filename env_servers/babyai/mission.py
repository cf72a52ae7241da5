"""Missions: what has to be done, and whether a move has done it.

A mission is a tree: clauses (go to, open, pick up, put next to), joined by "and", "then" and "after you". Its progress is a flat list
with one immutable entry for each node, so that a copy of the list is a copy of the progress. The rules are those of BabyAI's verifier
(minigrid 3.2.0, `envs/babyai/core/verifier.py`), its peculiarities included: where an object counts as lying is brought up to date
only when something is dropped, and "and" never fails. One fault is mended: there, the move that accomplishes the first part of "then" can
fail the second, so that the level OpenDoorsOrderN4Debug cannot be won when it names two doors.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Literal, Protocol

from env_servers.babyai.moves import DROP, PICKUP, TOGGLE


class Status(Enum):
    """The standing of a mission, or of a part of it, after a move."""

    CONTINUE = "continue"
    SUCCESS = "success"
    FAILURE = "failure"


@dataclass(frozen=True, slots=True)
class ClauseEntry:
    """Progress of a clause.

    Attributes:
        held: What the agent carried after the move before.
        places: Cells where the objects to go to, or to put something next to, count as lying.
    """

    held: int | None
    places: frozenset[int]


@dataclass(frozen=True, slots=True)
class JoinEntry:
    """Progress of a join: how its parts stand."""

    first: Status = Status.CONTINUE
    second: Status = Status.CONTINUE


Entry = ClauseEntry | JoinEntry


@dataclass(frozen=True)
class Clause:
    """One thing to do.

    Attributes:
        objects: The things that the description fits: to go to, to open, to pick up or to move.
        fixed: For "putnext": the things to put one of them next to.
        strict: Opening another door, or picking up another object, fails the mission.
        slot: Index of its entry.
    """

    kind: Literal["goto", "open", "pickup", "putnext"]
    objects: frozenset[int]
    fixed: frozenset[int]
    strict: bool
    slot: int


@dataclass(frozen=True)
class Join:
    """Two missions. ``before``: the first, then the second; ``after``: the second has to be done first.

    Attributes:
        strict: Doing the later one first fails the mission.
    """

    kind: Literal["and", "before", "after"]
    first: Mission
    second: Mission
    strict: bool
    slot: int


Mission = Clause | Join


class Grid(Protocol):
    """The part of a level that a mission is judged by."""

    @property
    def width(self) -> int: ...


class Scenery(Protocol):
    """The part of a world (`world.World`) that a mission is judged by.

    Attributes:
        progress: An entry for each node of the mission; brought up to date here.
        cells: The thing that lies on each cell that is not empty.
        doors: State of each door.
        carrying: The thing that the agent carries.
        front: The cell in front of the agent.
    """

    progress: list[Entry]
    carrying: int | None

    @property
    def level(self) -> Grid: ...
    @property
    def cells(self) -> Mapping[int, int]: ...
    @property
    def doors(self) -> Mapping[int, str]: ...
    @property
    def front(self) -> int: ...


def verify(mission: Mission, world: Scenery, move: int) -> Status:
    """Judges the mission after a move, and brings the progress up to date."""
    if isinstance(mission, Clause):
        return _verify_clause(mission, world, move)
    if mission.kind == "and":
        return _verify_and(mission, world, move)
    earlier, later = (mission.first, mission.second) if mission.kind == "before" else (mission.second, mission.first)
    entry = world.progress[mission.slot]
    assert isinstance(entry, JoinEntry)
    if entry.first is not Status.SUCCESS:  # ``first`` is the earlier part here
        status = verify(earlier, world, move)
        if status is Status.FAILURE:
            return status
        if status is Status.CONTINUE:
            done_too_early = mission.strict and verify(later, world, move) is Status.SUCCESS
            return Status.FAILURE if done_too_early else Status.CONTINUE
        world.progress[mission.slot] = JoinEntry(first=status)
        return Status.SUCCESS if verify(later, world, move) is Status.SUCCESS else Status.CONTINUE
    return verify(later, world, move)


def dropped(mission: Mission, world: Scenery) -> None:
    """Takes note of where the objects of the mission lie now."""
    if isinstance(mission, Join):
        dropped(mission.first, world)
        dropped(mission.second, world)
        return
    entry = world.progress[mission.slot]
    assert isinstance(entry, ClauseEntry)
    targets = mission.fixed if mission.kind == "putnext" else mission.objects
    places = frozenset(cell for cell, thing in world.cells.items() if thing in targets)
    world.progress[mission.slot] = ClauseEntry(entry.held, places)


def _verify_and(mission: Join, world: Scenery, move: int) -> Status:
    entry = world.progress[mission.slot]
    assert isinstance(entry, JoinEntry)
    first, second = entry.first, entry.second
    if first is not Status.SUCCESS:
        first = verify(mission.first, world, move)
    if second is not Status.SUCCESS:
        second = verify(mission.second, world, move)
    world.progress[mission.slot] = JoinEntry(first, second)
    return Status.SUCCESS if first is second is Status.SUCCESS else Status.CONTINUE


def _verify_clause(clause: Clause, world: Scenery, move: int) -> Status:
    entry = world.progress[clause.slot]
    assert isinstance(entry, ClauseEntry)
    front = world.front
    if clause.kind == "goto":
        return Status.SUCCESS if front in entry.places else Status.CONTINUE
    if clause.kind == "open":
        return _verify_open(clause, world, move, world.cells.get(front))
    if entry.held != world.carrying:
        world.progress[clause.slot] = ClauseEntry(world.carrying, entry.places)
    if clause.kind == "pickup":
        if move != PICKUP:
            return Status.CONTINUE
        if entry.held is None and world.carrying in clause.objects:
            return Status.SUCCESS
        return Status.FAILURE if clause.strict and world.carrying is not None else Status.CONTINUE
    if clause.strict and move == PICKUP and world.carrying is not None:
        return Status.FAILURE
    if move != DROP or entry.held not in clause.objects or world.carrying is not None:
        return Status.CONTINUE
    width = world.level.width
    beside = (front - 1, front + 1, front - width, front + width)
    return Status.SUCCESS if any(cell in entry.places for cell in beside) else Status.CONTINUE


def _verify_open(clause: Clause, world: Scenery, move: int, front: int | None) -> Status:
    if move != TOGGLE:
        return Status.CONTINUE
    if front in clause.objects and world.doors.get(front) == "open":
        return Status.SUCCESS
    return Status.FAILURE if clause.strict and front in world.doors else Status.CONTINUE
