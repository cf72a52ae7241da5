"""What a person reads of long work: which stage of how many, how far, how fast, how long still; on a terminal, in a
log, afterwards."""

import io
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from agentr import logs
from agentr.observe import progress
from agentr.observe.progress import Now, Reporter, StagePlan, read_now
from agentr.observe.rate import FEW, SOON_S, WINDOW_S, Pace
from agentr.words import counted, span


def test_a_rate_is_the_mean_of_what_was_seen_lately() -> None:
    pace = Pace()
    for second in range(0, 600, 2):  # one each two seconds, then one each ten
        pace.add(second, second / 2)
    assert pace.per_minute(600) == pytest.approx(30, rel=0.05)
    for number in range(1, 31):
        pace.add(600 + 10 * number, 300 + number)
    assert pace.per_minute(900) == pytest.approx(6, rel=0.1), "what was before the window is forgotten"


def test_there_is_no_rate_before_there_is_evidence() -> None:
    pace = Pace()
    assert pace.per_minute(100) is None
    pace.add(0, 50)
    pace.add(SOON_S, 50 + FEW - 1)
    assert pace.per_minute(SOON_S) is None, "too few"
    pace.add(SOON_S + 1, 50 + FEW)
    assert pace.per_minute(SOON_S + 1) == pytest.approx(60 * FEW / (SOON_S + 1)), "the 50 were there before"
    soon = Pace()
    soon.add(0, 0)
    soon.add(1, 10)
    assert soon.per_minute(1) is None, "too soon"


def test_units_that_take_longer_than_the_window_have_a_rate_too_and_a_halt_lowers_it() -> None:
    pace = Pace()
    for number in range(10):
        pace.add(number * 3 * WINDOW_S, number)
    assert pace.per_minute(27 * WINDOW_S) == pytest.approx(60 / (3 * WINDOW_S))
    assert (pace.per_minute(60 * WINDOW_S) or 0.0) < 60 / (9 * WINDOW_S)
    pace.add(28 * WINDOW_S, 2)
    assert pace.per_minute(28 * WINDOW_S) is None, "it has begun again"


@pytest.mark.parametrize(
    ("seconds", "words"),
    [(0.4, "0 s"), (89, "89 s"), (100, "2 min"), (3590, "1 h 0 min"), (12_000, "3 h 20 min"), (190_000, "2 d 4 h")],
)
def test_durations_are_as_exact_as_an_estimate(seconds: float, words: str) -> None:
    assert span(seconds) == words


def test_one_is_no_plural() -> None:
    assert [counted(count, "pair") for count in (0, 1, 2)] == ["0 pairs", "1 pair", "2 pairs"]


@pytest.mark.parametrize(
    ("now", "words"),
    [
        (Now("x", 0, 0), ""),
        (Now("x", 0, 0, 38, 300, "solved 20", "trees"), "38 of 300 trees; solved 20"),
        (Now("x", 0, 0, 38, 300, "", "trees", 12.4, 1268), "38 of 300 trees, 12 a minute, about 21 min left"),
        (
            Now("x", 0, 0, 2.5, 8, "", "online steps", 0.25, 1320),
            "2.5 of 8 online steps, 15 an hour, about 22 min left",
        ),
        (Now("x", 0, 0, 3, 0, "loss 1.5", "", 3.0, None), "3 a minute; loss 1.5"),
    ],
)
def test_what_is_not_known_is_not_said(now: Now, words: str) -> None:
    assert now.words == words


def test_a_stage_that_was_not_planned_makes_the_number_a_lower_bound() -> None:
    plan = StagePlan(["model", "rounds/01/collect", "rounds/01/train"])
    assert (plan.number("rounds/01/collect"), len(plan.stages), plan.exact) == (2, 3, True)
    assert (plan.number("rounds/01/extra"), len(plan.stages), plan.exact) == (3, 4, False)
    assert (plan.number("rounds/01/train"), len(plan.stages), plan.exact) == (4, 4, False)


