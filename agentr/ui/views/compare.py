"""A comparison of methods: success by policy, paired differences of all methods, and the tasks that make them."""

from __future__ import annotations

from dataclasses import asdict
from functools import partial
from statistics import fmean
from typing import Any

from agentr.evaluate.statistics import Estimate, paired_difference
from agentr.observe.comparison import ComparedPoint, ComparedRun, compare_runs, progress
from agentr.observe.problems import Problem, read_or
from agentr.observe.summary import summarise
from agentr.read.run import Run
from agentr.store.layout import EVAL, ArmKind
from agentr.ui.library import Library
from agentr.ui.views.home import comparison_card, lines_of

Scores = dict[str, float]


def compare(library: Library, name: str) -> dict[str, Any]:
    """Returns a comparison.

    Raises:
        DataError: There is none of this id, or none of its runs has begun or can be read.
    """
    folder = library.comparison(name)
    problems: list[Problem] = []
    planned = lines_of(folder, problems)
    lines = [line for line in planned if read_or(False, partial(_can_be_read, line), problems, _named(line))]
    found = compare_runs(lines, {})
    states = {(entry["method"], entry["seed"]): entry["state"] for entry in progress(lines)}
    labels = list(dict.fromkeys(line.label for line in planned))
    last = {label: stage for label, points in found.points.items() if (stage := _last_stage(points))}
    scores, named = _last_scores(lines, last, problems)
    seeds = sorted({line.seed for line in planned})
    names = dict.fromkeys(task.partition("/")[2] for by_task in scores.values() for task in by_task)
    return {
        "card": comparison_card(name, folder),
        "about": {key: str(value) for key, value in found.about.items()},
        "methods": [
            {
                "label": label,
                "points": [_point(point) for point in found.points.get(label, [])],
                "stage": last.get(label, ""),
                "runs": [
                    {
                        "seed": line.seed,
                        "run": library.id_of(line.run.path) if line.run else "",
                        "state": states.get((label, line.seed), "unreadable"),
                    }
                    for line in planned
                    if line.label == label
                ],
            }
            for label in labels
        ],
        "differences": [[_difference(scores.get(a, {}), scores.get(b, {}), named) if a != b else None for b in labels] for a in labels],
        "tasks": [{"key": task, "problem": named.get(task, task), **_scores(scores, task, labels, seeds)} for task in names],
        "problems": problems,
    }


def _point(point: ComparedPoint) -> dict[str, Any]:
    return {
        "title": point.title,
        "success": asdict(point.success),
        "bySeed": {str(seed): value for seed, value in point.by_seed.items()},
        "calls": point.calls,
        "tokens": point.tokens,
        "seconds": point.seconds,
        "gain": asdict(point.gain) if point.gain else None,
    }


def _can_be_read(line: ComparedRun) -> bool:
    if line.run is not None and line.run.records():
        summarise(line.run)
    return True


def _named(line: ComparedRun) -> str:
    return f"{line.label}, seed {line.seed},"


def _last_stage(points: list[ComparedPoint]) -> str:
    """Returns the evaluation of the last policy that all seeds of a method have; empty if there is none."""
    rounds = [point for point in points if point.arm.kind is not ArmKind.CONTROL]
    complete = [point for point in rounds if len(point.by_seed) == max(len(p.by_seed) for p in rounds)]
    return complete[-1].arm.stage(EVAL) if complete else ""


def _last_scores(lines: list[ComparedRun], last: dict[str, str], problems: list[Problem]) -> tuple[dict[str, Scores], dict[str, str]]:
    """Returns, by method, the scores by ``SEED/TASK`` under its last policy, and the problems that the tasks are of."""
    scores: dict[str, Scores] = {}
    named: dict[str, str] = {}
    for line in lines:
        run, stage = line.run, last.get(line.label)
        if run is None or stage is None or stage not in run.records():  # not there yet
            continue
        by_task, problem_of = read_or(({}, {}), partial(_evaluated, run, stage), problems, _named(line))
        scores.setdefault(line.label, {}).update({f"{line.seed}/{task}": value for task, value in by_task.items()})
        named |= {task: problem_of.get(task, task) for task in by_task}
    return scores, named


def _evaluated(run: Run, stage: str) -> tuple[Scores, dict[str, str]]:
    evaluation = run.stage(stage).evaluation
    return evaluation.per_task, evaluation.problems


def _difference(after: Scores, before: Scores, problems: dict[str, str]) -> dict[str, Any] | None:
    shared = after.keys() & before.keys()
    if not shared:
        return None
    estimate: Estimate = paired_difference(after, before, problems={key: problems[key.partition("/")[2]] for key in shared})
    return asdict(estimate)


def _scores(scores: dict[str, Scores], task: str, labels: list[str], seeds: list[int]) -> dict[str, Any]:
    """Returns the scores of a task by method: the mean of the seeds, and of each seed by itself."""
    by_seed = {str(seed): [scores.get(label, {}).get(f"{seed}/{task}") for label in labels] for seed in seeds}
    known = [[value for found in by_seed.values() if (value := found[place]) is not None] for place in range(len(labels))]
    return {"scores": [fmean(values) if values else None for values in known], "bySeed": by_seed}
