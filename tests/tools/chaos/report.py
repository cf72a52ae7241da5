"""The report of a disturbed run: a row for each fault, and what differs."""

from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from rich.table import Table

from agentr.store.files import write_json
from tests.tools.chaos.disturb import Outcome
from tests.tools.chaos.units import Difference, as_dict

REPORT = "chaos.json"


@dataclass
class Report:
    """What came of disturbing a run.

    Attributes:
        contents: Whether units were compared by what they are, not only by their keys.
        outcomes: Of each fault that was hit, and of those that were never hit in the end.
        differences: By the names of the disturbed runs.
        ended: How drivers ended by themselves; they were started again.
    """

    undisturbed: Path
    contents: bool
    outcomes: list[Outcome] = field(default_factory=list)
    differences: dict[str, list[Difference]] = field(default_factory=dict)
    ended: list[str] = field(default_factory=list)

    def add(self, disturbed: Path, outcomes: list[Outcome], differences: list[Difference], ended: list[str]) -> None:
        """Adds a disturbed run. What it missed stands for what earlier ones missed."""
        judge(outcomes, differences)
        self.outcomes = [outcome for outcome in self.outcomes if outcome.hit] + outcomes
        self.differences[disturbed.name] = differences
        self.ended += ended

    @property
    def same(self) -> bool:
        return all(difference.same for differences in self.differences.values() for difference in differences)

    @property
    def units(self) -> int:
        """Units of the undisturbed run."""
        return sum(difference.units for difference in next(iter(self.differences.values()), []))

    @property
    def missed(self) -> list[Outcome]:
        return [outcome for outcome in self.outcomes if not outcome.hit]

    def words(self) -> list[str]:
        """Returns what there is to say besides the table."""
        bad = [
            f"{run}: {difference}"
            for run, found in self.differences.items()
            for difference in found
            if not difference.same
        ]
        how = "token for token" if self.contents else "by their keys"
        runs = f"{len(self.differences)} disturbed run{'s' * (len(self.differences) != 1)}"
        head = f"{self.units} units, compared {how} in {runs}: " + (
            "none lost, none twice, none another" if not bad else "not the same"
        )
        never = [f"{outcome.fault} never hit: the stage was over before" for outcome in self.missed]
        ended = [f"the driver ended by itself, and was started again: {how}" for how in self.ended]
        return [head, *bad, *ended, *never]


def judge(outcomes: list[Outcome], differences: list[Difference]) -> None:
    """Notes at each fault what became of its stage's units, and the result."""
    by_stage = {difference.stage: difference for difference in differences}
    for outcome in outcomes:
        difference = by_stage.get(outcome.stage)
        lost, twice = (len(difference.lost), len(difference.twice)) if difference is not None else (0, 0)
        outcome.lost, outcome.twice = lost, twice
        if not outcome.hit:
            outcome.result = "missed"
        elif difference is None or not difference.same:
            outcome.result = "not the same"
        elif outcome.recovered_s is None:
            outcome.result = "same, late"
        else:
            outcome.result = "same, started again" if outcome.ended else "same"


def table(report: Report) -> Table:
    """Returns a row for each fault."""
    shown = Table(
        "stage",
        "what",
        "noticed, s",
        "by",
        "recovered, s",
        "lost",
        "twice",
        "result",
        title=f"Faults, compared with {report.undisturbed}",
    )
    for outcome in report.outcomes:
        noticed, recovered = (
            f"{value:.1f}" if value is not None else "-" for value in (outcome.noticed_s, outcome.recovered_s)
        )
        what = outcome.fault.partition(":")[2]
        shown.add_row(
            outcome.stage, what, noticed, outcome.sign, recovered, str(outcome.lost), str(outcome.twice), outcome.result
        )
    return shown


def write(report: Report, path: Path) -> None:
    """Writes the report for programs."""
    write_json(path, as_data(report))


def as_data(report: Report) -> dict[str, Any]:
    return {
        "undisturbed": str(report.undisturbed),
        "contents": report.contents,
        "same": report.same,
        "units": report.units,
        "faults": [asdict(outcome) for outcome in report.outcomes],
        "differences": {run: as_dict(found) for run, found in report.differences.items()},
        "ended": report.ended,
    }
