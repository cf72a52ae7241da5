"""The rules and texts of the household: those of the text engine of ALFWorld 0.4, action by action.

Both stay close to that engine on purpose, oddities included, so that agents and demonstrations carry over: heating
needs no open microwave, a lamp once turned on counts as on for ever, ``go to`` the place where one stands is refused,
an object is examined only in the hand (its rules mean more, but the engine offers no more). The words of older releases
are understood too: ``put X in/on Y`` for ``move X to Y``, and ``toggle X`` for ``use X``.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from env_servers.alfred.problem import TREATMENTS, Problem, TaskType

NOTHING_HAPPENS = "Nothing happens."
HELP = """Actions:
  look, inventory, help
  go to (receptacle)
  open (receptacle), close (receptacle)
  examine (receptacle or object)
  take (object) from (receptacle)
  move (object) to (receptacle)
  clean (object) with (sinkbasin), heat (object) with (microwave), cool (object) with (fridge)
  use (lamp)
  slice (object) with (knife)"""
_KNIVES = ("knife", "butterknife")


@dataclass
class HouseholdState:
    """Everything that changes in an episode.

    Attributes:
        problem: What stays fixed; shared by all states of a task.
        place: Where the agent stands; None is the middle of the room.
        where: The receptacle of each thing, empty for the one in the agent's hand; the problem's order is kept.
        marks: What was done: ``opened R``, ``clean X``, ``hot X``, ``cool X``, ``sliced X``, ``on X`` (a lamp),
            ``down X`` (the engine knows where it lies: it may be sliced), ``left X R`` (it was taken from R),
            ``seen R`` (its contents were shown).
    """

    task: str
    problem: Problem
    place: int | None
    where: dict[str, str]
    marks: set[str]
    done: bool = False

    @property
    def held(self) -> str | None:
        """The thing in the agent's hand."""
        return next((name for name, receptacle in self.where.items() if not receptacle), None)


def introduction(problem: Problem) -> str:
    """The room and the task."""
    return f"{_overview(problem.receptacles)}\n\nYour task is to: {problem.statement}"


def reached(state: HouseholdState) -> bool:
    """Checks whether the goal is reached."""
    problem, where = state.problem, state.where
    goal, receptacles = problem.goal, problem.receptacles
    if goal.type is TaskType.LOOK:
        return any(not where[name] for name in problem.candidates) and any(
            f"on {lamp}" in state.marks and where[lamp] and receptacles[where[lamp]].place == state.place
            for lamp in problem.lamps
        )
    homes = [
        where[name]
        for name in state.problem.candidates
        if where[name] and receptacles[where[name]].kind == goal.target and _treated(state, name)
    ]
    return len(homes) > len(set(homes)) if goal.type is TaskType.TWO else bool(homes)


def _treated(state: HouseholdState, name: str) -> bool:
    treatment = TREATMENTS.get(state.problem.goal.type)
    return treatment is None or f"{treatment[1]} {name}" in state.marks


def is_mark(problem: Problem, mark: str) -> bool:
    """Checks whether a text is a mark that may arise in a problem."""
    word, _, name = mark.partition(" ")
    if word in ("opened", "seen"):
        return name in problem.receptacles
    if word == "left":
        return any(name == f"{thing} {receptacle}" for thing in problem.things for receptacle in problem.receptacles)
    return word in ("clean", "hot", "cool", "sliced", "on", "down") and name in problem.things


def act(state: HouseholdState, action: str) -> str | None:
    """Carries out an action in place and says what happens; None, with nothing changed, if it cannot be done."""
    action = " ".join(action.lower().split())
    pattern, carry_out = _ACTIONS.get(action.partition(" ")[0], (None, None))
    if pattern is None or carry_out is None or (match := pattern.fullmatch(action)) is None:
        return None
    return carry_out(state, *match.groups())


def admissible(state: HouseholdState) -> list[str]:
    """Every action that can be done now, sorted; older wordings are left out."""
    return sorted(_admissible(state))


