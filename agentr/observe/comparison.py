"""Compares several runs: held-out success by round, and its cost. Reads run directories alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

from agentr.errors import DataError
from agentr.evaluate.statistics import Estimate, mean_interval, paired_difference
from agentr.observe.summary import ArmSummary, RunSummary, summarise
from agentr.outside import typed
from agentr.read.run import Run
from agentr.store.files import read_json, write_json
from agentr.store.inside import check_names
from agentr.store.layout import CONTROL, EVAL, Arm, ArmKind, Layout, stage_of, title_of
from agentr.store.summaries import EvalSummary

#: File in which a comparison notes its runs.
PLAN = "plan.json"


@dataclass(frozen=True)
class ComparedRun:
    """One run of a comparison; ``run`` is None before it is started."""

    label: str
    seed: int
    run: Run | None


@dataclass(frozen=True, kw_only=True)
class ComparedPoint:
    """A policy of one method, over all its seeds.

    Attributes:
        success: Held-out success over all seeds and tasks; the interval is over problems, each with all its tasks and seeds.
        by_seed: Mean success of each seed.
        calls: LLM calls of exploration up to this policy, mean of the seeds.
        tokens: Tokens generated in those calls.
        seconds: Seconds of work up to this policy.
        gain: Success less that of the same seed's warm start, paired by task and seed; None at the warm start.
    """

    arm: Arm
    success: Estimate
    by_seed: dict[int, float]
    calls: float
    tokens: float
    seconds: float
    gain: Estimate | None

    @property
    def title(self) -> str:
        return self.arm.title


@dataclass(frozen=True)
class Comparison:
    """All methods of a comparison, in the order given.

    Attributes:
        points: Policies in order, by label.
        against_first: Success of each label's last round less that of the first label's, paired by task and seed.
        failed: Runs that could not be finished, and why.
    """

    about: dict[str, Any]
    points: dict[str, list[ComparedPoint]]
    against_first: dict[str, Estimate]
    failed: dict[str, str]

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


def run_folder(folder: Path, label: str, seed: int) -> Path:
    """Returns the run directory of one run of a comparison."""
    return folder / label / f"seed-{seed}"


def write_plan(folder: Path, runs: Sequence[tuple[str, int]]) -> None:
    """Writes the labels and seeds of a comparison's runs, before the first run starts."""
    folder.mkdir(parents=True, exist_ok=True)
    write_json(folder / PLAN, {"runs": runs})


def planned(folder: Path) -> list[tuple[str, int]]:
    """Reads the labels and seeds of a comparison's runs.

    Raises:
        DataError: The folder holds no comparison.
    """
    runs = typed(dict[str, list[tuple[str, int]]], read_json(folder / PLAN), str(folder / PLAN)).get("runs", [])
    check_names([label for label, _ in runs], str(folder / PLAN))
    return runs


def read_plan(folder: Path) -> list[ComparedRun]:
    """Reads the runs of a comparison, started or not.

    Raises:
        DataError: The folder holds no comparison.
    """
    return [line(folder, label, seed) for label, seed in planned(folder)]


def line(folder: Path, label: str, seed: int) -> ComparedRun:
    """Returns one run of a comparison, started or not."""
    path = run_folder(folder, label, seed)
    return ComparedRun(label, seed, Run(path) if Layout(path).config.exists() else None)


def progress(lines: Sequence[ComparedRun]) -> list[dict[str, Any]]:
    """Returns the progress of each run: label, seed, state (not begun, done, or the running stage), sealed stages and how many are planned
    (0 if that is not known), success by policy."""
    found = []
    for line in lines:
        records = list(line.run.records().values()) if line.run else []
        unsealed = [record.name for record in records if not record.sealed]
        if line.run is None or not records:
            state = "not begun"
        elif summarise(line.run).complete:
            state = "done"
        else:
            state = ", ".join(map(title_of, unsealed)) or "between two stages"
        evaluated = [r for r in records if r.sealed and (place := stage_of(r.name)) is not None and place[1] == EVAL]
        success = [record.read(EvalSummary).success for record in evaluated]
        stages = {"stages": len(records) - len(unsealed), "planned": len(line.run.planned()) if line.run else 0}
        found.append({"method": line.label, "seed": line.seed, "state": state, **stages, "success": success})
    return found


