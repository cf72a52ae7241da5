"""Shows the progress of long work: a bar on a terminal, a line now and then where there is none, and the same lines in
the run's log."""

import logging
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import IO, Any, TextIO, cast

from rich.console import Console as RichConsole
from rich.markup import escape
from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from agentr.console import Console
from agentr.errors import AgentrError
from agentr.logs import LogFile, current, messages
from agentr.observe.rate import Pace
from agentr.outside import typed
from agentr.secrets import Cleaned
from agentr.store.files import read_json, write_json
from agentr.store.layout import title_of
from agentr.words import span

#: Seconds between two lines where there is no terminal: at first, and at most. Between them it is a tenth of the time
#: that has passed.
LOG_EVERY_S, LOG_AT_LEAST_EVERY_S = 15.0, 300.0

#: Seconds between two times that what is being done is kept in a file.
KEEP_EVERY_S = 2.0

Update = Callable[[float, float, str], None]
"""``update(done, total, details)``."""


@dataclass(frozen=True)
class Now:
    """What a driver is doing.

    Attributes:
        title: The stage, or another piece of work, and which stage of how many it is.
        since: When it began, in seconds since 1970.
        at: When this was said.
        unit: What is counted, such as trees.
        rate: Units a minute, lately; None while too little was seen.
        left_s: Seconds to come at that rate; None if that is not known.
        stage: Number of the stage in the run's plan, from 1; 0 for what is no stage of a plan.
        stages: How many stages the plan has.
    """

    title: str
    since: float
    at: float
    done: float = 0.0
    total: float = 0.0
    details: str = ""
    unit: str = ""
    rate: float | None = None
    left_s: float | None = None
    stage: int = 0
    stages: int = 0

    @property
    def words(self) -> str:
        """How far, how fast, how long still, and what else is known; empty if there is nothing yet."""
        unit = f" {self.unit}" if self.unit else ""
        pace = (
            ""
            if self.rate is None
            else f"{_number(self.rate)} a minute"
            if self.rate >= 1
            else f"{_number(60 * self.rate)} an hour"
        )
        far = f"{_number(self.done)} of {_number(self.total)}{unit}" if self.total else ""
        left = "" if self.left_s is None else f"about {span(self.left_s)} left"
        return "; ".join(part for part in (", ".join(part for part in (far, pace, left) if part), self.details) if part)


def _number(value: float) -> str:
    return f"{value:.0f}" if value >= 10 or value == int(value) else f"{value:.2g}"


@dataclass
class StagePlan:
    """The stages of a run in their order, and how many of them there are at least.

    Attributes:
        exact: Whether all stages that were begun are in it. One that is not is counted in, and there may be more.
    """

    stages: list[str]
    exact: bool = True
    _last: int = -1

    def number(self, stage: str) -> int:
        """Returns the number of a stage, from 1."""
        if stage not in self.stages:
            self.exact = False
            self.stages.insert(self._last + 1, stage)
        self._last = self.stages.index(stage)
        return self._last + 1


