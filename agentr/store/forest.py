"""Stores a forest: the trees of one stage.

While a stage runs, each finished tree is a file (``agentr.store.growing``). When the stage is over, the trees are
sealed: sorted by key into Parquet files of small row groups (``trees/``), with a table beside them that says in a row
the summary of a tree (``summary.parquet``), so that listing and sorting needs no tree. Neither sealing nor
reading holds more than a few trees.
"""

from __future__ import annotations

import difflib
import json
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from blake3 import blake3

from agentr.errors import DataError
from agentr.outside import typed
from agentr.search.stored import from_bytes, split_bytes
from agentr.search.tree import Tree
from agentr.store.files import make_folder, read_lines, remove, write_lines
from agentr.store.inside import check_names
from agentr.store.seal import FORMAT, check_format, read_checked, write_checked
from agentr.store.tables import TableWriter, damaged, open_table, read_group, read_table, schema
from agentr.store.tree_table import COLUMNS, summary_row
from agentr.store.working import ALONE, PREFIX, working
from agentr.types import Task

if TYPE_CHECKING:
    import pyarrow as pa

#: In the working folder of a stage: finished trees, units that were given up, and what a teacher or a judge answered,
#: which is kept.
FINISHED = "finished"
SUFFIX = ".json.zst"
FAILURES = "failures.jsonl"
ANSWERS = "answers.jsonl"

#: Most trees of a file of a sealed forest.
PART = 10_000

#: A row group of trees is closed when it has so many bytes, so that one tree is read without many others.
GROUP_BYTES = 1 << 19


@dataclass
class _Part:
    file: str
    first: str
    footer: str


@dataclass
class _Manifest:
    """What a manifest must have."""

    trees: int
    summary: str
    parts: list[_Part]
    failed: dict[str, str] = field(default_factory=dict)
    stage: dict[str, Any] = field(default_factory=dict)


class _Parts:
    """The files of a sealed forest's trees.
    They and their row groups are sorted by key, so a tree can be in one row group only."""

    def __init__(self, folder: Path, parts: list[dict[str, Any]]) -> None:
        self._folder, self._parts = folder, parts
        self._files: dict[int, Any] = {}

    def row(self, key: str) -> dict[str, Any] | None:
        """Reads the row of a tree."""
        place = bisect_right(self._parts, key, key=lambda part: part["first"]) - 1
        if place < 0:
            return None
        path = self._folder / self._parts[place]["file"]
        if place not in self._files:
            self._files[place] = open_table(path, self._parts[place]["footer"])
        file = self._files[place]
        groups = range(file.num_row_groups)
        group = (
            bisect_right(groups, key, key=lambda number: file.metadata.row_group(number).column(0).statistics.min) - 1
        )
        if group < 0:
            return None
        rows = read_group(file, path, group)
        index = bisect_left(rows["key"], key, key=lambda value: value.as_py())
        found = rows.slice(index, 1).to_pylist()
        return found[0] if found and found[0]["key"] == key else None


#: The columns of a summary that say which task a tree is of.
TASK_COLUMNS = ["env", "task", "split", "labels"]


def tasks_in(table: pa.Table) -> list[Task]:
    """Returns the tasks of a summary's rows, by `TASK_COLUMNS`."""
    return [Task(row["env"], row["task"], row["split"], json.loads(row["labels"])) for row in table.to_pylist()]