def _admissible(state: HouseholdState) -> Iterator[str]:
    yield from ("help", "inventory", "look")
    yield from (
        f"go to {name}" for name, receptacle in state.problem.receptacles.items() if receptacle.place != state.place
    )
    held = state.held
    if held is not None:
        yield f"examine {held}"
    for here in _here(state):
        receptacle = state.problem.receptacles[here]
        yield f"examine {here}"
        if receptacle.openable:
            yield f"{'close' if f'opened {here}' in state.marks else 'open'} {here}"
        for name in _inside(state, here):
            thing = state.problem.things[name]
            if held is None and "take" in thing.can and _accessible(state, here):
                yield f"take {name} from {here}"
            if "use" in thing.can:
                yield f"use {name}"
            if held is not None and _sliceable(state, name, held):
                yield f"slice {name} with {held}"
        if held is not None:
            if _accepts(state, here, held):
                yield f"move {held} to {here}"
            yield from (
                f"{verb} {held} with {here}"
                for verb, _, kind in TREATMENTS.values()
                if kind == receptacle.kind and verb in state.problem.things[held].can
            )


# what is where --------------------------------------------------------------------------------------------------------


def _here(state: HouseholdState) -> tuple[str, ...]:
    """The receptacles within reach."""
    return () if state.place is None else state.problem.at[state.place]


def _inside(state: HouseholdState, receptacle: str) -> list[str]:
    return [name for name, home in state.where.items() if home == receptacle]


def seen(state: HouseholdState) -> dict[str, list[str]]:
    """What is in each receptacle whose contents were shown. Nobody but the agent moves things, so it still is."""
    return {name: _inside(state, name) for name in state.problem.receptacles if f"seen {name}" in state.marks}


def _accessible(state: HouseholdState, receptacle: str) -> bool:
    """Checks whether the contents of a receptacle can be seen and reached."""
    return not state.problem.receptacles[receptacle].openable or f"opened {receptacle}" in state.marks


def _accepts(state: HouseholdState, receptacle: str, thing: str) -> bool:
    fitting = state.problem.fits.get(state.problem.receptacles[receptacle].kind, frozenset())
    return _accessible(state, receptacle) and state.problem.things[thing].kind in fitting


def _sliceable(state: HouseholdState, thing: str, knife: str) -> bool:
    return (
        "slice" in state.problem.things[thing].can
        and f"down {thing}" in state.marks
        and state.problem.things[knife].kind in _KNIVES
    )


def _joined(items: Sequence[str]) -> str:
    """As the engine writes lists, with a comma before "and"."""
    if len(items) < 2:
        return items[0] if items else "nothing"
    return f"{', '.join(items[:-1])}, and {items[-1]}"


def _listed(names: Iterable[str]) -> str:
    return _joined([f"a {name}" for name in names])


def _overview(receptacles: Iterable[str]) -> str:
    return f"You are in the middle of a room. Looking quickly around you, you see {_listed(receptacles)}."


def _description(state: HouseholdState, receptacle: str) -> str:
    contents = _listed(_inside(state, receptacle))
    if _accessible(state, receptacle):
        state.marks.add(f"seen {receptacle}")
    if not state.problem.receptacles[receptacle].openable:
        return f"On the {receptacle}, you see {contents}."
    if f"opened {receptacle}" in state.marks:
        return f"The {receptacle} is open. In it, you see {contents}."
    return f"The {receptacle} is closed."


# actions --------------------------------------------------------------------------------------------------------------


def _look(state: HouseholdState) -> str:
    here = _here(state)
    if not here:
        return _overview(())  # so it is in the engine: only the introduction lists the receptacles
    # The engine's idea of a thing on the floor: it lies here, and once left a receptacle that stands here.
    beside = [
        name
        for name, home in state.where.items()
        if home in here and f"down {name}" in state.marks
        for receptacle in here
        if f"left {name} {receptacle}" in state.marks
    ]
    return f"You are facing the {_joined(here)}. Next to it, you see {_listed(beside)}."


def _inventory(state: HouseholdState) -> str:
    return "You are not carrying anything." if state.held is None else f"You are carrying: a {state.held}."


def _help(_state: HouseholdState) -> str:
    return HELP


def _go(state: HouseholdState, receptacle: str) -> str | None:
    found = state.problem.receptacles.get(receptacle)
    if found is None or found.place == state.place:
        return None
    state.place = found.place
    return f"You arrive at {receptacle}. {_description(state, receptacle)}"


def _open(state: HouseholdState, receptacle: str) -> str | None:
    if receptacle not in _here(state) or _accessible(state, receptacle):
        return None
    state.marks.add(f"opened {receptacle}")
    return f"You open the {receptacle}. {_description(state, receptacle)}"


