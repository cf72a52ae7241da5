"""Presents the results of a run: a table in the terminal, ``report.html`` with plots, ``report.json`` with the same figures."""

from __future__ import annotations

import contextlib
import html
import io
import itertools
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, select_autoescape
from markupsafe import Markup
from rich.table import Table

from agentr.errors import DataError
from agentr.evaluate.reflections import FALSE, PASSED_OVER
from agentr.evaluate.statistics import Estimate
from agentr.observe.flywheel import asked_lines, operator_rows
from agentr.observe.summary import RunSummary, summarise
from agentr.read.run import Run
from agentr.read.stage import Dataset
from agentr.store.files import write_bytes, write_json
from agentr.store.layout import DATASET, ArmKind
from agentr.store.rows import Row
from agentr.types import CallStatus

Decode = Callable[[Sequence[int]], str]

_COLOURS = ("#7a8b99", "#2a6f97", "#61a5c2", "#bcb8b1", "#d68c45", "#588157", "#a3b18a", "#9d4edd")


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


def score_rows(summary: RunSummary) -> list[list[str]]:
    """Returns the table of the environment's scores of held-out answers: its header, and a line for each policy; nothing without scores."""
    measured = {arm.title: arm.evaluation.scores for arm in summary.arms if arm.evaluation}
    names = sorted(set().union(*measured.values()))
    lines = [[title, *(found[name].as_percent() if name in found else "-" for name in names)] for title, found in measured.items()]
    return [["policy", *names], *lines] if names else []


def status_rows(summary: RunSummary) -> list[list[str]]:
    """Returns the table of how held-out calls came out: its header, and a line for each policy; nothing without calls."""
    measured = {arm.title: arm.evaluation.statuses for arm in summary.arms if arm.evaluation and arm.evaluation.statuses}
    lines = [[title, *(f"{100 * shares.get(status, 0.0):.1f} %" for status in CallStatus)] for title, shares in measured.items()]
    return [["policy", *CallStatus], *lines] if lines else []


def reflection_rows(summary: RunSummary) -> list[list[str]]:
    """Returns the table of when policies reflect: its header, and a line for each policy; nothing for a method that does not reflect."""
    measured = {arm.title: arm.evaluation.reflections for arm in summary.arms if arm.evaluation and arm.evaluation.reflections}
    lines = [
        [title, f"{found[FALSE].n}", _percent(found[FALSE]), f"{found[PASSED_OVER].n}", _percent(found[PASSED_OVER])]
        for title, found in measured.items()
    ]
    return [["policy", "reflections", FALSE, "refused moves", "without a reflection"], *lines] if lines else []


def context_rows(summary: RunSummary) -> list[list[str]]:
    """Returns the table of turns in rows that were chosen not to be learnt: its header, and a line for each policy; nothing without any."""
    reasons = sorted(set().union(*(arm.context for arm in summary.arms)))
    lines = [[arm.title, *(f"{arm.context.get(reason, 0)}" for reason in reasons)] for arm in summary.arms if arm.rows]
    return [["policy", *reasons], *lines] if reasons else []


def _percent(share: Estimate) -> str:
    return f"{share.as_percent()} %" if share.n else "-"


def write_report(run: Run, decode: Decode | None = None, out: Path | None = None) -> RunSummary:
    """Writes ``report.json`` and ``report.html``.

    Args:
        out: Folder to write them into; by default the run directory.
        decode: Returns the text of token ids, special tokens included, for the example of a revision; without it there is no example.
    """
    summary = summarise(run)
    folder = out or run.path
    write_json(folder / "report.json", summary.as_dict())
    environment = Environment(loader=PackageLoader("agentr.observe", "."), autoescape=select_autoescape(["html", "jinja"]))
    page = environment.get_template("report.html.jinja").render(
        summary=summary,
        success_plot=Markup(success_plot(summary)),
        time_plot=Markup(time_plot(summary)),
        preference_plot=Markup(preference_plot(summary)),
        online_plot=Markup(online_plot(summary)),
        pareto_plot=Markup(pareto_plot(summary)),
        revision=Markup(_revision(run, decode)) if decode else "",
        splices=_splices(summary),
        scores=score_rows(summary),
        statuses=status_rows(summary),
        reflections=reflection_rows(summary),
        context=context_rows(summary),
        flywheels=[(arm.title, operator_rows(arm.flywheel), asked_lines(arm.flywheel)) for arm in summary.arms if arm.flywheel],
    )
    write_bytes(folder / run.layout.report.name, page.encode())
    return summary


