"""A level as plain data, and what the six primitive moves do to it.

minigrid generates the levels; play runs here, because a copy of minigrid's own environment takes 0.4-1.2 ms and a copy of this state
takes a microsecond. The rules are minigrid's move for move (the tests play both side by side).

A cell is the number ``y * width + x``, a thing (door, key, ball or box) its index in ``Level.things``. Directions are 0 right, 1 down,
2 left, 3 up, with y downwards.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from env_servers.babyai.mission import Entry, Mission, Status, dropped, verify
from env_servers.babyai.moves import DROP, FORWARD, LEFT, PICKUP, RIGHT, TOGGLE

Door = Literal["open", "closed", "locked"]


@dataclass(frozen=True, slots=True)
class Thing:
    """``inside`` is what a box holds: it appears in the box's place when the box is opened."""

    kind: Literal["door", "key", "ball", "box"]
    color: str
    inside: int | None = None


@dataclass(frozen=True, eq=False)
class Level:
    """The fixed part of an episode. Shared by all states of a task; never changed.

    Attributes:
        walls: One byte for each cell, 1 for a wall. The outermost cells are all walls.
        cells: Where each thing lies at the start.
        doors: State of each door at the start.
        progress: The mission's entries at the start (see `mission`).
        max_moves: Primitive moves after which the episode ends.
    """

    width: int
    height: int
    walls: bytes
    things: tuple[Thing, ...]
    cells: dict[int, int]
    doors: dict[int, Door]
    position: int
    direction: int
    carrying: int | None
    mission_text: str
    mission: Mission
    progress: tuple[Entry, ...]
    max_moves: int

    def ahead(self, direction: int) -> int:
        """The difference of cell numbers that one step in a direction makes."""
        return (1, self.width, -1, -self.width)[direction]


@dataclass
class World:
    """The changing part of an episode.

    Attributes:
        moves: The primitive moves so far, one digit each; they determine everything else.
        progress: How far the mission is, an entry for each of its parts.
    """

    level: Level
    position: int
    direction: int
    carrying: int | None
    cells: dict[int, int]
    doors: dict[int, Door]
    progress: list[Entry]
    moves: str = ""
    done: bool = False

    @classmethod
    def start(cls, level: Level) -> World:
        return cls(level, level.position, level.direction, level.carrying, dict(level.cells), dict(level.doors), list(level.progress))

    def copy(self) -> World:
        return World(
            self.level,
            self.position,
            self.direction,
            self.carrying,
            dict(self.cells),
            dict(self.doors),
            list(self.progress),
            self.moves,
            self.done,
        )

    @property
    def front(self) -> int:
        """The cell in front of the agent."""
        return self.position + self.level.ahead(self.direction)

    def passable(self, cell: int) -> bool:
        """Checks whether the agent can stand on a cell: floor, or an open door."""
        if self.level.walls[cell]:
            return False
        thing = self.cells.get(cell)
        return thing is None or self.doors.get(thing) == "open"

    def opaque(self, cell: int) -> bool:
        """Checks whether a cell blocks the view: a wall, or a door that is not open."""
        if self.level.walls[cell]:
            return True
        thing = self.cells.get(cell)
        return thing is not None and self.doors.get(thing, "open") != "open"

    def can_unlock(self, door: int) -> bool:
        """Checks whether the agent carries the key of a locked door."""
        key = None if self.carrying is None else self.level.things[self.carrying]
        return key is not None and key.kind == "key" and key.color == self.level.things[door].color

    def move(self, move: int) -> float:
        """Carries out one primitive move, possible or not, and returns its reward.

        The reward is 1 - 0.9 * moves / max_moves when the mission is accomplished and 0 otherwise. The episode ends then, when the
        mission has failed (some missions forbid moves), and after ``max_moves``.
        """
        self.moves += str(move)
        front = self.front
        if move == LEFT:
            self.direction = (self.direction - 1) % 4
        elif move == RIGHT:
            self.direction = (self.direction + 1) % 4
        elif move == FORWARD:
            if self.passable(front):
                self.position = front
        elif move == PICKUP:
            self._pick_up(front)
        elif move == DROP:
            self._drop(front)
        elif move == TOGGLE:
            self._toggle(front)
        status = verify(self.level.mission, self, move)
        self.done = status is not Status.CONTINUE or len(self.moves) >= self.level.max_moves
        return 1 - 0.9 * (len(self.moves) / self.level.max_moves) if status is Status.SUCCESS else 0.0

    def _pick_up(self, front: int) -> None:
        thing = self.cells.get(front)
        if self.carrying is None and thing is not None and thing not in self.doors:
            del self.cells[front]
            self.carrying = thing

    def _drop(self, front: int) -> None:
        if self.carrying is not None and front not in self.cells and not self.level.walls[front]:
            self.cells[front] = self.carrying
            self.carrying = None
        dropped(self.level.mission, self)

    def _toggle(self, front: int) -> None:
        thing = self.cells.get(front)
        if thing is None:
            return
        state = self.doors.get(thing)
        if state == "locked":
            if self.can_unlock(thing):
                self.doors[thing] = "open"
        elif state is not None:
            self.doors[thing] = "closed" if state == "open" else "open"
        elif self.level.things[thing].kind == "box":
            inside = self.level.things[thing].inside
            if inside is None:
                del self.cells[front]
            else:
                self.cells[front] = inside
