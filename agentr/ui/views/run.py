"""The page of one run: the claim, its policies, stages and where the time went, its logs and configuration."""

import shlex
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import yaml

from agentr.errors import DataError
from agentr.observe.heldout import first_and_last
from agentr.observe.prediction import predicted
from agentr.observe.problems import PageProblem, read_or
from agentr.observe.progress import read_now
from agentr.observe.status import describe_now, describe_stage
from agentr.observe.summary import ArmSummary, summarise
from agentr.observe.tables import tables
from agentr.observe.troubles import describe, troubles
from agentr.read.run import Run, RunRound
from agentr.read.stage import Dataset, Episodes, Rollouts, Stage, Training, Trees, summary_of
from agentr.store.layout import DATASET, TRAIN
from agentr.store.summaries import DatasetSummary
from agentr.ui.views.home import card, events_of

_KINDS: tuple[tuple[type[Stage], str], ...] = (
    (Rollouts, "rollouts"),
    (Episodes, "episodes"),
    (Trees, "trees"),
    (Dataset, "dataset"),
    (Training, "training"),
)

#: Kinds of rows that matter most to a method, in order.
_TELLING = ("revision", "trajectory", "step", "sibling")

_WAITS = (("policy", "policy_s"), ("environment", "env_s"))


def run_page(name: str, run: Run) -> dict[str, Any]:
    """Returns the page of a run. What cannot be read is named in ``problems``; the rest is there."""
    problems: list[PageProblem] = []
    events = events_of(run, problems)
    start = events[0]["time"] if events else None
    page: dict[str, Any] = {
        "card": card(name, run.path),
        "claims": [],
        "selection": "",
        "about": {},
        "arms": [],
        "tables": [],
        "examples": [],
        "splices": {},
        "troubles": read_or(
            [], lambda: [line for trouble in troubles(events) for line in describe(trouble)], problems, "its troubles"
        ),
        "config": yaml.safe_dump(run.config, sort_keys=False, allow_unicode=True),
        "command": _command(run, events),
        "logs": read_or(
            [],
            lambda: [{"name": name, "size": path.stat().st_size} for name, path in _logs(run).items()],
            problems,
            "its logs",
        ),
        "problems": problems,
    }
    times = _times(events)
    summary = read_or(None, lambda: summarise(run), problems, "the results")
    by_arm = {found.arm: found for found in summary.arms} if summary else {}
    page["arms"] = [_arm(arm, by_arm.get(arm.arm), times, start, problems) for arm in run.arms]
    if summary is None:
        return page
    page["claims"] = [asdict(found) for found in summary.comparisons]
    page["selection"] = summary.selection
    page["about"] = {key: str(value) for key, value in summary.about.items() if value not in ("", None, {}, [])}
    page["tables"] = [asdict(table) for table in tables(summary)]
    page["splices"] = summary.splices
    page["examples"] = read_or([], lambda: examples(run), problems, "examples of its episodes and rows")
    return page


def examples(run: Run) -> list[dict[str, Any]]:
    """Returns what to look at first: the held-out tasks that gained and that lost the most between the first and the
    last policy, and a row of the last dataset, of the kind that says most about the method."""
    found: list[dict[str, Any]] = []
    if len(measured := first_and_last(run)) > 1:
        (_, one), (_, two) = measured
        before, after = one.evaluation.per_task, two.evaluation.per_task
        for title, sign in (("a held-out task that was won", 1), ("a held-out task that was lost", -1)):
            changes = {key: sign * (after[key] - before[key]) for key in sorted(before.keys() & after.keys())}
            if changes and max(changes.values()) > 0:
                query = {"task": max(changes, key=lambda key: changes[key]), "a": one.name, "b": two.name}
                found.append({"title": title, "page": "episodes", "query": query})
    for dataset in _datasets(run):
        kinds = [made.kind for made in dataset.rows.origins()]
        if kinds:
            kind = next((kind for kind in _TELLING if kind in kinds), kinds[0])
            query = {"stage": dataset.name, "index": str(kinds.index(kind))}
            return [*found, {"title": f"a row that was trained on: {kind}", "page": "row", "query": query}]
    return found


def _datasets(run: Run) -> Iterator[Dataset]:
    """Yields what was trained on, the last first: datasets, and those of the steps of online training."""
    for arm in reversed(run.rounds):
        for stage in arm.stages().values():
            if isinstance(stage, Rollouts):
                yield from (step.dataset for _, step in sorted(stage.steps.items(), reverse=True))
            elif isinstance(stage, Dataset) and stage.sealed:
                yield stage


def state(run: Run) -> dict[str, Any]:
    """Returns a stamp that changes when anything of the run did, and whether a process works on it."""
    places = [run.layout.manifest, run.layout.events, run.layout.now]
    stamp = "-".join(str(path.stat().st_mtime_ns) for path in places if path.exists())
    live = bool(run.owner)
    return {
        "stamp": stamp,
        "live": live,
        "now": describe_now(now) if live and (now := read_now(run.layout.now)) else "",
    }


