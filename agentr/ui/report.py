"""What is written of a run or a comparison: its pages in one file, the same numbers as JSON, and a table for the
terminal."""

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

import yaml
from rich.console import Group
from rich.table import Table

from agentr.config.secrets import without_secrets
from agentr.errors import DataError
from agentr.evaluate.power import POWER
from agentr.evaluate.statistics import LEVEL, Estimate
from agentr.observe.comparison import RESULT, Comparison, compare_runs, read_plan
from agentr.observe.heldout import first_and_last, patterns, tasks
from agentr.observe.problems import PageProblem, read_or
from agentr.observe.summary import RunSummary, summarise
from agentr.read.run import Run
from agentr.read.stage import Dataset, Episodes, Rollouts, Trees
from agentr.secrets import redact
from agentr.store.files import write_bytes, write_json
from agentr.ui.show import RUN, HeldTree, address, left_out, page, size_of
from agentr.ui.views.compare import compare, failed_in
from agentr.ui.views.forest import forest
from agentr.ui.views.rows import dataset_of, dataset_view, row_view
from agentr.ui.views.run import run_page
from agentr.ui.views.steps import steps
from agentr.words import counted

#: Numbers of seeds for which it is said how many tasks they need.
SEEDS = (3, 5, 10)
#: Bytes of the answers of a file, so that with the page it is smaller than 5 MB.
ROOM = 4_500_000
#: Most trees that are tried, those of them for which it is noted what is learnt, and bytes of a tree's line in a list.
TRIED, LEARNT, LINE = 400, 20, 500
#: Characters to which the texts of trees are cut, most rows of a dataset that are listed, and most points of a curve.
LONGEST, ROWS, POINTS = 4_000, 100, 300


def write_report(run: Run, out: Path | None = None) -> RunSummary:
    """Writes ``report.json`` and ``report.html``: the run's pages as ``agentr ui`` shows them, with as many trees as
    there is room for.

    Args:
        out: Folder to write them into; by default the run directory.

    Raises:
        DataError: The run has no stage yet, or its results cannot be read.
    """
    summary = summarise(run)
    folder = out or run.path
    write_json(folder / "report.json", summary.as_dict())
    text = page(f"{run.name}: report", f"#/run/{RUN}", report_of(run))
    write_bytes(folder / run.layout.report.name, text.encode("utf-8", "replace"))
    return summary


