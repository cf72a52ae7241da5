"""Pages that are sent to others: whatever is put into them stays a text, and plots have no colours of their own."""

from __future__ import annotations

import math
import re
from pathlib import Path

import pytest
from markupsafe import Markup

from agentr.observe.page import plain, seen, shortened
from agentr.observe.svg import MOST, Curve, Plot, curves_plot, named, number, stacks, ticks

WEB = Path(__file__).parents[2] / "agentr/ui/web/src"
STYLE = Path(__file__).parents[2] / "agentr/observe/style.css"


def test_characters_that_are_not_seen_are_those_of_the_pages_of_agentr_ui() -> None:
    (pattern,) = re.findall(r"/(\[\\u0000.*?\])/gu", (WEB / "hostile.ts").read_text(encoding="utf-8"))
    theirs = re.compile(re.sub(r"\\u\{(\w+)\}", lambda found: f"\\U{found[1]:0>8}", pattern))
    everything = [chr(code) for code in (*range(0x11000), *range(0xE0000, 0xE1000))]
    assert [c for c in everything if theirs.fullmatch(c)] == [c for c in everything if seen(c) != c]


def test_texts_are_without_markup_and_all_seen() -> None:
    assert plain("<b onclick='x'>\u202e\0\ud800 \"") == "&lt;b onclick=&#39;x&#39;&gt;[U+202E][U+0000][U+D800] &#34;"
    assert plain(Markup("<b>")) == "<b>" and plain(3) == "3" and seen("a\tb\nc") == "a\tb\nc"
    assert shortened("x" * 10, 10) == "x" * 10
    assert shortened("a" * 90 + "z" * 30, 40) == "a" * 30 + "\n[80 characters are left out]\n" + "z" * 10


def test_colours_have_the_values_that_agentr_ui_gives_them() -> None:
    def colours(css: str) -> list[dict[str, str]]:
        return [dict(re.findall(r"--([\w-]+): (#\w+)", block)) for block in re.findall(r":root \{(.*?)\}", css, re.DOTALL)]

    ours, theirs = colours(STYLE.read_text()), colours((WEB / "style.css").read_text())
    assert len(ours) == len(theirs) == 2, "light and dark"
    assert ours[0].keys() == ours[1].keys() and {f"series{ink}" for ink in range(6)} < ours[0].keys()
    assert all(theirs[scheme][name] == value for scheme in (0, 1) for name, value in ours[scheme].items())


def test_a_curve_is_drawn_by_the_colour_of_its_policy_and_read_out() -> None:
    plot = curves_plot("Loss <1>", [Curve("warm start", [(1, 4.0), (2, None), (3, math.nan), (4, 1.0)], 1), Curve("no points", [])])
    assert 'aria-label="Loss &lt;1&gt;: warm start from 4 to 1"' in plot and "no points" not in plot
    (points,) = re.findall(r'<polyline class="ink1" stroke-dasharray="[\d ]+" points="(.*?)"', plot)
    (x1, y1), (x2, y2) = (map(float, point.split(",")) for point in points.split())
    assert x1 < x2 and y1 < y2, "upwards is less on a page"
    assert not re.search(r"#[0-9a-f]{3,6}\b(?!;)|rgb|fill=|stroke=", plot), "no colour of its own"
    assert curves_plot("Loss", [Curve("a", [])]) == "" == stacks("Work", [("a", {"train": 0.0})], "seconds")


def test_a_long_curve_is_thinned_by_means() -> None:
    curve = Curve("a", [(step, float(step % 2)) for step in range(10_000)])
    assert len(curve.drawn()) == MOST and {value for _, value in curve.drawn()} == {0.5}
    plot = curves_plot("Loss", [curve] * 100)
    assert "a point is the mean of several" in plot and len(plot) < 120_000
    assert "mean of several" not in curves_plot("Loss", [Curve("a", curve.points[:100])])


@pytest.mark.parametrize(("low", "high", "values"), [
    (0, 1, [0, 0.2, 0.4, 0.6, 0.8, 1]),
    (0.013, 0.48, [0, 0.1, 0.2, 0.3, 0.4, 0.5]),
    (-3, 12, [-5, 0, 5, 10, 15]),
    (5, 5, [2, 3, 4, 5, 6, 7, 8]),
])  # fmt: skip
def test_ticks_are_round_and_hold_what_is_drawn(low: float, high: float, values: list[float]) -> None:
    assert ticks(low, high) == values


def test_numbers_are_written_as_in_agentr_ui() -> None:
    assert [number(value) for value in (3, -2.0, 1234.5, 1.234, 0.1234, 0.0001234)] == ["3", "−2", "1234", "1.23", "0.123", "0.00012"]
    assert [text for _, text in named([0, 0.5, 1])] == ["0.0", "0.5", "1.0"] and named([1000])[0][1] == "1,000"


def test_bars_are_as_long_as_their_parts() -> None:
    plot = stacks("Work", [("warm start", {"train": 30.0, "eval": 10.0}), ("round 1", {"train": 20.0})], "seconds")
    assert 'aria-label="Work: warm start 40 seconds; round 1 20 seconds"' in plot
    bars = [(ink, float(width)) for ink, width in re.findall(r'class="(ink\d)"><rect x="[\d.]+" y="[\d.]+" width="([\d.]+)"', plot)]
    assert [ink for ink, _ in bars] == ["ink0", "ink1", "ink0"]
    assert bars[0][1] == pytest.approx(3 * bars[1][1], rel=0.01) and bars[2][1] == pytest.approx(2 * bars[1][1], rel=0.01)


def test_each_colour_has_a_mark_of_its_own() -> None:
    plot = Plot("Marks", (0, 1), (0, 1))
    for ink in range(4):
        plot.mark(0.5, 0.5, ink)
    marks = re.findall(r'<g class="ink\d">(.*?)</g>', plot.figure())
    assert len(set(marks)) == 4
