"""The agent's view in words, and the actions available in it.

The agent sees a square of 7 by 7 cells: its own row, six rows ahead, three cells to either side; walls and doors that
are not open hide what is behind them. Things in sight are numbered by name, nearest first ("red ball 1", "red ball 2"),
anew in each observation. An action such as "go to red ball 1" stands for the shortest sequence of primitive moves over
cells that are in sight and free.
"""

from __future__ import annotations

import re
from collections import deque
from dataclasses import dataclass
from typing import Any

from env_servers.babyai.moves import DROP, FORWARD, LEFT, PICKUP, RIGHT, TOGGLE
from env_servers.babyai.world import World, door_state

#: Cells in sight ahead of the agent and to either side of it (minigrid's agent_view_size 7).
AHEAD, ASIDE = 6, 3


@dataclass(frozen=True, slots=True)
class Sighting:
    """A thing in sight.

    Attributes:
        label: Its name and number in this observation, such as "red ball 2".
        ahead: Steps in front of the agent.
        right: Steps to its right; negative to its left.
    """

    label: str
    thing: Any
    cell: int
    ahead: int
    right: int


@dataclass(frozen=True)
class Scene:
    """One look at the world.

    Attributes:
        sightings: Nearest first.
        barrier: Kind and distance of the nearest wall or box straight ahead, if any is in sight.
        actions: Every action that is possible now and the primitive moves that it stands for.
    """

    sightings: tuple[Sighting, ...]
    barrier: tuple[str, int] | None
    actions: dict[str, tuple[int, ...]]

    @classmethod
    def of(cls, world: World) -> Scene:
        visible = look(world)
        sightings = _sightings(world, visible)
        return cls(sightings, _barrier(world, visible), _actions(world, sightings, set(visible.values())))

    def describe(self, world: World) -> str:
        """The observation, without the list of actions."""
        parts = [
            "In front of you in this room, you can see several objects:" if self.sightings else "You see no objects."
        ]
        parts += [f"There is a {seen.label} {_where(seen)}." for seen in self.sightings]
        parts.append("The room has walls around you.")
        if self.barrier is not None:
            kind, steps = self.barrier
            parts.append(f"You are facing a {kind} {steps} steps away.")
        carried = world.env.carrying
        parts.append(
            "You are not carrying anything."
            if carried is None
            else f"You are carrying a {carried.color} {carried.type}."
        )
        return " ".join(parts)


def look(world: World) -> dict[tuple[int, int], int]:
    """The cells in sight: (steps ahead, steps to the right) -> cell, the agent's own cell included.

    Sight spreads from the agent row by row, to either side and then ahead and diagonally ahead, through every cell that
    is not opaque.
    """
    width, height = world.env.width, world.env.height
    y, x = divmod(world.position, width)
    dx, dy = ((1, 0), (0, 1), (-1, 0), (0, -1))[world.env.agent_dir]
    visible: dict[tuple[int, int], int] = {}
    lit = {0}
    for ahead in range(AHEAD + 1):
        row: dict[int, int] = {}
        clear: dict[int, bool] = {}
        for right in range(-ASIDE, ASIDE + 1):
            column, line = x + ahead * dx - right * dy, y + ahead * dy + right * dx
            if 0 <= column < width and 0 <= line < height:
                row[right] = cell = line * width + column
                clear[right] = not world.opaque(cell)
        following: set[int] = set()
        for rights, side in ((range(-ASIDE, ASIDE), 1), (range(ASIDE, -ASIDE, -1), -1)):
            for right in rights:
                if right in lit and clear.get(right, False):
                    lit.add(right + side)
                    following |= {right, right + side}
        visible.update({(ahead, right): cell for right, cell in row.items() if right in lit})
        lit = following
    return visible


def paths(world: World, visible: set[int]) -> tuple[dict[int, tuple[int, ...]], dict[int, tuple[int, ...]]]:
    """Shortest sequences of moves over free cells in sight: to stand before each cell and face it, and to stand on
    it."""
    facing: dict[int, tuple[int, ...]] = {}
    standing: dict[int, tuple[int, ...]] = {}
    free = {cell for cell in visible if world.passable(cell)}
    start = (world.position, int(world.env.agent_dir))
    seen = {start}
    queue: deque[tuple[int, int, tuple[int, ...]]] = deque([(*start, ())])
    while queue:
        position, direction, moves = queue.popleft()
        front = position + world.ahead(direction)
        facing.setdefault(front, moves)
        standing.setdefault(position, moves)
        for move, state in (
            (FORWARD, (front, direction)),
            (LEFT, (position, (direction - 1) % 4)),
            (RIGHT, (position, (direction + 1) % 4)),
        ):
            if state not in seen and (move != FORWARD or front in free):
                seen.add(state)
                queue.append((*state, (*moves, move)))
    return facing, standing


