"""The driver of a soak: one process that runs the same configuration again and again on the same engines and servers.

``python -m tests.tools.chaos.rerun CONFIG PARENT UNTIL [KEY=VALUE]...``: runs are ``PARENT/soak-0001`` and so on, until
the time ``UNTIL``; what was begun is finished. Started again after its death, it continues the run that is not
finished.
"""

import sys
import time
from dataclasses import replace
from pathlib import Path

from agentr.commands.run import run, serving
from agentr.methods import load, plan_of
from agentr.observe.progress import Reporter
from agentr.store.files import read_json
from agentr.store.layout import Layout

_NAME = "soak-{:04d}"


def finished(root: Path) -> bool:
    """Returns whether a run has come to its end."""
    report = root / "report.json"
    return report.exists() and read_json(report)["complete"]


def soaked(parent: Path) -> list[Path]:
    """Returns the runs of a soak that are there, in order."""
    return sorted(path for path in parent.glob("soak-[0-9][0-9][0-9][0-9]") if path.is_dir())


def latest(parent: Path) -> str:
    """Returns the name of the run that was begun last, "" before the first."""
    return there[-1].name if (there := soaked(parent)) else ""


def main(file: Path, parent: Path, until: float, overrides: list[str]) -> None:
    """Runs until the time has come."""
    plan, reporter = plan_of(load(file, overrides)), Reporter()
    logs = parent / "logs"
    logs.mkdir(parents=True, exist_ok=True)
    with serving(plan, logs, reporter) as services:
        while True:
            begun = [root for root in soaked(parent) if not finished(root)]
            if not begun and time.time() >= until:
                return
            last = max((int(root.name.rpartition("-")[2]) for root in soaked(parent)), default=0)
            root = begun[0] if begun else parent / _NAME.format(last + 1)
            config = replace(plan.config, run=replace(plan.config.run, dir=str(Layout(root).root)))
            run(replace(plan, config=config), reporter, services=services)


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]), float(sys.argv[3]), sys.argv[4:])
