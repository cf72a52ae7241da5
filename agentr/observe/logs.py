"""Reads the structured logs of a run (``agentr.logs``): those of all its processes, in the order of time."""

import logging
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from agentr.errors import ConfigError, DataError
from agentr.outside import parse_json, read_file, typed
from agentr.store.inside import check_folder
from agentr.store.layout import Layout, title_of


@dataclass
class _Line:
    """What a line must have, and texts that it may have."""

    time: str
    level: str
    message: str
    stage: str = ""
    task: str = ""


def read_logs(root: Path, *, stage: str = "", task: str = "", level: str = "") -> list[dict[str, Any]]:
    """Returns the lines of a run's logs, oldest first. What is no whole line is left out.

    Args:
        stage: Only lines about stages with this in their name: ``collect``, ``rounds/01``, ``round 1``.
        task: Only lines about tasks with this in their key.
        level: Only lines of this level or above.

    Raises:
        ConfigError: There is no such folder or level.
    """
    if not root.is_dir():
        raise ConfigError(f"there is no run directory {root} here", hint="Name one, such as runs/demo.")
    check_folder(root)
    levels = {name.lower(): number for name, number in logging.getLevelNamesMapping().items()}
    if level and level.lower() not in levels:
        raise ConfigError(f"there is no level {level!r}", hint="There are debug, info, warning, error, critical.")
    least = levels[level.lower()] if level else 0
    found = [
        line
        for path in sorted(Layout(root).logs.glob("*.jsonl"))
        for line in _lines(path)
        if _about(line.get("stage", ""), stage)
        and task in line.get("task", "")
        and levels.get(line["level"], least) >= least
    ]
    return sorted(found, key=lambda line: line["time"])


def _about(name: str, wanted: str) -> bool:
    return wanted in name or wanted in title_of(name)


def shown(line: dict[str, Any]) -> str:
    """Returns a line for people: when, how bad, who, about what, what."""
    time = datetime.fromisoformat(line["time"]).astimezone().strftime("%Y-%m-%d %H:%M:%S")
    about = " ".join(
        [*([title_of(line["stage"])] if "stage" in line else []), *([line["task"]] if "task" in line else [])]
    )
    text = f"{time} {line['level']:<7} {line.get('role', '')}{f' [{about}]' if about else ''} {line['message']}"
    return text + (f"\n{line['exception']}" if "exception" in line else "")


def _lines(path: Path) -> Iterator[dict[str, Any]]:
    for text in read_file(path).decode("utf-8", "replace").splitlines():
        with suppress(ValueError, DataError):
            line = typed(dict[str, Any], parse_json(text), "a line")
            typed(_Line, line, "a line")
            datetime.fromisoformat(line["time"])
            yield line
