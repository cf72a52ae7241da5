"""The 40 levels, and how minigrid's generator becomes a `Level`.

A level and a seed determine everything. Whatever minigrid prints while it generates ("Sampling rejected ...") is dropped.
"""

from __future__ import annotations

import hashlib
import os
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Literal

from env_servers.babyai.mission import Clause, ClauseEntry, Entry, Join, JoinEntry, Mission
from env_servers.babyai.world import Door, Level, Thing

Family = Literal["goto", "open", "pickup", "putnext", "unlock", "explore", "mixed"]


@dataclass(frozen=True)
class LevelSpec:
    """A row of the table: what one may choose a level by, without generating it.

    Attributes:
        expert_actions: Median of the expert's actions over 16 seeds.
        version: Of minigrid's id.
        small: Has so few problems that two seeds may pose the same one, which was found for these levels among all seeds in the splits.
    """

    name: str
    family: Family
    rooms: int
    expert_actions: int
    version: int = 0
    small: bool = False

    @property
    def gym_id(self) -> str:
        return f"BabyAI-{self.name}-v{self.version}"


#: In AgentGym's order: its level numbers are the positions here, from 1.
LEVELS = (
    LevelSpec("GoToRedBallGrey", "goto", 1, 1),
    LevelSpec("GoToRedBall", "goto", 1, 1),
    LevelSpec("GoToRedBallNoDists", "goto", 1, 1),
    LevelSpec("GoToObjS6", "goto", 1, 1, version=1, small=True),  # AgentGym names -v0, which minigrid has replaced
    LevelSpec("GoToLocalS8N7", "goto", 1, 1),
    LevelSpec("GoToObjMazeS7", "goto", 9, 10),
    LevelSpec("GoToImpUnlock", "goto", 9, 33),
    LevelSpec("GoToSeqS5R2", "goto", 4, 4),
    LevelSpec("GoToRedBlueBall", "goto", 1, 1),
    LevelSpec("GoToDoor", "goto", 9, 2),
    LevelSpec("GoToObjDoor", "goto", 9, 2),
    LevelSpec("Open", "open", 9, 3),
    LevelSpec("OpenRedDoor", "open", 2, 2, small=True),
    LevelSpec("OpenDoorLoc", "open", 9, 1),
    LevelSpec("OpenRedBlueDoorsDebug", "open", 9, 7, small=True),
    LevelSpec("OpenDoorsOrderN4Debug", "open", 9, 4),
    LevelSpec("Pickup", "pickup", 9, 15),
    LevelSpec("UnblockPickup", "pickup", 9, 6),
    LevelSpec("PickupLoc", "pickup", 1, 1),
    LevelSpec("PickupDistDebug", "pickup", 1, 1),
    LevelSpec("PickupAbove", "pickup", 9, 5),
    LevelSpec("PutNextLocalS6N4", "putnext", 1, 5),
    LevelSpec("PutNextS7N4Carrying", "putnext", 2, 5),
    LevelSpec("Unlock", "unlock", 9, 6),
    LevelSpec("UnlockLocalDist", "unlock", 9, 4),
    LevelSpec("KeyInBox", "unlock", 9, 6),
    LevelSpec("UnlockPickupDist", "unlock", 2, 10),
    LevelSpec("BlockedUnlockPickup", "unlock", 2, 18),
    LevelSpec("UnlockToUnlock", "unlock", 3, 15),
    LevelSpec("ActionObjDoor", "mixed", 9, 2),
    LevelSpec("FindObjS7", "explore", 9, 14),
    LevelSpec("KeyCorridorS6R3", "explore", 9, 36),
    LevelSpec("OneRoomS20", "explore", 1, 10),
    LevelSpec("MoveTwoAcrossS8N9", "putnext", 2, 23),
    LevelSpec("SynthS5R2", "mixed", 6, 6),
    LevelSpec("SynthLoc", "mixed", 9, 5),
    LevelSpec("SynthSeq", "mixed", 9, 11),
    LevelSpec("MiniBossLevel", "mixed", 4, 6),
    LevelSpec("BossLevel", "mixed", 9, 17),
    LevelSpec("BossLevelNoUnlock", "mixed", 9, 23),
)
BY_NAME = {level.name: level for level in LEVELS}


def require_minigrid() -> None:
    """Imports minigrid, quietly.

    Raises:
        RuntimeError: It is not installed.
    """
    os.environ.setdefault("PYGAME_HIDE_SUPPORT_PROMPT", "1")
    try:
        import minigrid
        from minigrid.envs.babyai.core import roomgrid_level
    except ImportError as error:
        raise RuntimeError(f"BabyAI needs the package minigrid ({error}). Install it with: pip install minigrid==3.2.0") from error
    assert minigrid
    # The generator's own ``print``; unlike a redirected stdout this is the same for all threads.
    roomgrid_level.__dict__["print"] = lambda *_: None


