"""What a run comes to, as numbered points: one for each sealed stage, one for each logged line of a curve.

For each tracker they are kept in the run directory, in the order in which they are logged, and never change. So a run
that was killed and goes on makes the points of one that was not, and a tracker that comes later, or was away, is given
all of them.
"""

import json
import re
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from agentr.read.stage import numbers_in
from agentr.store.files import append_bytes, make_folder, read_lines
from agentr.store.layout import CEILING, CONTROL, ROLLOUTS, STEPS, TRAIN, WARM_START, Layout, arms_in, stage_of
from agentr.store.records import read_records
from agentr.store.seal import StageRecord
from agentr.store.working import working

#: Where curves of a control or a ceiling begin: they are trained from the warm start on, as the rounds are.
_BEGINS = {f"{TRAIN}/{arm.folder}": WARM_START.stage(TRAIN) for arm in (CONTROL, CEILING)}
#: Of a line of a curve: what is no measurement.
_NO_NUMBERS = ("step", "steps")


@dataclass(frozen=True)
class Point:
    """Numbers of one step.

    Attributes:
        number: Its place among all points, from 1 on.
        time: When it was noted, in seconds since 1970.
        axis: What ``step`` counts: ``round``, or steps of a curve that goes on over rounds, such as
            ``train/main/step``.
        numbers: By name: ``train/main/loss``, ``eval/main/success``, ``dataset/main/rows``.
        source: The stage, or of a line the job in it.
        making: Content of the stage; of a line only if the stage was made anew, else empty.
        line: The step as the job counts it; 0 for a stage.
    """

    number: int
    time: float
    axis: str
    step: int
    numbers: dict[str, float]
    source: str
    making: str
    line: int = 0


class Points:
    """The points of a run, as one tracker is given them, in ``tracking/<tracker>.jsonl``.
    Its process alone adds to them (`collect`)."""

    def __init__(self, layout: Layout, tracker: str) -> None:
        self.layout = layout
        self.path = layout.tracking / f"{tracker}.jsonl"
        self.all: list[Point] = []
        #: Of each sealed stage that was logged: its contents, in order.
        self._sealed: dict[str, list[str]] = {}
        #: The last line logged of each source, by what it was made as.
        self._lines: dict[tuple[str, str], int] = {}
        #: The step at which each source began, and the last step of each axis.
        self._begins: dict[str, int] = {}
        self._ends: dict[str, int] = {}
        self._seen: dict[Path, tuple[int, int]] = {}
        self._records: dict[str, StageRecord] = {}
        for point in read_points(self.path):
            self._note(point)

    def collect(self) -> int:
        """Adds what came since, and returns the number of new points.

        Raises:
            RunError: They cannot be written. The points are to be read anew then.
        """
        if self._changed(self.layout.manifest):
            self._records = read_records(self.layout.root)
        before = len(self.all)
        for record in self._records.values():
            for point in self._new_of(record):
                self._note(point)
        if new := self.all[before:]:
            make_folder(self.path.parent)
            append_bytes(self.path, "".join(json.dumps(asdict(point)) + "\n" for point in new).encode())
        return len(new)

    def _note(self, point: Point) -> None:
        self.all.append(point)
        if not point.line:
            self._sealed.setdefault(point.source, []).append(point.making)
            return
        self._lines[point.source, point.making] = point.line
        self._begins.setdefault(point.source, point.step - point.line)
        self._ends[point.axis] = max(self._ends.get(point.axis, 0), point.step)

    def _changed(self, path: Path) -> bool:
        """Whether a file is another one than at the last look."""
        try:
            found = path.stat()
        except OSError:
            return False
        now = (found.st_size, found.st_mtime_ns)
        before, self._seen[path] = self._seen.get(path), now
        return before != now

    # what there is ----------------------------------------------------------------------------------------------------

    def _new_of(self, record: StageRecord) -> Iterator[Point]:
        place = _place(record.name)
        if place is None:
            return
        stage, arm = place
        logged = self._sealed.get(record.name, [])
        if record.sealed and logged and logged[-1] == record.content:
            return
        # it is being made anew: whether it comes to something else is seen when it is sealed
        if logged and not record.sealed:
            return
        again = record.content if logged else ""
        for job, file in _curves(self.layout.root / record.name, stage):
            yield from self._lines_of(job.relative_to(self.layout.root).as_posix(), file, f"{stage}/{arm}", again)
        if record.sealed:
            # The curve of a training has its name; what it came to in all stands beside it.
            name = f"{stage}_total/{arm}" if stage in (TRAIN, ROLLOUTS) else f"{stage}/{arm}"
            numbers = {**dict(numbers_in(record.summary)), "seconds": record.seconds}
            yield self._point("round", self._round(record.name), name, numbers, record.name, record.content)

    def _lines_of(self, source: str, file: Path, name: str, making: str) -> Iterator[Point]:
        if not self._changed(file):
            return
        axis = f"{name}/step"
        for line in _lines_so_far(file):
            step = line.get("step", 0)
            if step > self._lines.get((source, making), 0):
                begin = self._begins.get(source)
                if begin is None:
                    begin = self._ends.get(axis, self._end_of(_BEGINS.get(name, "")))
                numbers = {key: value for key, value in numbers_in(line) if key not in _NO_NUMBERS}
                yield self._point(axis, begin + step, name, numbers, source, making, step)

    def _end_of(self, source: str) -> int:
        return self._begins.get(source, 0) + self._lines.get((source, ""), 0)

    def _point(
        self, axis: str, step: int, name: str, numbers: Mapping[str, float], source: str, making: str, line: int = 0
    ) -> Point:
        # What is left is a name that every tracker takes.
        named = {re.sub(r"[^\w\-./ ]", "_", f"{name}/{key}"): float(value) for key, value in numbers.items()}
        return Point(len(self.all) + 1, round(time.time(), 3), axis, step, named, source, making, line)

    def _round(self, stage: str) -> int:
        """The round of a stage; of what is compared with the last one, that."""
        found = stage_of(stage)
        if found is not None and found[0].reference:
            return max((arm.number for arm in arms_in(self._records)), default=0)
        return found[0].number if found is not None else 0


def read_points(path: Path) -> list[Point]:
    """Reads points, without the half of a line that a killed process left."""
    return [Point(**line) for line in read_lines(path)]


def _place(name: str) -> tuple[str, str] | None:
    """The stage within its arm, and the arm's name: the warm start and the rounds are one, ``main``."""
    found = stage_of(name)
    if found is not None:
        return found[1], found[0].folder if found[0].reference else "main"
    arm, _, stage = name.partition("/")
    return (stage, arm) if stage else None


def _curves(folder: Path, stage: str) -> Iterator[tuple[Path, Path]]:
    """The jobs of a stage that have a curve, and its file."""
    if stage == ROLLOUTS:
        yield folder, folder / STEPS
    if stage == TRAIN:
        for pattern in ("job.json", "*/job.json"):
            for path in sorted(folder.glob(pattern)):
                job = path.parent
                yield job, (working(job) or job) / "metrics.jsonl"


def _lines_so_far(file: Path) -> list[dict[str, Any]]:
    """The lines of a file that may be growing, or be moved away."""
    with suppress(OSError):
        return read_lines(file)
    return []
