"""Presents the results of a run: a table in the terminal, ``report.html`` with plots, ``report.json`` with the same figures."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from rich.table import Table

from agentr.errors import DataError
from agentr.observe import report_plots as plots
from agentr.observe import report_tables as tables
from agentr.observe.flywheel import asked_lines, operator_rows
from agentr.observe.heldout import first_and_last, patterns_of
from agentr.observe.page import Section, render, shortened
from agentr.observe.summary import RunSummary, summarise
from agentr.observe.trajectories import SHOWN, Decode, trajectories
from agentr.read.run import Run
from agentr.read.stage import summary_of
from agentr.store.files import write_bytes, write_json
from agentr.store.layout import DATASET
from agentr.store.summaries import DatasetSummary
from agentr.words import seen

#: Most characters of a turn, and of what was observed after it.
SAID, OBSERVED = 2000, 1000

INTERVALS = (
    "Intervals: percentile bootstrap over problems, each with all its tasks. Calls, tokens and cached, the share of prompt tokens from "
    "the prefix cache, are those of search and revision. Refused and repeated: shares of the actions of held-out episodes."
)
PREFERENCES = (
    "Reward: beta times the log-probability less that of the round's start. Where both fall, the model unlearns the rejected side faster "
    "than the chosen one."
)
SHARED = (
    "What rollouts have in common is drawn, carried out and, with share_prefixes, trained on once. Independent rollouts draw and carry out "
    "all turns; branches that replay carry out all turns."
)
NOT_LEARNT = (
    "Turns of imitated episodes that stand in the rows as context, by reason; what the environment did not understand is not counted here."
)
OPERATED = (
    "Episodes that an operator started from and those that came of it, where one came of it: how many are right, and their mean calls."
)
ECONOMY = (
    "Calls of a held-out episode, answers aside. With P its return: efficiency P / max(calls, 1), successful execution P / max(failed "
    "calls, 1), reasoning length 1000 P / generated tokens (arXiv 2601.06860, section 4.1)."
)
CONCISE = (
    "Concise: the share of successes of which no turn could be left out; needed turns: the mean share of their turns that could not. Both "
    "were found out by carrying out the rest again."
)
REFLECTED = (
    "Turns of held-out episodes that say a reflection, and how many of them follow a move that worked, % [95 %]; moves that the "
    "environment did not carry out, and how many of them no reflection follows."
)


def table(summary: RunSummary) -> Table:
    """Returns a table with a line for each policy."""
    shown = Table(title=f"{summary.name}: {summary.about['method']}, {summary.about['environment']}, seed {summary.about['seed']}")
    for column in ("policy", "held-out success, % [95 %]", "n", "trees", "solved", "rows", "LLM calls", "tokens", "cached", "seconds"):
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


def write_report(run: Run, decode: Decode | None = None, out: Path | None = None) -> RunSummary:
    """Writes ``report.json`` and ``report.html``.

    Args:
        out: Folder to write them into; by default the run directory.
        decode: Returns the text of token ids, special tokens included, for an example of what was learnt; without it tokens are not marked.
    """
    summary = summarise(run)
    folder = out or run.path
    write_json(folder / "report.json", summary.as_dict())
    page = render(
        "report.html.jinja",
        summary=summary,
        told={
            **{key: value for key, value in summary.about.items() if value not in ("", None, {}, [])},
            "work": tables.seconds(summary.seconds),
        },
        sections=[section for section in [*_results(summary), *_training(run, summary), *_heldout(run, summary)] if section],
        trajectories=trajectories(run, decode),
        wanted=SHOWN,
        said=lambda text: shortened(seen(text), SAID),
        observed=lambda text: shortened(seen(text), OBSERVED),
    )
    write_bytes(folder / run.layout.report.name, page)
    return summary


def _results(summary: RunSummary) -> list[Section]:
    return [
        Section("Success on held-out tasks", [plots.success_plot(summary)]),
        Section("Policies", tables=[tables.policy_rows(summary)], notes=[note for note in (summary.selection, INTERVALS) if note]),
    ]


def _training(run: Run, summary: RunSummary) -> list[Section]:
    kinds = {arm.title: summary_of(arm.stages().get(DATASET), DatasetSummary).kinds for arm in run.arms}
    return [
        Section("Rows that were trained on", tables=[tables.kind_rows(kinds)]),
        Section("Training", plots.training_plots(summary), [tables.training_rows(summary)]),
        Section(
            "Training on preferences",
            plots.preference_plots(summary),
            [tables.preference_rows(summary)],
            [PREFERENCES],
        ),
        Section(
            "Online training",
            plots.online_plots(summary),
            [tables.online_rows(summary), tables.sharing_rows(summary)],
            [SHARED],
        ),
        Section(
            "Tasks that were chosen",
            plots.pareto_plots(summary),
            notes=["A point is a task, or several: how much the policy's episodes of it differ before the round's first step."],
        ),
        Section(
            "Turns that were not learnt",
            tables=[tables.context_rows(summary)],
            notes=[NOT_LEARNT],
        ),
        *(
            Section(
                f"Flywheel, {arm.title}",
                tables=[operator_rows(arm.flywheel)],
                notes=[OPERATED, *asked_lines(arm.flywheel)],
            )
            for arm in summary.arms
            if arm.flywheel
        ),
        Section("Executed splices", text=splices(summary)),
        Section("Where the time went", [plots.time_plot(summary)], tables=[tables.time_rows(summary)]),
    ]


def _heldout(run: Run, summary: RunSummary) -> list[Section]:
    return [
        Section("Economy", tables=[tables.economy_rows(summary)], notes=[ECONOMY, *([CONCISE] if "concise" in summary.measured else [])]),
        Section(
            "Scores of answers",
            tables=[tables.score_rows(summary)],
            notes=["What the environment gives an answer by name, % [95 %]; a held-out episode without an answer has 0."],
        ),
        Section(
            "How calls came out",
            tables=[tables.status_rows(summary)],
            notes=["Calls of held-out episodes, answers aside where the environment says what they are."],
        ),
        Section(
            "Reflections",
            tables=[tables.reflection_rows(summary)],
            notes=[REFLECTED],
        ),
        *(
            Section(f"Success by {label}", tables=[lines], notes=[note] if note else [])
            for label, (lines, note) in tables.label_rows(summary).items()
        ),
        Section("Success within so many answers", tables=[tables.answer_rows(summary)]),
        _changes(run),
        _patterns(run),
    ]


def _changes(run: Run) -> Section:
    """How many held-out tasks the last policy won and lost against the first."""
    measured = first_and_last(run)
    if len(measured) < 2:
        return Section("")
    (before, one), (after, two) = measured
    scores, later = one.evaluation.per_task, two.evaluation.per_task
    both = [(scores[key], later[key]) for key in scores if key in later]
    counts = [
        sum(b < a for a, b in both),
        sum(b > a for a, b in both),
        sum(a == b > 0 for a, b in both),
        sum(a == b == 0 for a, b in both),
    ]
    lines = [
        ["From", "to", "Lost", "Won", "Solved by both", "Solved by neither", "Tasks"],
        [before, after, *map(str, counts), str(len(both))],
    ]
    return Section("Held-out tasks: what changed", tables=[lines])


def _patterns(run: Run) -> Section:
    """What recurs in the held-out episodes of the first and of the last policy."""
    try:
        found = [(title, len(stage), patterns_of(stage, len(stage))) for title, stage in first_and_last(run)]
    except DataError:
        return Section("")
    if not any(told["read"] for _, _, told in found):
        return Section("")
    first = found[0][2]["patterns"]
    lines = [
        [f"{pattern['name']}: {pattern['about']}", *(_occurs(told["patterns"][at]) for _, _, told in found)]
        for at, pattern in enumerate(first)
    ]
    read = [f"Of {title} the first {told['read']} of {size} episodes were read." for title, size, told in found if told["read"] < size]
    note = "Share of the episodes in which it occurs; in brackets, how many of those succeeded."
    return Section("Patterns of held-out episodes", tables=[[["Pattern", *(title for title, _, _ in found)], *lines]], notes=[note, *read])


def _occurs(pattern: dict[str, Any]) -> str:
    return f"{tables.percent(pattern['episodes'] / max(1, pattern['of']))} ({pattern['succeeded']} of {pattern['episodes']})"


def splices(summary: RunSummary) -> str:
    """Returns what came of the splices that were executed, in words; nothing for a method without."""
    tried = summary.splices.get("tried", 0)
    if not tried:
        return ""
    failed = summary.splices["text splice would fail"]
    return (
        f"Of {tried} pairs of a bad prefix and a good end, {failed} ({100 * failed / tried:.0f} %) did not earn the good path's return "
        f"when the good actions were executed after the bad prefix; {summary.splices['kept after execution']} were kept after execution."
    )
