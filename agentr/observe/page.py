"""Pages that are sent to others: one file that asks for nothing, whose texts stay texts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape

from agentr.words import seen


@dataclass(frozen=True)
class Section:
    """A part of a page; one that holds nothing is left out.

    Attributes:
        tables: Each its header and its lines.
        notes: What is to be said of them.
        text: What is said alone, without a plot or a table.
    """

    title: str
    plots: Sequence[Markup] = ()
    tables: Sequence[list[list[str]]] = ()
    notes: Sequence[str] = ()
    text: str = ""

    def __bool__(self) -> bool:
        return bool(self.text) or any(self.plots) or any(self.tables)


def plain(value: object) -> Markup:
    """Returns a text for a page, between tags or in quotes: without markup, and all of it seen."""
    return value if isinstance(value, Markup) else escape(seen(str(value)))


def shortened(text: str, most: int) -> str:
    """Returns a text of at most ``most`` characters; of a longer one its beginning and its end, with what was left out in words."""
    if len(text) <= most:
        return text
    tail = most // 4
    return f"{text[: most - tail]}\n[{len(text) - most} characters are left out]\n{text[-tail:]}"


def render(template: str, **told: Any) -> bytes:
    """Returns a page. Whatever a template puts in goes through ``plain``."""
    environment = Environment(
        loader=PackageLoader("agentr.observe", "."), autoescape=True, finalize=plain, undefined=StrictUndefined, trim_blocks=True
    )
    return environment.get_template(template).render(**told).encode()
