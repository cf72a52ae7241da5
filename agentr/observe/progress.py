"""Shows the progress of long work: a bar on a terminal, a line now and then in a log (a job's log, CI)."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

#: Seconds between two lines where there is no terminal.
LOG_EVERY_S = 15.0

Update = Callable[[float, float, str], None]
"""``update(done, total, details)``."""


def _console() -> Console:
    console = Console(soft_wrap=True, highlight=False)
    # A log has no width of its own; tables would be squeezed into 80 columns.
    return console if console.is_terminal else Console(soft_wrap=True, highlight=False, width=140)


@dataclass
class Reporter:
    """Prints progress and messages. One for each process."""

    console: Console = field(default_factory=_console)
    _log: Console | None = None

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
        self.show(text, style=style or None, markup=False)

    def show(self, what: Any, **how: Any) -> None:
        """Prints anything that rich can show."""
        self.console.print(what, **how)
        if self._log is not None:
            self._log.print(time.strftime("%H:%M:%S"), end=" ")
            self._log.print(what, **how)

    @contextmanager
    def task(self, title: str) -> Iterator[Update]:
        """Shows the progress of a piece of work while the block runs, and its duration at the end."""
        started = time.monotonic()
        if self.console.is_terminal:
            columns = (SpinnerColumn(), TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
            with Progress(*columns, TextColumn("{task.fields[details]}"), console=self.console, transient=True) as bars:
                bar = bars.add_task(title, total=None, details="")

                def update(done: float, total: float, details: str) -> None:
                    bars.update(bar, completed=done, total=total or None, details=details)

                yield update
        else:
            self.show(f"{title} ...")
            last = time.monotonic()

            def log(done: float, total: float, details: str) -> None:
                nonlocal last
                if time.monotonic() - last >= LOG_EVERY_S:
                    last = time.monotonic()
                    self.show(f"  {title}: {done:g}/{total:g} {details}".rstrip())

            yield log
        self.show(f"[green]done[/green]  {title}  [dim]{time.monotonic() - started:.1f} s[/dim]")
