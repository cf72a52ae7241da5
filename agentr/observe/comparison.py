"""Compares several runs: held-out success by round, its cost, and paired differences. Reads run directories alone."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from itertools import combinations
from pathlib import Path
from statistics import fmean
from typing import Any, NamedTuple

from agentr.config.identity import changed_keys
from agentr.config.schema import RunConfig
from agentr.errors import DataError
from agentr.evaluate.metrics import Evaluation
from agentr.evaluate.power import Spread
from agentr.evaluate.statistics import Contrast, Estimate, holm, mean_interval, paired_difference, share_of_way
from agentr.observe.problems import PageProblem, read_or
from agentr.observe.summary import ArmSummary, RunSummary, summarise
from agentr.outside import typed
from agentr.read.run import Run
from agentr.store.files import read_json, write_json
from agentr.store.inside import check_names
from agentr.store.layout import CEILING, CONTROL, EVAL, RECOVERIES, Arm, ArmKind, Layout, title_of
from agentr.words import counted

#: Keys that must be equal in all configurations of a comparison: the setting. Methods are free to differ in the rest.
SETTING = ("model.", "env.", "prompt.", "turns.", "eval.", "warm_start.", "build.max_length")

#: File in which a comparison notes its runs, and the one with what it came to.
PLAN, RESULT = "plan.json", "comparison.json"


@dataclass(frozen=True)
class ComparedRun:
    """One run of a comparison; ``run`` is None before it is started."""

    label: str
    seed: int
    run: Run | None

    @property
    def title(self) -> str:
        return f"{self.label}, seed {self.seed}"

    @property
    def state(self) -> str:
        """Not begun, done, or the running stage."""
        records = self.run.records().values() if self.run else []
        if self.run is None or not records:
            return "not begun"
        unsealed = ", ".join(title_of(record.name) for record in records if not record.sealed)
        return "done" if self.run.complete else unsealed or "between two stages"


@dataclass(frozen=True, kw_only=True)
class ComparedPoint:
    """A policy of one method, over all its seeds.

    Attributes:
        success: Held-out success over all seeds and tasks; the interval is over seeds and problems, crossed.
        by_seed: Mean success of each seed.
        calls: LLM calls of exploration up to this policy, mean of the seeds.
        tokens: Tokens generated in those calls.
        seconds: Seconds of work up to this policy.
        gain: Success less that of the same seed's warm start, paired by task and seed; None at the warm start.
        way: Of a round, how much of the way from control to ceiling has been gone, over the seeds that have both; None
            where there is no such seed, or the ceiling is not above the control.
    """

    arm: Arm
    title: str
    success: Estimate
    by_seed: dict[int, float]
    calls: float
    tokens: float
    seconds: float
    gain: Contrast | None
    way: Estimate | None


@dataclass(frozen=True)
class ComparedTask:
    """A held-out task under the last policies.

    Attributes:
        problem: Which problem it poses.
        scores: By method: the mean of the seeds; None where it was not measured.
        by_seed: The same of each seed by itself.
    """

    key: str
    problem: str
    scores: list[float | None]
    by_seed: dict[int, list[float | None]]


@dataclass(frozen=True, kw_only=True)
class ComparedState:
    """Success of the last policies from bad beginnings of a kind, the same for all policies of a seed.

    Attributes:
        title: What the beginnings end with.
        success: By label, over all seeds and beginnings; the interval is over seeds and problems, crossed.
        by_seed: The mean of each seed, by label.
        differences: Success less that of the first label that has them, by label; p-values are adjusted for all of
            these in a comparison (Holm).
    """

    title: str
    success: dict[str, Estimate]
    by_seed: dict[str, dict[int, float]]
    differences: dict[str, Contrast]


@dataclass(frozen=True)
class Comparison:
    """All methods of a comparison, in the order given.

    Attributes:
        points: Policies in order, by label.
        last: Of each label the evaluation of its last policy, which all its finished seeds have, or all begun ones if
            none is finished.
        differences: Success of each label's last policy less that of each other's, by both labels, paired by task and
            seed; p-values are adjusted for as many comparisons as there are pairs of labels (Holm).
        states: The same policies from bad beginnings, where these were measured.
        spreads: How the differences to the first label of ``last`` vary, of labels with at least two seeds.
        tasks: The held-out tasks under these policies.
        failed: Runs that could not be finished, and why.
    """

    about: dict[str, Any]
    points: dict[str, list[ComparedPoint]]
    last: dict[str, str]
    differences: dict[str, dict[str, Contrast]]
    states: list[ComparedState]
    spreads: dict[str, Spread]
    tasks: list[ComparedTask] = field(repr=False)
    failed: dict[str, str]

    @property
    def comparisons(self) -> int:
        """How many pairs of labels there are."""
        return sum(map(len, self.differences.values())) // 2

    @property
    def against_first(self) -> dict[str, Contrast]:
        """The differences to the first label."""
        first = next(iter(self.points))
        return {label: found[first] for label, found in self.differences.items() if first in found}

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


def read_plan(folder: Path, problems: list[PageProblem] | None = None) -> list[ComparedRun]:
    """Reads the runs of a comparison, started or not.

    Args:
        problems: Collects what cannot be read, which is as if it had not begun.

    Raises:
        DataError: The folder holds no comparison, or a run cannot be read, and there is no ``problems``.
    """
    if problems is None:
        return [line(folder, label, seed) for label, seed in planned(folder)]
    runs = read_or([], lambda: planned(folder), problems, "the plan of the comparison")
    return [
        read_or(
            empty := ComparedRun(label, seed, None), partial(line, folder, label, seed), problems, f"{empty.title},"
        )
        for label, seed in runs
    ]


def apart(one: Mapping[str, Any], other: Mapping[str, Any]) -> list[str]:
    """Lists ``key: one -> other`` for the keys of the setting in which two whole configurations differ."""
    return [change for change in changed_keys(dict(one), dict(other)) if change.startswith(SETTING)]


def lines_of(runs: Sequence[Run]) -> list[ComparedRun]:
    """Returns runs that were started by themselves as those of a comparison: their names are the labels, or their paths
    where two have the same name and seed."""
    named = [(run.name, run.section(RunConfig, "run").seed) for run in runs]
    return [
        ComparedRun(label if named.count((label, seed)) == 1 else str(run.path), seed, run)
        for run, (label, seed) in zip(runs, named, strict=True)
    ]


def line(folder: Path, label: str, seed: int) -> ComparedRun:
    """Returns one run of a comparison, started or not."""
    path = run_folder(folder, label, seed)
    return ComparedRun(label, seed, Run(path) if Layout(path).config.exists() else None)


def progress(lines: Sequence[ComparedRun]) -> list[dict[str, Any]]:
    """Returns the progress of each run: label, seed, state, sealed stages and how many are planned (0 if that is not
    known), success by policy."""
    found = []
    for line in lines:
        sealed = [record for record in line.run.records().values() if record.sealed] if line.run else []
        success = [
            stage.summary.success for arm in (line.run.arms if line.run else []) if (stage := arm.measured) is not None
        ]
        stages = {"stages": len(sealed), "planned": len(line.run.planned()) if line.run else 0}
        found.append({"method": line.label, "seed": line.seed, "state": line.state, **stages, "success": success})
    return found


def compare_runs(
    lines: Sequence[ComparedRun], failed: Mapping[str, str], problems: list[PageProblem] | None = None
) -> Comparison:
    """Computes the comparison of runs, finished or not.

    Args:
        failed: Runs that could not be finished, and why.
        problems: Collects runs that cannot be read, which are left out.

    Raises:
        DataError: None of them has a stage yet, or one cannot be read, and there is no ``problems``.
    """
    summaries: dict[str, dict[int, RunSummary]] = {}
    for line in lines:
        read = partial(_summary, line)
        if summary := read() if problems is None else read_or(None, read, problems, f"{line.title},"):
            summaries.setdefault(line.label, {})[line.seed] = summary
    if not summaries:
        what = (
            f"{counted(len(problems), 'run')} of this comparison cannot be read"
            if problems
            else "no run of this comparison has a stage yet"
        )
        raise DataError(what, hint="Start them with 'agentr compare'.")
    last = {label: found for label, by_seed in summaries.items() if (found := _last(by_seed))}
    pooled = {label: _pooled(_held_out(arms)) for label, arms in last.items()}
    return Comparison(
        about={**_common(summaries), "seeds": sorted({line.seed for line in lines})},
        points={label: _points(by_seed) for label, by_seed in summaries.items()},
        last={label: next(iter(arms.values())).arm.stage(EVAL) for label, arms in last.items()},
        differences=_differences(pooled),
        states=_states(last),
        spreads=_spreads(pooled),
        tasks=_tasks(pooled, list(dict.fromkeys(line.label for line in lines)), sorted({line.seed for line in lines})),
        failed=dict(failed),
    )


def _summary(line: ComparedRun) -> RunSummary | None:
    return summarise(line.run) if line.run is not None and line.run.records() else None


def _points(by_seed: dict[int, RunSummary]) -> list[ComparedPoint]:
    """Returns a point for each policy that at least one seed has evaluated, in order."""
    found = []
    for arm in max(by_seed.values(), key=lambda summary: len(summary.arms)).arms:
        arms = {seed: a for seed, s in by_seed.items() for a in s.arms if a.arm == arm.arm and a.evaluation is not None}
        if not arms:
            continue
        pooled = _pooled(_held_out(arms))
        start = _pooled(_held_out({seed: by_seed[seed].arms[0] for seed in arms}))
        until = [_until(by_seed[seed], arm.arm) for seed in arms]
        found.append(
            ComparedPoint(
                arm=arm.arm,
                title=arm.title,
                success=_mean(pooled),
                by_seed={seed: a.evaluation.success.mean for seed, a in arms.items() if a.evaluation is not None},
                calls=fmean(sum(a.calls for a in before) for before in until),
                tokens=fmean(sum(a.cost.completion_tokens for a in before) for before in until),
                seconds=fmean(sum(sum(a.seconds.values()) for a in before) for before in until),
                gain=None if arm.arm.kind is ArmKind.WARM_START else _difference(pooled, start),
                way=_way(arms, by_seed) if arm.arm.kind is ArmKind.ROUND else None,
            )
        )
    return found


def _until(summary: RunSummary, arm: Arm) -> list[ArmSummary]:
    """Returns the arms whose work a policy needs: the warm start and the rounds up to it; for a control or a ceiling,
    the warm start and itself."""
    if arm.reference:
        return [a for a in summary.arms if a.arm == arm or a.arm.kind is ArmKind.WARM_START]
    return [a for a in summary.arms if not a.arm.reference and a.arm.number <= arm.number]


def _last(by_seed: dict[int, RunSummary]) -> dict[int, ArmSummary]:
    """Returns the last policy, control and ceiling aside, that all finished runs of a method have, or all that have
    begun if none is finished."""
    runs = {seed: summary for seed, summary in by_seed.items() if summary.complete} or by_seed
    measured = {
        seed: {a.arm: a for a in s.arms if not a.arm.reference and a.evaluation is not None} for seed, s in runs.items()
    }
    shared = set.intersection(*map(set, measured.values()))
    return {seed: arms[max(shared, key=lambda arm: arm.number)] for seed, arms in measured.items()} if shared else {}


class _Pooled(NamedTuple):
    """Evaluations of several seeds, each by seed and task. A problem is the same in all seeds."""

    scores: dict[str, float]
    problems: dict[str, str]
    seeds: dict[str, int]


def _held_out(arms: Mapping[int, ArmSummary]) -> dict[int, Evaluation]:
    return {seed: arm.evaluation for seed, arm in arms.items() if arm.evaluation is not None}


def _pooled(evaluations: Mapping[int, Evaluation]) -> _Pooled:
    found = _Pooled({}, {}, {})
    for seed, evaluation in evaluations.items():
        for task, score in evaluation.per_task.items():
            key = f"{seed}/{task}"
            found.scores[key], found.seeds[key] = score, seed
            found.problems[key] = evaluation.problems.get(task, task)
    return found


def _mean(found: _Pooled) -> Estimate:
    problems, seeds = list(found.problems.values()), list(found.seeds.values())
    return mean_interval(list(found.scores.values()), problems=problems, runs=seeds)


def _difference(after: _Pooled, before: _Pooled) -> Contrast:
    return paired_difference(after.scores, before.scores, problems=after.problems, runs=after.seeds)


def _way(arms: dict[int, ArmSummary], by_seed: dict[int, RunSummary]) -> Estimate | None:
    ends = {
        seed: tuple(one for one in by_seed[seed].arms if one.arm.reference and one.evaluation is not None)
        for seed in arms
    }
    start, end = (
        _pooled(_held_out({seed: one for seed, found in ends.items() for one in found if one.arm == wanted}))
        for wanted in (CONTROL, CEILING)
    )
    after = _pooled(_held_out(arms))
    return share_of_way(after.scores, start.scores, end.scores, after.problems, after.seeds)


def _states(last: dict[str, dict[int, ArmSummary]]) -> list[ComparedState]:
    states = []
    for stage, title in RECOVERIES.items():
        measured = {
            label: {seed: arm.recovery[stage] for seed, arm in arms.items() if stage in arm.recovery}
            for label, arms in last.items()
        }
        pooled = {label: _pooled(begun) for label, begun in measured.items() if begun}
        if not pooled:
            continue
        first, *others = pooled
        less = {label: found for label in others if (found := _difference(pooled[label], pooled[first])).n}
        by_seed = {label: {seed: one.success.mean for seed, one in measured[label].items()} for label in pooled}
        success = {label: _mean(found) for label, found in pooled.items()}
        states.append(ComparedState(title=title, success=success, by_seed=by_seed, differences=less))
    adjusted = iter(holm([found.p for state in states for found in state.differences.values()]))
    return [
        replace(state, differences={label: replace(one, p=next(adjusted)) for label, one in state.differences.items()})
        for state in states
    ]


def _differences(pooled: dict[str, _Pooled]) -> dict[str, dict[str, Contrast]]:
    pairs = {(b, a): less for a, b in combinations(pooled, 2) if (less := _difference(pooled[b], pooled[a])).n}
    found: dict[str, dict[str, Contrast]] = {label: {} for label in pooled}
    for ((b, a), less), p in zip(pairs.items(), holm([less.p for less in pairs.values()]), strict=True):
        found[b][a] = replace(less, p=p)
        found[a][b] = Contrast(-less.mean, -less.high, -less.low, less.n, p)
    return found


def _spreads(pooled: dict[str, _Pooled]) -> dict[str, Spread]:
    found = {}
    for label, after in list(pooled.items())[1:]:
        before = next(iter(pooled.values())).scores
        differences = {key: score - before[key] for key, score in after.scores.items() if key in before}
        if spread := Spread.of(differences, after.problems, after.seeds):
            found[label] = spread
    return found


def _tasks(pooled: dict[str, _Pooled], labels: list[str], seeds: list[int]) -> list[ComparedTask]:
    named = {key.partition("/")[2]: problem for of in pooled.values() for key, problem in of.problems.items()}
    found = []
    for task, problem in named.items():
        by_seed = {
            seed: [pooled[label].scores.get(f"{seed}/{task}") if label in pooled else None for label in labels]
            for seed in seeds
        }
        known = [
            [value for scores in by_seed.values() if (value := scores[place]) is not None]
            for place in range(len(labels))
        ]
        found.append(ComparedTask(task, problem, [fmean(values) if values else None for values in known], by_seed))
    return found


def _common(summaries: dict[str, dict[int, RunSummary]]) -> dict[str, Any]:
    about = next(iter(next(iter(summaries.values())).values())).about
    return {key: about[key] for key in ("model", "environment", "options", "held-out split")}