class Forest:
    """The trees of one stage.

    Args:
        folder: Where they are.
        stage: Name of the stage, which each tree that is read gets; empty for forests of no run.
    """

    def __init__(self, folder: Path, stage: str = "") -> None:
        self.folder = folder
        self.stage = stage

    # while the stage runs ---------------------------------------------------------------------------------------------

    def finished(self) -> set[str]:
        """Returns the keys of the finished trees."""
        if not self.sealed:
            found = {path.name.removesuffix(SUFFIX) for path in self._finished.glob(f"*{SUFFIX}")}
            if not self.sealed:
                return found
        return set(self.keys())

    def failures(self) -> dict[str, str]:
        """Returns the keys of the units given up, with the last reason, without those that were finished later."""
        if self.sealed:
            return self.manifest.get("failed", {})
        finished = self.finished()
        return {line["key"]: line["reason"] for line in self.lines(FAILURES) if line["key"] not in finished}

    def lines(self, name: str) -> list[dict[str, Any]]:
        """Returns the lines of all files of a name in the working folder: each process that makes trees has one of its
        own."""
        stem, _, suffix = name.rpartition(".")
        return [line for path in sorted(self.work.glob(f"{stem}*.{suffix}")) for line in read_lines(path)]

    @property
    def work(self) -> Path:
        """The folder of what is not sealed."""
        return working(self.folder) or self.folder / f"{PREFIX}{ALONE}"

    @property
    def _finished(self) -> Path:
        return self.work / FINISHED

    # sealing ----------------------------------------------------------------------------------------------------------

    @property
    def sealed(self) -> bool:
        return (self.folder / "manifest.json").exists()

    def seal(self, **about: Any) -> dict[str, Any]:
        """Compacts the trees into Parquet files, writes the manifest and removes the single files.

        Args:
            about: Further entries of the manifest.

        Returns:
            The manifest. ``trees_hash`` in it depends on the trees alone, not on what was spent on them. Sealing a
            sealed forest changes nothing.

        Raises:
            DataError: A tree is damaged. The next start of the stage grows it anew.
        """
        if not self.sealed:
            _compact(self.folder, self._finished, sorted(self.finished()), self.failures(), about)
        if answers := self.lines(ANSWERS):
            write_lines(self.folder / ANSWERS, answers)
        for work in self.folder.glob(f"{PREFIX}*"):
            remove(work)
        return self.manifest

    @property
    def manifest(self) -> dict[str, Any]:
        path = self.folder / "manifest.json"
        manifest = read_checked(path)
        check_format(manifest, f"the forest {self.folder}")
        check_names([part.file for part in typed(_Manifest, manifest, str(path)).parts], str(path))
        return manifest

    # reading ----------------------------------------------------------------------------------------------------------

    def keys(self) -> list[str]:
        """Returns the keys of the trees, in order."""
        if not self.sealed:
            return sorted(self.finished())
        return self.summary(["key"])["key"].to_pylist()

    def tasks(self) -> list[Task]:
        """Returns the tasks of the trees, in the order of their keys."""
        return tasks_in(self.summary(TASK_COLUMNS))

    def __iter__(self) -> Iterator[Tree]:
        """Yields the trees in the order of their keys; only a few are in memory at a time.

        Raises:
            DataError: A tree is damaged; the error names it.
        """
        if not self.sealed:
            for key in self.keys():
                yield self.read(key)
            return
        for part in self.manifest["parts"]:
            for batch in read_table(self.folder / part["file"], part["footer"], rows=16):
                for row in batch.to_pylist():
                    yield self._tree(row["key"], row["tree"], row["spent"])

    def __len__(self) -> int:
        return self.manifest["trees"] if self.sealed else len(self.finished())

    def __contains__(self, key: str) -> bool:
        if self.sealed:
            return self._parts.row(key) is not None
        return key in self.finished()

    def read(self, key: str) -> Tree:
        """Reads one tree.

        Raises:
            DataError: The tree is missing or damaged; of a missing one the error names the nearest keys.
        """
        tree = self.find(key)
        if tree is None:
            near = difflib.get_close_matches(key, self.keys(), 3, 0.0)
            raise DataError(
                f"{self.folder} holds no tree {key!r}",
                hint=f"The nearest: {', '.join(near)}." if near else "It holds none.",
            )
        return tree

    def find(self, key: str) -> Tree | None:
        """Reads one tree, or returns None if there is none of this key.

        Raises:
            DataError: The tree is damaged.
        """
        if not self.sealed:
            try:
                check_names([key], "a question")  # it may be somebody's, and is part of a path
                return self._tree(key, (self._finished / f"{key}{SUFFIX}").read_bytes())
            except FileNotFoundError:
                if not self.sealed:  # it may have been sealed since it was looked for
                    return None
        row = self._parts.row(key)
        return self._tree(key, row["tree"], row["spent"]) if row is not None else None

    def summary(self, columns: list[str] | None = None) -> pa.Table:
        """Returns the summary of each tree, a row each in the order of keys; ``agentr.store.tree_table`` has
        the columns.

        Args:
            columns: The columns to read; all by default.
        """
        import pyarrow as pa

        if self.sealed:
            batches = read_table(self.folder / "summary.parquet", self.manifest["summary"], columns)
            return pa.Table.from_batches(
                batches, schema({name: COLUMNS[name] for name in COLUMNS if not columns or name in columns})
            )
        return pa.Table.from_pylist([summary_row(tree) for tree in self], schema(COLUMNS)).select(
            columns or list(COLUMNS)
        )

    def spent(self) -> Iterator[dict[str, Any]]:
        """Yields what each expansion took: the tree's ``key`` and the fields of ``agentr.search.tree.Spent``."""
        for tree in self:
            for spent in tree.spent:
                yield {"key": tree.task.key, **vars(spent)}

    @cached_property
    def _parts(self) -> _Parts:
        return _Parts(self.folder, self.manifest["parts"])

    def _tree(self, key: str, *parts: bytes) -> Tree:
        try:
            tree = from_bytes(b"".join(parts))
        except DataError as error:
            raise damaged(self.folder, f"tree {key!r}: {error.message}") from error
        tree.stage = self.stage
        return tree


def _compact(folder: Path, finished: Path, keys: Sequence[str], failed: dict[str, str], about: dict[str, Any]) -> None:
    """Writes finished trees as a sealed forest, and its manifest last."""
    make_folder(folder)
    remove(folder / "trees")
    make_folder(folder / "trees")
    content, parts = blake3(), list[dict[str, Any]]()
    with TableWriter(folder / "summary.parquet", COLUMNS) as summary:
        for number in range(0, len(keys), PART):
            here, name = keys[number : number + PART], f"trees/{number // PART:05d}.parquet"
            with TableWriter(folder / name, _TREES, group_bytes=GROUP_BYTES, compressed=False) as trees:
                for key in here:
                    try:
                        data, spent, tree = split_bytes((finished / f"{key}{SUFFIX}").read_bytes())
                    except DataError as error:
                        raise DataError(
                            f"tree {key!r} in {folder} is damaged: {error.message}",
                            hint="Start the same run again: the tree is set aside and grown anew.",
                        ) from error
                    trees.add({"key": key, "tree": data, "spent": spent})
                    summary.add(summary_row(tree))
                    content.update(f"{key} {len(data)} ".encode())
                    content.update(data)
            parts.append({"file": name, "first": here[0], "footer": trees.footer})
    manifest = {
        "format": FORMAT,
        "trees": len(keys),
        "failed": failed,
        "trees_hash": content.hexdigest(length=16),
        "parts": parts,
        "summary": summary.footer,
        **about,
    }
    write_checked(folder / "manifest.json", manifest)


_TREES = {"key": "string", "tree": "binary", "spent": "binary"}
