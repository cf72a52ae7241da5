"""What is shown on a terminal. Whatever a file or a server says is text there: no markup, and all of it seen."""

import sys
from collections.abc import Iterable
from typing import Any

import typer
from rich.console import Console as RichConsole
from rich.console import ConsoleOptions, RenderableType
from rich.segment import Segment

from agentr.words import seen


class Console(RichConsole):
    """Shows tables and texts. Markup is read only where ``print`` is asked to.

    Args:
        wide: Columns where there is no terminal: a pipe or a log has no width of its own, and tables would be squeezed
            into 80.
    """

    def __init__(self, *, wide: int = 140, **how: Any) -> None:
        super().__init__(markup=False, emoji=False, highlight=False, **how)
        if not self.is_terminal and "width" not in how:
            self.width = wide

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        for segment in super().render(renderable, options):
            yield segment if segment.control else Segment(seen(segment.text), segment.style)


def warn(text: object) -> None:
    """Prints a text beside the output."""
    echo(text, err=True)


def echo(text: object = "", *, err: bool = False, nl: bool = True) -> None:
    """Prints a text as it is."""
    typer.echo(seen(str(text)), err=err, nl=nl)


def confirmed(question: str) -> bool:
    """Asks on a terminal; where there is none the answer is no."""
    return sys.stdin.isatty() and typer.confirm(question, err=True)
