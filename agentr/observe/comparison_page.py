"""Presents a comparison: a table in the terminal, ``comparison.html`` with plots, ``comparison.json`` with the same figures."""

from __future__ import annotations

from pathlib import Path

from jinja2 import Environment, PackageLoader, select_autoescape
from markupsafe import Markup
from rich.table import Table

from agentr.evaluate.statistics import Estimate
from agentr.observe.comparison import Comparison, compare_runs, read_plan
from agentr.observe.report import figure, svg
from agentr.store.files import read_json, write_bytes, write_json
from agentr.store.layout import CONTROL

_COLOURS = ("#2a6f97", "#d68c45", "#588157", "#9d4edd", "#bc4749", "#7a8b99", "#3a5a40", "#e09f3e")


def write_comparison(comparison: Comparison, folder: Path) -> None:
    """Writes ``comparison.json`` and ``comparison.html``."""
    write_json(folder / "comparison.json", comparison.as_dict())
    environment = Environment(loader=PackageLoader("agentr.observe", "."), autoescape=select_autoescape(["html", "jinja"]))
    page = environment.get_template("comparison.html.jinja").render(
        comparison=comparison,
        first=next(iter(comparison.points)),
        gains=Markup(gains_plot(comparison)),
        by_calls=Markup(plot(comparison, "calls", "LLM calls spent on exploration")),
        by_tokens=Markup(plot(comparison, "tokens", "tokens generated in exploration")),
    )
    write_bytes(folder / "comparison.html", page.encode())


def rewrite_comparison(folder: Path) -> Comparison:
    """Writes ``comparison.json`` and ``comparison.html`` anew from the runs.

    Raises:
        DataError: The folder holds no comparison, or none of its runs has a stage yet.
    """
    before = folder / "comparison.json"
    comparison = compare_runs(read_plan(folder), read_json(before).get("failed", {}) if before.exists() else {})
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


def plot(comparison: Comparison, cost: str, title: str) -> str:
    """Plots success with intervals against a cost, a line for each method, the control apart. Returns SVG."""
    canvas, axes = figure(6.8, 3.6)
    for (label, points), colour in zip(comparison.points.items(), _cycle(len(comparison.points)), strict=True):
        rounds = [p for p in points if p.arm != CONTROL]
        spent, success = [getattr(p, cost) for p in rounds], [p.success for p in rounds]
        axes.vlines(spent, [100 * s.low for s in success], [100 * s.high for s in success], color=colour, linewidth=1, alpha=0.4)
        axes.plot(spent, [100 * s.mean for s in success], label=label, color=colour, marker="o")
        for control in (p for p in points if p.arm == CONTROL):
            axes.axhline(100 * control.success.mean, color=colour, linestyle=":", linewidth=1)
    axes.set_xlabel(title)
    axes.set_ylabel("held-out success, %")
    axes.set_ylim(bottom=0)
    axes.legend(frameon=False, loc="center left", bbox_to_anchor=(1, 0.5))
    return svg(canvas)


def gains_plot(comparison: Comparison) -> str:
    """Plots the gain of each method's last policy over the warm start, with intervals, the best on top. Returns SVG."""
    colours = dict(zip(comparison.points, _cycle(len(comparison.points)), strict=True))
    last = {label: [p.gain for p in points if p.gain is not None and p.arm != CONTROL] for label, points in comparison.points.items()}
    gains = sorted(((label, found[-1]) for label, found in last.items() if found), key=lambda entry: entry[1].mean)
    canvas, axes = figure(6.8, 0.8 + 0.32 * len(gains))
    axes.axvline(0, color="#888888", linewidth=1)
    for height, (label, gain) in enumerate(gains):
        axes.hlines(height, 100 * gain.low, 100 * gain.high, color=colours[label])
        axes.plot(100 * gain.mean, height, color=colours[label], marker="o")
    axes.set_yticks(range(len(gains)), [label for label, _ in gains])
    axes.set_ylim(-0.6, len(gains) - 0.4)
    axes.set_xlabel("held-out success over the warm start, points")
    return svg(canvas)


def _cycle(n: int) -> list[str]:
    return [_COLOURS[i % len(_COLOURS)] for i in range(n)]
