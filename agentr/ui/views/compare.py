"""A comparison of methods: success by policy, paired differences of all methods, and the tasks that make them."""

from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from agentr.observe.comparison import RESULT, Comparison, compare_runs, read_plan
from agentr.observe.problems import PageProblem, read_or
from agentr.outside import typed
from agentr.store.files import read_json
from agentr.ui.views.home import comparison_card


@dataclass
class _Before:
    failed: dict[str, str] = field(default_factory=dict)


def failed_in(folder: Path) -> dict[str, str]:
    """Returns which runs of a comparison could not be finished when it was last written, and why.

    Raises:
        DataError: What was written is damaged.
    """
    return typed(_Before, read_json(folder / RESULT), str(folder / RESULT)).failed if (folder / RESULT).exists() else {}


def compare(name: str, folder: Path, id_of: Callable[[Path], str], found: Comparison | None = None) -> dict[str, Any]:
    """Returns a comparison.

    Args:
        id_of: Returns the id of a run directory; empty if its pages cannot be opened.
        found: What is known of it already; by default it is computed.

    Raises:
        DataError: None of its runs has begun or can be read.
    """
    problems: list[PageProblem] = []
    lines = read_plan(folder, problems)
    found = found or compare_runs(
        lines, read_or({}, lambda: failed_in(folder), problems, "which runs failed"), problems
    )
    states = {line.title: read_or("", lambda line=line: line.state, problems, f"{line.title},") for line in lines}
    unreadable = {
        line.title for line in lines if any(problem["message"].startswith(f"{line.title}, ") for problem in problems)
    }
    return {
        "card": comparison_card(name, folder),
        "about": {key: str(value) for key, value in found.about.items() if value not in ("", None, {}, [])},
        "methods": [
            {
                "label": label,
                "points": [asdict(point) for point in found.points.get(label, [])],
                "stage": found.last.get(label, ""),
                "runs": [
                    {
                        "seed": line.seed,
                        "run": id_of(line.run.path) if line.run else "",
                        "state": "unreadable" if line.title in unreadable else states[line.title],
                    }
                    for line in lines
                    if line.label == label
                ],
            }
            for label in dict.fromkeys(line.label for line in lines)
        ],
        "differences": {
            a: {b: asdict(estimate) for b, estimate in by_other.items()} for a, by_other in found.differences.items()
        },
        "states": [asdict(state) for state in found.states],
        "tasks": [asdict(task) for task in found.tasks],
        "failed": found.failed,
        "problems": problems,
    }
