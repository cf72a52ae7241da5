"""``python -m tests.tools.chaos --hours``: the same run again and again on the same engines and servers, with random
faults."""

import math
import random
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from rich.table import Table

from agentr.cluster.nodes import nodes
from agentr.cluster.places import Places
from agentr.errors import ConfigError
from agentr.observe.progress import Reporter
from agentr.store.files import read_lines, remove, write_json
from tests.tools.chaos.disturb import Disturber, Outcome
from tests.tools.chaos.driver import Driver
from tests.tools.chaos.faults import Fault, Part
from tests.tools.chaos.progress import Progress
from tests.tools.chaos.rerun import finished, latest, soaked
from tests.tools.chaos.run import Plan, cluster, undisturbed
from tests.tools.chaos.samples import Sampler
from tests.tools.chaos.slope import Sample, Slope, Verdict, fit
from tests.tools.chaos.units import compare

SOAK, SAMPLES = "soak.json", "samples.jsonl"
#: How often the driver is hit, in comparison with the other parts: all others begin a new life with it.
DRIVER_SHARE = 0.1
#: What is measured, in what, and what may grow by how much an hour at least.
QUANTITIES = {"mib": ("memory, MiB", 5.0), "handles": ("file handles", 5.0), "sessions": ("sessions", 5.0)}


class _Latest(Progress):
    """Looks at the run of a soak that is worked on now."""

    def __init__(self, parent: Path) -> None:
        super().__init__(parent)
        self._parent = parent
        self.look()

    def look(self) -> None:
        """Turns to the newest run."""
        there = soaked(self._parent)
        if there and there[-1] != self.root:
            super().__init__(there[-1])

    def units(self, part: Part) -> int:
        self.look()
        return len(soaked(self._parent)) * 10**9 + super().units(part)


def soak(
    plan: Plan,
    chosen: Sequence[Fault],
    reporter: Reporter,
    *,
    hours: float,
    seed: int,
    every_s: float,
    freeze_s: float,
    patience_s: float,
) -> list[str]:
    """Soaks a configuration, shows what was measured, and returns what went wrong: runs that differ, quantities that
    grow.

    Runs that are equal to the undisturbed one are deleted, but for the last.

    Raises:
        ConfigError: The folder holds another soak.
        AgentrError: A run could not be finished.
    """
    if soaked(plan.parent):
        raise ConfigError(f"{plan.parent} holds another soak", hint="Give another run.dir, or delete it.")
    (plan.parent / SAMPLES).unlink(missing_ok=True)
    with cluster(plan.config) as address:
        contents = not Places.of(plan.config).engines_on_gpu(sum(node.gpus for node in nodes()))
        reference = undisturbed(plan, address, reporter)
        until = time.time() + hours * 3600
        most = 10 + int(hours * 3600 / every_s * 4)
        command = [
            "-m",
            "tests.tools.chaos.rerun",
            str(plan.file),
            str(plan.parent),
            str(until),
            *plan.overrides,
            *plan.budgets(most),
        ]
        driver = Driver(command, address, plan.parent / "soak.log", most)
        progress = _Latest(plan.parent)
        sampler = Sampler(driver, plan.parent / SAMPLES, min(5.0, hours * 3600 / 60), lambda: latest(plan.parent))
        disturber = Disturber(driver, progress, freeze_s=freeze_s, patience_s=patience_s, notify=reporter.message)
        chance, outcomes, different = random.Random(seed), list[Outcome](), dict[str, list[str]]()
        try:
            driver.start()
            due = time.time() + chance.expovariate(1 / every_s)
            while not driver.done():
                time.sleep(0.2)
                different |= _compared(reference, plan.parent, contents, set(different), reporter)
                if due <= time.time():
                    outcome = _hit(disturber, progress, chosen, chance)
                    if outcome is not None:
                        outcomes.append(outcome)
                        due = time.time() + chance.expovariate(1 / every_s)
        finally:
            sampler.close()
            driver.end()
    different |= _compared(reference, plan.parent, contents, set(different), reporter, all_=True)
    slopes = measured(plan.parent / SAMPLES)
    reporter.show(table(slopes, len(different), len(outcomes)))
    for how in driver.ended:
        reporter.message(f"the driver ended by itself, and was started again: {how}", "yellow")
    write_json(plan.parent / SOAK, _as_data(different, outcomes, slopes, driver.ended, hours, seed))
    late = [f"{outcome.stage}: {outcome.fault} did not recover" for outcome in outcomes if outcome.recovered_s is None]
    bad = [f"{name}: {'; '.join(problems)}" for name, problems in different.items() if problems]
    grown = [
        f"{part}'s {what} grow: {slope}" for (part, what), slope in slopes.items() if slope.verdict is Verdict.grows
    ]
    return [*bad, *late, *grown]


