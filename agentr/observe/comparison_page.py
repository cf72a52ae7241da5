"""Presents a comparison: a table in the terminal, ``comparison.html`` with plots, ``comparison.json`` with the same figures."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from markupsafe import Markup
from rich.table import Table

from agentr.evaluate.statistics import Estimate
from agentr.observe.comparison import Comparison, compare_runs, read_plan
from agentr.observe.page import Section, render
from agentr.observe.report_tables import UNKNOWN, Lines, filled, seconds
from agentr.observe.svg import Plot, named, ticks
from agentr.outside import typed
from agentr.store.files import read_json, write_bytes, write_json
from agentr.store.layout import CONTROL


def write_comparison(comparison: Comparison, folder: Path) -> None:
    """Writes ``comparison.json`` and ``comparison.html``."""
    write_json(folder / "comparison.json", comparison.as_dict())
    told = {key: value for key, value in comparison.about.items() if value not in ("", None, {}, [])}
    sections = [section for section in _sections(comparison) if section]
    write_bytes(folder / "comparison.html", render("comparison.html.jinja", methods=list(comparison.points), told=told, sections=sections))


@dataclass
class _Before:
    failed: dict[str, str] = field(default_factory=dict)


def rewrite_comparison(folder: Path) -> Comparison:
    """Writes ``comparison.json`` and ``comparison.html`` anew from the runs.

    Raises:
        DataError: The folder holds no comparison, or none of its runs has a stage yet.
    """
    before = folder / "comparison.json"
    comparison = compare_runs(read_plan(folder), typed(_Before, read_json(before), str(before)).failed if before.exists() else {})
    write_comparison(comparison, folder)
    return comparison


def table(comparison: Comparison) -> Table:
    """Returns a table with a line for each policy of each method."""
    seeds = comparison.about["seeds"]
    shown = Table(title=f"{comparison.about['environment']}, {comparison.about['model']}, seeds {', '.join(map(str, seeds))}")
    first = f"last over {next(iter(comparison.points))}"
    names = ("method", "policy", "held-out success, % [95 %]", "by seed", "over the warm start", first, "LLM calls", "tokens", "seconds")
    for column in names:
        shown.add_column(column, justify="left" if column in ("method", "policy") else "right")
    for label, points in comparison.points.items():
        last = next((point for point in reversed(points) if point.arm != CONTROL), None)
        for point in points:
            difference = comparison.against_first.get(label) if point is last else None
            shown.add_row(
                label if point is points[0] else "",
                point.title,
                point.success.as_percent(),
                " ".join(f"{100 * v:.1f}" for v in point.by_seed.values()),
                points_of(point.gain) if point.gain else "-",
                points_of(difference) if difference else "-",
                *(f"{v:.0f}" for v in (point.calls, point.tokens, point.seconds)),
            )
    return shown


def points_of(difference: Estimate) -> str:
    """Formats a difference in percentage points with its interval."""
    return f"{100 * difference.mean:+.1f} [{100 * difference.low:+.1f}, {100 * difference.high:+.1f}]"


def cost_plot(comparison: Comparison, cost: str, title: str) -> Markup:
    """Plots success with intervals against a cost, a line for each method, the control apart."""
    points = {label: [p for p in found if p.arm != CONTROL] for label, found in comparison.points.items()}
    spent = [getattr(p, cost) for found in points.values() for p in found]
    if not spent:
        return Markup("")
    across, up = ticks(0, max(spent)), ticks(0, max(0.05, *(p.success.high for found in points.values() for p in found)))
    drawn = Plot(f"Success on held-out tasks by {title}, %", (0, across[-1]), (0, min(1.0, up[-1])))
    drawn.y_axis([(value, f"{100 * value:.0f}") for value in up if value <= 1])
    drawn.x_axis(title, named(across))
    for ink, (label, found) in enumerate(points.items()):
        for p in found:
            drawn.upright(getattr(p, cost), p.success.low, min(1.0, p.success.high), ink)
            drawn.mark(getattr(p, cost), p.success.mean, ink)
        drawn.line([(getattr(p, cost), p.success.mean) for p in found], ink)
        for control in (p for p in comparison.points[label] if p.arm == CONTROL):
            drawn.across(control.success.mean, ink)
        drawn.explain(label, ink)
    return drawn.figure("; ".join(f"{label} {found[-1].success.as_percent()}" for label, found in points.items() if found))


def gains_plot(comparison: Comparison) -> Markup:
    """Plots the gain of each method's last policy over the warm start, with intervals, the best on top."""
    last = {label: [p.gain for p in points if p.gain is not None and p.arm != CONTROL] for label, points in comparison.points.items()}
    inks = {label: ink for ink, label in enumerate(comparison.points)}
    gains = sorted(((label, found[-1]) for label, found in last.items() if found), key=lambda entry: -entry[1].mean)
    if not gains:
        return Markup("")
    across = ticks(min(0.0, *(gain.low for _, gain in gains)), max(0.0, *(gain.high for _, gain in gains)))
    drawn = Plot("Success over the warm start, points", (across[0], across[-1]), (len(gains), 0), height=60 + 26 * len(gains), left=150)
    drawn.zero()
    for at, (label, gain) in enumerate(gains):
        drawn.y_axis([(at + 0.5, label if len(label) <= 22 else f"{label[:21]}…")], lines=False)
        drawn.level(gain.low, gain.high, at + 0.5, inks[label])
        drawn.mark(gain.mean, at + 0.5, inks[label])
    drawn.x_axis("points over the warm start", [(value, f"{100 * value:+.0f}".replace("-", "−")) for value in across])
    return drawn.figure("; ".join(f"{label} {points_of(gain)}" for label, gain in gains))


def _policy_rows(comparison: Comparison) -> Lines:
    lines = [
        [
            label,
            point.title,
            point.success.as_percent(),
            str(point.success.n),
            " ".join(f"{100 * value:.1f}" for value in point.by_seed.values()),
            points_of(point.gain) if point.gain else UNKNOWN,
            *(f"{value:,.0f}" for value in (point.calls, point.tokens)),
            seconds(point.seconds),
        ]
        for label, points in comparison.points.items()
        for point in points
    ]
    return filled([["Method", "Policy", "Success % [95 %]", "n", "By seed", "Over the warm start", "Calls", "Tokens", "Work"], *lines])


def _sections(comparison: Comparison) -> list[Section]:
    first = next(iter(comparison.points))
    against = [[label, points_of(found), str(found.n)] for label, found in comparison.against_first.items()]
    notes = (
        "Differences are paired by task and seed. Intervals: percentile bootstrap over problems, each with all its tasks and seeds; they "
        'do not cover what other seeds would give, which the column "By seed" shows. Calls and tokens are those of exploration (search, '
        "revision), without evaluation; a call may ask for several completions at once, tokens count them all; dotted lines are controls."
    )
    costs = [cost_plot(comparison, name, title) for name, title in (("calls", "calls of exploration"), ("tokens", "tokens of exploration"))]
    return [
        Section("Success over the warm start", [gains_plot(comparison)]),
        Section("Success by cost", costs),
        Section("Policies", tables=[_policy_rows(comparison)], notes=[notes]),
        Section(f"Last round against {first}", tables=[filled([["Method", "Points [95 %]", "n"], *against])]),
        Section("Not finished", tables=[filled([["Run", "Why"], *map(list, comparison.failed.items())])]),
    ]
