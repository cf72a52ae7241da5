"""The household expert: finds, treats and places things by the texts it has read, and by nothing else.

It sees the texts that an agent sees and the actions that can be done, never the state. So it has to search, and a
demonstration shows how: the likeliest places first, one after another, remembering what was seen on the way. That is
what an agent can imitate. It plays any world with these texts, the real ALFWorld included.
"""

import re
from collections.abc import Callable, Collection, Generator, Mapping, Sequence
from dataclasses import dataclass, field

from env_servers.alfred.catalogue import catalogue
from env_servers.alfred.problem import TREATMENTS, Goal, TaskType
from env_servers.base import ExpertStep

_NAME = re.compile(r"\ba ([a-z]+ [0-9]+)")
#: How a task is worded, for each type.
_TASKS = {
    TaskType.TWO: r"(?:put|find) two (?P<kind>\w+) (?:in|and put them in) (?P<target>\w+)",
    TaskType.CLEAN: r"(?:put a clean|clean some) (?P<kind>\w+) (?:in|and put it in) (?P<target>\w+)",
    TaskType.HEAT: r"(?:put a hot|heat some) (?P<kind>\w+) (?:in|and put it in) (?P<target>\w+)",
    TaskType.COOL: r"(?:put a cool|cool some) (?P<kind>\w+) (?:in|and put it in) (?P<target>\w+)",
    TaskType.LOOK: r"(?:look at|examine the) (?P<kind>\w+) (?:under|with) the (?P<target>\w+)",
    TaskType.PLACE: r"put (?:a|some) (?P<kind>\w+) (?:in|on) (?P<target>\w+)",
}


@dataclass(frozen=True)
class Turn:
    """The environment's answer to the expert's last action. ``admissible`` lists the actions possible next."""

    text: str
    admissible: Callable[[], Collection[str]]
    done: bool = False


@dataclass(frozen=True)
class Known:
    """What is known where the expert goes on from the middle of an episode.

    Attributes:
        seen: Contents of each receptacle that were shown.
        at: A receptacle within reach.
        held: The thing in the hand.
        treated: Things that were cleaned, heated or cooled as the task wants.
    """

    seen: Mapping[str, Sequence[str]] = field(default_factory=dict)
    at: str = ""
    held: str = ""
    treated: Collection[str] = ()


Play = Generator[ExpertStep, Turn, None]
Find = Generator[ExpertStep, Turn, str | None]


def demonstrate(
    first: Turn, carry_out: Callable[[str], Turn], limit: int, known: Known | None = None
) -> list[ExpertStep] | None:
    """The expert's steps from the first observation to the end of the episode; None if it does not get there in
    ``limit`` actions.

    Args:
        known: Where it goes on from the middle of the episode.
    """
    goal = parse_task(first.text)
    if goal is None:
        return None
    steps: list[ExpertStep] = []
    play = Expert(first, goal, known or Known()).play()
    try:
        step = next(play)
        while len(steps) < limit:
            steps.append(step)
            turn = carry_out(step.action)
            if turn.done:
                return steps
            step = play.send(turn)
    except StopIteration:
        pass
    return None


def parse_task(text: str) -> Goal | None:
    """The goal that a first observation states; None for words that are not ALFWorld's."""
    task = text.rpartition("Your task is to: ")[2].strip().rstrip(".")
    for type_, pattern in _TASKS.items():
        if match := re.fullmatch(pattern, task):
            return Goal(type_, match["kind"], match["target"])
    return None


