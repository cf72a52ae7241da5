"""Measures the pages on large runs, as work: trees decoded, bytes of answers, peak of memory.
Seconds are told beside them.

Two stages of a made-up run are asked for what the pages ask: one with very many trees, one with a large, a deep and a
wordy one.
"""

import json
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

from agentr.config.identity import Identity
from agentr.config.schema import Config
from agentr.errors import RunError
from agentr.methods import load
from agentr.search.tree import Origin, Tree
from agentr.store import forest as stored
from agentr.store.files import disk
from agentr.store.growing import GrowingForest
from agentr.store.run import RunStore
from agentr.store.summaries import TreeSummary
from tests.tools.bench.store import alone, made_up

MANY, LARGE = "rounds/01/collect", "rounds/02/collect"
#: Length of the wordy turn in characters, and of the deep tree in turns.
WORDS, DEEP = 200_000, 2_000


@dataclass(frozen=True)
class Asked:
    """What one answer took.

    Attributes:
        what: The question in words.
        size: Bytes of the answer as JSON.
        decoded: Trees that were decoded for it.
        peak_mb: Peak of the memory of the process that answered nothing else, in megabytes.
        seconds: Until the answer was there, everything imported.
        limit: Most bytes, megabytes and decoded trees that are allowed.
    """

    what: str
    size: int
    decoded: int
    peak_mb: float
    seconds: float
    limit: tuple[int, int, int]

    @property
    def kept(self) -> bool:
        return self.size <= self.limit[0] and self.peak_mb <= self.limit[1] and self.decoded <= self.limit[2]


def measure(folder: Path, trees: int, turns: int, seed: int, notify: Callable[[str], None]) -> list[Asked]:
    """Makes a run in an empty folder and asks for its pages.

    Args:
        trees: Of the stage with many, of 12 nodes each.
        turns: Of the large tree.
        say: Is told of each step.
    """
    notify(f"making {trees:,} trees and one of {turns:,} turns ...")
    alone(_make, folder, trees, turns, seed)
    questions: list[tuple[str, str, dict[str, Any], tuple[int, int, int]]] = [
        (f"first page of {trees:,} trees", "forest", {"stage": MANY}, (100_000, 300, 0)),
        (
            "the same, sorted, searched and filtered",
            "forest",
            {"stage": MANY, "sort": "turns", "search": "7", "only": "solved"},
            (100_000, 300, 0),
        ),
        ("its last page", "forest", {"stage": MANY, "offset": trees - 50}, (100_000, 300, 0)),
        ("one of its trees", "tree", {"stage": MANY, "key": _key(trees // 2)}, (100_000, 300, 1)),
        (
            f"topology of a tree of {turns:,} turns",
            "tree",
            {"stage": LARGE, "key": "large"},
            (max(1_000_000, 100 * turns), 400, 1),
        ),
        ("200 of its turns", "turns", {"stage": LARGE, "key": "large", "nodes": range(1, 201)}, (1_000_000, 400, 1)),
        (f"topology of a tree {DEEP:,} deep", "tree", {"stage": LARGE, "key": "deep"}, (400_000, 400, 1)),
        (f"a turn of {WORDS:,} characters", "turns", {"stage": LARGE, "key": "wordy", "nodes": [1]}, (100_000, 400, 1)),
    ]
    found = []
    for what, name, query, limit in questions:
        took = alone(_ask, folder, name, query)
        size, decoded = took.size
        found.append(Asked(what, size, decoded, took.peak_mb, took.seconds, limit))
        notify(f"{what}: {size:,} bytes, {decoded} trees decoded, peak {took.peak_mb:.0f} MB, {took.seconds:.2f} s")
    return found


def check(found: list[Asked]) -> None:
    """Checks the limits.

    Raises:
        RunError: An answer is larger than it may be, or needed more.
    """
    if over := [asked for asked in found if not asked.kept]:
        told = "; ".join(
            f"{a.what}: {a.size:,} bytes, {a.peak_mb:.0f} MB, {a.decoded} trees of {a.limit}" for a in over
        )
        raise RunError(f"{len(over)} answers of the pages need more than they may: {told}")


def as_json(found: list[Asked]) -> str:
    """Returns what was measured, for programs."""
    return json.dumps([asdict(asked) for asked in found], indent=2)


def _make(folder: Path, trees: int, turns: int, seed: int) -> int:
    config: Config = load(None, ["run.name=large", f"run.dir={folder}"])
    store = RunStore(folder)
    store.open(Identity.of(config))

    def write(place: Path, made: Callable[[GrowingForest], int]) -> TreeSummary:
        forest = GrowingForest(place, epoch=store.lease.next_epoch())
        count = made(forest)
        return TreeSummary(trees=count, trees_hash=forest.seal()["trees_hash"])

    def many(forest: GrowingForest) -> int:
        for number in range(trees):
            forest.write(made_up(number, 12, seed))
        return trees

    def large(forest: GrowingForest) -> int:
        for tree in (_named(made_up(0, turns + 1, seed), "large"), _deep(seed), _wordy(seed)):
            forest.write(tree)
        return 3

    with patch.object(disk, "sync", lambda _: None):  # whom would made-up trees be lost to?
        store.stages.run(MANY, TreeSummary, lambda place: write(place, many))
        store.stages.run(LARGE, TreeSummary, lambda place: write(place, large))
    store.close()
    return 0


def _named(tree: Tree, name: str) -> Tree:
    tree.task = replace(tree.task, id=name)
    return tree


def _deep(seed: int) -> Tree:
    tree, turn = _named(made_up(1, 2, seed), "deep"), made_up(2, 3, seed).nodes[1]
    while len(tree.nodes) <= DEEP:
        tree.add(len(tree.nodes) - 1, turn.as_child(), Origin.POLICY)
    return tree


def _wordy(seed: int) -> Tree:
    tree = _named(made_up(3, 3, seed), "wordy")
    tree.nodes[1].text = ("word " * WORDS)[:WORDS]
    return tree


def _key(number: int) -> str:
    return made_up(number, 2, 0).task.key


def _ask(folder: Path, name: str, query: dict[str, Any]) -> tuple[float, tuple[int, int]]:
    """Answers one question, and returns its seconds, its bytes and how many trees were decoded."""
    from agentr.read.run import Run
    from agentr.ui.views.forest import forest
    from agentr.ui.views.tree import tree_view, turns_view

    decoded: list[int] = []
    decode = stored.from_bytes

    def counted(data: bytes) -> Tree:
        decoded.append(1)
        return decode(data)

    stored.from_bytes = counted
    ask: Any = {"forest": forest, "tree": tree_view, "turns": turns_view}[name]
    run, stage, started = Run(folder), query.pop("stage"), time.perf_counter()
    arguments = [query.pop(part) for part in ("key", "nodes") if part in query]
    answer = ask(run, stage, *arguments, **query)
    return time.perf_counter() - started, (len(json.dumps(answer, separators=(",", ":"))), len(decoded))
