"""The tasks of a program, from a file of the user's."""

from pathlib import Path
from typing import Any

from env_servers.records import read_records


def read_tasks(split: str, file: Path) -> list[dict[str, Any]]:
    """The tasks of a file.

    Raises:
        ValueError: It cannot be read, or an entry is no task.
    """
    tasks: dict[str, dict[str, Any]] = {}
    for where, record in read_records(file):
        task_id = record.get("id") if isinstance(record, dict) else None
        if not isinstance(task_id, str | int) or isinstance(task_id, bool) or not str(task_id):
            raise ValueError(f"{where}: a task is an object with an id, a text or a number")
        labels, turns = record.get("labels") or {}, record.get("demonstration")
        if not isinstance(labels, dict) or not all(isinstance(v, str | int | float) for v in labels.values()):
            raise ValueError(f"{where}: labels are texts and numbers by name")
        if turns is not None and not (isinstance(turns, list) and all(map(_is_turn, turns))):
            raise ValueError(f"{where}: a demonstration is a list of texts, or of pairs of texts")
        if str(task_id) in tasks:
            raise ValueError(f"{where}: another task of {split} has the id {task_id!r}")
        tasks[str(task_id)] = {**record, "id": str(task_id), "labels": labels}
    if not tasks:
        raise ValueError(f"{file} holds no task")
    return list(tasks.values())


def _is_turn(turn: Any) -> bool:
    pair = isinstance(turn, list) and len(turn) == 2 and all(isinstance(part, str) for part in turn)
    return isinstance(turn, str) or pair
