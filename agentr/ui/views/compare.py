"""A comparison of methods: success by policy, paired differences of all methods, and the tasks that make them."""

from __future__ import annotations

from dataclasses import asdict
from statistics import fmean
from typing import Any

from agentr.errors import AgentrError
from agentr.evaluate.statistics import Estimate, paired_difference
from agentr.observe.comparison import Comparison, Line, Point, compare_runs, progress, read_plan
from agentr.store.layout import EVAL, ArmKind
from agentr.ui.library import Library
from agentr.ui.views.home import comparison_card

Scores = dict[str, float]


def compare(library: Library, name: str) -> dict[str, Any]:
    """Returns a comparison.

    Raises:
        DataError: There is none of this id, or none of its runs has begun.
    """
    folder = library.comparison(name)
    lines = read_plan(folder)
    found = compare_runs(lines, {})
    states = {(entry["method"], entry["seed"]): entry["state"] for entry in progress(lines)}
    labels = list(dict.fromkeys(line.label for line in lines))
    scores, problems = _last_scores(lines, found)
    names = dict.fromkeys(task.partition("/")[2] for by_task in scores.values() for task in by_task)
    return {
        "card": comparison_card(name, folder),
        "about": {key: str(value) for key, value in found.about.items()},
        "methods": [
            {
                "label": label,
                "points": [_point(point) for point in found.points.get(label, [])],
                "runs": [
                    {"seed": line.seed, "run": library.id_of(line.run.path) if line.run else "", "state": states[label, line.seed]}
                    for line in lines
                    if line.label == label
                ],
                "failed": "; ".join(why for run, why in found.failed.items() if run.startswith(f"{label}/")),
            }
            for label in labels
        ],
        "differences": [[_difference(scores.get(a, {}), scores.get(b, {}), problems) if a != b else None for b in labels] for a in labels],
        "tasks": [
            {"key": task, "problem": problems.get(task, task), "scores": [_mean(scores.get(label, {}), task) for label in labels]}
            for task in names
        ],
    }


def _point(point: Point) -> dict[str, Any]:
    return {
        "title": point.title,
        "success": asdict(point.success),
        "bySeed": {str(seed): value for seed, value in point.by_seed.items()},
        "calls": point.calls,
        "tokens": point.tokens,
        "seconds": point.seconds,
        "gain": asdict(point.gain) if point.gain else None,
    }


def _last_scores(lines: list[Line], found: Comparison) -> tuple[dict[str, Scores], dict[str, str]]:
    """Returns, by method, the scores by ``SEED/TASK`` under the last policy that all its seeds have, and the problems."""
    scores: dict[str, Scores] = {}
    problems: dict[str, str] = {}
    for label, points in found.points.items():
        rounds = [point for point in points if point.arm.kind is not ArmKind.CONTROL]
        complete = [point for point in rounds if len(point.by_seed) == max(len(p.by_seed) for p in rounds)]
        for line in lines:
            if line.label != label or line.run is None or not complete:
                continue
            try:
                evaluation = line.run.stage(complete[-1].arm.stage(EVAL)).evaluation
            except (AgentrError, OSError):  # not there yet
                continue
            scores.setdefault(label, {}).update({f"{line.seed}/{task}": value for task, value in evaluation.per_task.items()})
            problems |= {task: evaluation.problems.get(task, task) for task in evaluation.per_task}
    return scores, problems


def _difference(after: Scores, before: Scores, problems: dict[str, str]) -> dict[str, Any] | None:
    shared = after.keys() & before.keys()
    if not shared:
        return None
    estimate: Estimate = paired_difference(after, before, problems={key: problems[key.partition("/")[2]] for key in shared})
    return asdict(estimate)


def _mean(scores: Scores, task: str) -> float | None:
    values = [value for key, value in scores.items() if key.partition("/")[2] == task]
    return fmean(values) if values else None