def _hit(disturber: Disturber, progress: _Latest, chosen: Sequence[Fault], chance: random.Random) -> Outcome | None:
    """Hits a random part of the stage that is running; None if there is none."""
    progress.look()
    place = progress.running()
    here = [fault for fault in chosen if fault.stage == place.rpartition("/")[2]]
    if not here:
        return None
    weights = [DRIVER_SHARE if fault.part is Part.driver else 1.0 for fault in here]
    return disturber.hit(chance.choices(here, weights)[0], place)


def _compared(
    reference: Path, parent: Path, contents: bool, known: set[str], reporter: Reporter, *, all_: bool = False
) -> dict[str, list[str]]:
    """Compares the runs that are finished and were not compared yet, and returns by their names what differs."""
    found: dict[str, list[str]] = {}
    there = soaked(parent)
    for root in there if all_ else there[:-1]:
        if root.name in known:
            continue
        found[root.name] = [
            str(difference) for difference in compare(reference, root, contents=contents) if not difference.same
        ]
        if not finished(root):
            found[root.name].append("was not finished")
        reporter.message(
            f"{root.name}: {'; '.join(found[root.name]) or 'the same'}", "red" if found[root.name] else "green"
        )
        if not found[root.name] and root != there[-1]:
            remove(root)
    return found


def measured(samples: Path) -> dict[tuple[str, str], Slope]:
    """Returns the slope of each quantity of each part."""
    lines = read_lines(samples) if samples.exists() else []
    found: dict[tuple[str, str], Slope] = {}
    for part in Part:
        for key, (what, least) in QUANTITIES.items():
            there = [
                Sample(line["life"], line["run"], line["t"], line[key])
                for line in lines
                if line["part"] == part and key in line
            ]
            if there:
                found[part.value, what] = fit(there, least=least)
    return found


def table(slopes: dict[tuple[str, str], Slope], runs: int, hits: int) -> Table:
    """Returns a row for each quantity of each part."""
    shown = Table(
        "part",
        "of",
        "lives",
        "runs",
        "mean",
        "slope [95 %] an hour",
        "allowed",
        "it is",
        title=f"{runs} runs, {hits} faults",
    )
    for (part, what), slope in slopes.items():
        fitted = f"{slope.slope:+.2f} [{slope.low:+.2f}, {slope.high:+.2f}]" if slope.lives else "-"
        shown.add_row(
            part,
            what,
            str(slope.lives),
            str(slope.runs),
            f"{slope.mean:.1f}",
            fitted,
            f"{slope.allowed:.1f}",
            slope.verdict.value,
        )
    return shown


def _as_data(
    different: dict[str, list[str]],
    outcomes: list[Outcome],
    slopes: dict[tuple[str, str], Slope],
    ended: list[str],
    hours: float,
    seed: int,
) -> dict[str, object]:
    return {
        "hours": hours,
        "seed": seed,
        "runs": different,
        "faults": [asdict(outcome) for outcome in outcomes],
        "hits": Counter(outcome.fault for outcome in outcomes),
        "slopes": [
            {"part": part, "of": what, **_finite(asdict(slope)), "verdict": slope.verdict}
            for (part, what), slope in slopes.items()
        ],
        "ended": ended,
    }


def _finite(values: dict[str, float]) -> dict[str, float | None]:
    """JSON knows no infinity."""
    return {key: value if math.isfinite(value) else None for key, value in values.items()}
