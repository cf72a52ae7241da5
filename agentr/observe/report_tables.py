"""The tables of a report: a header and a line for each policy. A column that holds nothing is left out, and so is a table without lines."""

from __future__ import annotations

from agentr.evaluate.metrics import Evaluation
from agentr.evaluate.reflections import FALSE, PASSED_OVER
from agentr.evaluate.statistics import Estimate
from agentr.observe.summary import ArmSummary, RunSummary
from agentr.types import CallStatus

Lines = list[list[str]]

#: What stands where nothing is known.
UNKNOWN = "–"

#: Most values of a label that have a column.
VALUES = 40


def filled(lines: Lines) -> Lines:
    """Returns a table without the columns of which no line holds anything."""
    kept = (
        [0, *(column for column in range(1, len(lines[0])) if any(line[column] not in ("", UNKNOWN) for line in lines[1:]))]
        if lines
        else []
    )
    return [[line[column] for column in kept] for line in lines] if len(lines) > 1 and len(kept) > 1 else []


def policy_rows(summary: RunSummary) -> Lines:
    """What there is to say of every policy."""
    measured = ["Success % [95 %]", "n", "Best of several", "Reward", "Steps", "Recovery % [95 %]", "Refused", "Repeated"]
    spent = ["Trees", "Trees solved", "Rows", "Calls", "Tokens", "Cached", "Work"]
    return filled([["Policy", *measured, *spent], *(_policy(arm) for arm in summary.arms)])


def _policy(arm: ArmSummary) -> list[str]:
    found, recovery = arm.evaluation, arm.recovery
    return [
        arm.title,
        *(_measured(found) if found else [UNKNOWN] * 5),
        f"{recovery.as_percent()} (n = {recovery.n})" if recovery else UNKNOWN,
        *([percent(found.invalid_rate), percent(found.repeated_rate)] if found else [UNKNOWN] * 2),
        *(f"{value:,}" if value else UNKNOWN for value in (arm.trees, arm.solved, arm.rows, arm.calls, arm.cost.completion_tokens)),
        percent(arm.cached_share) if arm.cost.prompt_tokens else UNKNOWN,
        seconds(sum(arm.seconds.values())),
    ]


def _measured(found: Evaluation) -> list[str]:
    best = UNKNOWN if found.best == found.success.mean else percent(found.best, 1)
    return [found.success.as_percent(), str(found.success.n), best, f"{found.reward.mean:.2f}", f"{found.steps:.1f}"]


def kind_rows(kinds: dict[str, dict[str, int]]) -> Lines:
    """Rows of each kind that a policy was trained on.

    Args:
        kinds: By the title of the policy.
    """
    names = list(dict.fromkeys(name for found in kinds.values() for name in found))
    return filled([["Policy", *names], *([title, *_counts(found, names)] for title, found in kinds.items() if found)])


def time_rows(summary: RunSummary) -> Lines:
    """Work on each stage."""
    stages = list(dict.fromkeys(stage for arm in summary.arms for stage in arm.seconds))
    lines = [[arm.title, *(seconds(arm.seconds.get(name)) for name in stages), seconds(sum(arm.seconds.values()))] for arm in summary.arms]
    return filled([["Policy", *stages, "in all"], *lines])


def economy_rows(summary: RunSummary) -> Lines:
    """How economical held-out episodes are."""
    arms = [arm for arm in summary.arms if arm.behaviour]
    return filled(
        [["Policy", *summary.measured], *([arm.title, *(_estimate(arm.behaviour.get(name)) for name in summary.measured)] for arm in arms)]
    )


def score_rows(summary: RunSummary) -> Lines:
    """The environment's scores of held-out answers."""
    measured = {arm.title: arm.evaluation.scores for arm in summary.arms if arm.evaluation}
    names = sorted(set().union(*measured.values()))
    lines = [[title, *(found[name].as_percent() if name in found else UNKNOWN for name in names)] for title, found in measured.items()]
    return [["Policy", *names], *lines] if names else []


def status_rows(summary: RunSummary) -> Lines:
    """How held-out calls came out."""
    measured = {arm.title: arm.evaluation.statuses for arm in summary.arms if arm.evaluation and arm.evaluation.statuses}
    lines = [[title, *(percent(shares.get(status, 0.0), 1) for status in CallStatus)] for title, shares in measured.items()]
    return [["Policy", *CallStatus], *lines] if lines else []


def reflection_rows(summary: RunSummary) -> Lines:
    """When policies reflect; nothing for a method that does not."""
    measured = {arm.title: arm.evaluation.reflections for arm in summary.arms if arm.evaluation and arm.evaluation.reflections}
    lines = [
        [title, f"{found[FALSE].n}", _share(found[FALSE]), f"{found[PASSED_OVER].n}", _share(found[PASSED_OVER])]
        for title, found in measured.items()
    ]
    return [["Policy", "reflections", FALSE, "refused moves", "without a reflection"], *lines] if lines else []


