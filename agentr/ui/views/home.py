"""The first page: all runs and comparisons below the folders, from their manifests and metrics alone."""

from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from agentr import __version__
from agentr.evaluate.statistics import Estimate
from agentr.observe.comparison import read_plan
from agentr.observe.problems import PageProblem, read_or
from agentr.observe.troubles import describe, troubles
from agentr.read.run import Run
from agentr.read.stage import Stage, paid_once
from agentr.types import Cost
from agentr.ui.library import Library


def home(library: Library) -> dict[str, Any]:
    """Returns all runs and comparisons; one that cannot be read says why, and the others are shown."""
    library.look()
    return {
        "folders": [str(folder) for folder in library.folders],
        "version": __version__,
        "problems": library.problems,
        "runs": [card(name, path) for name, path in library.runs().items()],
        "comparisons": [comparison_card(name, path) for name, path in library.comparisons().items()],
    }


def card(name: str, path: Path) -> dict[str, Any]:
    """Returns the summary of a run in a line."""
    empty: dict[str, Any] = {
        "id": name,
        "name": path.name,
        "path": str(path),
        "state": "unreadable",
        "problem": "",
        "method": "",
    }
    empty |= {
        "environment": "",
        "model": "",
        "seed": 0,
        "rounds": {"done": 0, "planned": 0},
        "before": None,
        "after": None,
        "afterTitle": "",
    }
    empty |= {"seconds": 0.0, "completions": 0, "tokens": 0, "started": ""}
    problems: list[PageProblem] = []
    found = read_or({}, lambda: _card(Run(path).at_once(), problems), problems, "")
    return empty | found | ({"problem": problems[0]["message"]} if problems else {})


def events_of(run: Run, problems: list[PageProblem]) -> list[dict[str, Any]]:
    """Returns the log of a run, or nothing and a problem."""
    return read_or(
        [],
        lambda: [event for event in run.events() if "event" in event and "time" in event],
        problems,
        "its log of events",
    )


def _card(run: Run, problems: list[PageProblem]) -> dict[str, Any]:
    config, stages = run.config, run.stages()
    events = events_of(run, problems)
    evaluated = [(arm, stage) for arm in run.arms if (stage := arm.measured) is not None]
    rounds = [(arm, stage) for arm, stage in evaluated if not arm.arm.reference]
    last = rounds[-1] if len(rounds) > 1 else None
    cost = sum((stage.summary.cost for stage in paid_once(stages.values())), Cost())
    wrong = [line for trouble in troubles(events) for line in describe(trouble)]
    owner = run.owner
    if run.complete:
        state, wrong = "finished", []
    elif owner:
        state = "running"
    else:
        state = "stopped" if any(stage.sealed for stage in stages.values()) else "begun"
    return {
        "name": run.name,
        "state": state,
        "problem": wrong[0] if wrong else "",
        "method": config["method"]["type"],
        "environment": config["env"]["name"],
        "model": str(config["model"]["path"] or config["model"]["source"]),
        "seed": config["run"]["seed"],
        "rounds": {
            "done": max((arm.number for arm, _ in rounds), default=0),
            "planned": 0 if run.imported else config["run"]["rounds"],
        },
        "before": success(rounds[0][1]) if rounds else None,
        "after": success(last[1]) if last else None,
        "afterTitle": last[0].title if last else "",
        "seconds": sum(stage.seconds for stage in stages.values()),
        "completions": cost.completions,
        "tokens": cost.completion_tokens,
        "started": datetime.fromtimestamp(events[0]["time"], UTC).isoformat(timespec="seconds") if events else "",
    }


def success(stage: Stage) -> dict[str, Any]:
    """Returns held-out success from the summary of a stage of episodes."""
    found = stage.summary
    return asdict(Estimate(found.success, found.success_low, found.success_high, found.tasks))


def comparison_card(name: str, path: Path) -> dict[str, Any]:
    """Returns the summary of a comparison in a line."""
    empty = {
        "id": name,
        "name": path.name,
        "path": str(path),
        "methods": [],
        "seeds": [],
        "done": 0,
        "runs": 0,
        "problem": "",
    }
    problems: list[PageProblem] = []
    lines = read_plan(path, problems)
    states = [read_or("", lambda line=line: line.state, problems, f"{line.title},") for line in lines]
    return empty | {
        "methods": list(dict.fromkeys(line.label for line in lines)),
        "seeds": sorted({line.seed for line in lines}),
        "done": sum(state == "done" for state in states),
        "runs": len(lines),
        "problem": problems[0]["message"] if problems else "",
    }
