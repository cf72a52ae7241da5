"""What came of a round of the flywheel: a line for each operator, and how far those who were asked can be trusted."""

from __future__ import annotations

from collections.abc import Mapping

from agentr.store.summaries import DatasetSummary

#: How much more often than a wrong episode a right one is to be found good, by a judge that can tell them apart.
TELLING = 0.2

#: Columns of the table of operators: a title, and the figure's name in ``agentr.methods.et_agent.rows.Operated``.
_OPERATED = {
    "tried": "tried",
    "made": "made",
    "right before": "right_before",
    "right after": "right_after",
    "calls before": "calls_before",
    "calls after": "calls_after",
    "completions": "completions",
    "actions": "env_steps",
    "asked": "asked",
}


def operator_rows(flywheel: DatasetSummary) -> list[list[str]]:
    """Returns the table of what came of each operator of a flywheel: its header, and a line for each."""

    def shown(value: float) -> str:
        return f"{value:.2f}" if isinstance(value, float) else f"{value:,}"

    lines = [[name, *(shown(operated[key]) for key in _OPERATED.values())] for name, operated in flywheel.operators.items()]
    return [["operator", *_OPERATED], *lines]


def asked_lines(flywheel: DatasetSummary) -> list[str]:
    """Returns how often a teacher agrees with execution, and what a judge says of episodes known to be right or wrong, in words."""
    lines = [
        f"Of {counts['both']} episodes whose {question} turn was looked for by execution and by asking, both agree in"
        f" {counts['whether']} on whether there is one, and in {counts['which']} on which it is."
        for question, counts in flywheel.agreement.items()
    ]
    for known, said in flywheel.verdicts.items():
        lines.append(f"Of {sum(said.values())} {known} episodes the judge finds {said['good']} good and {said['bad']} bad.")
    return [*lines, *([warning] if (warning := judge_warning(flywheel.verdicts)) else [])]


def judge_warning(verdicts: Mapping[str, Mapping[str, int]]) -> str:
    """Returns what is wrong with a judge whose verdicts on right and on wrong episodes hardly differ; nothing if they do."""
    said = [verdicts.get(known, {}) for known in ("right", "wrong")]
    if not all(sum(ratings.values()) for ratings in said):
        return ""
    good, mistaken = (ratings["good"] / sum(ratings.values()) for ratings in said)
    if good - mistaken >= TELLING:
        return ""
    return (
        f"The judge finds {100 * good:.0f} % of the right episodes good, and {100 * mistaken:.0f} % of the wrong ones: its verdicts say"
        " little. Ask another model (method.evolve.judge), and do not filter by it (method.filter.judged)."
    )
