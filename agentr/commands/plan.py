"""What a run would take: stages, memory, hours, money, and what to set so that it fits and is fastest."""

from __future__ import annotations

import math
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from rich.console import Group
from rich.table import Table
from rich.text import Text

from agentr.commands.run import run_dir
from agentr.cost.bounds import estimate
from agentr.cost.evidence import OTHER_MODEL, Evidence, evidence
from agentr.cost.forecast import Forecast, forecast
from agentr.cost.hardware import THIS, Hardware, hardware, measured_file
from agentr.cost.needs import MemoryNeed
from agentr.cost.number import Number, shown
from agentr.cost.propose import Proposal, devices_of, propose
from agentr.errors import ConfigError, RunError
from agentr.methods import methods_of, plan_of
from agentr.rounds.plan import Plan
from agentr.store.layout import Layout, title_of
from agentr.store.lease import Lease
from agentr.words import counted, span


@dataclass(frozen=True)
class Planned:
    """The answer of ``agentr plan``.

    Attributes:
        forecast: Of the configuration as it is; None if it needs more devices than there are.
        proposal: What is better; None if nothing fits, or nothing was looked for.
        devices: Devices that the configuration asks for.
        price: Of a device for an hour; 0 if it is not known.
        within: Seconds that the run may take; 0 means any.
    """

    plan: Plan
    hardware: Hardware
    forecast: Forecast
    proposal: Proposal | None
    devices: int
    price: float = 0.0
    within: float = 0.0

    @property
    def fits(self) -> bool:
        return self.forecast.fits and self.devices <= self.hardware.count


def plan_run(
    plan: Plan, on: Hardware, *, price: float = 0.0, within: float = 0.0, known: list[Evidence] | None = None
) -> Planned:
    """Predicts a run on some hardware, and looks for what is best there.

    Raises:
        ConfigError: The price or the time is no amount, or the model cannot be split as it is configured.
        ModelError: The size of the model is not known.
        RunError: The run is under way: what is left of it is what ``agentr status`` says.
    """
    for name, value in (("--price", price), ("--within", within)):
        if not 0 <= value < math.inf:
            raise ConfigError(f"{name} is {value:g}, and no amount", hint="Give 0 or more.")
    known = evidence(plan) if known is None else known
    found = forecast(plan, on, known)
    proposal = propose(plan, on, known)
    return Planned(plan, on, found, proposal, devices_of(plan) if on.device.gpu else 1, price, within)


def require_idle(plan: Plan) -> None:
    """Checks that nobody works on the run.

    Raises:
        RunError: Somebody does.
    """
    folder = run_dir(plan.config.run)
    if owner := Lease(Layout(folder).lease).look():
        raise RunError(
            f"{folder} is under way ({owner})", hint=f"'agentr status {folder}' says how long it still takes."
        )


def measured(say: Any) -> Hardware:
    """Returns this machine, which is measured at the first time, in a process of its own.

    Args:
        say: Called with what takes long.

    Raises:
        RunError: It could not be measured.
    """
    if not measured_file().is_file():
        say("measuring this machine, once (agentr plan --measure does it again) ...")
        measure()
    return hardware(THIS)


def measure() -> None:
    """Measures this machine in a process of its own: torch would stay in this one."""
    done = subprocess.run([sys.executable, "-m", "agentr.cost.measure"], capture_output=True, text=True, check=False)
    if done.returncode:
        raise RunError(f"this machine could not be measured: {(done.stderr.strip().splitlines() or ['?'])[-1]}")


# what is shown --------------------------------------------------------------------------------------------------------


def renderable(found: Planned) -> Group:
    """Returns the answer as tables and sentences: of the configuration, or, if that does not fit, of what does."""
    best = found.proposal
    told = found.forecast if found.fits or best is None else best.forecast
    parts: list[Any] = [Text(_title(found)), "", *(Text(line) for line in _verdict(found))]
    if best is not None and best.overrides:
        parts += ["", Text(_better(found, best)), Text("  " + " ".join(best.overrides))]
    elif best is not None:
        parts.append(Text("Nothing that was tried is faster."))
    elif not found.fits:
        parts += [Text(line) for line in _nothing(found)]
    parts += ["", *([] if told is found.forecast else [Text("With these:")]), _stages(told, found.price), ""]
    parts += [_memory(told), "", *(Text(line, style="dim") for line in told.sources)]
    if any(stage.factor >= OTHER_MODEL for stage in told.stages):
        parts.append(Text("What trees draw depends on the data: the range says how far it may be off.", style="dim"))
    return Group(*parts)