def make(name: str, seed: int) -> Any:
    """minigrid's environment of a level (a ``RoomGridLevel``), reset, without its wrappers."""
    import gymnasium
    from gymnasium.envs.registration import load_env_creator

    spec = gymnasium.spec(BY_NAME[name].gym_id)
    environment: Any = load_env_creator(str(spec.entry_point))(**spec.kwargs)
    environment.reset(seed=seed)
    return environment


@lru_cache(maxsize=1024)
def level(name: str, seed: int) -> Level:
    """A generated level. A tree search asks for the same one again and again, hence the cache (some 5 KB each)."""
    return extract(make(name, seed))


def problem(spec: LevelSpec, seed: int) -> str:
    """Identifies the problem that a task poses: by level and seed or, for small levels, by the generated level itself."""
    if not spec.small:
        return f"{spec.name}@{seed}"
    made = level(spec.name, seed)
    content = (made.walls, made.things, made.cells, made.doors, made.position, made.direction, made.mission_text)
    return f"{spec.name}#{hashlib.sha256(repr(content).encode()).hexdigest()[:12]}"


def extract(environment: Any) -> Level:
    """Reads a level from minigrid's environment right after its reset."""
    width, height = environment.width, environment.height
    walls = bytearray(width * height)
    found: list[Any] = []
    cells: dict[int, int] = {}
    for cell, thing in enumerate(environment.grid.grid):
        if thing is not None and thing.type == "wall":
            walls[cell] = 1
        elif thing is not None:
            cells[cell] = len(found)
            found.append(thing)
    carrying = None
    if environment.carrying is not None:
        carrying = len(found)
        found.append(environment.carrying)
    found += [thing.contains for thing in found if thing.contains is not None]
    number = {id(thing): index for index, thing in enumerate(found)}
    doors: dict[int, Door] = {
        index: "open" if thing.is_open else "locked" if thing.is_locked else "closed"
        for index, thing in enumerate(found)
        if thing.type == "door"
    }
    progress: list[Entry] = []
    mission = _mission(environment.instrs, number, width, progress)
    x, y = map(int, environment.agent_pos)
    return Level(
        width=width,
        height=height,
        walls=bytes(walls),
        things=tuple(Thing(t.type, t.color, None if t.contains is None else number[id(t.contains)]) for t in found),
        cells=cells,
        doors=doors,
        position=y * width + x,
        direction=int(environment.agent_dir),
        carrying=carrying,
        mission_text=environment.mission,
        mission=mission,
        progress=tuple(progress),
        max_moves=int(environment.max_steps),
    )


def _mission(instruction: Any, number: dict[int, int], width: int, progress: list[Entry]) -> Mission:
    """The mission tree below an instruction of minigrid's; appends its entries to ``progress``.

    Args:
        number: Index of each thing by its ``id()``.
    """
    from minigrid.envs.babyai.core import verifier

    joins: dict[type, Literal["and", "before", "after"]]
    joins = {verifier.AndInstr: "and", verifier.BeforeInstr: "before", verifier.AfterInstr: "after"}
    clauses: dict[type, Literal["goto", "open", "pickup"]]
    clauses = {verifier.GoToInstr: "goto", verifier.OpenInstr: "open", verifier.PickupInstr: "pickup"}
    slot = len(progress)
    if kind := joins.get(type(instruction)):
        progress.append(JoinEntry())
        first = _mission(instruction.instr_a, number, width, progress)
        second = _mission(instruction.instr_b, number, width, progress)
        return Join(kind, first, second, instruction.strict, slot)

    def things(description: Any) -> frozenset[int]:
        # "The grey object" fits walls too, which have no number here: nothing but being faced can be done to them.
        return frozenset(number[id(thing)] for thing in description.obj_set if id(thing) in number)

    strict = getattr(instruction, "strict", False)
    if isinstance(instruction, verifier.PutNextInstr):
        target = instruction.desc_fixed
        clause = Clause("putnext", things(instruction.desc_move), things(target), strict, slot)
    else:
        target = instruction.desc
        clause = Clause(clauses[type(instruction)], things(target), frozenset(), strict, slot)
    progress.append(ClauseEntry(None, frozenset(int(y) * width + int(x) for x, y in target.obj_poss)))
    return clause
