"""Where a row came from, and where a node went."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from agentr.errors import DataError
from agentr.search.tree import Node, Tree
from agentr.store.dataset import iter_dropped, iter_origins, read_manifest, read_row
from agentr.store.forest import Forest
from agentr.store.inside import check_names
from agentr.store.layout import DATASET, stage_of, step_of
from agentr.store.records import read_records
from agentr.store.rows import Preference, Provenance, Row


@dataclass(frozen=True)
class Side:
    """What a row, or a side of a pair, was made from.

    Attributes:
        stage: The stage of the tree; empty for rows from files.
        key: Key of the tree, or of the entry of a file.
        tree: The tree; None if it cannot be had, and ``problem`` says why.
        nodes: Its nodes in row order; None for inserted text.
        policy: Stage that trained the policy that grew the tree.
    """

    stage: str
    key: str
    tree: Tree | None
    nodes: tuple[Node | None, ...]
    policy: str
    problem: str = ""


@dataclass(frozen=True)
class RowTrace:
    """What a row was made from.

    Attributes:
        dataset: Name of the dataset's stage.
        index: Of the row.
        row: The row.
        chosen: What it was made from; of a pair, its better side.
        rejected: The other side of a pair.
    """

    dataset: str
    index: int
    row: Row | Preference
    chosen: Side
    rejected: Side | None


@dataclass(frozen=True)
class Use:
    """A row that a node went into, or a candidate that was dropped.

    Attributes:
        dataset: Name of the dataset's stage.
        index: Of the row; None for a dropped candidate.
        side: Where the node stands: row, chosen or rejected.
        kind: Kind of the row.
        reason: Why the candidate was dropped; empty for a row.
    """

    dataset: str
    index: int | None
    side: str
    kind: str
    reason: str


def trace_row(root: Path, dataset: str, index: int) -> RowTrace:
    """Returns what a row of a dataset was made from.

    Args:
        root: The run directory.
        dataset: Name of the dataset's stage.

    Raises:
        DataError: There is no such row.
    """
    row = read_row(root / dataset, index)
    made = row.provenance
    chosen = _side(root, made.stage, made.tree, made.nodes)
    pair = isinstance(row, Preference)
    rejected = (
        _side(root, made.rejected_stage or made.stage, made.rejected_tree or made.tree, made.rejected) if pair else None
    )
    return RowTrace(dataset, index, row, chosen, rejected)


def _side(root: Path, stage: str, key: str, nodes: tuple[int, ...]) -> Side:
    if not stage:
        return Side("", key, None, tuple(None for _ in nodes), "", "from a file")
    try:
        check_names([stage], "a row")
        tree = Forest(root / stage, stage).read(key)
    except DataError as error:
        return Side(stage, key, None, tuple(None for _ in nodes), "", error.message)
    there = range(len(tree.nodes))
    return Side(stage, key, tree, tuple(tree.nodes[node] if node in there else None for node in nodes), tree.policy)


def trace_node(root: Path, stage: str, tree: Tree, node: int) -> list[Use]:
    """Returns the rows of all datasets of a run that a node went into, and the candidates with it that were dropped.

    A stage may hold the trees of another one with more in them: what was made of the node there counts, too.

    Args:
        root: The run directory.
        stage: Name of the tree's stage.

    Raises:
        DataError: The tree has no such node.
    """
    if not 0 <= node < len(tree.nodes):
        raise DataError(
            f"the tree {tree.task.key!r} of {stage} has no node {node}", hint=f"Its nodes: 0 to {len(tree.nodes) - 1}."
        )
    return [
        use
        for dataset, stages in made_of(root, stage).items()
        for use in _uses(root, dataset, stages, tree.task.key, node)
    ]


def made_of(root: Path, stage: str) -> dict[str, set[str]]:
    """Returns the sealed datasets whose rows may be made of a stage's trees, each with the stages under which it may
    know them.

    Args:
        root: The run directory.
    """
    if step_of(stage):  # the rows of a step are made of its own trees alone
        return {f"{stage}/{DATASET}": {stage}}
    records = read_records(root)
    stages = {stage} | {name for name, record in records.items() if record.summary.get("includes") == stage}
    places = {name: stage_of(name) for name, record in records.items() if record.sealed}
    return {name: stages for name, place in places.items() if place is not None and place[1] == DATASET}


def _uses(root: Path, dataset: str, stages: set[str], key: str, node: int) -> Iterator[Use]:
    pairs = read_manifest(root / dataset)["type"] == "preferences"
    for index, made in enumerate(iter_origins(root / dataset)):
        if side := _place(made, stages, key, node, pairs):
            yield Use(dataset, index, side, made.kind, "")
    for candidate in iter_dropped(root / dataset):
        if side := _place(candidate.provenance, stages, key, node, bool(candidate.provenance.rejected)):
            yield Use(dataset, None, side, candidate.provenance.kind, candidate.reason)


def _place(made: Provenance, stages: set[str], key: str, node: int, pair: bool) -> str:
    if made.stage in stages and made.tree == key and node in made.nodes:
        return "chosen" if pair else "row"
    if made.rejected_stage in stages and made.rejected_tree == key and node in made.rejected:
        return "rejected"
    return ""