def short(plan: Plan, on: Hardware | None) -> str:
    """Returns the short form: upper bounds, and in a line what is expected."""
    lines = estimate(plan).text().splitlines()
    if on is None:
        lines.append("time, memory, money: agentr plan CONFIG --on 4xH100")
        return "\n".join(lines)
    found = forecast(plan, on)
    low, mid, high = found.seconds()
    lines.append(f"{'time:':20}about {span(mid)} ({span(low)} to {span(high)}) on {on.device.title}")
    worst = max(found.needs, key=lambda need: need.need.value / need.room.value, default=None)
    if worst is not None:
        lines.append(f"{'memory:':20}{_needs(worst)}")
    return "\n".join(lines)


def as_data(found: Planned) -> dict[str, Any]:
    """Returns the answer for programs; seconds, bytes, hours."""

    def told(one: Forecast) -> dict[str, Any]:
        return {
            "fits": one.fits,
            "stages": [
                {
                    "name": s.name,
                    "amount": s.amount,
                    "seconds": s.seconds.value,
                    "low": s.low,
                    "high": s.high,
                    "devices": s.devices,
                    "counts": s.source,
                }
                for s in one.stages
            ],
            "memory": [
                {
                    "role": n.role,
                    "phase": n.phase,
                    "bytes": n.need.value,
                    "room": n.room.value,
                    "fits": n.fits,
                    "parts": {name: part.value for name, part in n.parts.items()},
                    "keys": n.keys,
                }
                for n in one.needs
            ],
            "seconds": one.seconds(),
            "device_hours": one.device_hours(),
        }

    best = found.proposal
    return {
        "hardware": {"name": found.hardware.name, "count": found.hardware.count, **asdict(found.hardware.device)},
        "devices": found.devices,
        "fits": found.fits,
        **told(found.forecast),
        "proposal": None if best is None else {"overrides": best.overrides, **told(best.forecast)},
        "sources": found.forecast.sources,
    }


def explained(found: Forecast, what: str) -> str:
    """Returns the formula of a stage's seconds, or of the memory of a role, with the source of each input.

    Raises:
        ConfigError: There is no such stage or role.
    """
    numbers: dict[str, Number] = {}
    for stage in found.stages:
        numbers[stage.name] = numbers[title_of(stage.name)] = stage.seconds
    for need in found.needs:
        numbers[need.role] = need.need
    if what not in numbers:
        raise ConfigError(f"nothing is called {what!r} here", hint=f"There are {', '.join(numbers)}.")
    return numbers[what].explain()


def _title(found: Planned) -> str:
    config, shape, on = found.plan.config, found.forecast.shape, found.hardware
    rounds = counted(config.run.rounds, "round")
    where = f"{on.count} x {on.device.title}" if on.device.gpu else on.device.title
    return (
        f"{methods_of(found.plan)[0].name} on {config.env.name}, {rounds}, {shape.name} "
        f"({shape.parameters.value / 1e9:.3g} billion parameters), on {where}"
    )


def _stages(found: Forecast, price: float) -> Table:
    columns = ["stage", "what there is to do", "expected", "range"]
    table = Table(*columns, box=None, pad_edge=False)
    for stage in found.stages:
        table.add_row(
            title_of(stage.name), stage.amount, span(stage.seconds.value), f"{span(stage.low)} to {span(stage.high)}"
        )
    low, mid, high = found.seconds()
    table.add_row("in all", "", span(mid), f"{span(low)} to {span(high)}", style="bold")
    if found.hardware.device.gpu:
        low, mid, high = found.device_hours()
        table.add_row("", "device-hours", f"{mid:.3g}", f"{low:.3g} to {high:.3g}")
        if price:
            money = [f"{each * price:,.2f}" for each in (mid, low, high)]
            table.add_row("", f"money, at {price:g} for an hour", money[0], f"{money[1]} to {money[2]}")
    return table


