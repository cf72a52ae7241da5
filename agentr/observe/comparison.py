"""Several runs side by side: held-out success by round, against LLM calls and tokens spent. Read from run directories alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

from jinja2 import Environment, PackageLoader, select_autoescape
from markupsafe import Markup
from rich.table import Table

from agentr.errors import DataError
from agentr.evaluate.statistics import Estimate, mean_interval, paired_difference
from agentr.observe.report import figure, svg
from agentr.observe.summary import Arm, Summary, summarise
from agentr.store.files import read_json, write_bytes, write_json
from agentr.store.run import RunStore

#: File in which a comparison notes its runs.
PLAN = "plan.json"

_COLOURS = ("#2a6f97", "#d68c45", "#588157", "#9d4edd", "#bc4749", "#7a8b99", "#3a5a40", "#e09f3e")


@dataclass(frozen=True)
class Line:
    """One run of a comparison."""

    label: str
    seed: int
    store: RunStore


@dataclass(frozen=True)
class Point:
    """A policy of one recipe, over all its seeds.

    Attributes:
        title: warm start, round N or control.
        success: Held-out success over all seeds and tasks; the interval is over problems, each with all its tasks and seeds.
        by_seed: Mean success of each seed.
        calls: LLM calls of exploration up to here, mean of the seeds.
        tokens: Tokens that were generated in them.
        seconds: Work up to here.
        gain: Success less that of the same seed's warm start, paired by task and seed; None at the warm start.
    """

    title: str
    success: Estimate
    by_seed: dict[int, float]
    calls: float
    tokens: float
    seconds: float
    gain: Estimate | None


@dataclass(frozen=True)
class Comparison:
    """All recipes of a comparison, in the order given.

    Attributes:
        points: By label.
        against_first: Last round of each label less the last round of the first one, paired by task and seed.
        failed: Runs that could not be finished, and why.
    """

    about: dict[str, Any]
    points: dict[str, list[Point]]
    against_first: dict[str, Estimate]
    failed: dict[str, str]

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


def run_folder(folder: Path, label: str, seed: int) -> Path:
    """Where a comparison keeps one of its runs."""
    return folder / label / f"seed-{seed}"


def write_plan(folder: Path, runs: Sequence[tuple[str, int]]) -> None:
    """Notes the labels and seeds of a comparison's runs, before any of them began."""
    write_json(folder / PLAN, {"runs": runs})


def read_plan(folder: Path) -> list[Line]:
    """The runs of a comparison, begun or not.

    Raises:
        DataError: The folder holds no comparison.
    """
    return [Line(label, seed, RunStore(run_folder(folder, label, seed))) for label, seed in read_json(folder / PLAN)["runs"]]


def rewrite(folder: Path) -> Comparison:
    """Writes ``comparison.json`` and ``comparison.html`` anew from the runs.

    Raises:
        DataError: The folder holds no comparison, or none of its runs has a stage yet.
    """
    before = folder / "comparison.json"
    return compare_runs(read_plan(folder), folder, read_json(before).get("failed", {}) if before.exists() else {})


def progress(lines: Sequence[Line]) -> list[dict[str, Any]]:
    """How far each run is: its recipe, seed, state (not begun, done, or the stage it is at), sealed stages, and success by policy."""
    found = []
    for line in lines:
        records = line.store.records()
        unsealed = [record.name for record in records if record.state != "sealed"]
        state = "not begun" if not records else "done" if summarise(line.store).complete else ", ".join(unsealed) or "between two stages"
        success = [record.summary["success"] for record in records if "success" in record.summary]
        found.append({"recipe": line.label, "seed": line.seed, "state": state, "stages": len(records) - len(unsealed), "success": success})
    return found


def compare_runs(lines: Sequence[Line], folder: Path, failed: dict[str, str]) -> Comparison:
    """Reads the runs, finished or not, and writes ``comparison.json`` and ``comparison.html``.

    Args:
        failed: Runs that could not be finished, and why.

    Raises:
        DataError: None of them has a stage yet.
    """
    summaries: dict[str, dict[int, Summary]] = {}
    for line in lines:
        if line.store.records():
            summaries.setdefault(line.label, {})[line.seed] = summarise(line.store)
    if not summaries:
        raise DataError(f"no run in {folder} has a stage yet", hint="Start them with 'agentr compare'.")
    points = {label: _points(by_seed) for label, by_seed in summaries.items()}
    first = next(iter(summaries))
    result = Comparison(
        about={**_common(summaries), "seeds": sorted({line.seed for line in lines})},
        points=points,
        against_first={
            label: difference
            for label, by_seed in summaries.items()
            if label != first and (difference := _difference(_last(by_seed), _last(summaries[first]))).n
        },
        failed=dict(failed),
    )
    write_json(folder / "comparison.json", result.as_dict())
    environment = Environment(loader=PackageLoader("agentr.observe", "."), autoescape=select_autoescape(["html", "jinja"]))
    page = environment.get_template("comparison.html.jinja").render(
        comparison=result,
        first=first,
        gains=Markup(gains_plot(result)),
        by_calls=Markup(plot(result, "calls", "LLM calls spent on exploration")),
        by_tokens=Markup(plot(result, "tokens", "tokens generated in exploration")),
    )
    write_bytes(folder / "comparison.html", page.encode())
    return result