class Clock:
    """A time that tests move."""

    def __init__(self) -> None:
        self.now = 1000.0

    def time(self) -> float:
        return self.now

    monotonic = time

    def strftime(self, _: str) -> str:
        return "12:00:00"


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Iterator[Clock]:
    clock = Clock()
    monkeypatch.setattr(progress, "time", clock)
    level = logging.getLogger("agentr").level
    logging.getLogger("agentr").setLevel(logging.INFO)
    yield clock
    logging.getLogger("agentr").setLevel(level)


def shown(clock: Clock, log: Path, *, terminal: bool, every: float = 1.0, total: int = 600) -> str:
    """A stage of ten minutes that is planned as the second of three; returns what was printed."""
    screen = io.StringIO()
    reporter = Reporter(Console(file=screen, force_terminal=terminal, width=160, soft_wrap=True, highlight=False))
    stages = reporter.planned(["model", "rounds/01/collect", "rounds/01/eval"])
    with (
        reporter.logged(log),
        stages,
        logs.about(stage="rounds/01/collect"),
        reporter.task("rounds/01/collect", "trees") as update,
    ):
        for done in range(1, total + 1):
            clock.now += every
            update(done, total, "solved 3")
    return screen.getvalue()


TITLE = "round 1: collect (stage 2 of 3)"


def test_a_log_gets_a_line_now_and_then_and_a_terminal_the_same_in_its_log(
    tmp_path: Path, clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "agentr")
    plain = shown(clock, tmp_path / "plain.log", terminal=False)
    told = [line for line in plain.splitlines() if " of 600 trees" in line]
    assert plain.splitlines()[0] == f"{TITLE} ..." and plain.splitlines()[-1] == f"done  {TITLE}  600.0 s"
    assert told[0] == f"  {TITLE}: 15 of 600 trees, 60 a minute, about 10 min left; solved 3"
    assert told[1].startswith(f"  {TITLE}: 30 of 600 trees") and 15 < len(told) < 30, "rarer the longer it takes"
    assert [record.getMessage() for record in caplog.records if " of 600 trees" in record.getMessage()] == [
        line.strip() for line in told
    ]
    bars = shown(clock, tmp_path / "terminal.log", terminal=True)
    assert f"{TITLE}" in bars and "600 of 600 trees" in bars
    lines = [(tmp_path / name).read_text().splitlines() for name in ("plain.log", "terminal.log")]
    assert lines[0] == lines[1] and len(lines[0]) == len(told) + 2, "who was not there reads how it went"


def test_what_is_told_elsewhere_has_the_same_stage_rate_and_time_left(tmp_path: Path, clock: Clock) -> None:
    reporter, told = Reporter(), []
    with (
        reporter.kept(tmp_path / "now.json"),
        reporter.planned(["rounds/01/train"]),
        reporter.part("run 2 of 4"),
        logs.about(stage="rounds/01/train"),
        reporter.task("rounds/01/train", "optimiser steps") as update,
    ):
        for done in range(100, 120, 5):
            clock.now += 6
            update(done, 150, "loss 0.5")
            told.append(read_now(tmp_path / "now.json"))
    now: Any = told[-1]
    assert now.title == "round 1: train (run 2 of 4, stage 1 of 1)" and (now.stage, now.stages) == (1, 1)
    assert now.rate == pytest.approx(50) and now.left_s == pytest.approx(42), "from where it went on, not from 0"
    assert told[0].rate is None and told[0].left_s is None


def test_work_that_is_no_stage_has_no_number(clock: Clock, capsys: pytest.CaptureFixture[str]) -> None:
    reporter = Reporter()
    with reporter.planned(["model"]), reporter.task("mirroring to [s3]"):
        pass
    assert capsys.readouterr().out == "mirroring to [s3] ...\ndone  mirroring to [s3]  0.0 s\n"