def success_plot(summary: RunSummary) -> str:
    """Plots held-out success by round with intervals; rounds and control are two lines from the warm start. Returns SVG."""
    canvas, axes = figure(6.0, 3.6)
    rounds = max((a.arm.number for a in summary.arms), default=0)
    for kind, label, colour, style in (
        (ArmKind.ROUND, "self-training", "#2a6f97", "-"),
        (ArmKind.CONTROL, "control: demonstrations only", "#d68c45", "--"),
    ):
        arms = [a for a in summary.arms if a.arm.kind in (ArmKind.WARM_START, kind) and a.evaluation is not None]
        if len(arms) < 2 and kind is ArmKind.CONTROL:
            continue
        estimates = [a.evaluation.success for a in arms if a.evaluation is not None]
        means = [100 * e.mean for e in estimates]
        errors = [[100 * (e.mean - e.low) for e in estimates], [100 * (e.high - e.mean) for e in estimates]]
        places = range(len(arms)) if kind is ArmKind.ROUND else (0, rounds)
        axes.errorbar(places, means, yerr=errors, label=label, color=colour, linestyle=style, marker="o", capsize=4)
    axes.set_xticks(range(rounds + 1), ["warm start", *(f"round {r}" for r in range(1, rounds + 1))])
    axes.set_ylabel("held-out success, %")
    axes.set_ylim(0, 100)
    axes.legend(frameon=False)
    return svg(canvas)


def time_plot(summary: RunSummary) -> str:
    """Plots the seconds of each policy's stages, stacked. Returns SVG."""
    canvas, axes = figure(6.0, 0.7 + 0.45 * len(summary.arms))
    titles = [a.title for a in summary.arms][::-1]
    left = [0.0] * len(titles)
    stages = list(dict.fromkeys(stage for arm in summary.arms for stage in arm.seconds))
    for stage, colour in zip(stages, itertools.cycle(_COLOURS)):
        seconds = [a.seconds.get(stage, 0.0) for a in summary.arms][::-1]
        if any(seconds):
            axes.barh(titles, seconds, left=left, label=stage, color=colour)
        left = [a + b for a, b in zip(left, seconds, strict=True)]
    axes.set_xlabel("seconds")
    axes.legend(frameon=False, ncols=3, loc="lower center", bbox_to_anchor=(0.5, 1.0))
    return svg(canvas)


def preference_plot(summary: RunSummary) -> str:
    """What DPO did to both sides of the pairs, step by step: margin of the rewards, share of pairs the right way round, and
    log-probabilities. SVG, or nothing where no round trained on preferences."""
    arms = [a for a in summary.arms if any(line.get("reward_margin") is not None for line in a.curve)]
    if not arms:
        return ""
    canvas, rows = figure(9.5, 3.0, columns=3)
    for arm, colour in zip(arms, _COLOURS[1:], strict=False):
        steps = [line["step"] for line in arm.curve]
        for axes, keys in zip(rows, (("reward_margin",), ("reward_accuracy",), ("chosen_logprob", "rejected_logprob")), strict=True):
            for key, style in zip(keys, ("-", "--"), strict=False):
                axes.plot(steps, [line[key] for line in arm.curve], color=colour, linestyle=style, label=arm.title)
    for axes, title in zip(rows, ("reward margin", "pairs the right way round", "log-probability (dashed: rejected)"), strict=True):
        axes.set_title(title, fontsize=10)
        axes.set_xlabel("step")
    rows[0].legend(frameon=False)
    return svg(canvas)