def table(comparison: Comparison) -> Table:
    """One line for each policy of each recipe."""
    seeds = comparison.about["seeds"]
    shown = Table(title=f"{comparison.about['environment']}, {comparison.about['model']}, seeds {', '.join(map(str, seeds))}")
    first = f"last over {next(iter(comparison.points))}"
    names = ("recipe", "policy", "held-out success, % [95 %]", "by seed", "over the warm start", first, "LLM calls", "tokens", "seconds")
    for column in names:
        shown.add_column(column, justify="left" if column in ("recipe", "policy") else "right")
    for label, points in comparison.points.items():
        last = [point for point in points if point.title != "control"][-1]
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
    """A difference in percentage points with its interval."""
    return f"{100 * difference.mean:+.1f} [{100 * difference.low:+.1f}, {100 * difference.high:+.1f}]"


def plot(comparison: Comparison, cost: str, title: str) -> str:
    """Success with intervals against what was spent, a line for each recipe, its control apart. SVG."""
    canvas, axes = figure(6.8, 3.6)
    for (label, points), colour in zip(comparison.points.items(), _cycle(len(comparison.points)), strict=True):
        rounds = [p for p in points if p.title != "control"]
        spent, success = [getattr(p, cost) for p in rounds], [p.success for p in rounds]
        axes.vlines(spent, [100 * s.low for s in success], [100 * s.high for s in success], color=colour, linewidth=1, alpha=0.4)
        axes.plot(spent, [100 * s.mean for s in success], label=label, color=colour, marker="o")
        for control in (p for p in points if p.title == "control"):
            axes.axhline(100 * control.success.mean, color=colour, linestyle=":", linewidth=1)
    axes.set_xlabel(title)
    axes.set_ylabel("held-out success, %")
    axes.set_ylim(bottom=0)
    axes.legend(frameon=False, loc="center left", bbox_to_anchor=(1, 0.5))
    return svg(canvas)


def gains_plot(comparison: Comparison) -> str:
    """What the last policy of each recipe has over the warm start, with intervals, the best on top. SVG."""
    colours = dict(zip(comparison.points, _cycle(len(comparison.points)), strict=True))
    last = {label: [p.gain for p in points if p.gain is not None and p.title != "control"] for label, points in comparison.points.items()}
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


def _points(by_seed: dict[int, Summary]) -> list[Point]:
    titles = [arm.title for arm in max(by_seed.values(), key=lambda summary: len(summary.arms)).arms]
    found = []
    for title in titles:
        arms = {seed: arm for seed, s in by_seed.items() for arm in s.arms if arm.title == title and arm.evaluation is not None}
        if not arms:
            continue
        starts = {seed: by_seed[seed].arms[0] for seed in arms}
        scores, problems = _pooled(arms)
        until = {seed: _until(by_seed[seed], title) for seed in arms}
        found.append(
            Point(
                title,
                mean_interval(list(scores.values()), problems=[problems[key] for key in scores]),
                {seed: arm.evaluation.success.mean for seed, arm in arms.items() if arm.evaluation is not None},
                fmean(sum(a.calls for a in before) for before in until.values()),
                fmean(sum(a.completion_tokens for a in before) for before in until.values()),
                fmean(sum(sum(a.seconds.values()) for a in before) for before in until.values()),
                None if title == "warm start" else _difference(arms, starts),
            )
        )
    return found


def _until(summary: Summary, title: str) -> list[Arm]:
    """What had to be done for a policy: the warm start and the rounds up to it; of a control only the warm start and itself."""
    names = [arm.title for arm in summary.arms]
    if title == "control":
        return [summary.arms[0], summary.arms[names.index(title)]]
    return summary.arms[: names.index(title) + 1]


def _last(by_seed: dict[int, Summary]) -> dict[int, Arm]:
    """The last policies of the runs that came to their end."""
    return {seed: [a for a in s.arms if a.title != "control"][-1] for seed, s in by_seed.items() if s.complete}


def _pooled(arms: dict[int, Arm]) -> tuple[dict[str, float], dict[str, str]]:
    """Scores and problems by seed and task: the same problem in another seed is the same problem."""
    scores: dict[str, float] = {}
    problems: dict[str, str] = {}
    for seed, arm in arms.items():
        assert arm.evaluation is not None
        for task, score in arm.evaluation.per_task.items():
            scores[f"{seed}/{task}"] = score
            problems[f"{seed}/{task}"] = arm.evaluation.problems.get(task, task)
    return scores, problems


def _difference(after: dict[int, Arm], before: dict[int, Arm]) -> Estimate:
    scores, problems = _pooled(after)
    return paired_difference(scores, _pooled({s: a for s, a in before.items() if a.evaluation is not None})[0], problems=problems)


def _common(summaries: dict[str, dict[int, Summary]]) -> dict[str, Any]:
    about = next(iter(next(iter(summaries.values())).values())).about
    return {key: about[key] for key in ("model", "environment", "options", "held-out split")}


def _cycle(n: int) -> list[str]:
    return [_COLOURS[i % len(_COLOURS)] for i in range(n)]