def compare_runs(lines: Sequence[ComparedRun], failed: dict[str, str]) -> Comparison:
    """Computes the comparison of runs, finished or not.

    Args:
        failed: Runs that could not be finished, and why.

    Raises:
        DataError: None of them has a stage yet.
    """
    summaries: dict[str, dict[int, RunSummary]] = {}
    for line in lines:
        if line.run is not None and line.run.records():
            summaries.setdefault(line.label, {})[line.seed] = summarise(line.run)
    if not summaries:
        raise DataError("no run of this comparison has a stage yet", hint="Start them with 'agentr compare'.")
    points = {label: _points(by_seed) for label, by_seed in summaries.items()}
    first = next(iter(summaries))
    return Comparison(
        about={**_common(summaries), "seeds": sorted({line.seed for line in lines})},
        points=points,
        against_first={
            label: difference
            for label, by_seed in summaries.items()
            if label != first and (difference := _difference(_last(by_seed), _last(summaries[first]))).n
        },
        failed=dict(failed),
    )


def _points(by_seed: dict[int, RunSummary]) -> list[ComparedPoint]:
    """Returns a point for each policy that at least one seed has evaluated, in order."""
    found = []
    for arm in max(by_seed.values(), key=lambda summary: len(summary.arms)).arms:
        arms = {seed: a for seed, s in by_seed.items() for a in s.arms if a.arm == arm.arm and a.evaluation is not None}
        if not arms:
            continue
        starts = {seed: by_seed[seed].arms[0] for seed in arms}
        scores, problems = _pooled(arms)
        until = [_until(by_seed[seed], arm.arm) for seed in arms]
        found.append(
            ComparedPoint(
                arm=arm.arm,
                success=mean_interval(list(scores.values()), problems=[problems[key] for key in scores]),
                by_seed={seed: a.evaluation.success.mean for seed, a in arms.items() if a.evaluation is not None},
                calls=fmean(sum(a.calls for a in before) for before in until),
                tokens=fmean(sum(a.cost.completion_tokens for a in before) for before in until),
                seconds=fmean(sum(sum(a.seconds.values()) for a in before) for before in until),
                gain=None if arm.arm.kind is ArmKind.WARM_START else _difference(arms, starts),
            )
        )
    return found


def _until(summary: RunSummary, arm: Arm) -> list[ArmSummary]:
    """Returns the arms whose work a policy needs: the warm start and the rounds up to it; for a control, the warm start and itself."""
    if arm == CONTROL:
        return [a for a in summary.arms if a.arm == arm or a.arm.kind is ArmKind.WARM_START]
    return [a for a in summary.arms if a.arm.kind is not ArmKind.CONTROL and a.arm.number <= arm.number]


def _last(by_seed: dict[int, RunSummary]) -> dict[int, ArmSummary]:
    """Returns the last evaluated policy of each finished run, the control aside."""
    return {seed: [a for a in s.arms if a.arm != CONTROL and a.evaluation is not None][-1] for seed, s in by_seed.items() if s.complete}


def _pooled(arms: dict[int, ArmSummary]) -> tuple[dict[str, float], dict[str, str]]:
    """Returns scores and problems of the evaluated policies by seed and task. A problem is the same in all seeds."""
    scores: dict[str, float] = {}
    problems: dict[str, str] = {}
    for seed, arm in arms.items():
        if arm.evaluation is None:
            continue
        for task, score in arm.evaluation.per_task.items():
            scores[f"{seed}/{task}"] = score
            problems[f"{seed}/{task}"] = arm.evaluation.problems.get(task, task)
    return scores, problems


def _difference(after: dict[int, ArmSummary], before: dict[int, ArmSummary]) -> Estimate:
    scores, problems = _pooled(after)
    return paired_difference(scores, _pooled(before)[0], problems=problems)


def _common(summaries: dict[str, dict[int, RunSummary]]) -> dict[str, Any]:
    about = next(iter(next(iter(summaries.values())).values())).about
    return {key: about[key] for key in ("model", "environment", "options", "held-out split")}
