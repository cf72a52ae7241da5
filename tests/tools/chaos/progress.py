"""What can be seen of a run from its directory while it works: which stages, how many units."""

import json
from pathlib import Path

from agentr.store.files import read_lines
from agentr.store.forest import Forest
from agentr.store.layout import Layout
from agentr.store.records import read_index
from agentr.store.working import working
from tests.tools.chaos.faults import Part


class Progress:
    """Looks at a run directory, which need not be there yet."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._layout = Layout(root)
        self._sealed: dict[Path, int] = {}

    def state(self, place: str) -> str:
        """Returns the state of a stage: running, sealed, or nothing."""
        record = read_index(self.root).stages.get(place)
        return record.state if record is not None else ""

    def running(self) -> str:
        """Returns the innermost stage that is running; nothing between stages."""
        names = [record.name for record in read_index(self.root).stages.values() if record.state == "running"]
        return names[-1] if names else ""

    def owner(self) -> str:
        """Returns the name of the newest lease: another one for each driver."""
        return max((path.name for path in self._layout.lease.glob("[0-9]*.json")), default="")

    def size(self, place: str) -> tuple[int, int]:
        """Returns how many trees and how many optimiser steps of a stage are finished."""
        folder = self.root / place
        work = working(folder) or folder
        lines = read_lines(work / "metrics.jsonl") if (work / "metrics.jsonl").exists() else []
        return sum(self._trees(path) for path in (folder, *folder.glob("[0-9]*"))), max(
            (line["step"] for line in lines), default=0
        )

    def units(self, part: Part) -> int:
        """Returns how many units the run has finished of those that a part works on: trees, optimiser steps, or both,
        and stages.

        It is less than before while a step is done again.
        """
        sizes = [self.size(record.name) for record in read_index(self.root).stages.values()]
        trees, steps = sum(trees for trees, _ in sizes), sum(steps for _, steps in sizes)
        if part in (Part.worker, Part.controller):
            return steps
        return trees if part is not Part.driver else trees + steps + self.sealed()

    def sealed(self) -> int:
        """Returns how many stages are sealed."""
        return sum(record.sealed for record in read_index(self.root).stages.values())

    def said(self) -> str:
        """Returns what the run says of trouble: events that are none of the usual course, who died, what is retried or
        waited for."""
        events = read_lines(self._layout.events) if self._layout.events.exists() else []
        parts = [
            event["event"] for event in events if event["event"] in ("stands_still", "stage_stopped", "node_drains")
        ]
        log = self._layout.driver_log
        if log.exists():
            lines = log.read_text(encoding="utf-8", errors="replace").splitlines()
            parts += [line for line in lines if " died" in line]
        try:
            details = json.loads(self._layout.now.read_text(encoding="utf-8"))["details"]
        except (OSError, ValueError, KeyError):
            details = ""
        parts += [
            part.strip()
            for part in details.replace("; ", ", ").split(", ")
            if part.strip().startswith(("retried", "waiting for"))
        ]
        return "; ".join(parts)

    def _trees(self, folder: Path) -> int:
        if folder not in self._sealed:
            forest = Forest(folder)
            if not (folder / "summary.parquet").exists():  # not sealed, or no forest
                return 0 if forest.sealed else len(forest.finished())
            self._sealed[folder] = len(forest)
        return self._sealed[folder]