@dataclass
class Reporter:
    """Prints progress and messages. One for each process."""

    console: RichConsole = field(default_factory=partial(Console, soft_wrap=True))
    _log: RichConsole | None = None
    _now: Path | None = None
    _told: float = 0.0
    _plan: StagePlan | None = None
    _part: str = ""

    @contextmanager
    def planned(self, stages: Sequence[str]) -> Iterator[None]:
        """Says of each stage in the block which of how many it is.

        Args:
            stages: The names of all stages of the run in their order, those that are sealed included.
        """
        before, self._plan = self._plan, StagePlan(list(stages))
        try:
            yield
        finally:
            self._plan = before

    @contextmanager
    def part(self, text: str) -> Iterator[None]:
        """Says of each piece of work in the block which part of the whole it belongs to, such as "run 2 of 4"."""
        before, self._part = self._part, text
        try:
            yield
        finally:
            self._part = before

    def _placed(self, title: str) -> tuple[str, int, int]:
        """Returns a title with its place in the plan, the number of the stage and how many there are."""
        stage = current().get("stage", "")
        number, stages, where = 0, 0, [self._part] if self._part else []
        if self._plan is not None and stage:
            number = self._plan.number(stage)
            stages = len(self._plan.stages)
            where.append(f"stage {number} of {'' if self._plan.exact else 'at least '}{stages}")
        return title_of(title) + (f" ({', '.join(where)})" if where else ""), number, stages

    @contextmanager
    def kept(self, path: Path) -> Iterator[None]:
        """Also keeps what is being done in a file, for whoever looks from elsewhere (``read_now``), while the block
        runs."""
        before, self._now = self._now, path
        try:
            yield
        finally:
            self._now = before
            with suppress(AgentrError, OSError):
                path.unlink(missing_ok=True)

    def _keep(self, now: Now) -> None:
        if self._now is None or (now.done and now.at - self._told < KEEP_EVERY_S):
            return
        self._told = now.at
        with suppress(AgentrError, OSError):  # whoever writes what matters reports a full disk
            write_json(self._now, asdict(now))

    @contextmanager
    def logged(self, path: Path) -> Iterator[None]:
        """Also writes to a file, behind what is there, while the block runs."""
        before, self._log = (
            self._log,
            Console(file=cast(IO[str], Cleaned(cast(TextIO, LogFile(path)))), soft_wrap=True, width=140),
        )
        try:
            yield
        finally:
            self._log = before

    def message(self, text: str, style: str = "") -> None:
        """Prints a message."""
        messages.log({"yellow": logging.WARNING, "red": logging.ERROR}.get(style, logging.INFO), text.strip())
        self.show(text, style=style or None, markup=False)

    def log(self, text: str) -> None:
        """Writes a message to the file alone: the terminal gets it from elsewhere."""
        if self._log is not None:
            self._log.print(f"{time.strftime('%H:%M:%S')} {text}", markup=False)

    def show(self, what: Any, **how: Any) -> None:
        """Prints anything that rich can show."""
        self.console.print(what, **how)
        if self._log is not None:
            self._log.print(time.strftime("%H:%M:%S"), end=" ")
            self._log.print(what, **how)

    @contextmanager
    def task(self, title: str, unit: str = "") -> Iterator[Update]:
        """Shows the progress of a piece of work while the block runs, and its duration at the end.

        On a terminal a bar shows it. Where there is none a line says it now and then. The same lines are logged in both
        cases.

        Args:
            title: The name of a stage, or other words.
            unit: What is counted, such as trees.
        """
        started, since, pace = time.monotonic(), time.time(), Pace()
        title, stage, stages = self._placed(title)
        messages.info("%s ...", title)
        self._keep(Now(title, since, since, unit=unit, stage=stage, stages=stages))
        last = started

        def record(done: float, total: float, details: str) -> Now:
            nonlocal last
            here = time.monotonic()
            pace.add(here, done)
            rate = pace.per_minute(here)
            left_s = 60 * (total - done) / rate if rate and done < total else None
            now = Now(title, since, time.time(), done, total, details, unit, rate, left_s, stage, stages)
            self._keep(now)
            if here - last >= min(max(LOG_EVERY_S, (here - started) / 10), LOG_AT_LEAST_EVERY_S):
                last = here
                line = f"{title}: {now.words}"
                messages.info("%s", line)
                self.log(line)
                if not self.console.is_terminal:
                    self.console.print(f"  {line}", markup=False)
            return now

        if self.console.is_terminal:
            self.log(f"{title} ...")
            columns = (
                SpinnerColumn(),
                TextColumn("{task.description}", markup=False),
                BarColumn(),
                TimeElapsedColumn(),
            )
            with Progress(
                *columns, TextColumn("{task.fields[words]}", markup=False), console=self.console, transient=True
            ) as bars:
                bar = bars.add_task(title, total=None, words="")

                def update(done: float, total: float, details: str) -> None:
                    bars.update(bar, completed=done, total=total or None, words=record(done, total, details).words)

                yield update
        else:
            self.show(f"{title} ...", markup=False)

            def log(done: float, total: float, details: str) -> None:
                record(done, total, details)

            yield log
        messages.info("done: %s, %.1f s", title, time.monotonic() - started)
        self.show(f"[green]done[/green]  {escape(title)}  [dim]{time.monotonic() - started:.1f} s[/dim]", markup=True)


def read_now(path: Path) -> Now | None:
    """Reads what a driver keeps of what it is doing; None if there is nothing to read."""
    with suppress(AgentrError):
        return typed(Now, read_json(path), str(path))
    return None
