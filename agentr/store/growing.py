"""Stores trees while they are made: each finished tree is a file, named by its task, and each growing tree has a
journal.

They are in the working folder of the stage, which belongs to one process at a time (``agentr.store.working``)::

    work-000003.0001/finished/bread~40~0.json.zst
    work-000003.0001/journal/bread~41~0.jsonl       what was drawn so far
    work-000003.0001/failures.jsonl                 units that were given up

Several processes may share a stage, of one epoch and each with tasks of its own: one of them, or who started them,
takes the folder over, and the others join. What is no tree's own, such as the failures, each adds to a file of its own
(``failures-1.jsonl``).
"""

from pathlib import Path
from typing import Any

import msgspec

from agentr.errors import DataError
from agentr.search.stored import from_bytes, to_bytes
from agentr.search.tree import Tree
from agentr.store.files import append_bytes, append_line, make_folder, read_lines, remove, whole_lines, write_bytes
from agentr.store.forest import FAILURES, FINISHED, SUFFIX, Forest
from agentr.store.working import ALONE, join, take_over

JOURNAL = "journal"


class GrowingForest(Forest):
    """The trees of a stage, for the process that makes them.

    Args:
        epoch: The process's (``agentr.store.lease``). What earlier ones left is taken over; they cannot write it any
            more.
        part: Which one of several processes of this epoch this is.
        taken: Whether one of them took the stage over already.

    Attributes:
        damaged: Keys of finished trees and of journals that were found damaged: they were set aside, to be grown anew.

    Raises:
        RunError: A later process works on the stage, or the disk cannot be written.
    """

    def __init__(
        self, folder: Path, stage: str = "", epoch: str = ALONE, *, part: int = 0, taken: bool = False
    ) -> None:
        super().__init__(folder, stage)
        self._part = part
        self.damaged: list[str] = []
        if taken:
            self._work = join(folder, epoch)
            self._journals = self._work / JOURNAL
            return
        make_folder(folder)
        self._work = take_over(folder, epoch)
        self._journals = self._work / JOURNAL
        for name in (FINISHED, JOURNAL):
            make_folder(self._work / name)
        self.damaged = [*self._check_trees(), *self._check_journals()]

    @property
    def work(self) -> Path:
        """The folder of what is not sealed, by this process's epoch: it is gone once a later one took it over."""
        return self._work

    def write(self, tree: Tree) -> None:
        """Writes a finished tree in one atomic step, and deletes its journal."""
        write_bytes(self._work / FINISHED / f"{tree.task.key}{SUFFIX}", to_bytes(tree))
        remove(self._journals / f"{tree.task.key}.jsonl")

    def log(self, key: str, entry: dict[str, Any]) -> None:
        """Adds an entry to a growing tree's journal.

        Args:
            entry: Plain data; numbers in it must be finite.
        """
        append_bytes(self._journals / f"{key}.jsonl", msgspec.json.encode(entry, enc_hook=str) + b"\n")

    def journal(self, key: str) -> list[dict[str, Any]]:
        """Reads the journal of a tree that was growing when its process died."""
        return read_lines(self._journals / f"{key}.jsonl")

    def fail(self, key: str, reason: str) -> None:
        """Records a unit that was given up for infrastructure reasons."""
        append_line(self.own(FAILURES), {"key": key, "reason": reason})

    def own(self, name: str) -> Path:
        """Returns the file to which this process adds what is in the files of a name (`Forest.lines`)."""
        path = self._work / name
        return path.with_stem(f"{path.stem}-{self._part}") if self._part else path

    # ------------------------------------------------------------------------------------------------------------------

    def _check_trees(self) -> list[str]:
        found = []
        for path in sorted((self._work / FINISHED).glob(f"*{SUFFIX}")):
            try:
                from_bytes(path.read_bytes())
            except DataError:
                found.append(path.name.removesuffix(SUFFIX))
                self._set_aside(path)
        return found

    def _check_journals(self) -> list[str]:
        """Writes each journal anew: whoever wrote it may have it open for one more line, which then goes nowhere."""
        found = []
        for path in sorted(self._journals.glob("*.jsonl")):
            write_bytes(path, whole_lines(path.read_bytes()))
            try:
                read_lines(path)
            except DataError:
                found.append(path.stem)
                self._set_aside(path)
        return found

    def _set_aside(self, path: Path) -> None:
        make_folder(self.folder / "damaged")
        write_bytes(self.folder / "damaged" / path.name, path.read_bytes())
        remove(path)
