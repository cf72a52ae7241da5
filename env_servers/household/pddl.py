"""Problems from files: ALFWorld's games, or others in the same PDDL, played by our rules.

Two forms are read: a folder of ALFWorld's layout
(``<folder>/<split>/<name>/<trial>/game.tw-pddl``, as ``alfworld-download`` makes it), and a file of JSON lines, gzipped
or not, with ``id``, ``task`` and ``pddl_problem``. Ids are ``split/name/trial``, and the name says the task:
``pick_clean_then_place_in_recep-Cloth-None-Cabinet-424``.
"""

import gzip
import json
import re
from collections import Counter
from functools import lru_cache
from pathlib import Path

from env_servers.alfred.problem import Goal, Problem, Receptacle, TaskType, Thing

#: Our splits by ALFWorld's folders.
FOLDERS = {"train": "train", "dev": "valid_seen", "test": "valid_unseen"}
#: What a thing can be used for, by the predicate that says so.
_ABILITIES = {
    "pickupable": "take",
    "cleanable": "clean",
    "heatable": "heat",
    "coolable": "cool",
    "sliceable": "slice",
    "toggleable": "use",
    "isreceptacleobject": "contain",
}
#: Tasks that ALFWorld leaves out.
_UNSUPPORTED = re.compile("movable|Sliced")
_ATOM = re.compile(r"\(([^()]*)\)")


class ProblemFiles:
    """The problems under a path; each is read when it is asked for.

    Raises:
        ValueError: There are none, or they are not of the form above.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path).expanduser()
        if self.path.is_dir():
            games = (file.parent.relative_to(self.path).as_posix() for file in self.path.glob("*/*/*/game.tw-pddl"))
            found = {task: "" for task in games if not _UNSUPPORTED.search(task)}
        elif self.path.is_file():
            found = {row["id"]: json.dumps(row) for row in _rows(self.path)}
        else:
            raise ValueError(f"there is no {self.path}")
        self._found = dict(sorted(found.items()))
        if not self._found:
            raise ValueError(f"there are no game.tw-pddl files three folders below {self.path}")
        self._read = lru_cache(maxsize=1024)(self._parse)

    def ids(self, split: str) -> list[str]:
        """The ids of a split, sorted."""
        return [task for task in self._found if task.startswith(f"{FOLDERS[split]}/")]

    def problem(self, task_id: str) -> Problem | None:
        """A problem; None if there is no such id, or it is marked as unsolvable."""
        return self._read(task_id) if task_id in self._found else None

    def _parse(self, task_id: str) -> Problem | None:
        text = self._found[task_id] or (self.path / task_id / "game.tw-pddl").read_text(encoding="utf-8")
        data = json.loads(text)
        return (
            parse_problem(data["pddl_problem"], data.get("task") or data["grammar"])
            if data.get("solvable", True)
            else None
        )


def _rows(path: Path) -> list[dict]:
    try:
        data = path.read_bytes()
        text = (gzip.decompress(data) if path.suffix == ".gz" else data).decode()
        rows = [json.loads(line) for line in text.splitlines()]
    except (OSError, EOFError, ValueError) as error:
        raise ValueError(f"{path} is not a file of JSON lines: {error}") from error
    if not all(isinstance(row, dict) and {"id", "task", "pddl_problem"} <= row.keys() for row in rows):
        raise ValueError(f"{path}: every line needs id, task and pddl_problem")
    return rows


def parse_labels(task_id: str) -> dict[str, str]:
    """Reads type, object and scene from an id. The goal is the id itself: every game arranges things in its own way."""
    type_, kind, _, _, scene = (task_id.split("/")[1].split("-") + [""] * 5)[:5]
    return {"type": type_, "object": kind.lower(), "scene": scene, "goal": task_id}


def parse_problem(text: str, task: str) -> Problem:
    """A problem from its PDDL.

    Args:
        task: Any text with "Your task is to: ..." in it.
    """
    text = text.lower()
    start, end = text.index("(:init"), text.index("(:goal")
    facts: dict[str, list[list[str]]] = {}
    for atom in _ATOM.findall(text[start:end]):
        name, *arguments = atom.split()
        facts.setdefault(name, []).append(arguments)

    def pairs(predicate: str) -> dict[str, str]:
        return dict(facts.get(predicate, []))

    kinds = {raw: kind.removesuffix("type") for raw, kind in (pairs("objecttype") | pairs("receptacletype")).items()}
    names = _numbered(kinds)
    places = {place: number for number, place in enumerate(sorted(set(pairs("receptacleatlocation").values())))}
    at, where = pairs("receptacleatlocation"), pairs("inreceptacle")
    openable = {raw for (raw,) in facts.get("openable", [])}
    receptacles = {
        names[raw]: Receptacle(kinds[raw], places[at[raw]], raw in openable)
        for raw in sorted(pairs("receptacletype"))
        if raw in at
    }
    abilities: dict[str, set[str]] = {}
    for predicate, ability in _ABILITIES.items():
        for (raw,) in facts.get(predicate, []):
            abilities.setdefault(raw, set()).add(ability)
    lying = [raw for raw in sorted(pairs("objecttype")) if where.get(raw) in at]
    down = pairs("objectatlocation")
    fits: dict[str, set[str]] = {}
    for receptacle, thing in facts.get("cancontain", []):
        fits.setdefault(receptacle.removesuffix("type"), set()).add(thing.removesuffix("type"))
    (_, agent), *_ = facts["atlocation"]
    return Problem(
        statement=re.split(r"your task is to: ", task, flags=re.IGNORECASE)[-1].partition('"')[0].strip(),
        goal=_goal(text[end:]),
        receptacles=receptacles,
        things={names[raw]: Thing(kinds[raw], frozenset(abilities.get(raw, ()))) for raw in lying},
        where={names[raw]: names[where[raw]] for raw in lying},
        marks=frozenset(
            [f"opened {names[raw]}" for (raw,) in facts.get("opened", [])]
            + [f"down {names[raw]}" for raw in lying if raw in down and down[raw] == at[where[raw]]]
        ),
        fits={receptacle: frozenset(things) for receptacle, things in fits.items()},
        start=places.get(agent),
    )


def _numbered(kinds: dict[str, str]) -> dict[str, str]:
    """Names as ALFWorld gives them: the ids of a kind, sorted, are numbered downwards."""
    names: dict[str, str] = {}
    left = Counter(kinds.values())
    for raw in sorted(kinds):
        names[raw] = f"{kinds[raw]} {left[kinds[raw]]}"
        left[kinds[raw]] -= 1
    return names


def _goal(text: str) -> Goal:
    kinds = [kind.removesuffix("type") for kind in re.findall(r"\(objecttype \?\w+ (\w+)\)", text)]
    targets = [kind.removesuffix("type") for kind in re.findall(r"\(receptacletype \?\w+ (\w+)\)", text)]
    if "istoggled" in text:
        lamp, kind = kinds if kinds[0].endswith("lamp") else reversed(kinds)
        return Goal(TaskType.LOOK, kind, lamp)
    for type_, predicate in ((TaskType.CLEAN, "isclean"), (TaskType.HEAT, "ishot"), (TaskType.COOL, "iscool")):
        if predicate in text:
            return Goal(type_, kinds[0], targets[0])
    return Goal(TaskType.TWO if len(kinds) == 2 else TaskType.PLACE, kinds[0], targets[0])
