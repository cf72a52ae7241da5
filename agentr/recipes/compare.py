"""Several recipes, or values of one key, on the same tasks, model and seeds: one table and one plot of success against cost.

Every run is an experiment of its own in ``<folder>/<label>/seed-<n>``, resumable as any other. Runs of one seed share what is the same in
them: the warm start, which is trained and evaluated once, so that all arms of a seed begin at the same policy; and, where they explore
alike, the first round's trees. Ray, engines and environment servers run on from one to the next.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

from agentr.config.load import changed_keys, load, plain
from agentr.config.methods import ContrastConfig
from agentr.config.schema import Config
from agentr.errors import ConfigError, DataError, RunError
from agentr.observe.comparison import Comparison, Line, compare_runs, run_folder, write_plan
from agentr.observe.comparison_page import write_comparison
from agentr.observe.progress import Reporter
from agentr.recipes.launch import run, run_dir, serving
from agentr.store.run import RunStore

#: What must be equal in all configurations of a comparison: the question that is asked. Recipes are free to differ in the rest.
SAME = ("model.", "env.", "prompt.", "eval.", "warm_start.", "build.max_length")

#: The stages that runs of one seed share.
SHARED = ("model", "rounds/00/demonstrations", "rounds/00/dataset", "rounds/00/train", "rounds/00/eval", "rounds/00/recovery")


#: Recipes whose first stage is the same: independent runs of each task.
SAMPLING = ("eto", "rft")

#: Keys that change nothing before the first round's dataset is built.
LATER = (
    *("run.name", "run.dir", "train", "build.extra_pairs", "build.good_per_task", "build.revisions_per_task"),
    *("build.demonstrations", "build.earlier_rounds", "build.balance_tasks", "build.eta", "build.general_path"),
    *(f"build.siblings.{key}" for key in ("tasks", "pairs:", "pairs_per_task", "mix")),
    *(f"build.contrast.{field.name}" for field in fields(ContrastConfig) if field.name != "unit"),
)

#: The stages of the first round's exploration, and keys that change nothing before they are over.
EXPLORED = {"rounds/01/collect": (*LATER, "revise."), "rounds/01/steps": LATER, "rounds/01/revise": LATER}


@dataclass(frozen=True)
class Entry:
    """One run of a comparison."""

    label: str
    seed: int
    config: Config


def plan(
    configs: Sequence[Path],
    seeds: Sequence[int],
    folder: Path,
    overrides: Sequence[str] = (),
    vary: Sequence[str] = ("",),
    base: Path | None = None,
) -> list[Entry]:
    """The runs of a comparison, seed by seed.

    Args:
        configs: YAML files; a file's name without its ending is its label.
        vary: ``key=value`` overrides, each of which makes an arm of each file; its value is added to the label.
        base: YAML file that each of them is laid over: the question, where the files say only the method.

    Raises:
        ConfigError: Two files have the same label, or they ask different questions; the error names the keys.
    """
    arms = [(path, value, "-".join(filter(None, (path.stem, value.rpartition("=")[2])))) for path in configs for value in vary]
    labels = [label for _, _, label in arms]
    if len(set(labels)) < len(labels):
        raise ConfigError(f"two configurations have the same name: {', '.join(labels)}", hint="Copy one to a file of another name.")
    if not configs or not seeds:
        raise ConfigError("a comparison needs at least one configuration and one seed")
    entries = []
    for seed in seeds:
        for path, value, label in arms:
            here = [f"run.seed={seed}", f"run.name={label}", f"run.dir={run_folder(folder, label, seed).resolve()}"]
            entries.append(Entry(label, seed, load(path, [*overrides, *filter(None, [value]), *here], base)))
        first = entries[-len(labels)]
        for other in entries[-len(labels) + 1 :]:
            if changes := [c for c in changed_keys(plain(first.config), plain(other.config)) if c.startswith(SAME)]:
                raise ConfigError(
                    f"{other.label} asks another question than {first.label}: " + "; ".join(changes),
                    hint="Give all configurations of a comparison the same values of these keys (--base or a common 'include' does).",
                )
    return entries


def compare(entries: Sequence[Entry], folder: Path, reporter: Reporter) -> Comparison:
    """Does all runs, or what is left of them, and writes ``comparison.json`` and ``comparison.html`` into ``folder``.

    A run that a method cannot finish (no pairs, too many failed trees) is named in the result and does not stop the others; what would
    stop them too does.

    Raises:
        AgentrError: The machinery, the model or the environment failed. What was finished before is kept.
    """
    assert entries, "a comparison has at least one run"
    write_plan(folder, [(entry.label, entry.seed) for entry in entries])
    failed: dict[str, str] = {}
    with serving(entries[0].config, folder / "logs", reporter) as services:
        for number, entry in enumerate(entries, 1):
            reporter.say(f"{number} of {len(entries)}: {entry.label}, seed {entry.seed}", "bold")
            for other in entries[: number - 1]:
                if other.seed == entry.seed:
                    RunStore(run_dir(entry.config)).adopt(RunStore(run_dir(other.config)), shared(other.config, entry.config))
            try:
                run(entry.config, reporter, services=services)
            except (DataError, RunError) as error:
                failed[f"{entry.label}, seed {entry.seed}"] = str(error)
                reporter.say(f"{entry.label}, seed {entry.seed}: {error}", "red")
            lines = [Line(e.label, e.seed, RunStore(run_dir(e.config))) for e in entries[:number]]
            result = compare_runs(lines, failed)
            write_comparison(result, folder)
    return result


def shared(one: Config, other: Config) -> tuple[str, ...]:
    """Stages that both runs would make the same."""
    changes = changed_keys(_explored(one), _explored(other))
    return (*SHARED, *(stage for stage, later in EXPLORED.items() if all(change.startswith(later) for change in changes)))


def _explored(config: Config) -> dict[str, Any]:
    """The configuration, with the kind of exploration in place of the recipe."""
    kind = "sampling" if config.run.recipe in SAMPLING else config.run.recipe
    return plain(replace(config, run=replace(config.run, recipe=kind)))