def normalise(action: str) -> str:
    """An action as the list spells it."""
    return re.sub(r"^pick up\b", "pickup", " ".join(action.lower().split()))


def refusal(scene: Scene, world: World, action: str) -> str:
    """Explains why an action that is not available is not possible."""
    match = re.fullmatch(r"(go to|pickup|go through|toggle and go through) (.+)", action)
    seen = None if match is None else next((s for s in scene.sightings if s.label == match[2]), None)
    if match is not None and seen is None:
        return f"There is no {match[2]} in sight."
    if match is not None and seen is not None:
        return _refusal(world, match[1], seen)
    if action == "move forward":
        return "Something is in the way: you cannot move forward."
    if action == "drop":
        return (
            "You are not carrying anything."
            if world.env.carrying is None
            else "There is no free floor in front of you to drop it on."
        )
    if action == "toggle":
        return "There is nothing in front of you that you can open or close."
    return "No such action. Choose one of the available actions."


def _refusal(world: World, verb: str, seen: Sighting) -> str:
    door = door_state(seen.thing)
    if verb == "pickup" and door is not None:
        return "A door cannot be picked up."
    if verb == "pickup" and world.env.carrying is not None:
        return "You are already carrying something: drop it first."
    if "through" in verb and door is None:
        return f"The {seen.label} is not a door."
    if verb == "go through" and door != "open":
        return f"The {seen.label} is not open: toggle it first."
    if verb == "toggle and go through" and door == "open":
        return f"The {seen.label} is open already."
    if verb == "toggle and go through" and door == "locked" and not world.can_unlock(seen.thing):
        return f"The {seen.label} is locked, and you do not carry its key."
    if verb == "go to" and seen.cell == world.front:
        return f"You are facing the {seen.label} already."
    return f"There is no free way in sight to the {seen.label}."


def _sightings(world: World, visible: dict[tuple[int, int], int]) -> tuple[Sighting, ...]:
    order = sorted(
        (ahead + abs(right), -ahead, right, cell) for (ahead, right), cell in visible.items() if world.thing(cell)
    )
    count: dict[str, int] = {}
    found = []
    for distance, behind, right, cell in order:
        if distance == 0:  # the open door that the agent stands in
            continue
        thing = world.thing(cell)
        name = " ".join(filter(None, (thing.color, door_state(thing), thing.type)))
        count[name] = count.get(name, 0) + 1
        found.append(Sighting(f"{name} {count[name]}", thing, cell, -behind, right))
    return tuple(found)


def _barrier(world: World, visible: dict[tuple[int, int], int]) -> tuple[str, int] | None:
    for ahead in range(1, AHEAD + 1):
        cell = visible.get((ahead, 0))
        thing = None if cell is None else world.env.grid.grid[cell]
        if thing is not None and thing.type in ("wall", "box"):
            return thing.type, ahead
    return None


def _where(seen: Sighting) -> str:
    if seen.right == 0:
        return f"right in front of you {seen.ahead} steps away"
    return (
        f"{seen.ahead} steps in front of you and {abs(seen.right)} steps to your "
        f"{'right' if seen.right > 0 else 'left'}"
    )


def _actions(world: World, sightings: tuple[Sighting, ...], visible: set[int]) -> dict[str, tuple[int, ...]]:
    facing, standing = paths(world, visible)
    actions: dict[str, tuple[int, ...]] = {"turn left": (LEFT,), "turn right": (RIGHT,)}
    front, carrying = world.thing(world.front), world.env.carrying
    if world.passable(world.front):
        actions["move forward"] = (FORWARD,)
    if carrying is not None and front is None and not world.wall(world.front):
        actions["drop"] = (DROP,)
    if front is not None and _opens(world, front):
        actions["toggle"] = (TOGGLE,)
    for seen in sightings:
        moves = facing.get(seen.cell)
        door = door_state(seen.thing)
        if moves is not None and door is None and carrying is None:
            actions[f"pickup {seen.label}"] = (*moves, PICKUP)
        if door == "open" and seen.cell in standing:
            actions[f"go through {seen.label}"] = standing[seen.cell]
        if moves is not None and door is not None and door != "open" and _opens(world, seen.thing):
            actions[f"toggle and go through {seen.label}"] = (*moves, TOGGLE, FORWARD)
        if moves:
            actions[f"go to {seen.label}"] = moves
    return actions


def _opens(world: World, thing: Any) -> bool:
    """Checks whether ``toggle`` opens a thing: a door that is not locked against the agent, or a box."""
    if door_state(thing) == "locked":
        return world.can_unlock(thing)
    return thing.type in ("door", "box")
