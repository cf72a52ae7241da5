"""A place for rows while a dataset is put together: on disk, so that only what their order is decided by is in
memory."""

from __future__ import annotations

import pickle
import tempfile
from pathlib import Path
from typing import IO, Any, NamedTuple

from agentr.store.files import disk_errors
from agentr.store.rows import Preference, Row


class Kept(NamedTuple):
    """A row in a spool.

    Attributes:
        place: Where it is.
        tree: Key of its tree.
        kind: Kind of its provenance.
    """

    place: int
    tree: str
    kind: str


class Spool:
    """Rows on disk, read back in any order. They are gone when the spool is closed or its process ends.

    Args:
        folder: On whose disk.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        with disk_errors(folder):
            self._file: IO[bytes] = tempfile.TemporaryFile(dir=folder)  # noqa: SIM115  (closed with the spool; it has no name)

    def __enter__(self) -> Spool:
        return self

    def __exit__(self, *error: Any) -> None:
        self._file.close()

    def keep(self, row: Row | Preference) -> Kept:
        """Adds a row."""
        with disk_errors(self._folder):
            place = self._file.seek(0, 2)
            pickle.dump(row, self._file, pickle.HIGHEST_PROTOCOL)
        return Kept(place, row.provenance.tree, row.provenance.kind)

    def read(self, kept: Kept) -> Row | Preference:
        """Reads a row back."""
        self._file.seek(kept.place)
        return pickle.load(self._file)
