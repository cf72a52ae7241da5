"""Dataset rows: token ids, which of them are trained on, and where they came from.

A dataset is a folder with ``rows.parquet`` and ``manifest.json``. It is written once, whole, and read back equal.
"""

from __future__ import annotations

import hashlib
import io
import json
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from agentr.errors import DataError
from agentr.store.files import read_json, write_bytes, write_json


@dataclass(frozen=True)
class Provenance:
    """Which nodes of which tree a row was made from.

    Attributes:
        tree: Key of the tree, or of the demonstration.
        nodes: Node ids in row order.
        kind: revision, good, demonstration or general.
        detail: What else is worth keeping: returns, depth of the divergence, step of the transition.
    """

    tree: str
    nodes: tuple[int, ...]
    kind: str
    detail: dict[str, float | int | str] = field(default_factory=dict, hash=False)


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
        if len(self.input_ids) != len(self.loss_mask):
            raise DataError(f"a row of {self.provenance.tree} has {len(self.input_ids)} ids and {len(self.loss_mask)} mask values")
        if not any(self.loss_mask):
            raise DataError(f"a row of {self.provenance.tree} trains on nothing")


def write_rows(folder: Path, rows: Iterable[Row], **about: Any) -> dict[str, Any]:
    """Writes a dataset and returns its manifest.

    Args:
        about: Further entries of the manifest (counts of what was dropped, configuration).
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    rows = list(rows)
    table = pa.table(
        {
            "input_ids": pa.array([list(r.input_ids) for r in rows], pa.list_(pa.int32())),
            "loss_mask": pa.array([list(r.loss_mask) for r in rows], pa.list_(pa.int8())),
            "tree": pa.array([r.provenance.tree for r in rows], pa.string()),
            "nodes": pa.array([list(r.provenance.nodes) for r in rows], pa.list_(pa.int32())),
            "kind": pa.array([r.provenance.kind for r in rows], pa.string()),
            "detail": pa.array([json.dumps(r.provenance.detail, sort_keys=True) for r in rows], pa.string()),
        }
    )
    buffer = io.BytesIO()
    pq.write_table(table, buffer)
    write_bytes(folder / "rows.parquet", buffer.getvalue())
    manifest = {
        "rows": len(rows),
        "kinds": dict(Counter(r.provenance.kind for r in rows)),
        "tokens": sum(len(r.input_ids) for r in rows),
        "trained_tokens": sum(sum(r.loss_mask) for r in rows),
        "sha256": hashlib.sha256(buffer.getvalue()).hexdigest(),
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
    """The rows of a dataset, in the order written.

    Raises:
        DataError: The dataset is missing or is not the one that its manifest describes.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    manifest = read_manifest(folder)
    path = folder / "rows.parquet"
    data = path.read_bytes() if path.exists() else b""
    if hashlib.sha256(data).hexdigest() != manifest["sha256"]:
        raise DataError(f"{path} is missing or does not match its manifest.", hint="Delete the folder and build the dataset again.")
    columns = pq.read_table(pa.BufferReader(data)).to_pydict()
    return [
        Row(tuple(ids), tuple(mask), Provenance(tree, tuple(nodes), kind, json.loads(detail)))
        for ids, mask, tree, nodes, kind, detail in zip(*(columns[name] for name in columns), strict=True)
    ]
