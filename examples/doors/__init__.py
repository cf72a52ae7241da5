"""Doors: find the door with the treasure by listening. The right one is hidden.

A task is the number of doors and the right one, such as ``9-4``.
"""

import random
import re
from dataclasses import astuple, dataclass, replace
from pathlib import Path
from typing import Any

from env_servers.base import Environment, ExpertStep, Observation, TaskInfo, UnknownTask


@dataclass
class Row:
    """Doors from 1 to ``doors``; by what was heard, the treasure is behind one from ``low`` to ``high``."""

    doors: int
    treasure: int
    low: int
    high: int


class Doors(Environment[Row]):
    folder = Path(__file__).parent
    fast = True

    def split(self, name: str) -> list[TaskInfo]:
        rows = [(doors, treasure) for doors in range(4, 31) for treasure in range(1, doors + 1)]
        random.Random("doors").shuffle(rows)
        cut = len(rows) * 4 // 5
        parts = {"train": rows[:cut], "test": rows[cut:]}
        if name not in parts:
            raise UnknownTask(f"Doors has no split {name!r}")
        return [TaskInfo(f"{doors}-{treasure}", {"doors": doors}) for doors, treasure in parts[name]]

    def reset(self, task_id: str) -> tuple[Row, Observation]:
        match = re.fullmatch("([0-9]{1,2})-([0-9]{1,2})", task_id)
        if match is None or not 4 <= int(match[1]) <= 30 or not 1 <= int(match[2]) <= int(match[1]):
            raise UnknownTask(f"Doors has no task {task_id!r}; ids look like '9-4'")
        doors = int(match[1])
        return Row(doors, int(match[2]), 1, doors), Observation(f"There are {doors} doors.")

    def step(self, state: Row, action: str) -> Observation:
        match = re.fullmatch("(listen|open) ([0-9]{1,2})", action.strip())
        if match is None or not 1 <= int(match[2]) <= state.doors:
            return Observation.failed("There is no such door or action.")
        door = int(match[2])
        if match[1] == "open":
            found = door == state.treasure
            return Observation("The treasure!" if found else "An empty room.", reward=float(found), done=True)
        if door == state.treasure:
            state.low = state.high = door
            return Observation(f"Door {door}: it is here.")
        if door < state.treasure:
            state.low = max(state.low, door + 1)
            return Observation(f"Door {door}: it is on the right.")
        state.high = min(state.high, door - 1)
        return Observation(f"Door {door}: it is on the left.")

    def fork(self, state: Row) -> Row:
        return replace(state)

    def snapshot(self, state: Row) -> dict[str, Any]:
        return vars(state).copy()

    def restore(self, data: dict[str, Any]) -> Row:
        try:
            row = Row(**data)
            if not all(type(number) is int for number in astuple(row)):
                raise ValueError("doors are numbers")
            if not 1 <= row.low <= row.treasure <= row.high <= row.doors:
                raise ValueError("the treasure is elsewhere")
        except (TypeError, ValueError) as error:
            raise ValueError(f"not a Doors snapshot: {error}") from error
        return row

    def expert(self, task_id: str) -> list[ExpertStep]:
        return self.expert_from(self.reset(task_id)[0])

    def expert_from(self, state: Row) -> list[ExpertStep]:
        row, steps = self.fork(state), []
        while row.low < row.high:
            middle = (row.low + row.high) // 2
            steps.append(ExpertStep(f"It is behind {row.low} to {row.high}.", f"listen {middle}"))
            self.step(row, f"listen {middle}")
        return [*steps, ExpertStep(f"It is behind {row.low}.", f"open {row.low}")]

    def redraw(self, state: Row, seed: int) -> Row:
        return replace(state, treasure=random.Random(seed).randint(state.low, state.high))

    def actions(self, state: Row) -> list[str]:
        return [f"{verb} {door}" for verb in ("listen", "open") for door in range(1, state.doors + 1)]


ENVIRONMENT = Doors
