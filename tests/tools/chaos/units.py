"""Compares what two runs made, unit by unit: trees, rows, optimiser steps, weights."""

import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from agentr.errors import DataError
from agentr.search.stored import decompressed
from agentr.store.dataset import ROWS, read_manifest
from agentr.store.files import read_json, read_lines
from agentr.store.forest import Forest
from agentr.store.layout import EVALUATION, MODEL, Layout
from agentr.store.records import read_records
from agentr.store.seal import StageRecord, hash_of, verify
from agentr.store.tables import read_table
from agentr.store.working import PREFIX

#: Names of units that are listed; the others are counted.
MOST = 5

#: A unit: its key, and the hash of what it is.
Unit = tuple[str, str]


@dataclass
class Difference:
    """How a stage of the disturbed run differs from that of the undisturbed one.

    Attributes:
        units: Units of the undisturbed run.
        lost: Keys of units that are not there.
        twice: Keys of units that are there more often.
        others: Keys of units that are there, and are not the same.
        problems: What is wrong with the stage itself: not sealed, sealed twice, damaged.
    """

    stage: str
    units: int = 0
    lost: list[str] = field(default_factory=list)
    twice: list[str] = field(default_factory=list)
    others: list[str] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)

    @property
    def same(self) -> bool:
        return not (self.lost or self.twice or self.others or self.problems)

    def __str__(self) -> str:
        named = {"lost": self.lost, "there twice": self.twice, "not the same": self.others}
        parts = [
            f"{len(keys)} {what} ({', '.join(keys[:MOST])}{', ...' if len(keys) > MOST else ''})"
            for what, keys in named.items()
            if keys
        ]
        return f"{self.stage}: {'; '.join([*self.problems, *parts])}"


def compare(undisturbed: Path, disturbed: Path, *, contents: bool = True) -> list[Difference]:
    """Compares all stages of two runs; one entry for each stage, in the order of the undisturbed run.

    Args:
        contents: Whether units must also be equal, not only be there. Engines on GPUs do not draw the same turns twice.
    """
    ours, theirs = read_records(undisturbed), read_records(disturbed)
    sealed = Counter(
        event["stage"] for event in read_lines(Layout(disturbed).events) if event["event"] == "stage_sealed"
    )
    found = []
    for name in [*ours, *(name for name in theirs if name not in ours)]:
        difference = Difference(name)
        found.append(difference)
        if name not in ours or not ours[name].sealed:
            difference.problems.append("the undisturbed run has no such stage")
            continue
        before = units(undisturbed, ours[name], contents)
        difference.units = before.total()
        if name not in theirs or not theirs[name].sealed:
            difference.problems.append("is not there" if name not in theirs else f"is {theirs[name].state}")
            difference.lost = sorted(key for key, _ in before.elements())
            continue
        if sealed[name] != 1:
            difference.problems.append(f"was sealed {sealed[name]} times")
        try:
            difference.problems += [str(damage) for damage in verify(disturbed, theirs[name])]
            _fill(difference, before, units(disturbed, theirs[name], contents))
        except DataError as error:
            difference.problems.append(error.message)
    return found


def _fill(difference: Difference, before: Counter[Unit], after: Counter[Unit]) -> None:
    keys_before, keys_after = (Counter(key for key, _ in found.elements()) for found in (before, after))
    difference.lost = sorted((keys_before - keys_after).elements())
    difference.twice = sorted((keys_after - keys_before).elements())
    changed = {key for key, _ in (before - after)} & {key for key, _ in (after - before)}
    difference.others = sorted(key for key in changed if keys_before[key] == keys_after[key])


def units(root: Path, record: StageRecord, contents: bool) -> Counter[Unit]:
    """Returns the units of a sealed stage. Without ``contents`` trees and steps alone, with empty hashes.

    Raises:
        DataError: A file is damaged.
    """
    found: Counter[Unit] = Counter()
    folder = root / record.name
    for path in (folder, *sorted(folder.rglob("*/"))):
        inner = path.relative_to(folder)
        if any(part.startswith((".", PREFIX)) for part in inner.parts):
            continue
        within = f"{inner}/" if inner.parts else ""
        if (path / "summary.parquet").exists():
            found.update((within + key, digest if contents else "") for key, digest in _trees(path))
        if (path / "metrics.jsonl").exists():
            lines = read_lines(path / "metrics.jsonl")
            found.update((f"{within}step {line['step']}", f"{line.get('loss')}" if contents else "") for line in lines)
        if (path / ROWS).exists() and contents:
            found.update((within + key, digest) for key, digest in _rows(path))
        if (path / EVALUATION).exists() and contents:
            measured = read_json(path / EVALUATION)
            measured.pop("counts", None)  # what it cost, with what was found in caches
            found[within + EVALUATION, hash_of(measured)] += 1
    if contents:
        weights = (item for item in record.files.items() if record.name == MODEL or MODEL in Path(item[0]).parts)
        found.update((name, entry.blake3) for name, entry in weights)
    return found


def _trees(folder: Path) -> Iterator[Unit]:
    """Yields the trees of a forest as they stand in its files, without what was spent on them.

    Log-probabilities are compared to one decimal. An engine that was begun again has another prefix cache, computes
    prompts in other pieces, and may give other last digits (seen at 323 tokens: the sixth digit); tokens were the same.
    """
    for part in Forest(folder).manifest["parts"]:
        for batch in read_table(folder / part["file"], part["footer"], ["key", "tree"], rows=16):
            for row in batch.to_pylist():
                tree = json.loads(decompressed(row["tree"])[0])
                for node in tree["nodes"]:
                    node["logprobs"] = [round(value, 1) for value in node["logprobs"]]
                yield row["key"], hash_of(tree)


def _rows(folder: Path) -> Iterator[Unit]:
    """Yields the rows of a dataset; what a row was made from is its key."""
    for batch in read_table(folder / ROWS, read_manifest(folder)["rows_footer"]):
        for row in batch.to_pylist():
            made_from = {
                name: value
                for name, value in row.items()
                if name in ("stage", "tree", "nodes", "kind", "rejected_tree", "rejected")
            }
            yield f"row of {json.dumps(made_from, default=str)}", hash_of(row)


def as_dict(differences: list[Difference]) -> list[dict[str, Any]]:
    return [vars(difference) for difference in differences]
