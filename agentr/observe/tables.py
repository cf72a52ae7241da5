"""The tables of a run's page: what was measured of each policy, and what its training came to.
Formatting is the page's."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from statistics import fmean
from typing import Any

from agentr.evaluate.reflections import FALSE, PASSED_OVER
from agentr.evaluate.statistics import Estimate
from agentr.observe.summary import ArmSummary, RunSummary
from agentr.store.layout import RECOVERIES
from agentr.store.summaries import DatasetSummary
from agentr.words import counted

#: Most values of a label that have a column.
VALUES = 40
#: How much more often than a wrong episode a right one is to be found good, by a judge that can distinguish them.
TELLING = 0.2

Cells = dict[str, float | Estimate | None]


@dataclass(frozen=True)
class Table:
    """Figures by column, a line for each policy or operator. Columns of which no line holds anything are not there.

    Attributes:
        share: Whether its figures are shares, which are shown as percentages.
        lines: Each by its title.
        notes: What is to be said of them.
    """

    title: str
    lines: dict[str, Cells]
    share: bool = False
    notes: list[str] = field(default_factory=list)


def _played(arm: ArmSummary) -> Cells:
    found = arm.evaluation
    if found is None:
        return {}
    best = None if found.best == found.success.mean else found.best
    refused = {f"with {counted(least, 'refusal')} or more": of.n for least, of in found.after_refusals.items()}
    return {"return": found.reward, "actions": found.steps, "best of several, share": best, **refused}


def _refused(arm: ArmSummary) -> Cells:
    return {"refused": arm.evaluation.invalid_rate, "repeated": arm.evaluation.repeated_rate} if arm.evaluation else {}


def _reflections(arm: ArmSummary) -> Cells:
    found = arm.evaluation.reflections if arm.evaluation else {}
    names = {FALSE: FALSE, PASSED_OVER: "refused moves without a reflection"}
    return {shown: found[name] if found[name].n else None for name, shown in names.items() if name in found}


def _training(arm: ArmSummary) -> Cells:
    trained = arm.training
    if trained is None:
        return {}
    steps = {
        "optimiser steps": trained.steps or None,
        "online steps": trained.online_steps,
        "best online step": trained.best_step,
    }
    sizes = {
        "rows": trained.rows or None,
        "tokens": trained.tokens or None,
        "trained tokens": trained.trained_tokens or None,
    }
    return {**steps, **sizes, "loss, first": trained.first_loss, "loss, last": trained.last_loss}


def _preferences(arm: ArmSummary) -> Cells:
    trained = arm.training
    if trained is None or trained.margin is None:
        return {}
    rewards = {"chosen reward": trained.chosen_reward, "rejected reward": trained.rejected_reward}
    return {"reward margin": trained.margin, "right way round, share": trained.accuracy, **rewards}


def _chosen(arm: ArmSummary) -> Cells:
    found: Cells = {}
    for title, chosen in (("chosen", True), ("left out", False)):
        tasks = [one for one in arm.differing if one["chosen"] is chosen]
        found[title] = len(tasks) if arm.differing else None
        for name, key in (("dispersion of returns", "earned"), ("dispersion of calls", "calls")):
            found[f"{name}, {title}"] = fmean(one[key] for one in tasks) if tasks else None
    return found


def _judged(arm: ArmSummary) -> Cells:
    found: Cells = {}
    for how in ("rubric", "ranking"):
        of, share = f"judge/{how}_pairs", f"judge/{how}_agreement"
        pairs = sum(line.get(of, 0) for line in arm.steps)
        alike = sum(line[of] * line[share] for line in arm.steps if line.get(of))
        found |= {f"{how} agrees, share": alike / pairs, f"{how}, pairs": pairs} if pairs else {}
    lost = sum(line.get("lost_groups", 0) for line in arm.steps)
    return {**found, "tasks without a reward": lost} if found or lost else {}


def _of(name: str) -> Callable[[ArmSummary], Mapping[Any, Any]]:
    """What an evaluation has by names."""
    return lambda arm: getattr(arm.evaluation, name) if arm.evaluation else {}


def _recovered(arm: ArmSummary) -> dict[str, Estimate]:
    states = {f"from a state after {RECOVERIES[stage]}": found.success for stage, found in arm.recovery.items()}
    own = arm.evaluation.after_refusals.items() if arm.evaluation else ()
    return {**states, **{f"with {counted(least, 'refusal')} or more": found for least, found in own if found.n}}


#: Tables with a line for each policy: title, what there is of a policy, whether these are shares, and what is to be
#: said.
_BY_POLICY: tuple[tuple[str, Callable[[ArmSummary], Mapping[Any, Any]], bool, str], ...] = (
    ("Held-out episodes", _played, False, ""),
    (
        "Actions of held-out episodes",
        _refused,
        True,
        "Refused: not understood by the environment. Repeated: in the same episode before.",
    ),
    (
        "Economy",
        lambda arm: arm.behaviour,
        False,
        "Calls of a held-out episode, answers aside. With P its return: efficiency P / max(calls, 1), successful "
        "execution P / max(failed calls, 1), reasoning length 1000 P / generated tokens (arXiv 2601.06860, section "
        "4.1). Concise: the share of successes of which no turn could be left out; needed turns: the mean share of "
        "their turns that could not; found out by carrying out the rest.",
    ),
    (
        "Recovery",
        _recovered,
        True,
        "From a state: from the beginnings of the warm start's episodes, the same for all policies. With refusals: of "
        "a policy's own held-out episodes with at least so many turns that were not carried out, those that succeed; "
        "a better policy is refused on harder tasks only, so this may fall while it improves.",
    ),
    (
        "Sampled episodes",
        lambda arm: arm.passes,
        True,
        "pass@k: at least one of k sampled episodes of a task succeeds; pass^k: all k do.",
    ),
    (
        "Scores of answers",
        _of("scores"),
        True,
        "What the environment gives an answer by name; an episode without an answer has 0.",
    ),
    (
        "How calls came out",
        _of("statuses"),
        True,
        "Calls of held-out episodes, answers aside where the environment says what they are.",
    ),
    (
        "Reflections",
        _reflections,
        True,
        "Of the turns of held-out episodes that hold a reflection, those that follow a move that worked; of the moves "
        "that the environment did not carry out, those that no reflection follows.",
    ),
    ("Success within so many answers", _of("within_answers"), True, ""),
    ("Trainings", _training, False, ""),
    (
        "Training on preferences",
        _preferences,
        False,
        "Reward: beta times the log-probability less that of the round's start. Where both fall, the model unlearns "
        "the rejected side faster than the chosen one.",
    ),
    (
        "What rollouts had in common",
        lambda arm: {name.replace("_", " "): value for name, value in vars(arm.sharing).items()} if arm.sharing else {},
        False,
        "Turns and tokens of all rollouts, each counted whole, and what of them was drawn and carried out; computed: "
        "the share of the trained tokens that went through the model. Independent rollouts draw and carry out all; "
        "branches that replay carry out all.",
    ),
    (
        "Tasks that were chosen",
        _chosen,
        False,
        "How much the policy's episodes of a task differ before the round's first step, as means over the tasks.",
    ),
    (
        "Judge and environment",
        _judged,
        False,
        "Of the pairs of rollouts of a task that the environment's return orders, the share that the judge orders "
        "alike, equal values counting half; over all online steps. Tasks without a reward taught nothing.",
    ),
    (
        "Turns that were not learnt",
        lambda arm: arm.context,
        False,
        "Turns that stand in the rows as context, by reason.",
    ),
)


def tables(summary: RunSummary) -> list[Table]:
    """Returns the tables of a run; those that hold nothing are left out."""
    found = [
        _table(title, {arm.title: of(arm) for arm in summary.arms}, share, note)
        for title, of, share, note in _BY_POLICY
    ]
    return [table for table in [*found, *_labels(summary), *_flywheels(summary)] if table.lines]


def _table(title: str, lines: Mapping[str, Mapping[Any, Any]], share: bool, *notes: str) -> Table:
    columns = dict.fromkeys(name for line in lines.values() for name in line)
    kept = [name for name in columns if any(line.get(name) is not None for line in lines.values())]
    shown = {title: {str(name): line.get(name) for name in kept} for title, line in lines.items() if line and kept}
    return Table(title, shown, share, [note for note in notes if note])


def _labels(summary: RunSummary) -> Iterator[Table]:
    """Success by the value of each label of the tasks."""
    measured = {arm.title: arm.evaluation.by_label for arm in summary.arms if arm.evaluation}
    for label, cells in next(iter(measured.values()), {}).items():
        often = (
            sorted(cells, key=lambda value, cells=cells: -cells[value][1])[:VALUES]
            if len(cells) > VALUES
            else list(cells)
        )
        names = {value: f"{value} (n = {cells[value][1]})" for value in often}
        lines = {
            title: {name: found[label][value][0] for value, name in names.items() if value in found.get(label, {})}
            for title, found in measured.items()
        }
        note = f"The {VALUES} values of {len(cells)} that most tasks have." if len(cells) > VALUES else ""
        yield _table(f"Success by {label}", lines, True, note)


def _flywheels(summary: RunSummary) -> Iterator[Table]:
    """What came of each operator of ET-Agent's flywheel, by round."""
    note = (
        "Episodes that an operator started from and those that came of it, where one came of it: how many are right, "
        "and their mean calls."
    )
    for arm in summary.arms:
        if arm.flywheel:
            lines = {
                name: {
                    key.replace("_", " "): value for key, value in operated.items() if isinstance(value, int | float)
                }
                for name, operated in arm.flywheel.operators.items()
            }
            yield _table(f"Flywheel, {arm.title}", lines, False, note, *_asked(arm.flywheel))