def report_of(run: Run) -> dict[str, Any]:
    """Returns the answers of a run's report by their addresses.
    What is left out is said in the problems of its pages."""
    run = run.at_once()
    answer = run_page(RUN, run)
    answer |= {"card": {**answer["card"], "path": ""}, "logs": [], "command": redact(answer["command"])}
    # it is sent to others
    answer["config"] = yaml.safe_dump(without_secrets(run.config), sort_keys=False, allow_unicode=True)
    if any(len(arm["curve"]) > POINTS for arm in answer["arms"]):
        answer["arms"] = [
            {**arm, "curve": arm["curve"][:: -(-len(arm["curve"]) // POINTS) or 1]} for arm in answer["arms"]
        ]
        answer["problems"].append(left_out("some points of long curves"))
    file = _File(ROOM - size_of(answer), answer["problems"])
    file.take("the held-out tasks", "tasks", partial(tasks, run))
    file.take("what recurs in held-out episodes", "patterns", partial(patterns, run))
    for example in answer["examples"]:
        if example["page"] == "row":
            query = example["query"]
            file.take("a row", "row", partial(row_view, run, query["stage"], int(query["index"])), **query)
    stages = [stage for arm in run.arms for stage in arm.stages().values()]
    for stage in stages:
        if isinstance(stage, Rollouts):
            file.take(f"the steps of {stage.name}", "steps", partial(steps, run, stage.name), stage=stage.name)
        elif isinstance(stage, Dataset) and stage.sealed:
            file.take(
                f"the rows of {stage.name}",
                "dataset",
                partial(dataset_view, run, stage.name, limit=ROWS),
                stage=stage.name,
            )
    file.take_trees(run, answer["examples"], [stage for stage in stages if isinstance(stage, Trees)])
    return {address("run", run=RUN): answer, **file.answers}


class _File:
    """The answers of a file, as long as there is room for them; ``problems`` says what there was no room for, and what
    cannot be read."""

    def __init__(self, room: float, problems: list[PageProblem]) -> None:
        self.answers: dict[str, Any] = {}
        self.room = room
        self._problems = problems

    def take(self, what: str, name: str, read: Callable[[], Any], **query: str) -> None:
        answer = read_or(None, read, self._problems, what)
        if answer is None:
            return
        if size_of(answer) > self.room:
            self._problems.append(left_out(what))
            return
        self.answers[address(name, run=RUN, **query)] = answer
        self.room -= size_of(answer)

    def take_trees(self, run: Run, examples: Sequence[dict[str, Any]], stages: Sequence[Trees]) -> None:
        """Adds trees without their tokens, and for each stage the list of those that are there."""
        held: set[tuple[str, str]] = set()
        wanted = read_or(
            [], lambda: list(islice(dict.fromkeys(_trees(run, examples, stages)), TRIED)), self._problems, "the trees"
        )
        for number, (stage, key) in enumerate(wanted):
            tree = read_or(
                None, partial(HeldTree, run, stage, key, tokens=False), self._problems, f"the tree {key} of {stage}"
            )
            size = tree.size(LONGEST) + size_of(tree.view) + LINE if tree else 0
            if tree is None or size > self.room:
                continue
            self.room -= size
            self.room = tree.take_rows(self.answers, self.room) if number < LEARNT else self.room
            tree.take_turns(self.answers, 0, LONGEST)
            self.answers[address("tree", **tree.where)] = tree.view
            held.add((stage, key))
        total = listed = 0
        for stage in stages:
            found = read_or(
                None, partial(forest, run, stage.name, limit=TRIED * LINE), self._problems, f"the trees of {stage.name}"
            )
            if found is not None:
                rows = [row for row in found["rows"] if (stage.name, row["key"]) in held]
                self.answers[address("forest", run=RUN, stage=stage.name)] = {
                    **found,
                    "rows": rows,
                    "matched": len(rows),
                }
                total, listed = total + found["total"], listed + len(rows)
        if listed < total:
            self._problems.append(left_out(f"{total - listed} of {total} trees"))


def _trees(run: Run, examples: Sequence[dict[str, Any]], stages: Sequence[Trees]) -> Iterator[tuple[str, str]]:
    """Yields trees by stage and key: those of the examples, the episodes of tasks that were won or lost, those of
    exploration, the last first, and all other episodes."""
    for example in examples:
        query = example["query"]
        if example["page"] == "row":
            row = dataset_of(run, query["stage"]).rows.trace(int(query["index"]))
            yield from (
                (side.stage, side.key)
                for side in (row.chosen, row.rejected)
                if side is not None and side.tree is not None
            )
        else:
            yield from ((query[policy], query["task"]) for policy in ("a", "b"))
    measured = [(stage.name, stage.evaluation.per_task) for _, stage in first_and_last(run)]
    for key, before in measured[0][1].items() if len(measured) > 1 else ():
        if measured[1][1].get(key, before) != before:
            yield from ((name, key) for name, _ in measured)
    for stage in [
        *(s for s in reversed(stages) if not isinstance(s, Episodes)),
        *(s for s in reversed(stages) if isinstance(s, Episodes)),
    ]:
        keys = stage.keys()
        yield from ((stage.name, key) for key in keys)


def run_table(summary: RunSummary) -> Table:
    """Returns a table with a line for each policy of a run."""
    shown = Table(
        title=f"{summary.name}: {summary.about['method']}, {summary.about['environment']}, seed {summary.about['seed']}"
    )
    for column in (
        "policy",
        "held-out success, % [95 %]",
        "n",
        "trees",
        "solved",
        "rows",
        "LLM calls",
        "tokens",
        "cached",
        "seconds",
    ):
        shown.add_column(column, justify="left" if column == "policy" else "right")
    for arm in summary.arms:
        evaluated = arm.evaluation
        shown.add_row(
            arm.title,
            evaluated.success.as_percent() if evaluated else "-",
            str(evaluated.success.n) if evaluated else "-",
            *(str(v) if v else "-" for v in (arm.trees, arm.solved, arm.rows, arm.calls, arm.cost.completion_tokens)),
            f"{100 * arm.cached_share:.0f} %" if arm.cost.prompt_tokens else "-",
            f"{sum(arm.seconds.values()):.0f}",
        )
    return shown


# comparisons ----------------------------------------------------------------------------------------------------------


def write_comparison(comparison: Comparison, folder: Path) -> None:
    """Writes ``comparison.json`` and ``comparison.html``, the comparison's page."""
    write_json(folder / RESULT, comparison.as_dict())
    answer = compare(RUN, folder, lambda _: "", comparison)
    answer["card"]["path"] = ""
    if size_of(answer) > ROOM:
        answer["tasks"] = []
        answer["problems"].append(left_out("the tasks"))
    text = page(f"{folder.resolve().name}: comparison", f"#/compare/{RUN}", {address("compare", run=RUN): answer})
    write_bytes(folder / "comparison.html", text.encode("utf-8", "replace"))


def rewrite_comparison(folder: Path) -> Comparison:
    """Writes ``comparison.json`` and ``comparison.html`` anew from the runs.

    Raises:
        DataError: The folder holds no comparison, or none of its runs has a stage yet.
    """
    comparison = compare_runs(read_plan(folder), failed_in(folder))
    write_comparison(comparison, folder)
    return comparison


def comparison_tables(comparison: Comparison) -> Group:
    """Returns the tables of a comparison: by policy, and of the last policies from bad beginnings, if they were
    measured."""
    return Group(*filter(None, (comparison_table(comparison), states_table(comparison))))


def comparison_table(comparison: Comparison) -> Table:
    """Returns a table with a line for each policy of each method."""
    seeds = comparison.about["seeds"]
    ways = any(point.way for points in comparison.points.values() for point in points)
    shown = Table(
        title=f"{comparison.about['environment']}, {comparison.about['model']}, seeds {', '.join(map(str, seeds))}",
        caption=f"* stands among {counted(comparison.comparisons, 'comparison')} of last policies (Holm, 5 %)"
        if comparison.comparisons > 1
        else None,
    )
    first = f"last over {next(iter(comparison.points))}"
    names = (
        "method",
        "policy",
        "held-out success, % [95 %]",
        "by seed",
        "over the warm start",
        *(["of the way from control to ceiling, %"] if ways else []),
        first,
        "LLM calls",
        "tokens",
        "seconds",
    )
    for column in names:
        shown.add_column(column, justify="left" if column in ("method", "policy") else "right")
    for label, points in comparison.points.items():
        last = next((point for point in reversed(points) if not point.arm.reference), None)
        for point in points:
            difference = comparison.against_first.get(label) if point is last else None
            shown.add_row(
                label if point is points[0] else "",
                point.title,
                point.success.as_percent(),
                " ".join(f"{100 * v:.1f}" for v in point.by_seed.values()),
                _points(point.gain) if point.gain else "-",
                *([point.way.as_percent() if point.way else "-"] if ways else []),
                _points(difference) + (" *" if difference.stands else "") if difference else "-",
                *(f"{v:.0f}" for v in (point.calls, point.tokens, point.seconds)),
            )
    return shown


def states_table(comparison: Comparison) -> Table | None:
    """Returns a table of the last policies from bad beginnings, with a line for each method that begins at each; None
    if nothing of the kind was measured."""
    if not comparison.states:
        return None
    made = sum(len(state.differences) for state in comparison.states)
    stands = f"* stands among {counted(made, 'comparison')} (Holm, 5 %)"
    shown = Table(
        title="From bad beginnings, the same for all policies of a seed", caption=stands if made > 1 else None
    )
    first = f"over {next(iter(comparison.states[0].success))}"
    for column in ("after", "method", "success, % [95 %]", "by seed", first, "n"):
        shown.add_column(column, justify="left" if column in ("after", "method") else "right")
    for state in comparison.states:
        for label, success in state.success.items():
            difference = state.differences.get(label)
            shown.add_row(
                state.title if label == next(iter(state.success)) else "",
                label,
                success.as_percent(),
                " ".join(f"{100 * v:.1f}" for v in state.by_seed[label].values()),
                _points(difference) + (" *" if difference.stands else "") if difference else "-",
                str(success.n),
            )
    return shown


def power_table(comparison: Comparison, points: float) -> Table:
    """Returns a table of how many seeds and held-out tasks tell a difference of so many percentage points.

    Raises:
        DataError: There are no two methods that two seeds have finished.
    """
    if not comparison.spreads:
        raise DataError(
            "how many seeds it takes cannot be said of one method, or of one seed",
            hint="Let two methods of the comparison finish with two seeds, such as --seeds 0,1.",
        )
    first = next(iter(comparison.last))
    shown = Table(
        title=f"What tells {points:g} points over {first} from none ({100 * POWER:.0f} % of the time, at a level of "
        f"{100 * LEVEL:.0f} %)",
        caption="Of the last policies. With fewer than five seeds what is said of seeds is rough.",
    )
    columns = ("told so far, points", "SD of seeds, of problems, rest", "seeds with these tasks")
    for column in ("method", *columns, *(f"tasks with {seeds} seeds" for seeds in SEEDS)):
        shown.add_column(column, justify="left" if column == "method" else "right")
    for label, spread in comparison.spreads.items():
        parts = (spread.between_seeds, spread.between_problems, spread.rest)
        needed = [spread.seeds_for(points / 100), *(spread.tasks_for(points / 100, seeds) for seeds in SEEDS)]
        shown.add_row(
            label,
            f"{100 * spread.told():.1f} ({spread.seeds} seeds, {spread.tasks} tasks)",
            ", ".join(f"{100 * part**0.5:.1f}" for part in parts),
            *("no number" if number is None else f"{number:,}" for number in needed),
        )
    return shown


def _points(difference: Estimate) -> str:
    """A difference in percentage points with its interval."""
    return f"{100 * difference.mean:+.1f} [{100 * difference.low:+.1f}, {100 * difference.high:+.1f}]"
