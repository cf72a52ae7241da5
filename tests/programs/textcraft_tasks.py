"""Writes TextCraft's tasks as files for programs: ``python -m tests.programs.textcraft_tasks FOLDER``."""

import json
import sys
from pathlib import Path

from env_servers.textcraft import TextCraft
from tests.players import OPTIONS


def write(folder: Path) -> dict[str, str]:
    """Writes a file for each of the splits train and test, and returns their paths: each task with its labels and the
    expert's demonstration."""
    game, files = TextCraft(**OPTIONS), {}
    for split in ("train", "test"):
        files[split] = str(folder / f"{split}.jsonl")
        with (folder / f"{split}.jsonl").open("w", encoding="utf-8") as file:
            for task in game.split(split):
                turns = [[step.thought, step.action] for step in game.expert(task.id) or ()]
                file.write(json.dumps({"id": task.id, "labels": task.labels, "demonstration": turns}) + "\n")
    return files


if __name__ == "__main__":
    print(write(Path(sys.argv[1])))
