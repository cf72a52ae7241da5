"""Reads what version 1 of the stored form left. Nothing else knows of it, and nothing writes it.

In version 1 the manifest of a run alone said which stages are sealed, with absolute paths; a forest was one table of trees with a hash in
its manifest; a tree kept its verdicts, revisions and counts otherwise; rows named the task of their tree, and not its stage.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

from agentr.errors import DataError
from agentr.search.revision import Rating, Revision, Verdict
from agentr.search.stored import decompressed, split_counts, to_bytes
from agentr.search.tree import Node, Origin, Tree
from agentr.store.files import read_json, remove, write_bytes
from agentr.store.seal import StageRecord
from agentr.types import FinishReason, Message, Outcome, Task

# the manifest of a run ------------------------------------------------------------------------------------------------


def is_index(stored: dict[str, Any]) -> bool:
    """Returns whether this is the manifest of a run of version 1."""
    return stored.get("version") == 1


def records(root: Path, stored: dict[str, Any]) -> dict[str, StageRecord]:
    """Returns the stages in a manifest. Absolute paths into the run directory are made relative, wherever it lies now."""
    return {
        name: StageRecord.of({**entry, "name": name, "format": 1, "summary": _moved(root, name, entry["summary"])})
        for name, entry in stored["stages"].items()
    }


def _moved(root: Path, name: str, summary: dict[str, Any]) -> dict[str, Any]:
    found = dict(summary)
    for key in ("path", "checkpoint"):
        parts = Path(str(summary.get(key, ""))).parts
        tails = (Path(*parts[index:]) for index in range(1, len(parts)))
        inside = (tail for tail in tails if tail.is_relative_to(name) and (root / tail / "config.json").exists())
        if (tail := next(inside, None)) is not None:
            found[key] = tail.as_posix()
    return found


# trees ----------------------------------------------------------------------------------------------------------------


class SealedTrees:
    """A sealed forest of version 1: one table of keys and trees."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        sha256 = read_json(folder / "manifest.json")["sha256"]
        self._table = _checked_table(folder / "trees.parquet", sha256)
        self._rows = {key: row for row, key in enumerate(self._table["key"].to_pylist())}

    @staticmethod
    def is_at(folder: Path) -> bool:
        """Returns whether a folder holds such a forest."""
        return (folder / "trees.parquet").exists() and (folder / "manifest.json").exists()

    def keys(self) -> list[str]:
        return list(self._rows)

    def read(self, key: str) -> Tree:
        return tree_of(self._table["tree"][self._rows[key]].as_py())


def tree_of(data: bytes) -> Tree:
    """Reads a tree: its compressed text.

    Raises:
        DataError: The bytes are damaged or no tree of version 1.
    """
    try:
        stored = json.loads(decompressed(data)[0])
        if stored.pop("format") != 1:
            raise DataError("this tree is not of version 1")
        stored["task"] = Task(**stored["task"])
        stored["messages"] = tuple(Message(**m) for m in stored["messages"])
        stored["prompt_ids"] = tuple(stored["prompt_ids"])
        stored["nodes"] = [_node(n) for n in stored["nodes"]]
        stored["revisions"] = [Revision(**r) for r in stored["search"].pop("revisions", ())]
        stored["cost"], stored["events"] = split_counts(stored.pop("counts"))
        return Tree(**stored)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise DataError(f"not a stored tree: {error!r}") from error


def _node(data: dict[str, Any]) -> Node:
    rating, note = data.pop("judgement"), data.pop("note")
    data["verdict"] = Verdict(Rating(rating), note.get("reason")) if rating else None
    data["finish"], data["origin"] = FinishReason(data["finish"]), Origin(data["origin"])
    data["outcome"] = Outcome(data["outcome"]) if data["outcome"] else None
    for name in ("token_ids", "bridge_ids", "logprobs"):
        data[name] = tuple(data[name])
    return Node(**data, branch=note.get("label"))


def convert_growing(folder: Path, finished: Path, suffix: str) -> None:
    """Takes over the trees of a stage that was running: writes each as this version does, and deletes it where it was."""
    for path in sorted((folder / "trees").glob("*.json.zst")):
        tree = tree_of(path.read_bytes())
        write_bytes(finished / f"{tree.task.key}{suffix}", to_bytes(tree))
        remove(path)
    if (folder / "trees").is_dir() and not any((folder / "trees").iterdir()):
        remove(folder / "trees")


# datasets -------------------------------------------------------------------------------------------------------------


def check_rows(path: Path, sha256: str) -> None:
    """Checks the rows of a dataset against the hash in its manifest.

    Raises:
        DataError: They are missing or damaged.
    """
    _check(path, path.read_bytes() if path.exists() else b"", sha256)


def _checked_table(path: Path, sha256: str) -> Any:
    import pyarrow as pa
    import pyarrow.parquet as pq

    data = path.read_bytes() if path.exists() else b""
    _check(path, data, sha256)
    return pq.read_table(pa.BufferReader(data), use_threads=False)


def _check(path: Path, data: bytes, sha256: str) -> None:
    if hashlib.sha256(data).hexdigest() != sha256:
        hint = "Delete the stage's folder and its entry in manifest.json, and start the same run again: it is made anew."
        raise DataError(f"{path} is missing or does not match its manifest", hint=hint)
