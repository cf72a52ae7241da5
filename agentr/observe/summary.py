"""Summarises a run from its directory alone: the numbers behind the pages, the tables and the words."""

from collections import Counter
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from agentr.errors import DataError
from agentr.evaluate.metrics import Evaluation
from agentr.evaluate.statistics import Contrast, Estimate, paired_difference, share_of_way
from agentr.read.run import Run, RunRound
from agentr.read.stage import Episodes, Measured, Rollouts, Training, paid_once, summary_of
from agentr.store.layout import (
    CEILING,
    CONTROL,
    DATASET,
    JUDGED,
    MODEL,
    RECOVERIES,
    ROLLOUTS,
    SAMPLED,
    SHORTENED,
    TRAIN,
    Arm,
    ArmKind,
)
from agentr.store.summaries import DatasetSummary, ModelSummary, TrainSummary, TreeSummary
from agentr.types import Cost


@dataclass(frozen=True)
class Sharing:
    """What the rollouts of online training had in common, and so cost once.

    Independent rollouts draw and carry out every turn; branches without copies of states draw what is new and carry out
    every turn again.

    Attributes:
        turns: Of all rollouts, each counted whole.
        drawn: Turns that the policy drew.
        carried_out: Actions that the environment carried out.
        tokens: Tokens that the policy generated, of all rollouts, each counted whole.
        drawn_tokens: Tokens that it drew.
        computed: Share of the trained rows' tokens that went through the model.
    """

    turns: int
    drawn: int
    carried_out: int
    tokens: int
    drawn_tokens: int
    computed: float


@dataclass(frozen=True, kw_only=True)
class ArmSummary:
    """One policy of the run: the warm start, a round, the control, or the ceiling.

    Attributes:
        recovery: Episodes from bad beginnings, the same for all policies, by the stage that measured them.
        passes: pass@k and pass^k of its sampled episodes, by name.
        besides: What was measured of its held-out episodes besides, by name: conciseness, a judge's verdicts.
        trees: Trees of its first stage of exploration.
        kinds: Rows by kind.
        cost: Cost of its exploration.
        seconds: Seconds by stage, in the order in which the stages ran.
        training: Summary of its training, if it was trained.
        curve: Its logged steps of training.
        steps: Of online training, the summary of each step; ``validation`` is the success after it, where that
            was measured.
        sharing: Of online training, what its rollouts had in common.
        flywheel: Of ET-Agent, what came of its operators, and of asking.
        context: Turns in its rows that were chosen not to be learnt, by reason.
        differing: Of online training, how much the episodes of each task differed, where tasks were chosen by that.
    """

    arm: Arm
    evaluation: Evaluation | None
    trees: int
    solved: int
    rows: int
    kinds: dict[str, int]
    cost: Cost
    seconds: dict[str, float]
    recovery: dict[str, Evaluation] = field(default_factory=dict)
    passes: dict[str, Estimate] = field(default_factory=dict)
    besides: dict[str, Estimate] = field(default_factory=dict)
    training: TrainSummary | None = None
    curve: list[dict[str, Any]] = field(default_factory=list, repr=False)
    steps: list[dict[str, Any]] = field(default_factory=list, repr=False)
    sharing: Sharing | None = None
    flywheel: DatasetSummary | None = field(default=None, repr=False)
    context: dict[str, int] = field(default_factory=dict)
    differing: list[dict[str, Any]] = field(default_factory=list, repr=False)

    @property
    def title(self) -> str:
        return self.arm.title

    @property
    def behaviour(self) -> dict[str, Estimate]:
        """How economical its held-out episodes are, and what was measured of them besides, by name."""
        return {**(self.evaluation.behaviour if self.evaluation else {}), **self.besides}

    @property
    def calls(self) -> int:
        """Requests to the policy, for turns and for verdicts."""
        return self.cost.calls + self.cost.judge_calls

    @property
    def cached_share(self) -> float:
        """Share of the prompt tokens that came from the prefix cache."""
        return self.cost.cached_tokens / self.cost.prompt_tokens if self.cost.prompt_tokens else 0.0


@dataclass(frozen=True)
class Difference:
    """A paired difference of held-out success between two arms, and its meaning in words.

    Attributes:
        way: Of the difference to the ceiling, how much of the way there from the control has been gone, where both were
            measured and the ceiling is above the control.
    """

    after: str
    before: str
    difference: Contrast
    words: str
    way: Estimate | None = None


