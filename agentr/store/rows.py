"""Dataset rows: token ids, loss masks and provenance.

A dataset is a folder with ``rows.parquet`` and ``manifest.json``. It is written once, whole, and read back equal. Its
rows are of one type, which the manifest names. `DATASET_TYPES` has the class, the columns and the loss of each type.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from agentr.errors import DataError
from agentr.store.files import read_json, write_json
from agentr.store.tables import read_table, write_table
from agentr.types import Loss


@dataclass(frozen=True)
class Provenance:
    """The nodes and the tree that a row was made from.

    Attributes:
        tree: Key of the tree, or of the demonstration.
        nodes: Node ids in row order; of a pair's chosen side.
        kind: revision, good, demonstration, general or imported; of a pair: trajectory, step, sibling or imported.
        detail: Further facts: returns, depth of the divergence, step of the transition.
        rejected: Node ids of a pair's rejected side.
    """

    tree: str
    nodes: tuple[int, ...]
    kind: str
    detail: dict[str, float | int | str] = field(default_factory=dict, hash=False)
    rejected: tuple[int, ...] = ()


class TrainingRow(Protocol):
    """A row of any type, as far as the order of a training depends on it."""

    @property
    def provenance(self) -> Provenance: ...

    @property
    def longest(self) -> int:
        """Tokens of the longest sequence that goes through the model."""
        ...

    @property
    def tokens(self) -> int:
        """Tokens that go through the model."""
        ...

    @property
    def targets(self) -> int:
        """Tokens that count in the loss."""
        ...

    def sequences(self) -> tuple[tuple[int, ...], ...]:
        """Returns all token ids of the row, in pieces."""
        ...


@dataclass(frozen=True)
class Row:
    """One training sequence.

    Attributes:
        input_ids: Token ids, shape [L].
        loss_mask: 1 where the token is a training target, shape [L].
    """

    input_ids: tuple[int, ...]
    loss_mask: tuple[int, ...]
    provenance: Provenance

    def __post_init__(self) -> None:
        _check(self.provenance, "", self.input_ids, self.loss_mask)

    @property
    def longest(self) -> int:
        """Tokens of the longest sequence that goes through the model."""
        return len(self.input_ids)

    @property
    def tokens(self) -> int:
        """Tokens that go through the model."""
        return len(self.input_ids)

    @property
    def targets(self) -> int:
        """Tokens that count in the loss. The first token of a sequence has no prediction, so it never counts."""
        return sum(self.loss_mask[1:])

    def sequences(self) -> tuple[tuple[int, ...], ...]:
        """Returns the ids of the sequence."""
        return (self.input_ids,)


@dataclass(frozen=True)
class Preference:
    """A pair of continuations of one prompt, the first preferred to the second.

    Attributes:
        prompt_ids: Token ids that both sides begin with, shape [P].
        chosen_ids: Token ids after the prompt, shape [C].
        chosen_mask: 1 where a token of the agent counts, shape [C]; observations and bridges are 0.
        rejected_ids: The same for the other side, shape [R].
        rejected_mask: Shape [R].
    """

    prompt_ids: tuple[int, ...]
    chosen_ids: tuple[int, ...]
    chosen_mask: tuple[int, ...]
    rejected_ids: tuple[int, ...]
    rejected_mask: tuple[int, ...]
    provenance: Provenance

    def __post_init__(self) -> None:
        if not self.prompt_ids:
            raise DataError(f"a pair of {self.provenance.tree} has no prompt")
        _check(self.provenance, "chosen ", self.chosen_ids, self.chosen_mask)
        _check(self.provenance, "rejected ", self.rejected_ids, self.rejected_mask)

    @property
    def longest(self) -> int:
        """Tokens of the longer side, the prompt included."""
        return len(self.prompt_ids) + max(len(self.chosen_ids), len(self.rejected_ids))

    @property
    def tokens(self) -> int:
        """Tokens that go through the model: both sides, each with the prompt."""
        return 2 * len(self.prompt_ids) + len(self.chosen_ids) + len(self.rejected_ids)

    @property
    def targets(self) -> int:
        """Tokens that count in the loss, of both sides."""
        return sum(self.chosen_mask) + sum(self.rejected_mask)

    def sequences(self) -> tuple[tuple[int, ...], ...]:
        """Returns the ids of the prompt and of both sides."""
        return self.prompt_ids, self.chosen_ids, self.rejected_ids


def _check(provenance: Provenance, side: str, ids: tuple[int, ...], mask: tuple[int, ...]) -> None:
    if len(ids) != len(mask):
        raise DataError(f"a {side}row of {provenance.tree} has {len(ids)} ids and {len(mask)} mask values")
    if not any(mask):
        raise DataError(f"a {side}row of {provenance.tree} trains on nothing")


@dataclass(frozen=True)
class DatasetType:
    """A type of dataset.

    Attributes:
        row: Class of its rows.
        columns: Names of the columns of integers (fields of the class) and their Arrow types.
        loss: The loss that such a dataset is trained with.
    """

    row: type
    columns: dict[str, str]
    loss: Loss


#: The types of datasets, by their names in a manifest. To add a type, write a class with the members of `TrainingRow`
#: and its line here.
DATASET_TYPES: dict[str, DatasetType] = {
    "sequences": DatasetType(Row, {"input_ids": "int32", "loss_mask": "int8"}, Loss.IMITATE),
    "preferences": DatasetType(
        Preference,
        {
            "prompt_ids": "int32",
            "chosen_ids": "int32",
            "chosen_mask": "int8",
            "rejected_ids": "int32",
            "rejected_mask": "int8",
        },
        Loss.PREFER,
    ),
}


def write_rows(folder: Path, rows: Iterable[Row | Preference], **about: Any) -> dict[str, Any]:
    """Writes a dataset and returns its manifest.

    Args:
        rows: Rows of one type. A dataset without rows is one of sequences.
        about: Further entries of the manifest (counts of what was dropped, configuration).
    """
    import pyarrow as pa

    written = list(rows)
    row_class = type(written[0]) if written else Row
    name = next(name for name, described in DATASET_TYPES.items() if described.row is row_class)
    columns: dict[str, Any] = {
        column: pa.array([list(getattr(r, column)) for r in written], pa.list_(pa.type_for_alias(width)))
        for column, width in DATASET_TYPES[name].columns.items()
    }
    provenances = [r.provenance for r in written]
    columns |= {
        "tree": pa.array([p.tree for p in provenances], pa.string()),
        "nodes": pa.array([list(p.nodes) for p in provenances], pa.list_(pa.int32())),
        "kind": pa.array([p.kind for p in provenances], pa.string()),
        "detail": pa.array([json.dumps(p.detail, sort_keys=True) for p in provenances], pa.string()),
        "rejected": pa.array([list(p.rejected) for p in provenances], pa.list_(pa.int32())),
    }
    manifest = {
        "type": name,
        "rows": len(written),
        "kinds": dict(Counter(p.kind for p in provenances)),
        "tokens": sum(r.tokens for r in written),
        "trained_tokens": sum(r.targets for r in written),
        "sha256": write_table(folder / "rows.parquet", columns),
        **about,
    }
    write_json(folder / "manifest.json", manifest)
    return manifest


def read_manifest(folder: Path) -> dict[str, Any]:
    """Reads the manifest of a dataset.

    Raises:
        DataError: There is no dataset in ``folder``.
    """
    try:
        return read_json(folder / "manifest.json")
    except DataError as error:
        raise DataError(f"{folder} holds no readable dataset: {error.message}", hint="Build it with 'agentr build'.") from error


def dataset_loss(folder: Path) -> Loss:
    """Returns the loss that a dataset is trained with.

    Raises:
        DataError: There is no dataset in ``folder``, or one of a type that is not known here.
    """
    return _described(folder, read_manifest(folder)["type"]).loss


def read_rows(folder: Path) -> list[Row]:
    """Reads the rows of a dataset of sequences, in the order written.

    Raises:
        DataError: The dataset is missing, does not match its manifest, or holds preferences.
    """
    return _read(folder, "sequences")


def read_preferences(folder: Path) -> list[Preference]:
    """Reads the rows of a dataset of preferences, in the order written.

    Raises:
        DataError: As ``read_rows``.
    """
    return _read(folder, "preferences")


def read_any(folder: Path) -> list[Any]:
    """Reads the rows of a dataset of any type, in the order written.

    Raises:
        DataError: As ``read_rows``.
    """
    return _read(folder, read_manifest(folder)["type"])


def _described(folder: Path, name: str) -> DatasetType:
    if name not in DATASET_TYPES:
        known = ", ".join(DATASET_TYPES)
        hint = "Is it of a newer version of agentr?"
        raise DataError(f"{folder} holds a dataset of type {name!r}; known are {known}.", hint=hint)
    return DATASET_TYPES[name]


def _read(folder: Path, wanted: str) -> list[Any]:
    manifest = read_manifest(folder)
    found = read_table(folder / "rows.parquet", manifest["sha256"], "Delete the folder and build the dataset again.")
    if manifest["rows"] and manifest["type"] != wanted:
        raise DataError(f"{folder} holds {manifest['type']}, and {wanted} are wanted")
    described = _described(folder, wanted)
    rows: list[Any] = []
    for index in range(manifest["rows"]):
        entry = {name: values[index] for name, values in found.items()}
        provenance = Provenance(
            tree=entry["tree"],
            nodes=tuple(entry["nodes"]),
            kind=entry["kind"],
            detail=json.loads(entry["detail"]),
            rejected=tuple(entry["rejected"]),
        )
        rows.append(described.row(**{name: tuple(entry[name]) for name in described.columns}, provenance=provenance))
    return rows