def online_plot(summary: RunSummary) -> str:
    """What online training did, step by step: success of the rollouts and on the validation tasks, turns and tokens, entropy and groups
    without signal. SVG, or nothing where no round trained online."""
    arms = [a for a in summary.arms if a.steps]
    if not arms:
        return ""
    canvas, rows = figure(9.5, 3.0, columns=3)
    for arm, colour in zip(arms, itertools.cycle(_COLOURS[1:])):
        steps = [line["step"] for line in arm.steps]
        rows[0].plot(steps, [100 * line["success"] for line in arm.steps], color=colour, label=arm.title, alpha=0.6)
        measured = [(line["step"], 100 * line["validation"]) for line in arm.steps if line["validation"] is not None]
        if measured:
            rows[0].plot(*zip(*measured, strict=True), color=colour, marker="o", linestyle="--")
        rows[1].plot(steps, [line["tokens"] for line in arm.steps], color=colour)
        rows[2].plot([line["step"] for line in arm.curve], [line.get("entropy") for line in arm.curve], color=colour)
        rows[2].plot(steps, [line["silent_groups"] / max(1, line["groups"]) for line in arm.steps], color=colour, linestyle="--")
    titles = ("success, % (dots: validation)", "tokens of a rollout", "entropy (dashed: groups without signal)")
    for axes, title in zip(rows, titles, strict=True):
        axes.set_title(title, fontsize=10)
        axes.set_xlabel("step")
        axes.set_ylim(bottom=0)
    rows[0].legend(frameon=False)
    return svg(canvas)


def pareto_plot(summary: RunSummary) -> str:
    """How much the episodes of each task differed, and which tasks were chosen by that. SVG, or nothing where none were."""
    arms = [a for a in summary.arms if a.differing]
    if not arms:
        return ""
    canvas, rows = figure(3.6 * len(arms), 3.2, columns=len(arms))
    for arm, axes in zip(arms, [rows] if len(arms) == 1 else rows, strict=True):
        for chosen, colour, label in ((False, _COLOURS[0], "left out"), (True, _COLOURS[4], "chosen")):
            points = Counter((one["calls"], one["earned"]) for one in arm.differing if one["chosen"] is chosen)
            sizes = [12 * count**0.5 for count in points.values()]
            axes.scatter(
                [x for x, _ in points], [y for _, y in points], s=sizes, color=colour, alpha=0.7, label=f"{label}: {points.total()}"
            )
        axes.set_title(f"{arm.title}", fontsize=10)
        axes.set_xlabel("dispersion of calls")
        axes.set_ylabel("dispersion of returns")
        axes.legend(frameon=False)
    return svg(canvas)


def mark_up(row: Row, decode: Decode) -> str:
    """Returns a row as HTML in which the trained tokens are marked."""
    parts: list[str] = []
    start = 0
    for end in range(1, len(row.input_ids) + 1):
        if end == len(row.input_ids) or row.loss_mask[end] != row.loss_mask[start]:
            text = html.escape(decode(row.input_ids[start:end]))
            parts.append(f'<span class="{"trained" if row.loss_mask[start] else "context"}">{text}</span>')
            start = end
    return "".join(parts)


def _revision(run: Run, decode: Decode) -> str:
    """Returns the first revision row of the last round that has one as HTML, or nothing."""
    for round_ in reversed(run.rounds[1:]):
        dataset = round_.stages().get(DATASET)
        if not isinstance(dataset, Dataset) or not dataset.sealed or not dataset.summary.kinds.get("revision"):
            continue
        with contextlib.suppress(DataError):
            return next(mark_up(row, decode) for row in dataset.rows if isinstance(row, Row) and row.provenance.kind == "revision")
    return ""


def _splices(summary: RunSummary) -> str:
    tried = summary.splices.get("tried", 0)
    if not tried:
        return ""
    failed = summary.splices["text splice would fail"]
    return (
        f"Of {tried} pairs of a bad prefix and a good end, {failed} ({100 * failed / tried:.0f} %) did not earn the good path's return "
        f"when the good actions were executed after the bad prefix; {summary.splices['kept after execution']} were kept after execution."
    )


def figure(width: float, height: float, columns: int = 1) -> tuple[Any, Any]:
    """Makes a matplotlib figure and its axes; with several columns, a row of axes. Sizes are in inches."""
    # The object interface and no pyplot: no global state, and no display is looked for.
    from matplotlib.figure import Figure

    canvas = Figure(figsize=(width, height), layout="constrained")
    axes = canvas.subplots(1, columns)
    for each in axes if columns > 1 else [axes]:
        each.spines[["top", "right"]].set_visible(False)
    return canvas, axes


def svg(canvas: Any) -> str:
    """Returns a figure as SVG for a page."""
    buffer = io.StringIO()
    canvas.savefig(buffer, format="svg", metadata={"Date": None})
    text = buffer.getvalue()
    return text[text.index("<svg") :]