def _asked(flywheel: DatasetSummary) -> Iterator[str]:
    """How often a teacher agrees with execution, and what a judge says of episodes known to be right or wrong, in
    words."""
    for question, counts in flywheel.agreement.items():
        yield (
            f"Of {counts['both']} episodes whose {question} turn was looked for by execution and by asking, both agree "
            f"in {counts['whether']} on whether there is one, and in {counts['which']} on which it is."
        )
    for known, said in flywheel.verdicts.items():
        yield f"Of {sum(said.values())} {known} episodes the judge finds {said['good']} good and {said['bad']} bad."
    yield judge_warning(flywheel.verdicts)


def judge_warning(verdicts: Mapping[str, Mapping[str, int]]) -> str:
    """Returns what is wrong with a judge whose verdicts on right and on wrong episodes hardly differ; nothing if they
    do."""
    said = [verdicts.get(known, {}) for known in ("right", "wrong")]
    if not all(sum(ratings.values()) for ratings in said):
        return ""
    good, mistaken = (ratings["good"] / sum(ratings.values()) for ratings in said)
    if good - mistaken >= TELLING:
        return ""
    return (
        f"The judge finds {100 * good:.0f} % of the right episodes good, and {100 * mistaken:.0f} % of the wrong ones: "
        "its verdicts carry little information. Ask another model (method.evolve.judge), and do not filter by it "
        "(method.filter.judged)."
    )
