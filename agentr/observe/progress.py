"""Shows the progress of long work: a bar on a terminal, a line now and then in a log (a job's log, CI)."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from agentr.errors import AgentrError
from agentr.logs import said
from agentr.store.files import read_json, write_json

#: Seconds between two lines where there is no terminal.
LOG_EVERY_S = 15.0

#: Seconds between two times that what is being done is kept in a file.
KEEP_EVERY_S = 2.0

Update = Callable[[float, float, str], None]
"""``update(done, total, details)``."""


def _console() -> Console:
    console = Console(soft_wrap=True, highlight=False)
    # A log has no width of its own; tables would be squeezed into 80 columns.
    return console if console.is_terminal else Console(soft_wrap=True, highlight=False, width=140)


@dataclass(frozen=True)
class Now:
    """What a driver is doing.

    Attributes:
        title: The stage, or another piece of work.
        since: When it began, in seconds since 1970.
        at: When this was said.
    """

    title: str
    since: float
    at: float
    done: float = 0.0
    total: float = 0.0
    details: str = ""

    @property
    def rate(self) -> float:
        """Units a second since it began; what was there before counts, too, so it is high at first after a restart."""
        return self.done / max(self.at - self.since, 1e-9)

    @property
    def left_s(self) -> float | None:
        """Seconds to come at that rate; None if that is not known."""
        return (self.total - self.done) / self.rate if self.total and self.done else None


@dataclass
class Reporter:
    """Prints progress and messages. One for each process."""

    console: Console = field(default_factory=_console)
    _log: Console | None = None
    _now: Path | None = None
    _told: float = 0.0

    @contextmanager
    def kept(self, path: Path) -> Iterator[None]:
        """Also keeps what is being done in a file, for whoever looks from elsewhere (``read_now``), while the block runs."""
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
        with suppress(AgentrError, OSError):  # a full disk is told by whoever writes what matters
            write_json(self._now, asdict(now))

    @contextmanager
    def logged(self, path: Path) -> Iterator[None]:
        """Also writes to a file, behind what is there, while the block runs."""
        with path.open("a", encoding="utf-8") as file:
            before, self._log = self._log, Console(file=file, soft_wrap=True, highlight=False, width=140)
            try:
                yield
            finally:
                self._log = before

    def say(self, text: str, style: str = "") -> None:
        """Prints a message."""
        said.log({"yellow": logging.WARNING, "red": logging.ERROR}.get(style, logging.INFO), text.strip())
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
    def task(self, title: str) -> Iterator[Update]:
        """Shows the progress of a piece of work while the block runs, and its duration at the end."""
        started, since = time.monotonic(), time.time()
        said.info("%s ...", title)
        self._keep(Now(title, since, since))
        if self.console.is_terminal:
            columns = (SpinnerColumn(), TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
            with Progress(*columns, TextColumn("{task.fields[details]}"), console=self.console, transient=True) as bars:
                bar = bars.add_task(title, total=None, details="")

                def update(done: float, total: float, details: str) -> None:
                    self._keep(Now(title, since, time.time(), done, total, details))
                    bars.update(bar, completed=done, total=total or None, details=details)

                yield update
        else:
            self.show(f"{title} ...")
            last = time.monotonic()

            def log(done: float, total: float, details: str) -> None:
                nonlocal last
                self._keep(Now(title, since, time.time(), done, total, details))
                if time.monotonic() - last >= LOG_EVERY_S:
                    last = time.monotonic()
                    self.show(f"  {title}: {done:g}/{total:g} {details}".rstrip())

            yield log
        said.info("done: %s, %.1f s", title, time.monotonic() - started)
        self.show(f"[green]done[/green]  {title}  [dim]{time.monotonic() - started:.1f} s[/dim]")


def read_now(path: Path) -> Now | None:
    """Reads what a driver keeps of what it is doing; None if there is nothing to read."""
    with suppress(AgentrError, OSError, TypeError):
        return Now(**read_json(path))
    return None