def log(run: Run, name: str, end: int = -1, size: int = 64_000) -> dict[str, Any]:
    """Returns the end of a log of the run, or the part before ``end``.

    Raises:
        DataError: There is no such log.
    """
    logs = _logs(run)
    if name not in logs:
        raise DataError(f"the run has no log {name!r}", hint=f"It has {', '.join(sorted(logs)) or 'none'}.")
    total = logs[name].stat().st_size
    end = total if end < 0 else min(end, total)
    begin = max(0, end - size)
    with logs[name].open("rb") as file:
        file.seek(begin)
        text = file.read(end - begin).decode("utf-8", "replace")
    return {"name": name, "size": total, "from": begin, "text": text}


def _logs(run: Run) -> dict[str, Path]:
    return {path.name: path for path in sorted(run.layout.logs.glob("*.log")) if path.is_file()}


def _arm(
    arm: RunRound,
    found: ArmSummary | None,
    times: dict[str, tuple[float, float | None]],
    start: float | None,
    problems: list[PageProblem],
) -> dict[str, Any]:
    stages = arm.stages()
    dataset = read_or(
        DatasetSummary(), lambda: summary_of(stages.get(DATASET), DatasetSummary), problems, f"the rows of {arm.title}"
    )
    evaluation = found.evaluation if found else None
    trained = stages.get(TRAIN)
    expected = read_or({}, lambda: predicted(arm.run), problems, "what was predicted")
    return {
        "title": arm.title,
        "folder": arm.arm.folder,
        "policy": trained.name if trained is not None and trained.sealed else "",
        "success": asdict(evaluation.success) if evaluation else None,
        "trees": found.trees if found else 0,
        "solved": found.solved if found else 0,
        "rows": dataset.rows,
        "kinds": dataset.kinds,
        "calls": found.calls if found else 0,
        "tokens": found.cost.completion_tokens if found else 0,
        "cached": found.cached_share if found else 0.0,
        "seconds": sum(stage.seconds for stage in stages.values()),
        "stages": [
            {
                **_stage(arm.run, step, stage, times.get(stage.name), start, problems),
                "predicted": list(expected.get(stage.name, ())),
            }
            for step, stage in stages.items()
        ],
        "curve": [{key: value for key, value in line.items() if isinstance(value, int | float)} for line in found.curve]
        if found
        else [],
    }


def _stage(
    run: Run,
    step: str,
    stage: Stage,
    times: tuple[float, float | None] | None,
    start: float | None,
    problems: list[PageProblem],
) -> dict[str, Any]:
    began, ended = times or (None, None)
    size, waited = read_or((None, {}), lambda: _told(run, stage), problems, stage.name)
    return {
        "name": stage.name,
        "step": step,
        "kind": next((kind for known, kind in _KINDS if isinstance(stage, known)), "other"),
        "state": "sealed"
        if stage.sealed
        else "running"
        if stage.record.state == "running" and ended is None
        else "stopped",
        "started": began - start if began is not None and start is not None else None,
        "ended": ended - start if ended is not None and start is not None else None,
        "seconds": stage.seconds,
        "waited": waited,
        "about": read_or(
            "", lambda: describe_stage(stage.record, run.records()), problems, f"what {stage.name} came to"
        ),
        "size": size,
    }


def _told(run: Run, stage: Stage) -> tuple[int | None, dict[str, float]]:
    """Returns how many trees or rows a stage has, and what it waited for in seconds, summed over all that waited at a
    time.

    What was waited for while the trees grew that it has of another stage is that stage's.
    """
    if isinstance(stage, Trees):
        waited = _waited(stage)
        source = run.stages().get(stage.summary.includes or "")
        before = _waited(source) if isinstance(source, Trees) else {}
        return len(stage), {name: max(0.0, seconds - before.get(name, 0.0)) for name, seconds in waited.items()}
    if isinstance(stage, Dataset) and stage.sealed:
        return stage.summary.rows, {}
    return None, {}


def _waited(stage: Trees) -> dict[str, float]:
    table = stage.table(["policy_s", "env_s"]) if stage.sealed and len(stage) else None
    return {} if table is None else {name: sum(table[column].to_pylist()) for name, column in _WAITS}


def _times(events: list[dict[str, Any]]) -> dict[str, tuple[float, float | None]]:
    """Returns when each stage was first started, and when it was sealed or last stopped."""
    times: dict[str, tuple[float, float | None]] = {}
    for event in events:
        stage = event.get("stage", "")
        match event["event"]:
            case "stage_started":
                times[stage] = (times.get(stage, (event["time"], None))[0], None)
            case "stage_sealed" | "stage_stopped" if stage in times:
                times[stage] = (times[stage][0], event["time"])
    return times


def _command(run: Run, events: list[dict[str, Any]]) -> str:
    command = next(
        (event["command"] for event in events if event.get("event") == "opened" and event.get("command")), ""
    )
    return command or f"agentr run {shlex.quote(str(run.layout.config))}"