@dataclass(frozen=True)
class RunSummary:
    """A whole run."""

    name: str
    about: dict[str, Any]
    arms: list[ArmSummary]
    comparisons: list[Difference]
    splices: dict[str, int]
    seconds: float
    complete: bool
    selection: str = ""

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


_SEARCHED = "turn {turn} of {tree} in {stage} of {run}, with {policy}"
_SEARCH = ("turn", "tree", "stage", "run", "policy")

#: Switches of Agent-R's revisions that are named where they are not the paper's.
_PAPERS = {"begin": "trees", "end": "path", "whole_episodes": False}


def summarise(run: Run) -> RunSummary:
    """Reads a run, finished or not.

    Raises:
        DataError: The run has no stage yet.
    """
    run = run.at_once()
    config, stages = run.config, run.stages()
    if not stages:
        raise DataError(f"{run.path} has no stage yet", hint="Start it with 'agentr run CONFIG'.")
    arms = [_arm(round_) for round_ in run.arms]
    splices = Counter[str]()
    for round_ in run.arms:
        splices.update(summary_of(round_.stages().get(DATASET), DatasetSummary).splices)
    method = config["method"]
    revise = method.get("revise") or {}
    remarks = summary_of(stages.get(MODEL), ModelSummary).remarks or []
    return RunSummary(
        name=run.name,
        about={
            "method": ", ".join([Path(method["type"]).name, *_later_methods(config)]),
            "preset": method["preset"],
            "seed": config["run"]["seed"],
            "model": config["model"]["path"] or config["model"]["source"],
            "environment": config["env"]["name"],
            "options": config["env"]["options"],
            "held-out split": config["eval"]["tasks"]["split"]
            + (" (leaks allowed)" if config["env"].get("allow_leaks") else ""),
            **{key: revise[key] for key in ("splice", "judge") if key in revise},
            **{key: revise[key] for key, paper in _PAPERS.items() if revise.get(key, paper) != paper},
            **(
                {"repeated refused actions": config["turns"]["repeat_refused"]}
                if config.get("turns", {}).get("repeat_refused", "allow") != "allow"
                else {}
            ),
            **({"conversations": "; ".join(remarks)} if remarks else {}),
            **(
                {"searched on from": _SEARCHED.format_map({**dict.fromkeys(_SEARCH, "?"), **run.search})}
                if run.search
                else {}
            ),
        },
        arms=arms,
        comparisons=_differences(arms),
        splices=dict(splices),
        seconds=sum(stage.seconds for stage in stages.values()),
        complete=run.complete,
        selection=_selection(config) if config["run"]["rounds"] else "",
    )


def _selection(config: dict[str, Any]) -> str:
    """Says on which tasks the best round is chosen, and warns if they are those that are reported."""
    reported, chosen = config["eval"]["tasks"]["split"], config["eval"].get("select")
    if chosen:
        return (
            f"The best round is chosen on the split {chosen!r}; success is reported on {reported!r}, which chooses "
            "nothing."
        )
    return (
        f"The best round is chosen on the reported tasks themselves (split {reported!r}): its success is flattered by "
        "the choice. Another split chooses with eval.select."
    )


def _later_methods(config: dict[str, Any]) -> list[str]:
    changes = config.get("from_round") or {}
    methods = {int(round_): (changes[round_].get("method") or {}).get("type") for round_ in changes}
    return [f"from round {round_} {Path(found).name}" for round_, found in sorted(methods.items()) if found]


