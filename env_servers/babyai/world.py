"""A level as minigrid plays it, and what the text says of it.

minigrid generates the levels and plays them, missions included. A copy is its environment, pickled and read back: 5 to
12 KB, under a millisecond.

A cell is the number ``y * width + x``, with y downwards. Directions are 0 right, 1 down, 2 left, 3 up.
"""

from __future__ import annotations

import pickle
from typing import Any


class World:
    """An episode. Things (doors, keys, balls, boxes, walls) are minigrid's objects.

    Args:
        env: minigrid's environment of the level, after its reset.

    Attributes:
        moves: The primitive moves so far, one digit each; with the level they determine everything else.
        done: Whether the episode has ended.
    """

    def __init__(self, env: Any, moves: str = "", done: bool = False) -> None:
        self.env = env
        self.moves = moves
        self.done = done

    @classmethod
    def start(cls, level: bytes) -> World:
        return cls(pickle.loads(level))

    def copy(self) -> World:
        return World(pickle.loads(pickle.dumps(self.env)), self.moves, self.done)

    @property
    def position(self) -> int:
        """The agent's cell."""
        x, y = map(int, self.env.agent_pos)
        return y * self.env.width + x

    @property
    def front(self) -> int:
        """The cell in front of the agent."""
        return self.position + self.ahead(self.env.agent_dir)

    def ahead(self, direction: int) -> int:
        """The difference of cell numbers that one step in a direction makes."""
        return (1, self.env.width, -1, -self.env.width)[direction]

    def wall(self, cell: int) -> bool:
        """Checks whether a cell is one of a wall."""
        thing = self.env.grid.grid[cell]
        return thing is not None and thing.type == "wall"

    def thing(self, cell: int) -> Any:
        """The thing that lies on a cell; None where there is none, or a wall."""
        return None if self.wall(cell) else self.env.grid.grid[cell]

    def passable(self, cell: int) -> bool:
        """Checks whether the agent can stand on a cell: floor, or an open door."""
        thing = self.env.grid.grid[cell]
        return thing is None or thing.can_overlap()

    def opaque(self, cell: int) -> bool:
        """Checks whether a cell blocks the view: a wall, or a door that is not open."""
        thing = self.env.grid.grid[cell]
        return thing is not None and not thing.see_behind()

    def can_unlock(self, door: Any) -> bool:
        """Checks whether the agent carries the key of a locked door."""
        key = self.env.carrying
        return key is not None and (key.type, key.color) == ("key", door.color)

    def move(self, move: int) -> float:
        """Carries out one primitive move, possible or not, and returns its reward.

        The reward is 1 - 0.9 * moves / max_moves when the mission is accomplished and 0 otherwise. The episode ends
        then, when the mission has failed (some missions forbid moves), and after ``max_moves``.
        """
        _, reward, terminated, truncated, _ = self.env.step(move)
        self.moves += str(move)
        self.done = terminated or truncated
        return float(reward)

    def fingerprint(self) -> tuple:
        """All that matters for what can happen next, except the number of moves."""
        cells = tuple(
            (cell, _known(thing))
            for cell, thing in enumerate(self.env.grid.grid)
            if thing is not None and thing.type != "wall"
        )
        return self.position, int(self.env.agent_dir), _known(self.env.carrying), cells, _progress(self.env.instrs)


def door_state(thing: Any) -> str | None:
    """The state of a door; None of anything else."""
    if thing is None or thing.type != "door":
        return None
    return "open" if thing.is_open else "locked" if thing.is_locked else "closed"


def _known(thing: Any) -> tuple | None:
    """What identifies a thing in all copies of its world: where it lay at first, if it was not in a box."""
    return thing and (thing.type, thing.color, thing.init_pos and tuple(map(int, thing.init_pos)), door_state(thing))


def _progress(mission: Any) -> tuple:
    """How far a mission of minigrid's is: which parts are done, where its objects count as lying, what was carried
    before."""
    if hasattr(mission, "instr_a"):
        parts = (mission.a_done or "continue", mission.b_done or "continue")
        return getattr(mission, "begun", parts), _progress(mission.instr_a), _progress(mission.instr_b)
    target = getattr(mission, "desc_fixed", None) or mission.desc
    return frozenset(tuple(map(int, place)) for place in target.obj_poss), _known(getattr(mission, "preCarrying", None))
