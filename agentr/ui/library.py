"""Finds the runs and comparisons below folders, and gives each an id that does not change while the folders are the
same."""

import os
from collections.abc import Iterator, Sequence
from pathlib import Path

from agentr.errors import DataError
from agentr.observe.comparison import PLAN
from agentr.observe.problems import PageProblem, read_or
from agentr.read.run import Run
from agentr.store.layout import MODEL, Layout

#: How far below a folder runs are looked for.
DEPTH = 5


class Library:
    """The runs and comparisons below folders.
    Only what was found can be opened: an id is looked up, never used as a path.

    Args:
        folders: Run directories, comparisons, or folders above them.

    Raises:
        DataError: One of the folders is none.
    """

    def __init__(self, folders: Sequence[Path]) -> None:
        for folder in folders:
            if not folder.is_dir():
                raise DataError(
                    f"{folder} is no folder",
                    hint="Give a run directory, such as runs/demo, or a folder with runs below it.",
                )
        self.folders = [folder.resolve() for folder in folders]
        self._runs: dict[str, Path] = {}
        self._comparisons: dict[str, Path] = {}
        #: Folders that could not be looked into.
        self.problems: list[PageProblem] = []
        self.look()

    def look(self) -> None:
        """Looks for runs again."""
        runs: dict[str, Path] = {}
        comparisons: dict[str, Path] = {}
        problems: list[PageProblem] = []
        for folder in self.folders:
            for path, kind in _below(folder, DEPTH, problems):
                found = runs if kind == "run" else comparisons
                name = path.name if path == folder else path.relative_to(folder).as_posix()
                found[self._free(name, path, found)] = path
        self._runs, self._comparisons, self.problems = runs, comparisons, problems

    def runs(self) -> dict[str, Path]:
        """Returns the run directories by their ids, in order."""
        return dict(sorted(self._runs.items()))

    def comparisons(self) -> dict[str, Path]:
        """Returns the folders of comparisons by their ids, in order."""
        return dict(sorted(self._comparisons.items()))

    def run(self, name: str) -> Run:
        """Opens a run by its id.

        Raises:
            DataError: There is none of this id, or it cannot be read.
        """
        return Run(self._find(self._runs, name, "run")).at_once()

    def comparison(self, name: str) -> Path:
        """Returns the folder of a comparison.

        Raises:
            DataError: There is none of this id.
        """
        return self._find(self._comparisons, name, "comparison")

    def id_of(self, path: Path) -> str:
        """Returns the id of a run directory; empty if it is not below the folders."""
        return next((name for name, found in self._runs.items() if found == path.resolve()), "")

    def _find(self, among: dict[str, Path], name: str, what: str) -> Path:
        if name not in among:
            self.look()
            among = self._runs if what == "run" else self._comparisons
        if name not in among:
            raise DataError(
                f"there is no {what} {name!r} below {', '.join(map(str, self.folders))}",
                hint="It may have been moved or deleted.",
            )
        return among[name]

    @staticmethod
    def _free(name: str, path: Path, taken: dict[str, Path]) -> str:
        """An id that no other path has: folders may hold runs of one name."""
        number, free = 2, name
        while taken.get(free, path) != path:
            free, number = f"{name} ({number})", number + 1
        return free


def is_run(path: Path) -> bool:
    # Stages have a manifest, too: without a configuration a run is known by its stages' folders.
    return Layout(path).config.is_file() or (Layout(path).manifest.is_file() and (path / MODEL).is_dir())


def _below(folder: Path, depth: int, problems: list[PageProblem]) -> Iterator[tuple[Path, str]]:
    """Runs and comparisons in a folder, itself included.
    Nothing is looked for in a run; the runs of a comparison are runs, too."""
    kind, below = read_or(("", []), lambda: _look_at(folder), problems, "")
    if kind:
        yield folder, kind
    if kind == "run" or depth == 0:
        return
    for path in below:
        yield from _below(path, depth - 1, problems)


def _look_at(folder: Path) -> tuple[str, list[Path]]:
    """Returns what a folder is, and the folders in it."""
    if is_run(folder):
        return "run", []
    entries = sorted(os.scandir(folder), key=lambda entry: entry.name)
    below = [
        Path(entry.path) for entry in entries if entry.is_dir(follow_symlinks=False) and not entry.name.startswith(".")
    ]
    return "comparison" if (folder / PLAN).is_file() else "", below