def _arm(round_: RunRound) -> ArmSummary:
    stages = round_.stages()
    explored = round_.exploration() if round_.arm.kind is ArmKind.ROUND else {}
    first = next((stage.summary for stage in explored.values()), TreeSummary())
    dataset = summary_of(stages.get(DATASET), DatasetSummary)
    rollouts, evaluated, sampled, trained = (
        stages.get(ROLLOUTS),
        round_.measured,
        stages.get(SAMPLED),
        stages.get(TRAIN),
    )
    steps = rollouts.curve_lines() if isinstance(rollouts, Rollouts) else []
    curve = trained.curve_lines() if isinstance(trained, Training) else []
    besides = [
        stage for name in (SHORTENED, JUDGED) if isinstance(stage := stages.get(name), Measured) and stage.sealed
    ]
    return ArmSummary(
        arm=round_.arm,
        evaluation=evaluated.evaluation if evaluated is not None else None,
        passes=sampled.evaluation.passes if isinstance(sampled, Episodes) and sampled.sealed else {},
        besides={name: measured for stage in besides for name, measured in stage.measures.items()},
        trees=first.trees,
        solved=first.solved,
        rows=dataset.rows,
        flywheel=dataset if dataset.operators else None,
        context=dataset.context,
        kinds=dataset.kinds,
        cost=sum((stage.summary.cost for stage in paid_once(explored.values())), Cost()),
        seconds={name: stage.seconds for name, stage in stages.items()},
        recovery={
            name: stage.evaluation
            for name in RECOVERIES
            if isinstance(stage := stages.get(name), Episodes) and stage.sealed
        },
        training=trained.summary if trained and trained.sealed else None,
        curve=curve,
        steps=steps,
        sharing=_sharing(steps, curve),
        differing=rollouts.differing() if isinstance(rollouts, Rollouts) else [],
    )


def _sharing(steps: list[dict[str, Any]], curve: list[dict[str, Any]]) -> Sharing | None:
    counted = [line for line in steps if "completion_tokens" in line]
    if not counted:
        return None
    trained = [line for line in curve if line.get("row_tokens")]
    return Sharing(
        turns=round(sum(line["turns"] * line["episodes"] for line in counted)),
        drawn=sum(line["completions"] for line in counted),
        carried_out=sum(line["env_steps_executed"] for line in counted),
        tokens=round(sum(line["tokens"] * line["episodes"] for line in counted)),
        drawn_tokens=sum(line["completion_tokens"] for line in counted),
        computed=sum(line["computed_tokens"] for line in trained) / sum(line["row_tokens"] for line in trained)
        if trained
        else 1.0,
    )


def _differences(arms: list[ArmSummary]) -> list[Difference]:
    evaluated = [a for a in arms if a.evaluation is not None]
    rounds = [a for a in evaluated if a.arm.kind is ArmKind.ROUND]
    if not rounds:
        return []
    control = next((arm for arm in evaluated if arm.arm == CONTROL), None)
    return [difference(rounds[-1], other, control) for other in evaluated if other.arm.kind is not ArmKind.ROUND]


def difference(after: ArmSummary, before: ArmSummary, control: ArmSummary | None = None) -> Difference:
    """Returns the paired difference of two policies that were measured, and what it means.

    Args:
        control: The control, if it was measured.
    """
    assert after.evaluation is not None and before.evaluation is not None
    scores = after.evaluation.per_task, before.evaluation.per_task
    found = paired_difference(*scores, problems=after.evaluation.problems)
    interval = f"95 % interval {100 * found.low:+.1f} to {100 * found.high:+.1f}, n = {found.n}"
    points = f"{100 * found.mean:+.1f} points ({interval})"
    better, worse = _MEANING[before.arm.kind]
    if found.low > 0:
        words = f"{after.title} is better than {before.title} by {points}: {better}."
    elif found.high < 0:
        words = f"{after.title} is worse than {before.title} by {points}: {worse}."
    else:
        words = f"{after.title} against {before.title}: {points}. The interval holds 0: no evidence of a difference."
    way = None
    if before.arm == CEILING and control is not None and control.evaluation is not None:
        start, end = control.evaluation.per_task, before.evaluation.per_task
        way = share_of_way(after.evaluation.per_task, start, end, after.evaluation.problems)
        gone = "no way to go, as far as can be told" if way is None else f"{way.as_percent()} % are gone"
        words += f" Of the way from control to ceiling: {gone}."
    return Difference(after.title, before.title, found, words, way)


#: What it means that a round is better, and that it is worse, than a policy of this kind.
_MEANING = {
    ArmKind.WARM_START: ("a real gain on held-out tasks", "self-training did harm here"),
    ArmKind.CONTROL: (
        "more than the same number of optimiser steps on the demonstrations alone explains",
        "self-training did harm here",
    ),
    ArmKind.CEILING: (
        "more than imitating the expert on the searched tasks comes to",
        "the expert's episodes of the searched tasks teach more in as many steps",
    ),
}
