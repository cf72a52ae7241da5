"""Several methods, or values of one key, on the same tasks, model and seeds: one table and one plot of success against
cost.

Every run is an experiment of its own in ``<folder>/<label>/seed-<n>``, resumable as any other. Runs of one seed share
what is the same in them: the warm start, which is trained and evaluated once, so that all arms of a seed begin at the
same policy; and, if they explore alike, the first round's trees. Ray, engines and environment servers run on from one
to the next.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from agentr.commands.run import run, run_dir, serving
from agentr.config.identity import changed_keys
from agentr.errors import ConfigError, DataError, RunError
from agentr.methods import load, methods_of, plan_of
from agentr.observe.comparison import Comparison, apart, compare_runs, line, lines_of, run_folder, write_plan
from agentr.observe.progress import Reporter
from agentr.read.run import Run
from agentr.rounds.loop import decides_control, made
from agentr.rounds.plan import Plan
from agentr.store.layout import (
    CONTROL,
    DATASET,
    DEMONSTRATIONS,
    EVAL,
    JUDGED,
    MODEL,
    RECOVERIES,
    SAMPLED,
    SELECTION,
    SHORTENED,
    TRAIN,
    WARM_START,
    arm_of,
)
from agentr.store.run import RunStore
from agentr.ui.report import comparison_tables, write_comparison

#: The stages that runs of one seed share.
SHARED = (
    MODEL,
    *(
        WARM_START.stage(name)
        for name in (DEMONSTRATIONS, DATASET, TRAIN, EVAL, SELECTION, SAMPLED, *RECOVERIES, SHORTENED, JUDGED)
    ),
)

#: Keys that change nothing before the first round's dataset is built.
LATER = (
    *("run.name", "run.dir", "run.rounds", "run.control", "run.ceiling"),
    *("method.", "build.", "train", "trainer.", "eval."),
)


@dataclass(frozen=True)
class PlannedRun:
    """One run of a comparison."""

    label: str
    seed: int
    plan: Plan


def plan(
    configs: Sequence[Path],
    seeds: Sequence[int],
    folder: Path,
    overrides: Sequence[str] = (),
    vary: Sequence[str] = ("",),
    base: Path | None = None,
) -> list[PlannedRun]:
    """The runs of a comparison, seed by seed.

    Args:
        configs: YAML files; a file's name without its ending is its label.
        vary: ``key=value`` overrides, each of which makes an arm of each file; its value is added to the label.
        base: YAML file that each of them is laid over: the setting, if the files name only the method.

    Raises:
        ConfigError: Two files have the same label, or they differ in keys that must be equal; the error names the keys.
    """
    arms = [
        (path, value, "-".join(filter(None, (path.stem, value.rpartition("=")[2]))))
        for path in configs
        for value in vary
    ]
    labels = [label for _, _, label in arms]
    if len(set(labels)) < len(labels):
        raise ConfigError(
            f"two configurations have the same name: {', '.join(labels)}", hint="Copy one to a file of another name."
        )
    if not configs or not seeds:
        raise ConfigError("a comparison needs at least one configuration and one seed")
    entries = []
    for seed in seeds:
        for path, value, label in arms:
            here = [f"run.seed={seed}", f"run.name={label}", f"run.dir={run_folder(folder, label, seed).resolve()}"]
            entries.append(
                PlannedRun(label, seed, plan_of(load(path, [*overrides, *filter(None, [value]), *here], base)))
            )
        first = entries[-len(labels)]
        for other in entries[-len(labels) + 1 :]:
            if changes := apart(first.plan.identity.values, other.plan.identity.values):
                raise ConfigError(
                    f"{other.label} and {first.label} differ in keys that must match for a fair comparison: "
                    + "; ".join(changes),
                    hint=(
                        "Give all configurations of a comparison the same values of these keys (--base or a common "
                        "'include' does)."
                    ),
                )
    return entries


def compare(entries: Sequence[PlannedRun], folder: Path, reporter: Reporter) -> Comparison:
    """Does all runs, or what is left of them, and writes ``comparison.json`` and ``comparison.html`` into ``folder``.

    A run that a method cannot finish (no pairs, too many failed trees) is named in the result and does not stop the
    others; what would stop them too does.

    Raises:
        AgentrError: The machinery, the model or the environment failed. What was finished before is kept.
    """
    assert entries, "a comparison has at least one run"
    write_plan(folder, [(entry.label, entry.seed) for entry in entries])
    failed: dict[str, str] = {}
    with serving(entries[0].plan, folder / "logs", reporter) as services:
        for number, entry in enumerate(entries, 1):
            reporter.message(f"run {number} of {len(entries)}: {entry.label}, seed {entry.seed}", "bold")
            for other in entries[: number - 1]:
                if other.seed == entry.seed:
                    mine, theirs = (RunStore(run_dir(one.plan.config.run)) for one in (entry, other))
                    mine.stages.adopt(theirs.stages, shared(other.plan, entry.plan))
            try:
                with reporter.part(f"run {number} of {len(entries)}"):
                    run(entry.plan, reporter, services=services)
            except (DataError, RunError) as error:
                failed[f"{entry.label}, seed {entry.seed}"] = str(error)
                reporter.message(f"{entry.label}, seed {entry.seed}: {error}", "red")
            lines = [line(folder, e.label, e.seed) for e in entries[:number]]
            result = compare_runs(lines, failed)
            write_comparison(result, folder)
    return result


def side_by_side(runs: Sequence[Run], reporter: Reporter) -> None:
    """Shows how runs compare that were started by themselves, and in what their settings differ.

    Raises:
        DataError: None of them has a stage yet, or one cannot be read.
    """
    first, *others = lines = lines_of(runs)
    reporter.console.print(comparison_tables(compare_runs(lines, {})))
    told = [
        f"{other.label} has another setting than {first.label}: {'; '.join(changes)}"
        for other, run in zip(others, runs[1:], strict=True)
        if (changes := apart(runs[0].config, run.config))
    ]
    for text in dict.fromkeys(told):  # the seeds of a method differ alike
        reporter.message(text)


def shared(one: Plan, other: Plan) -> tuple[str, ...]:
    """Returns the stages that two runs would make the same: the warm start, those of the first round's exploration that
    are equal, and the control, if it trains alike. Not the ceiling: its tasks are those that were really searched."""
    changes = [
        change for change in changed_keys(one.identity.values, other.identity.values) if not change.startswith(LATER)
    ]
    if changes:
        return SHARED
    methods = [methods_of(plan) for plan in (one, other)]
    if any(of_first.online for of_first, *_ in methods):
        return SHARED  # what it collects depends on how it trains
    mine, theirs = (list(of_first.exploration(1).items()) for of_first, *_ in methods)
    equal = 0
    while equal < min(len(mine), len(theirs)) and mine[equal] == theirs[equal]:
        equal += 1
    first, second = (decides_control(plan, of) for plan, of in zip((one, other), methods, strict=True))
    control = made(CONTROL, one.config.eval) if first is not None and first == second else ()
    return (*SHARED, *(arm_of(1).stage(stage) for stage, _ in mine[:equal]), *control)
