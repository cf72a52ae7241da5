"""Hits a run, one fault after the other, and measures how long it takes until that is noticed and until there is new
work."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from tests.tools.chaos.driver import Driver
from tests.tools.chaos.faults import Fault, How, Part, Strike
from tests.tools.chaos.processes import Hands, Process, actors, status_of
from tests.tools.chaos.progress import Progress

#: Seconds between two looks for the moment of a fault, and for what comes of it.
WAIT_S, LOOK_S = 0.02, 0.1


@dataclass(kw_only=True)
class Outcome:
    """What came of one fault.

    Attributes:
        stage: The stage that was running, such as ``rounds/01/collect``.
        hit: The process; empty if the moment never came.
        at: When, in seconds since 1970.
        noticed_s: Seconds until the first sign of it; None if there was none before there was new work.
        sign: What that was.
        recovered_s: Seconds until the part was there again and a unit was finished after that; None if that did not
            come.
        ended: How the driver ended because of it, if it did; it was started again.
        lost, twice: Units of the stage, compared with the undisturbed run.
        result: In a word or two, once the runs were compared.
    """

    stage: str
    fault: str
    hit: str = ""
    at: float = field(default_factory=time.time)
    noticed_s: float | None = None
    sign: str = ""
    recovered_s: float | None = None
    ended: str = ""
    lost: int = 0
    twice: int = 0
    result: str = ""


class Disturber:
    """Hits the run of a driver.

    Args:
        freeze_s: How long a frozen process stays so.
        patience_s: Longest wait for the run to go on after a fault.
        say: Is told of each fault.
    """

    def __init__(
        self, driver: Driver, progress: Progress, *, freeze_s: float, patience_s: float, notify: Callable[[str], None]
    ) -> None:
        self.driver = driver
        self.progress = progress
        self.freeze_s = freeze_s
        self.patience_s = patience_s
        self.notify = notify
        self._hands = Hands()

    def run(self, strikes: Sequence[Strike]) -> list[Outcome]:
        """Hits the run at each moment of a schedule. Returns when all have passed; the run goes on.

        Raises:
            RunError: The run ended again and again.
        """
        for node in _node_ids():
            self._hands.ask(node, "server", 0)  # so that it is there at once when it is needed
        return [self._when_due(strike) for strike in strikes]

    def _when_due(self, strike: Strike) -> Outcome:
        while not self.driver.done():
            state = self.progress.state(strike.place)
            if state == "sealed":
                break
            if state == "running" and max(self.progress.size(strike.place)) >= strike.after:
                outcome = self.hit(strike.fault, strike.place)
                if outcome is not None:
                    return outcome
            time.sleep(WAIT_S)
        self.notify(f"{strike.place}: {strike.fault} was missed: the stage was over before")
        return Outcome(stage=strike.place, fault=str(strike.fault))

    def hit(self, fault: Fault, place: str) -> Outcome | None:
        """Hits a part now and waits until the run has recovered; None if the part is not there."""
        target = None if fault.part is Part.driver else self._find(fault.part)
        if fault.part is not Part.driver and target is None:
            return None
        before = _Before(self.progress.owner(), self.progress.said(), len(self.driver.ended), self.driver.pid)
        outcome = Outcome(stage=place, fault=str(fault))
        if target is None:
            self.driver.kill()
            outcome.hit, outcome.at = f"driver {before.driver}", time.time()
            self.driver.start()
        else:
            number = signal.SIGKILL if fault.how is How.kill else signal.SIGSTOP
            hit = self._hands.ask(target.node, "signal", target.pid, number, fault.part is Part.environment)
            if not hit:
                return None
            before.victim = hit
            outcome.hit, outcome.at = f"{target.name or fault.part} {hit}", time.time()
        self.notify(f"{place}: {fault}: {outcome.hit}")
        self._follow(fault, target, before, outcome)
        recovered = (
            f"recovered after {outcome.recovered_s:.1f} s" if outcome.recovered_s is not None else "did not recover"
        )
        noticed = (
            f"noticed after {outcome.noticed_s:.1f} s ({outcome.sign})"
            if outcome.noticed_s is not None
            else "not noticed"
        )
        self.notify(f"    {noticed}, {recovered}")
        return outcome

    def _find(self, part: Part) -> Process | None:
        """The first process of a part that is up."""
        role = Part.supervisor if part is Part.environment else part
        found = [process for process in self._actors() if process.part is role and process.alive and process.pid]
        return min(found, key=lambda process: (process.name, process.actor), default=None)

    def _actors(self) -> list[Process]:
        return list(actors(self.driver.job)) if self.driver.job else []

    # what comes of it -------------------------------------------------------------------------------------------------

    def _follow(self, fault: Fault, target: Process | None, before: _Before, outcome: Outcome) -> None:
        frozen = fault.how is How.freeze
        least: int | None = None
        done = False
        while time.time() - outcome.at < self.patience_s:
            since = time.time() - outcome.at
            if frozen and target is not None and since >= self.freeze_s:
                frozen = False
                self._thaw(target, before.victim)
            sign, back = self._look(fault, target, before)
            if outcome.noticed_s is None and sign:
                outcome.noticed_s, outcome.sign = round(since, 2), sign
            units = self.progress.units(fault.part)
            if not frozen and back:
                if least is not None and units > least:
                    outcome.recovered_s = round(since, 2)
                    break
                least = min(units, least) if least is not None else units
            if done or (not frozen and self.progress.state(outcome.stage) == "sealed"):  # it was over without the part
                outcome.recovered_s = round(since, 2)
                break
            time.sleep(LOOK_S)
            done = self.driver.done()
        outcome.ended = "; ".join(self.driver.ended[before.ended :])
        if frozen and target is not None:
            self._thaw(target, before.victim)

    def _thaw(self, target: Process, pid: int) -> None:
        from ray.exceptions import RayError

        try:
            self._hands.ask(target.node, "thaw", pid)
        except RayError:
            return  # its node is gone, and it with it

    def _look(self, fault: Fault, target: Process | None, before: _Before) -> tuple[str, bool]:
        """Returns the first sign that the fault was noticed, and whether the part is there again."""
        if len(self.driver.ended) > before.ended:
            return f"the driver ended ({self.driver.ended[-1]})"[:100], self._find(
                fault.part
            ) is not None or fault.part is Part.driver
        if target is None:
            taken = self.progress.owner() not in ("", before.owner)
            return ("the lease was taken over" if taken else ""), taken
        said = _new(self.progress.said(), before.said)
        now = {process.actor: process for process in self._actors()}
        same = now.get(target.actor)
        if fault.part is Part.environment:
            status = status_of(target.name)
            if status is None:
                return said or "the supervisor does not answer", False
            trouble = (
                ""
                if status.state == "up" and status.pid == before.victim
                else f"server {status.state}: {status.error}"[:60]
            )
            return trouble or said, status.state == "up" and (status.pid != before.victim or fault.how is How.freeze)
        if same is None or not same.alive or same.pid != target.pid:
            trouble = f"Ray: {same.state if same is not None and not same.alive else 'started again'}"
            others = [
                process
                for process in now.values()
                if process.part is target.part and process.alive and process.pid != target.pid
            ]
            return trouble, bool(others)
        return said, fault.how is How.freeze


@dataclass
class _Before:
    """What was to be seen before a fault."""

    owner: str
    said: str
    ended: int
    driver: int
    victim: int = 0


def _new(text: str, before: str) -> str:
    """What is said now and was not before."""
    known = set(before.split("; "))
    return "; ".join(part for part in text.split("; ") if part and part not in known)[:80]


def _node_ids() -> list[str]:
    from agentr.cluster.nodes import nodes

    return [node.id for node in nodes()]