def _memory(found: Forecast) -> Table:
    table = Table("memory of", "worst when", "needs", "of", "the largest parts", box=None, pad_edge=False)
    for need in found.needs:
        largest = ", ".join(f"{name} {part.shown()}" for name, part in list(need.parts.items())[:3])
        style = "" if need.fits else "red"
        table.add_row(need.role, need.phase, need.need.shown(), need.room.shown(), largest, style=style)
    return table


def _verdict(found: Planned) -> Iterator[str]:
    on, mid = found.hardware, found.forecast.seconds()[1]
    if found.devices > on.count:
        yield (
            f"Does not fit: it asks for {found.devices} devices, and there are {on.count} "
            "(policy.engines, policy.tensor_parallel_size, trainer.workers)."
        )
    for need in found.forecast.needs:
        if not need.fits:
            over = shown(need.need.value - need.room.value, "B")
            mend = f" Mended by, from the cheapest: {', '.join(need.keys)}." if need.keys else ""
            yield f"Does not fit, because {need.role} needs {over} too much in its phase {need.phase!r}.{mend}"
    if found.fits:
        yield "Fits."
    if found.within and mid > found.within:
        yield f"Longer than asked for: {span(mid)} expected, {span(found.within)} wanted."
        best = found.proposal
        if best is not None and best.forecast.seconds()[1] > found.within:
            times = best.forecast.seconds()[1] / found.within
            yield f"Nor is the fastest that was tried fast enough: {times:.1f} times as many devices, or fewer tasks."


def _better(found: Planned, best: Proposal) -> str:
    mid = best.forecast.seconds()[1]
    money = f", {best.forecast.device_hours()[1] * found.price:,.2f}" if found.price else ""
    why = "Fits, and is the fastest that was tried" if not found.fits else "Faster"
    if found.fits and mid >= found.forecast.seconds()[1]:
        why = "With more room to spare, for formulas are not exact"
    if found.hardware.device.gpu:
        money = f", {best.forecast.device_hours()[1]:.3g} device-hours{money}"
    return f"{why}: {span(mid)}{money}, with"


def _needs(need: MemoryNeed) -> str:
    fits = "fits" if need.fits else "DOES NOT FIT"
    return f"{fits}: {need.role} needs {need.need.shown()} of {need.room.shown()} at its worst ({need.phase})"


def _nothing(found: Planned) -> Iterator[str]:
    yield f"Nothing that was tried fits on {found.hardware.name}: take a smaller model, or more or larger devices."
    yield (
        "Not built here, and what each would spare: offloading (masters and moments, 12 bytes a trained weight), 8-bit "
        "optimisers (6 bytes a trained weight), quantised bases under adapters (three quarters of the weights)."
    )


def pilot(plan: Plan, tasks: int) -> Plan:
    """Returns a short run of a configuration, to learn from how many turns and tokens its trees take.

    Args:
        tasks: How many it plays.
    """
    whole = plan.config
    limits = {
        "run": replace(whole.run, name=f"{whole.run.name}-pilot", dir="", rounds=1, control=False, ceiling=False),
        "collect": replace(whole.collect, tasks=replace(whole.collect.tasks, limit=tasks)),
        "eval": replace(whole.eval, tasks=replace(whole.eval.tasks, limit=tasks)),
    }
    return plan_of(replace(whole, **limits))


def read_within(text: str) -> float:
    """Reads a duration: ``6h``, ``90m``, ``45s``, ``1d``.

    Raises:
        ConfigError: It is none.
    """
    units = {"s": 1, "m": 60, "h": 3600, "d": 86400}
    number, unit = text[:-1], text[-1:]
    try:
        return float(number) * units[unit]
    except (ValueError, KeyError) as error:
        raise ConfigError(f"{text!r} is no duration", hint="Say 6h, 90m, 45s or 1d.") from error


def devices_file(path: Path | None) -> Path | None:
    """Checks that a file of devices is there.

    Raises:
        ConfigError: It is not.
    """
    if path is not None and not path.is_file():
        raise ConfigError(f"there is no file {path}", hint="docs/cost.md#hardware shows one.")
    return path