def _close(state: HouseholdState, receptacle: str) -> str | None:
    if receptacle not in _here(state) or f"opened {receptacle}" not in state.marks:
        return None
    state.marks.remove(f"opened {receptacle}")
    return f"You close the {receptacle}."


def _take(state: HouseholdState, name: str, receptacle: str) -> str | None:
    thing = state.problem.things.get(name)
    if thing is None or "take" not in thing.can or receptacle not in _here(state) or state.where[name] != receptacle:
        return None
    if state.held is not None or not _accessible(state, receptacle):
        return None
    state.where[name] = ""
    state.marks.discard(f"down {name}")
    state.marks.add(f"left {name} {receptacle}")
    return f"You pick up the {name} from the {receptacle}."


def _move(state: HouseholdState, name: str, receptacle: str) -> str | None:
    if name != state.held or receptacle not in _here(state) or not _accepts(state, receptacle, name):
        return None
    state.where[name] = receptacle
    state.marks.add(f"down {name}")
    state.marks.discard(f"left {name} {receptacle}")
    return f"You move the {name} to the {receptacle}."


def _treat(state: HouseholdState, verb: str, name: str, receptacle: str) -> str | None:
    _, mark, kind = next(treatment for treatment in TREATMENTS.values() if treatment[0] == verb)
    if name != state.held or verb not in state.problem.things[name].can:
        return None
    if receptacle not in _here(state) or state.problem.receptacles[receptacle].kind != kind:
        return None
    if mark in ("hot", "cool"):
        state.marks -= {f"hot {name}", f"cool {name}"}
    state.marks.add(f"{mark} {name}")
    return f"You {verb} the {name} using the {receptacle}."


def _use(state: HouseholdState, name: str) -> str | None:
    thing = state.problem.things.get(name)
    if thing is None or "use" not in thing.can or state.where[name] not in _here(state):
        return None
    state.marks.add(f"on {name}")
    return f"You turn on the {name}."


def _slice(state: HouseholdState, name: str, knife: str) -> str | None:
    if name not in state.problem.things or knife != state.held or state.where[name] not in _here(state):
        return None
    if not _sliceable(state, name, knife):
        return None
    state.marks.add(f"sliced {name}")
    return f"You sliced the {name} with the {knife}."


def _examine(state: HouseholdState, name: str) -> str | None:
    here = _here(state)
    if name in state.problem.receptacles:
        return _description(state, name) if name in here else None
    if name != state.held:
        return None
    if "contain" in state.problem.things[name].can:
        return f"This is a normal {name}. In it, you see nothing."
    found = {mark for mark in ("clean", "hot", "cool", "sliced") if f"{mark} {name}" in state.marks}
    if found == {"cool"}:
        return f"This is a cold {name}."
    if found:
        qualities = " and ".join(mark for mark in ("hot", "cool", "clean") if mark in found)
        return f"This is a {' '.join(filter(None, (qualities, 'sliced' * ('sliced' in found), name)))}."
    return f"There's nothing special about {name}."


_MOVE = (re.compile(r"(?:move|put) (.+) (?:to|in/on|in|on) (.+)"), _move)
_TREAT = (re.compile(r"(clean|heat|cool) (.+) with (.+)"), _treat)
_USE = (re.compile(r"(?:use|toggle) (.+)"), _use)
#: First word of an action -> its form and what carries it out.
_ACTIONS: dict[str, tuple[re.Pattern[str], Callable[..., str | None]]] = {
    "look": (re.compile("look"), _look),
    "inventory": (re.compile("inventory"), _inventory),
    "help": (re.compile("help"), _help),
    "go": (re.compile("go to (.+)"), _go),
    "open": (re.compile("open (.+)"), _open),
    "close": (re.compile("close (.+)"), _close),
    "take": (re.compile("take (.+) from (.+)"), _take),
    "move": _MOVE,
    "put": _MOVE,
    "clean": _TREAT,
    "heat": _TREAT,
    "cool": _TREAT,
    "use": _USE,
    "toggle": _USE,
    "slice": (re.compile("slice (.+) with (.+)"), _slice),
    "examine": (re.compile("examine (.+)"), _examine),
}
