"""Lamps: a row of lamps; pressing one switches it and its neighbours. A task is its first row, such as ``0110``."""

import random
import re
from itertools import combinations, product
from pathlib import Path
from typing import Any

from env_servers.base import Environment, ExpertStep, Observation, TaskInfo, UnknownTask


class Lamps(Environment[list[bool]]):
    """A state is the lamps that are lit."""

    folder = Path(__file__).parent
    fast = True

    def split(self, name: str) -> list[TaskInfo]:
        rows = ["".join(row) for length in (4, 6, 7) for row in product("01", repeat=length) if "0" in row]
        random.Random("lamps").shuffle(rows)
        cut = len(rows) * 4 // 5
        parts = {"train": rows[:cut], "test": rows[cut:]}
        if name not in parts:
            raise UnknownTask(f"Lamps has no split {name!r}")
        return [TaskInfo(row, {"lamps": len(row)}) for row in parts[name]]

    def reset(self, task_id: str) -> tuple[list[bool], Observation]:
        if not re.fullmatch("[01]{4,7}", task_id) or "0" not in task_id or len(task_id) == 5:
            raise UnknownTask(f"Lamps has no task {task_id!r}; ids look like '0110'")
        state = [lamp == "1" for lamp in task_id]
        return state, Observation(shown(state))

    def step(self, state: list[bool], action: str) -> Observation:
        match = re.fullmatch(r"press ([1-9])", action.strip())
        if match is None or int(match[1]) > len(state):
            return Observation.failed(f"There is no such lamp or action. {shown(state)}")
        press(state, int(match[1]) - 1)
        return Observation(shown(state), reward=float(all(state)), done=all(state))

    def fork(self, state: list[bool]) -> list[bool]:
        return list(state)

    def snapshot(self, state: list[bool]) -> dict[str, Any]:
        return {"lit": list(state)}

    def restore(self, data: dict[str, Any]) -> list[bool]:
        lit = data.get("lit")
        if not isinstance(lit, list) or len(lit) not in (4, 6, 7) or not all(isinstance(lamp, bool) for lamp in lit):
            raise ValueError("not a Lamps snapshot: 'lit' must be 4, 6 or 7 truth values")
        return list(lit)

    def expert(self, task_id: str) -> list[ExpertStep]:
        start, _ = self.reset(task_id)
        for count in range(len(start) + 1):
            for lamps in combinations(range(len(start)), count):
                state = list(start)
                for lamp in lamps:
                    press(state, lamp)
                if all(state):
                    thoughts = [
                        f"{count - done} presses light the whole row; lamp {lamp + 1} is one."
                        for done, lamp in enumerate(lamps)
                    ]
                    return [
                        ExpertStep(thought, f"press {lamp + 1}") for thought, lamp in zip(thoughts, lamps, strict=True)
                    ]
        raise AssertionError("rows of 4, 6 and 7 lamps can all be lit")

    def actions(self, state: list[bool]) -> list[str]:
        return [f"press {lamp}" for lamp in range(1, len(state) + 1)]


def press(state: list[bool], lamp: int) -> None:
    for neighbour in range(max(0, lamp - 1), min(len(state), lamp + 2)):
        state[neighbour] = not state[neighbour]


def shown(state: list[bool]) -> str:
    return "Lamps: " + " ".join("1" if lamp else "0" for lamp in state)


ENVIRONMENT = Lamps
