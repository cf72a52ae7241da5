"""Measures the run directory: sealing, listing, reading one tree, building and exporting, in seconds, memory and bytes
a tree.

Each step runs in a process of its own, so that its peak of memory is its own.
"""

import multiprocessing
import random
import resource
import statistics
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from agentr.rows.dataset import write_dataset
from agentr.rows.export import export_rows
from agentr.rows.revision import good_rows
from agentr.rows.targets import Targets
from agentr.search.tree import Child, Origin, Spent, Tree
from agentr.store.dataset import iter_rows
from agentr.store.forest import Forest
from agentr.store.growing import GrowingForest
from agentr.types import Cost, FinishReason, Message, Outcome, Task

#: Steps in the order in which they run.
STEPS = ("seal", "list", "one tree", "build", "export")

#: Trees that are read one by one.
_PROBES = 50


@dataclass(frozen=True)
class Measured:
    """What one step took.

    Attributes:
        seconds: Wall clock; of "one tree" the median of several.
        peak_mb: Peak of the process's memory, in megabytes.
        base_mb: Memory of the process before the step, everything imported.
        size: Bytes that it wrote, or whatever the step returns.
    """

    seconds: float
    peak_mb: float
    base_mb: float
    size: Any


def measure(folder: Path, trees: int, nodes: int, seed: int, notify: Callable[[str], None]) -> dict[str, Any]:
    """Runs all steps on made-up trees and returns what they took.

    Args:
        folder: An empty folder to work in; what is left there is the caller's.
        say: Is told of each step.
    """
    grown = folder / "grown"
    made = alone(_grow, grown, trees, nodes, seed)
    notify(
        f"{trees:,} trees of {nodes} nodes made: {1000 * made.seconds / trees:.2f} ms each, {made.size / trees:,.0f} "
        "bytes each"
    )
    result: dict[str, Any] = {"trees": trees, "nodes": nodes, "seed": seed, "grow": asdict(made)}
    for name in STEPS:
        found = alone(_STEPS[name], grown, trees)
        result[name] = asdict(found)
        notify(f"{name} {found.seconds:.4g} s, peak {found.peak_mb:.0f} MB")
    return result


def alone(step: Callable[..., Any], *arguments: Any) -> Measured:
    """Runs a step in a new process. It returns what it wrote in bytes, or seconds and bytes."""
    context = multiprocessing.get_context("spawn")
    receiver, sender = context.Pipe(duplex=False)
    process = context.Process(target=_measured, args=(sender, step, arguments))
    process.start()
    sender.close()
    try:
        return receiver.recv()
    finally:
        process.join()


def _measured(sender: Any, step: Callable[..., Any], arguments: tuple[Any, ...]) -> None:

    base, started = _peak_mb(), time.perf_counter()
    found = step(*arguments)
    seconds, size = found if isinstance(found, tuple) else (time.perf_counter() - started, found)
    sender.send(Measured(seconds, _peak_mb(), base, size))


def _peak_mb() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1000


# trees ----------------------------------------------------------------------------------------------------------------


def made_up(number: int, nodes: int, seed: int) -> Tree:
    """Returns a tree of so many nodes: turns of 20 tokens, observations of 30, one success in three ends."""
    chance = random.Random(f"{seed}/{number}")
    task = Task("made-up", f"task {number}", "train", {"depth": number % 4})
    tree = Tree.start(
        task,
        (Message("user", f"Do task {number}. " * 10),),
        tuple(chance.choices(range(32_000), k=120)),
        number,
        "rounds/00/train",
    )
    while len(tree.nodes) < nodes:
        parent = max(0, len(tree.nodes) - chance.choice((1, 1, 1, 2, 5)))
        if tree.nodes[parent].outcome is not None:
            parent = 0
        ended = tree.nodes[parent].depth >= 7
        good = ended and chance.random() < 0.33
        node = tree.add(parent, _turn(chance, good, ended), Origin.POLICY)
        if ended:
            tree.back_up(node.id)
        tree.spend(Cost(calls=1, completions=4, prompt_tokens=400, completion_tokens=80, env_steps=4))
        tree.pay(Spent(parent, 0, 4, 0.01, 0.002, 300))
    return tree


def _turn(chance: random.Random, good: bool, ended: bool) -> Child:
    words = " ".join(
        chance.choices(
            ("take", "the", "key", "open", "door", "look", "around", "craft", "planks", "using", "logs"), k=14
        )
    )
    return Child(
        text=f"Thought: {words}\nAction: {words[:20]}",
        token_ids=tuple(chance.choices(range(32_000), k=20)),
        bridge_ids=tuple(chance.choices(range(32_000), k=30)),
        logprobs=tuple(round(-chance.random(), 6) for _ in range(20)),
        finish=FinishReason.STOP,
        action=words[:20],
        observation=f"You {words}.",
        reward=float(good),
        valid=True,
        outcome=(Outcome.SUCCESS if good else Outcome.FAILURE) if ended else None,
    )


def _grow(folder: Path, trees: int, nodes: int, seed: int) -> int:
    forest = GrowingForest(folder)
    for number in range(trees):
        forest.write(made_up(number, nodes, seed))
    return _size(folder)


# steps ----------------------------------------------------------------------------------------------------------------


def _seal(folder: Path, trees: int) -> int:
    Forest(folder).seal()
    return _size(folder)


def _list(folder: Path, trees: int) -> int:
    table = (
        Forest(folder)
        .summary(["key", "turns", "best", "successes"])
        .sort_by([("successes", "descending"), ("turns", "ascending")])
    )
    assert table.num_rows == trees
    return 0


def _read_one(folder: Path, trees: int) -> tuple[float, int]:
    forest = Forest(folder)
    return _median(forest.read, trees), 0


def _build(folder: Path, trees: int) -> int:
    manifest = write_dataset(folder / "dataset", _candidates(Forest(folder)), 10_000)
    assert manifest["rows"]
    return _size(folder / "dataset")


def _export(folder: Path, trees: int) -> int:
    out = folder / "rows.jsonl"
    export_rows(out, iter_rows(folder / "dataset"), None, "trl")
    return out.stat().st_size


def _candidates(forest: Any) -> Iterator[Any]:
    for tree in forest:
        yield from good_rows(tree, 1.0, limit=4, targets=Targets(invalid=True))


# ----------------------------------------------------------------------------------------------------------------------


def _key(number: int) -> str:
    return Task("made-up", f"task {number}", "train").key


def _median(read: Callable[[str], Any], trees: int) -> float:
    taken = []
    for number in random.Random(0).sample(range(trees), min(_PROBES, trees)):
        started = time.perf_counter()
        read(_key(number))
        taken.append(time.perf_counter() - started)
    return statistics.median(taken)


def _size(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


_STEPS = {"seal": _seal, "list": _list, "one tree": _read_one, "build": _build, "export": _export}
