"""ALFWorld's game files: where they are, which of them count, and their ids."""

import json
import os
import re
from functools import cached_property
from pathlib import Path

from env_servers.base import TaskInfo

DOWNLOAD = "pip install alfworld==0.4.2, then: alfworld-download --data-dir FOLDER, and name FOLDER in ALFWORLD_DATA"
#: Our splits by ALFWorld's folders.
FOLDERS = {"train": "train", "dev": "valid_seen", "test": "valid_unseen"}
#: AgentGym's splits, and ALFWorld's folders that its games are in.
AGENTGYM_FOLDERS = {"agentgym_train": "train", "agentgym_test": "valid_train"}
_UNSUPPORTED = re.compile("movable|Sliced")


def default_data() -> Path:
    """The folder in which ALFWorld itself looks for its data."""
    return Path(os.environ.get("ALFWORLD_DATA") or "~/.cache/alfworld").expanduser()


def games_folder(data: Path) -> Path:
    """The folder with the splits: ``data`` or ``data/json_2.1.1``."""
    return data if any((data / folder).is_dir() for folder in FOLDERS.values()) else data / "json_2.1.1"


class Games:
    """The games under a folder. Ids are their paths, ``valid_unseen/pick_cool_..-Apple-None-Microwave-10/trial_..``.

    Args:
        mappings: AgentGym's ``mappings_train.json`` and ``mappings_test.json`` lie in this folder; adds its ids,
            ``agentgym/N``.

    Raises:
        RuntimeError: There are no games; says how to get them.
        ValueError: There are no such mappings.
    """

    def __init__(self, data: Path, mappings: Path | None = None) -> None:
        self.folder = games_folder(data)
        if not any((self.folder / folder).is_dir() for folder in FOLDERS.values()):
            raise RuntimeError(f"ALFWorld's games are not in {self.folder}. To get them: {DOWNLOAD}")
        self._mappings = mappings
        self._agentgym: dict[str, dict[str, str]] = {} if mappings is None else _read_mappings(mappings)

    @property
    def splits(self) -> list[str]:
        return [*FOLDERS, *self._agentgym]

    def split(self, name: str) -> list[TaskInfo]:
        """The tasks of a split."""
        if name in FOLDERS:
            return self._official[name]
        return [TaskInfo(task, labels(path)) for task, path in self._agentgym[name].items()]

    def file(self, task_id: str) -> Path | None:
        """The game of an id; None if there is none."""
        paths = {task: path for mapping in self._agentgym.values() for task, path in mapping.items()}
        path = paths.get(task_id, task_id)
        folders = "|".join({*FOLDERS.values(), *AGENTGYM_FOLDERS.values()})
        if not re.fullmatch(rf"({folders})/[\w-]+/[\w-]+", path):
            return None
        file = self.folder / path / "game.tw-pddl"
        return file if file.is_file() else None

    @cached_property
    def _official(self) -> dict[str, list[TaskInfo]]:
        """ALFWorld's own rules: no movable receptacles, nothing sliced, and marked as solvable.
        3,553, 140 and 134 games."""
        return {
            name: [
                TaskInfo(task, labels(task))
                for file in sorted((self.folder / folder).glob("*/*/game.tw-pddl"))
                if not _UNSUPPORTED.search(task := file.parent.relative_to(self.folder).as_posix())
                and json.loads(file.read_text(encoding="utf-8")).get("solvable")
            ]
            for name, folder in FOLDERS.items()
        }


def labels(path: str) -> dict[str, int | float | str]:
    """Reads a game's labels from its path. ``game`` identifies the game, whichever folder it lies in."""
    _, name, trial = path.split("/")
    type_, kind, _, _, scene = (name.split("-") + [""] * 5)[:5]
    return {"type": type_, "object": kind.lower(), "scene": scene, "game": f"{name}/{trial}"}


def _read_mappings(folder: Path) -> dict[str, dict[str, str]]:
    found: dict[str, dict[str, str]] = {}
    for split, games in AGENTGYM_FOLDERS.items():
        file = folder / f"mappings_{split.removeprefix('agentgym_')}.json"
        try:
            rows = json.loads(file.read_text(encoding="utf-8"))
            found[split] = {
                f"agentgym/{row['item_id']}": f"{games}/{row['task_type']}/{row['task_id']}" for row in rows
            }
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise ValueError(f"{file} is not AgentGym's mapping of ids to games: {error!r}") from error
    return found
