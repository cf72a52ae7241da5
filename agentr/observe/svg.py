"""Plots as SVG in a page. Colours are names that the page's style sheet knows, so a plot is readable in light and in dark; so are its
words, which are text. A plot is drawn in the width of a phone and may be shown larger.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

from markupsafe import Markup

from agentr.observe.page import plain

WIDTH, HEIGHT = 440, 230
_RIGHT, _TOP, _BOTTOM = 12, 12, 40

#: Colours of the style sheet, and how lines of each are dashed, so that they differ without their colours, too.
INKS = 6
_DASHES = ("", "7 3", "2 3", "9 3 2 3", "4 2", "1 3")

#: Most points of a curve, and of all curves of a plot; of more, each is the mean of several.
MOST, MOST_IN_ALL = 200, 2400


@dataclass(frozen=True)
class Curve:
    """A line of a plot.

    Attributes:
        points: Places and values; what is no number is left out.
        ink: Which colour and dashes.
        dots: Whether its points are marked.
    """

    label: str
    points: Sequence[tuple[float, float | None]]
    ink: int = 0
    dots: bool = False

    def drawn(self, most: int = MOST) -> list[tuple[float, float]]:
        """Returns at most ``most`` points."""
        known = [(float(x), float(y)) for x, y in self.points if y is not None and math.isfinite(y)]
        size = math.ceil(len(known) / most)
        parts = [known[first : first + size] for first in range(0, len(known), size)] if size > 1 else [[point] for point in known]
        return [(fmean(x for x, _ in part), fmean(y for _, y in part)) for part in parts]


class Plot:
    """A plot that is being drawn, in units of its axes.

    Args:
        title: What it shows; read out in place of the drawing, with what ``told`` gives.
        x: From where to where its first axis goes.
        y: The same of the second axis.
        left: Room for the words beside the second axis.
    """

    def __init__(self, title: str, x: tuple[float, float], y: tuple[float, float], *, height: float = HEIGHT, left: float = 48) -> None:
        self.title = title
        self.height = height
        self.left = left
        self._x, self._y = x, y
        self._parts: list[str] = []
        self._legend: list[str] = []

    def x(self, value: float) -> float:
        return round(self.left + (WIDTH - self.left - _RIGHT) * _share(value, self._x), 1)

    def y(self, value: float) -> float:
        return round(self.height - _BOTTOM - (self.height - _TOP - _BOTTOM) * _share(value, self._y), 1)

    def x_axis(self, title: str, ticks: Iterable[tuple[float, str]]) -> None:
        """Draws the words below the plot."""
        for value, text in ticks:
            self._text(self.x(value), self.height - _BOTTOM + 15, text, "middle")
        self._text((self.left + WIDTH - _RIGHT) / 2, self.height - 6, title, "middle")

    def y_axis(self, ticks: Iterable[tuple[float, str]], *, lines: bool = True) -> None:
        """Draws the words beside the plot, and a line for each."""
        for value, text in ticks:
            if lines:
                self._parts.append(f'<path class="grid" d="M{self.left} {self.y(value)}H{WIDTH - _RIGHT}"/>')
            self._text(self.left - 6, self.y(value) + 4, text, "end")

    def line(self, points: Sequence[tuple[float, float]], ink: int) -> None:
        places = " ".join(f"{self.x(x)},{self.y(y)}" for x, y in points)
        dashes = f' stroke-dasharray="{_DASHES[ink % INKS]}"' if ink % INKS else ""
        self._parts.append(f'<polyline class="ink{ink % INKS}"{dashes} points="{places}"/>')

    def mark(self, x: float, y: float, ink: int, size: float = 4) -> None:
        """Draws a mark; each colour has a form of its own."""
        at, up = self.x(x), self.y(y)
        a, b = round(size, 1), round(1.4 * size, 1)
        form = (
            f'<circle cx="{at}" cy="{up}" r="{a}"/>',
            f'<path d="M{at - a:.1f} {up - a:.1f}h{2 * a:.1f}v{2 * a:.1f}h{-2 * a:.1f}z"/>',
            f'<path d="M{at} {up - b:.1f}l{b} {b}l-{b} {b}l-{b} -{b}z"/>',
            f'<path d="M{at} {up - b:.1f}l{b} {2 * a:.1f}h{-2 * b:.1f}z"/>',
        )[ink % 4]
        self._parts.append(f'<g class="ink{ink % INKS}">{form}</g>')

    def bar(self, begin: float, end: float, y: float, ink: int) -> None:
        """Draws a bar that lies."""
        width = self.x(end) - self.x(begin)
        if width > 0:
            self._parts.append(
                f'<g class="ink{ink % INKS}"><rect x="{self.x(begin)}" y="{self.y(y) - 9:.1f}" width="{width:.1f}" height="18"/></g>'
            )

    def upright(self, x: float, low: float, high: float, ink: int) -> None:
        """Draws an interval of the second axis."""
        self._parts.append(f'<path class="interval ink{ink % INKS}" d="M{self.x(x)} {self.y(low)}V{self.y(high)}"/>')

    def level(self, low: float, high: float, y: float, ink: int | None) -> None:
        """Draws a line from one place of the first axis to another; without a colour a fine one."""
        kind = "grid" if ink is None else f"interval ink{ink % INKS}"
        self._parts.append(f'<path class="{kind}" d="M{self.x(low)} {self.y(y)}H{self.x(high)}"/>')

    def across(self, y: float, ink: int) -> None:
        """Draws a dotted line across the plot."""
        self._parts.append(f'<path class="dotted ink{ink % INKS}" d="M{self.left} {self.y(y)}H{WIDTH - _RIGHT}"/>')

    def zero(self) -> None:
        """Draws a line upwards from 0."""
        self._parts.append(f'<path class="grid" d="M{self.x(0)} {_TOP}V{self.height - _BOTTOM}"/>')

    def explain(self, label: str, ink: int, *, dots: bool = False, bar: bool = False) -> None:
        """Adds a line to the legend."""
        dashes = f' stroke-dasharray="{_DASHES[ink % INKS]}"' if ink % INKS else ""
        mark = '<circle cx="13" cy="5" r="3.5"/>' if dots else ""
        form = '<rect x="8" width="10" height="10"/>' if bar else f'<path class="stroke" d="M0 5H26"{dashes}/>{mark}'
        key = f'<svg class="key" viewBox="0 0 26 10" aria-hidden="true"><g class="ink{ink % INKS}">{form}</g></svg>'
        self._legend.append(f"<span>{key} {plain(label)}</span>")

    def figure(self, told: str = "") -> Markup:
        """Returns the plot for a page."""
        label = plain(f"{self.title}: {told}" if told else self.title)
        caption = f'<figcaption>{plain(self.title)}<span class="legend">{"".join(self._legend)}</span></figcaption>'
        drawn = f'<svg viewBox="0 0 {WIDTH} {self.height:g}" role="img" aria-label="{label}">{"".join(self._parts)}</svg>'
        return Markup(f'<figure class="plot">{caption}{drawn}</figure>')

    def _text(self, x: float, y: float, text: str, anchor: str) -> None:
        self._parts.append(f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{plain(text)}</text>')


def curves_plot(title: str, curves: Sequence[Curve], x_title: str = "step") -> Markup:
    """Returns a plot of curves over whole numbers; nothing if none has a point."""
    most = min(MOST, max(8, MOST_IN_ALL // max(1, len(curves))))
    drawn = [(curve, points) for curve in curves if (points := curve.drawn(most))]
    if not drawn:
        return Markup("")
    xs, ys = [x for _, points in drawn for x, _ in points], [y for _, points in drawn for _, y in points]
    up = ticks(min(ys), max(ys))
    plot, told = Plot(title, _spread(min(xs), max(xs)), (up[0], up[-1])), []
    plot.y_axis(named(up))
    thinned = any(len(curve.points) > most for curve, _ in drawn)
    steps = [value for value in ticks(min(xs), max(xs)) if min(xs) <= value <= max(xs) and value == int(value)]
    plot.x_axis(x_title + ("; a point is the mean of several" if thinned else ""), named(steps or [min(xs)]))
    for curve, points in drawn:
        plot.line(points, curve.ink)
        for x, y in points if curve.dots or len(points) == 1 else ():
            plot.mark(x, y, curve.ink, 3)
        plot.explain(curve.label, curve.ink, dots=curve.dots)
        told.append(f"{curve.label} from {number(points[0][1])} to {number(points[-1][1])}")
    return plot.figure("; ".join(told))


def ticks(low: float, high: float, most: int = 5) -> list[float]:
    """Returns round values from one at or below ``low`` to one at or above ``high``, about ``most`` of them."""
    low, high = _spread(low, high)
    rough = (high - low) / most
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(power * factor for factor in (1, 2, 5, 10) if power * factor >= rough * (1 - 1e-9))
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    return [round(step * place, 12) for place in range(first, last + 1)]


def named(values: Sequence[float]) -> list[tuple[float, str]]:
    """Returns the values of an axis with their words, all with as many digits."""
    digits = max((len(f"{value:.6g}".partition(".")[2]) for value in values), default=0)
    plain_digits = all("e" not in f"{value:.6g}" for value in values)
    return [(value, f"{value:,.{digits}f}".replace("-", "−") if plain_digits else number(value)) for value in values]


def number(value: float) -> str:
    """Returns a number as the pages of ``agentr ui`` write it."""
    if value == int(value):
        return f"{int(value)}".replace("-", "−")
    size = abs(value)
    text = f"{value:.0f}" if size >= 1000 else f"{value:.2f}" if size >= 1 else f"{value:.3f}" if size >= 0.001 else f"{value:.2g}"
    return text.replace("-", "−")


def stacks(title: str, lines: Sequence[tuple[str, Mapping[str, float]]], unit: str) -> Markup:
    """Returns a bar for each line, of its parts one after the other; nothing if all are empty."""
    names = [name for name in dict.fromkeys(name for _, parts in lines for name in parts) if any(parts.get(name) for _, parts in lines)]
    most = max((sum(parts.values()) for _, parts in lines), default=0)
    if not most:
        return Markup("")
    plot = Plot(title, (0, most), (len(lines), 0), height=_TOP + _BOTTOM + 30 * len(lines), left=78)
    for at, (label, parts) in enumerate(lines):
        plot.y_axis([(at + 0.5, label[:12])], lines=False)
        begin = 0.0
        for ink, name in enumerate(names):
            plot.bar(begin, begin + parts.get(name, 0.0), at + 0.5, ink)
            begin += parts.get(name, 0.0)
    plot.x_axis(unit, named([value for value in ticks(0, most) if value <= most]))
    for ink, name in enumerate(names):
        plot.explain(name, ink, bar=True)
    return plot.figure("; ".join(f"{label} {number(round(sum(parts.values())))} {unit}" for label, parts in lines))


def _spread(low: float, high: float) -> tuple[float, float]:
    """A range that is no point."""
    return (low, high) if high - low > 1e-12 * max(1.0, abs(low), abs(high)) else (low - (abs(low) or 1) / 2, high + (abs(high) or 1) / 2)


def _share(value: float, axis: tuple[float, float]) -> float:
    low, high = axis
    return (value - low) / (high - low)
