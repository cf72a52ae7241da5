"""Stores a forest: the trees of one stage.

While a stage runs, each finished tree is one file, named by its task, and each growing tree has a journal. When the stage is over, the
trees are sealed into one Parquet file with a manifest that holds its hash; a sealed forest is read-only.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path
from typing import Any

from agentr.errors import DataError
from agentr.search.stored import from_bytes, to_bytes
from agentr.search.tree import Tree
from agentr.store.files import append_line, read_json, read_lines, write_bytes, write_json
from agentr.store.tables import read_table, write_table

SUFFIX = ".json.zst"


class Forest:
    """The trees of one stage, under ``folder``."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._trees = folder / "trees"
        self._journals = folder / "journal"
        self._failures = folder / "failures.jsonl"

    # while the stage runs ---------------------------------------------------------------------------------------------

    def finished(self) -> set[str]:
        """Returns the keys of the finished trees."""
        if self.sealed:
            return set(self._table["key"])
        return {p.name.removesuffix(SUFFIX) for p in self._trees.glob(f"*{SUFFIX}")} if self._trees.exists() else set()

    def write(self, tree: Tree) -> None:
        """Writes a finished tree in one atomic step, and deletes its journal."""
        write_bytes(self._trees / f"{tree.task.key}{SUFFIX}", to_bytes(tree))
        (self._journals / f"{tree.task.key}.jsonl").unlink(missing_ok=True)

    def log(self, key: str, entry: dict[str, Any]) -> None:
        """Adds an entry to a growing tree's journal."""
        append_line(self._journals / f"{key}.jsonl", entry)

    def journal(self, key: str) -> list[dict[str, Any]]:
        """Reads the journal of a tree that was growing when its process died."""
        return read_lines(self._journals / f"{key}.jsonl")

    def fail(self, key: str, reason: str) -> None:
        """Records a unit that was given up for infrastructure reasons."""
        append_line(self._failures, {"key": key, "reason": reason})

    def failures(self) -> dict[str, str]:
        """Returns the keys of the units given up, with the last reason, without those that were finished later."""
        finished = self.finished()
        return {line["key"]: line["reason"] for line in read_lines(self._failures) if line["key"] not in finished}

    # sealing and reading ----------------------------------------------------------------------------------------------

    @property
    def sealed(self) -> bool:
        return (self.folder / "manifest.json").exists()

    def seal(self, **about: Any) -> dict[str, Any]:
        """Compacts the trees into ``trees.parquet``, writes the manifest and removes the single files.

        Args:
            about: Further entries of the manifest.

        Returns:
            The manifest. Sealing a sealed forest changes nothing.
        """
        import pyarrow as pa

        if self.sealed:
            return self.manifest
        keys = sorted(self.finished())
        blobs = [(self._trees / f"{key}{SUFFIX}").read_bytes() for key in keys]
        for key, blob in zip(keys, blobs, strict=True):
            self._check(key, blob)
        columns = {"key": pa.array(keys, pa.string()), "tree": pa.array(blobs, pa.binary())}
        sha256 = write_table(self.folder / "trees.parquet", columns)
        manifest = {"trees": len(keys), "failed": self.failures(), "sha256": sha256, **about}
        write_json(self.folder / "manifest.json", manifest)
        shutil.rmtree(self._trees, ignore_errors=True)
        shutil.rmtree(self._journals, ignore_errors=True)
        return manifest

    @property
    def manifest(self) -> dict[str, Any]:
        return read_json(self.folder / "manifest.json")

    def __iter__(self) -> Iterator[Tree]:
        """Yields the trees in the order of their keys.

        Raises:
            DataError: A tree is damaged; the error names it.
        """
        for key in sorted(self.finished()):
            yield self.read(key)

    def __len__(self) -> int:
        return len(self.finished())

    def read(self, key: str) -> Tree:
        """Reads one tree.

        Raises:
            DataError: The tree is missing or damaged.
        """
        if self.sealed:
            index = self._index.get(key)
            if index is None:
                raise DataError(f"{self.folder} holds no tree {key!r}")
            return self._check(key, self._table["tree"][index])
        path = self._trees / f"{key}{SUFFIX}"
        if not path.exists():
            raise DataError(f"{self.folder} holds no tree {key!r}")
        return self._check(key, path.read_bytes())

    def _check(self, key: str, blob: bytes) -> Tree:
        try:
            return from_bytes(blob)
        except DataError as error:
            raise DataError(
                f"tree {key!r} in {self.folder} is corrupt: {error.message}",
                hint="Delete its file (or, once sealed, the stage's folder) and run again: it is made anew.",
            ) from error

    @cached_property
    def _table(self) -> dict[str, list[Any]]:
        return read_table(self.folder / "trees.parquet", self.manifest["sha256"], "Delete the stage's folder and run again.")

    @cached_property
    def _index(self) -> dict[str, int]:
        return {key: i for i, key in enumerate(self._table["key"])}