def context_rows(summary: RunSummary) -> Lines:
    """Turns in rows that were chosen not to be learnt, by reason."""
    reasons = sorted(set().union(*(arm.context for arm in summary.arms)))
    lines = [[arm.title, *(f"{arm.context.get(reason, 0)}" for reason in reasons)] for arm in summary.arms if arm.rows]
    return [["Policy", *reasons], *lines] if reasons else []


def training_rows(summary: RunSummary) -> Lines:
    """What each training came to."""
    lines = []
    for arm in summary.arms:
        if told := arm.training:
            counts = (told.steps, told.rows, told.tokens, told.trained_tokens)
            lines.append([arm.title, *(f"{count:,}" if count else UNKNOWN for count in counts), *_numbers(told.first_loss, told.last_loss)])
    return filled([["Policy", "steps", "rows", "tokens", "trained tokens", "loss, first", "last"], *lines])


def preference_rows(summary: RunSummary) -> Lines:
    """What training on preferences came to."""
    header = ["Policy", "reward margin", "right way round", "chosen reward", "rejected reward"]
    told = [(arm.title, arm.training) for arm in summary.arms if arm.training and arm.training.margin is not None]
    lines = [
        [title, *_numbers(t.margin, digits=2), percent(t.accuracy), *_numbers(t.chosen_reward, t.rejected_reward, digits=2)]
        for title, t in told
    ]
    return filled([header, *lines])


def online_rows(summary: RunSummary) -> Lines:
    """Steps of online training."""
    lines = [
        [
            arm.title,
            f"{len(arm.steps)}",
            *([f"{t.steps}", f"{t.rows:,}", f"{t.best_step or 'last'}"] if (t := arm.training) else [UNKNOWN] * 3),
        ]
        for arm in summary.arms
        if arm.steps
    ]
    return filled([["Policy", "steps", "optimiser steps", "rollouts", "best step"], *lines])


def sharing_rows(summary: RunSummary) -> Lines:
    """What rollouts had in common."""
    header = [
        "Policy",
        "turns of all rollouts",
        "drawn",
        "carried out",
        "tokens of all rollouts",
        "drawn tokens",
        "trained tokens computed",
    ]
    found = [(arm.title, arm.sharing) for arm in summary.arms if arm.sharing]
    counts = lambda s: (s.turns, s.drawn, s.carried_out, s.tokens, s.drawn_tokens)  # noqa: E731
    return filled([header, *([title, *(f"{value:,}" for value in counts(s)), percent(s.computed)] for title, s in found)])


def label_rows(summary: RunSummary) -> dict[str, tuple[Lines, str]]:
    """Success by the value of each label of the tasks, and what is left out."""
    evaluations = [(arm.title, arm.evaluation) for arm in summary.arms if arm.evaluation]
    found = {}
    for label, cells in evaluations[0][1].by_label.items() if evaluations else ():
        values = sorted(cells, key=lambda value, cells=cells: -cells[value][1])[:VALUES] if len(cells) > VALUES else list(cells)
        by_policy = [(title, evaluation.by_label.get(label, {})) for title, evaluation in evaluations]
        lines = [[title, *(percent(each[value][0]) if value in each else UNKNOWN for value in values)] for title, each in by_policy]
        left_out = f"The {VALUES} values of {len(cells)} that most tasks have." if len(cells) > VALUES else ""
        found[label] = filled([["Policy", *(f"{value} (n = {cells[value][1]})" for value in values)], *lines]), left_out
    return found


def answer_rows(summary: RunSummary) -> Lines:
    """Success within so many answers."""
    found = [(arm.title, arm.evaluation.within_answers) for arm in summary.arms if arm.evaluation and arm.evaluation.within_answers]
    counts = list(dict.fromkeys(count for _, shares in found for count in shares))
    return filled([["Policy", *map(str, counts)], *([title, *(percent(shares.get(count)) for count in counts)] for title, shares in found)])


def percent(value: float | None, digits: int = 0) -> str:
    return UNKNOWN if value is None else f"{100 * value:.{digits}f} %"


def seconds(value: float | None) -> str:
    return UNKNOWN if value is None else f"{value:,.0f} s"


def _share(share: Estimate) -> str:
    return f"{share.as_percent()} %" if share.n else UNKNOWN


def _estimate(found: Estimate | None) -> str:
    return f"{found.mean:.2f} [{found.low:.2f}, {found.high:.2f}]" if found else UNKNOWN


def _numbers(*values: float | None, digits: int = 3) -> list[str]:
    return [UNKNOWN if value is None else f"{value:.{digits}f}" for value in values]


def _counts(found: dict[str, int], names: list[str]) -> list[str]:
    return [f"{found[name]:,}" if name in found else UNKNOWN for name in names]
