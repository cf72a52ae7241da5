"""What a run came to, read from its directory alone: the numbers behind the table, the plots and the words."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any

from agentr.errors import DataError
from agentr.evaluate.metrics import Evaluation
from agentr.evaluate.statistics import Estimate, paired_difference
from agentr.store.files import read_json, read_lines
from agentr.store.run import RunStore

#: Stages of a round in the order they run, as the plot of seconds shows them.
STAGES = ("demonstrations", "collect", "steps", "revise", "dataset", "train", "eval", "recovery")


@dataclass(frozen=True)
class Arm:
    """One policy of the run: the warm start, a round, or a control.

    Attributes:
        recovery: Success from the beginnings of the warm start's failed episodes, if that was measured.
        prompt_tokens: Prompt tokens of search and revision, each request's prompt once.
        seconds: By stage.
        training: What the trainer said of its last step: steps, loss, and of preferences the margin, accuracy and rewards.
        curve: Its logged steps, as ``metrics.jsonl`` has them.
    """

    name: str
    title: str
    evaluation: Evaluation | None
    trees: int
    solved: int
    rows: int
    calls: int
    completion_tokens: int
    prompt_tokens: int
    cached_tokens: int
    seconds: dict[str, float]
    recovery: Estimate | None = None
    training: dict[str, Any] = field(default_factory=dict)
    curve: list[dict[str, Any]] = field(default_factory=list, repr=False)

    @property
    def cached_share(self) -> float:
        return self.cached_tokens / self.prompt_tokens if self.prompt_tokens else 0.0


@dataclass(frozen=True)
class Comparison:
    """A paired difference of held-out success between two arms, and what it means."""

    after: str
    before: str
    difference: Estimate
    words: str


@dataclass(frozen=True)
class Summary:
    """A whole run."""

    name: str
    about: dict[str, Any]
    arms: list[Arm]
    comparisons: list[Comparison]
    splices: dict[str, int]
    seconds: float
    complete: bool

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


def summarise(store: RunStore) -> Summary:
    """Reads a run, finished or not.

    Raises:
        DataError: The directory holds no run.
    """
    config = store.stored_config()
    records = {r.name: r for r in store.records()}
    if not records:
        raise DataError(f"{store.root} has no stage yet", hint="Start it with 'agentr run CONFIG'.")
    names = sorted({name.rpartition("/")[0] for name in records if "/" in name}, key=lambda n: (n == "control", n))
    arms = [_arm(store, name, records) for name in names]
    planned = config["run"]["rounds"] + 1 + bool(config["run"]["control"] and config["run"]["rounds"])
    splices: dict[str, int] = {}
    for name in names:
        for key, value in (_summary(records, f"{name}/dataset").get("splices") or {}).items():
            splices[key] = splices.get(key, 0) + value
    return Summary(
        name=config["run"]["name"],
        about={
            "recipe": config["run"]["recipe"],
            "preset": config["run"]["preset"],
            "seed": config["run"]["seed"],
            "model": config["model"]["path"] or config["model"]["source"],
            "environment": config["env"]["name"],
            "options": config["env"]["options"],
            "held-out split": config["eval"]["tasks"]["split"] + (" (leaks allowed)" if config["env"].get("allow_leaks") else ""),
            "splice": config["revise"]["splice"],
            "judge": config["revise"]["judge"],
        },
        arms=arms,
        comparisons=_comparisons(arms, config["eval"]["bootstrap"]),
        splices=splices,
        seconds=sum(r.seconds for r in records.values()),
        complete=sum(a.evaluation is not None for a in arms) == planned,
    )


def _arm(store: RunStore, name: str, records: dict[str, Any]) -> Arm:
    title = {"rounds/00": "warm start", "control": "control"}.get(name) or f"round {int(name.rpartition('/')[2])}"
    searched = [_summary(records, f"{name}/{stage}") for stage in ("collect", "revise")]
    steps = _summary(records, f"{name}/steps")
    path = store.root / name / "eval" / "evaluation.json"
    done = f"{name}/eval" in records and records[f"{name}/eval"].state == "sealed"

    def total(key: str) -> int:
        # A revised tree carries the counts of its search, so the later stage includes the earlier one.
        return max(int(s.get(key, 0)) for s in searched) + int(steps.get(key, 0))

    return Arm(
        name=name,
        title=title,
        evaluation=Evaluation.from_dict(read_json(path)) if done else None,
        trees=int((searched[0] or steps).get("trees", 0)),
        solved=int((searched[0] or steps).get("solved", 0)),
        rows=int(_summary(records, f"{name}/dataset").get("rows", 0)),
        calls=total("calls") + total("judge_calls"),
        completion_tokens=total("completion_tokens"),
        prompt_tokens=total("prompt_tokens"),
        cached_tokens=total("cached_tokens"),
        recovery=_recovery(store, name, records),
        training=_summary(records, f"{name}/train"),
        curve=read_lines(store.root / name / "train" / "metrics.jsonl"),
        seconds={s: records[f"{name}/{s}"].seconds for s in STAGES if f"{name}/{s}" in records},
    )


def _recovery(store: RunStore, name: str, records: dict[str, Any]) -> Estimate | None:
    record = records.get(f"{name}/recovery")
    if record is None or record.state != "sealed":
        return None
    return Evaluation.from_dict(read_json(store.root / name / "recovery" / "evaluation.json")).success


def _summary(records: dict[str, Any], stage: str) -> dict[str, Any]:
    return records[stage].summary if stage in records else {}


def _comparisons(arms: list[Arm], resamples: int) -> list[Comparison]:
    evaluated = [a for a in arms if a.evaluation is not None]
    rounds = [a for a in evaluated if a.title.startswith("round")]
    if not rounds:
        return []
    return [_compare(rounds[-1], other, resamples) for other in evaluated if other.title in ("warm start", "control")]


def _compare(after: Arm, before: Arm, resamples: int) -> Comparison:
    assert after.evaluation is not None and before.evaluation is not None
    scores = after.evaluation.per_task, before.evaluation.per_task
    difference = paired_difference(*scores, resamples, problems=after.evaluation.problems)
    interval = f"95 % interval {100 * difference.low:+.1f} to {100 * difference.high:+.1f}, n = {difference.n}"
    points = f"{100 * difference.mean:+.1f} points ({interval})"
    control = before.title == "control"
    if difference.low > 0:
        meaning = "more than the same number of steps on the demonstrations alone explains" if control else "a real gain on held-out tasks"
        words = f"{after.title} is better than {before.title} by {points}: {meaning}."
    elif difference.high < 0:
        words = f"{after.title} is worse than {before.title} by {points}: self-training did harm here."
    else:
        words = f"{after.title} against {before.title}: {points}. The interval holds 0: no evidence of a difference."
    return Comparison(after.title, before.title, difference, words)