class Expert:
    """One episode of the expert.

    Attributes:
        seen: Contents of each receptacle as last seen.
        at: The receptacle that it went to last.
    """

    def __init__(self, first: Turn, goal: Goal, known: Known) -> None:
        self.goal = goal
        self.turn = first
        self.receptacles = _NAME.findall(first.text)
        self.known = known
        self.seen = {place: list(things) for place, things in known.seen.items()}
        self.at = known.at

    def play(self) -> Play:
        """The steps, until nothing is left to do or it is at its wits' end."""
        goal, held = self.goal, self.known.held
        if held and _kind(held) != goal.kind:
            yield from self._put_away(held)
            held = ""
        if goal.type is TaskType.LOOK:
            if held or (yield from self._fetch(goal.kind)):
                yield from self._light()
            return
        home = next(iter(self._begun()), "") if goal.type is TaskType.TWO and self.known.seen else ""
        for _ in range(2 if goal.type is TaskType.TWO and not home else 1):
            thing, held = held or (yield from self._fetch(goal.kind, leave=home)), ""
            if thing is None:
                return
            if goal.type in TREATMENTS and thing not in self.known.treated:
                yield from self._treat(thing)
            home = yield from self._deliver(thing, home)
            if not home:
                return

    # parts of a plan --------------------------------------------------------------------------------------------------

    def _fetch(self, kind: str, leave: str = "") -> Find:
        """Finds and takes a thing, but none that lies in ``leave``; its name."""
        place = yield from self._find(kind, leave, f"a {kind}" if not leave else f"another {kind}")
        if place is None:
            return None
        if f"open {place}" in self.turn.admissible():  # somebody closed it again
            yield from self._do(f"{place} is closed. I open it.", f"open {place}")
        thing = next(name for name in self.seen[place] if _kind(name) == kind)
        yield from self._do(f"There is {thing} at {place}. I take it.", f"take {thing} from {place}")
        self.seen[place].remove(thing)
        return thing

    def _find(self, kind: str, leave: str, wanted: str) -> Find:
        """Goes to a receptacle where a thing can be seen; its name. Goes back to one seen before if there was one."""
        known = self._remembered(kind, leave)
        if known is not None and known != self.at:
            yield from self._go(known, f"I need {wanted}, and I saw one at {known} before. I go back there.")
        usual = catalogue().usual(kind)
        last = ""
        for place in self._search_order(kind):
            if (known := self._remembered(kind, leave)) is not None:
                return known
            if place in self.seen:
                continue
            thought = (
                f"There is no {kind} at {last}. Next I look at {place}"
                if last
                else f"I need {wanted}. First I look at {place}"
            )
            if _kind(place) in usual:
                thought += ", where it may well be" if last else ", the likeliest place for it"
            yield from self._go(place, f"{thought}.")
            if place not in self.seen:
                yield from self._do(f"{place} is closed, and there may be {wanted} inside. I open it.", f"open {place}")
            last = place
        return self._remembered(kind, leave)

    def _treat(self, thing: str) -> Play:
        verb, mark, kind = TREATMENTS[self.goal.type]
        tools = [name for name in self.receptacles if _kind(name) == kind]
        tool = self.at if self.at in tools else next(iter(tools), None)
        if tool is None:
            return
        if tool != self.at:
            yield from self._go(tool, f"I have {thing}. It has to be {mark}, and for that I need {tool}.")
        yield from self._do(f"I am at {tool} and can {verb} {thing} here.", f"{verb} {thing} with {tool}")

    def _deliver(self, thing: str, home: str) -> Generator[ExpertStep, Turn, str]:
        """Puts what is held where the goal wants it; the receptacle's name, empty if there is none that takes it."""
        fitting = [name for name in self.receptacles if _kind(name) == self.goal.target]
        started = self._begun()
        if not home and self.goal.type is TaskType.TWO and started:
            fitting = started
        elif self.at in fitting:
            fitting = [self.at]
        target = home or next(iter(fitting), "")
        if not target:
            return ""
        if target != self.at:
            yield from self._go(
                target, f"I have {thing}{self._state_of_thing()}. Now it belongs in {target}, so I go there."
            )
        if f"open {target}" in self.turn.admissible():
            yield from self._do(f"{target} is closed. I open it to put {thing} in.", f"open {target}")
        yield from self._do(f"I put {thing} where it belongs, {target}.", f"move {thing} to {target}")
        self.seen.setdefault(target, []).append(thing)
        return target

    def _begun(self) -> list[str]:
        """Receptacles as the goal wants them that have such a thing already."""
        return [
            name
            for name in self.receptacles
            if _kind(name) == self.goal.target
            and any(_kind(other) == self.goal.kind for other in self.seen.get(name, ()))
        ]

    def _put_away(self, thing: str) -> Play:
        """Puts down what is held and not needed, at the first place that takes it."""
        for place in dict.fromkeys(filter(None, (self.at, *self.seen, *self.receptacles))):
            if place != self.at:
                yield from self._go(place, f"I do not need {thing}. I go to {place} to put it down.")
            if f"open {place}" in self.turn.admissible():
                yield from self._do(f"{place} is closed. I open it.", f"open {place}")
            if f"move {thing} to {place}" in self.turn.admissible():
                yield from self._do(f"I do not need {thing}, so I put it down here.", f"move {thing} to {place}")
                self.seen.setdefault(place, []).append(thing)
                return

    def _state_of_thing(self) -> str:
        return f", and it is {TREATMENTS[self.goal.type][1]} now" if self.goal.type in TREATMENTS else ""

    def _light(self) -> Play:
        lamp_kind = self.goal.target
        place = yield from self._find(lamp_kind, "", f"the {lamp_kind}")
        if place is not None:
            lamp = next(name for name in self.seen[place] if _kind(name) == lamp_kind)
            yield from self._do(
                f"I hold the {self.goal.kind}, and {lamp} is here. I turn it on to look at it.", f"use {lamp}"
            )

    # single actions ---------------------------------------------------------------------------------------------------

    def _go(self, place: str, thought: str) -> Play:
        """Goes to a receptacle, or examines it if it is within reach already."""
        self.at = place
        yield from self._do(
            thought, f"go to {place}" if f"go to {place}" in self.turn.admissible() else f"examine {place}"
        )

    def _do(self, thought: str, action: str) -> Play:
        """Yields one action, and remembers the contents that its answer shows."""
        self.turn = yield ExpertStep(thought, action)
        if "you see" in self.turn.text:
            self.seen[self.at] = _NAME.findall(self.turn.text)

    def _remembered(self, kind: str, leave: str) -> str | None:
        """A receptacle where a thing was seen, the nearest first."""
        places = [self.at, *self.seen] if self.at in self.seen else list(self.seen)
        return next((p for p in places if p != leave and any(_kind(name) == kind for name in self.seen[p])), None)

    def _search_order(self, kind: str) -> Sequence[str]:
        """All receptacles, likeliest first; those of equal rank by number."""
        ranks = {receptacle: rank for rank, receptacle in enumerate(catalogue().search_order(kind))}
        return sorted(
            self.receptacles,
            key=lambda name: (ranks.get(_kind(name), len(ranks)), _kind(name), int(name.rpartition(" ")[2])),
        )


def _kind(name: str) -> str:
    return name.rpartition(" ")[0]
