"""Dataset rows: token ids, which of them are trained on, and where they came from.

A dataset is a folder with ``rows.parquet`` and ``manifest.json``. It is written once, whole, and read back equal. Its rows are of one
kind: sequences to imitate (:class:`Row`) or pairs to prefer one side of (:class:`Preference`); the manifest's ``type`` says which, and
so which trainer takes it.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from agentr.errors import DataError
from agentr.store.files import read_json, write_json
from agentr.store.tables import read_table, write_table


@dataclass(frozen=True)
class Provenance:
    """Which nodes of which tree a row was made from.

    Attributes:
        tree: Key of the tree, or of the demonstration.
        nodes: Node ids in row order; of a pair's chosen side.
        kind: revision, good, demonstration, general or imported; of a pair: trajectory, step, sibling or imported.
        detail: What else is worth keeping: returns, depth of the divergence, step of the transition.
        rejected: Node ids of a pair's rejected side.
    """

    tree: str
    nodes: tuple[int, ...]
    kind: str
    detail: dict[str, float | int | str] = field(default_factory=dict, hash=False)
    rejected: tuple[int, ...] = ()


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
        """Tokens that count in the loss. The first token of a sequence has no prediction, so it never does."""
        return sum(self.loss_mask[1:])


@dataclass(frozen=True)
class Preference:
    """A pair of continuations of one prompt, of which the first is to become more likely than the second.

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


def _check(provenance: Provenance, side: str, ids: tuple[int, ...], mask: tuple[int, ...]) -> None:
    if len(ids) != len(mask):
        raise DataError(f"a {side}row of {provenance.tree} has {len(ids)} ids and {len(mask)} mask values")
    if not any(mask):
        raise DataError(f"a {side}row of {provenance.tree} trains on nothing")


#: Name of each type of row in a manifest, and its columns of integers.
_TYPES: dict[str, tuple[type, dict[str, str]]] = {
    "sequences": (Row, {"input_ids": "int32", "loss_mask": "int8"}),
    "preferences": (
        Preference,
        {"prompt_ids": "int32", "chosen_ids": "int32", "chosen_mask": "int8", "rejected_ids": "int32", "rejected_mask": "int8"},
    ),
}


def write_rows(folder: Path, rows: Iterable[Row | Preference], **about: Any) -> dict[str, Any]:
    """Writes a dataset and returns its manifest.

    Args:
        rows: Of one type. A dataset without rows is one of sequences.
        about: Further entries of the manifest (counts of what was dropped, configuration).
    """
    import pyarrow as pa

    written = list(rows)
    name = "preferences" if written and isinstance(written[0], Preference) else "sequences"
    columns: dict[str, Any] = {
        column: pa.array([list(getattr(r, column)) for r in written], pa.list_(pa.type_for_alias(width)))
        for column, width in _TYPES[name][1].items()
    }
    origin = [r.provenance for r in written]
    columns |= {
        "tree": pa.array([p.tree for p in origin], pa.string()),
        "nodes": pa.array([list(p.nodes) for p in origin], pa.list_(pa.int32())),
        "kind": pa.array([p.kind for p in origin], pa.string()),
        "detail": pa.array([json.dumps(p.detail, sort_keys=True) for p in origin], pa.string()),
        "rejected": pa.array([list(p.rejected) for p in origin], pa.list_(pa.int32())),
    }
    manifest = {
        "type": name,
        "rows": len(written),
        "kinds": dict(Counter(p.kind for p in origin)),
        "tokens": sum(r.tokens for r in written),
        "trained_tokens": sum(r.targets for r in written),
        "sha256": write_table(folder / "rows.parquet", columns),
        **about,
    }
    write_json(folder / "manifest.json", manifest)
    return manifest


def read_manifest(folder: Path) -> dict[str, Any]:
    """The manifest of a dataset.

    Raises:
        DataError: There is no dataset in ``folder``.
    """
    try:
        return read_json(folder / "manifest.json")
    except DataError as error:
        raise DataError(f"{folder} holds no readable dataset: {error.message}", hint="Build it with 'agentr build'.") from error


def read_rows(folder: Path) -> list[Row]:
    """The rows of a dataset of sequences, in the order written.

    Raises:
        DataError: The dataset is missing, is not the one that its manifest describes, or holds preferences.
    """
    return _read(folder, "sequences")


def read_preferences(folder: Path) -> list[Preference]:
    """The rows of a dataset of preferences, in the order written.

    Raises:
        DataError: As ``read_rows``.
    """
    return _read(folder, "preferences")


def read_any(folder: Path) -> list[Row] | list[Preference]:
    """The rows of a dataset of either type."""
    return _read(folder, read_manifest(folder)["type"])


def _read(folder: Path, wanted: str) -> list[Any]:
    manifest = read_manifest(folder)
    found = read_table(folder / "rows.parquet", manifest["sha256"], "Delete the folder and build the dataset again.")
    if manifest["rows"] and manifest["type"] != wanted:
        raise DataError(f"{folder} holds {manifest['type']}, and {wanted} are wanted")
    kind, columns = _TYPES[wanted]
    rows: list[Any] = []
    for index in range(manifest["rows"]):
        entry = {name: values[index] for name, values in found.items()}
        origin = Provenance(entry["tree"], tuple(entry["nodes"]), entry["kind"], json.loads(entry["detail"]), tuple(entry["rejected"]))
        rows.append(kind(**{name: tuple(entry[name]) for name in columns}, provenance=origin))
    return rows
