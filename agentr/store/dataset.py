"""Datasets on disk: a folder with ``rows.parquet``, ``dropped.parquet`` and ``manifest.json``.

A dataset is written once, whole, and read back equal. Its rows are of one type, which the manifest names;
`DATASET_TYPES` has the class, the columns and the loss of each type. Neither writing nor reading row by row holds more
than a few rows.
"""

from __future__ import annotations

import itertools
import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from agentr.errors import DataError
from agentr.outside import typed
from agentr.store.files import make_folder, read_json, write_json
from agentr.store.rows import Dropped, Preference, Provenance, Rollout, Row
from agentr.store.seal import FORMAT, check_format, hash_file
from agentr.store.tables import TableWriter, damaged, open_table, read_group, read_table
from agentr.types import Loss

if TYPE_CHECKING:
    import pyarrow as pa

ROWS = "rows.parquet"
DROPPED = "dropped.parquet"


@dataclass(frozen=True)
class DatasetType:
    """A type of dataset.

    Attributes:
        row: Class of its rows.
        columns: Names of its own columns (fields of the class) and their Arrow types. Empty lists and texts are kept as
            null.
        loss: The loss that such a dataset is trained with.
    """

    row: type
    columns: dict[str, str]
    loss: Loss


#: The types of datasets, by their names in a manifest. To add a type, write a class with the members of `TrainingRow`
#: and its line here.
DATASET_TYPES: dict[str, DatasetType] = {
    "sequences": DatasetType(
        Row,
        {
            "input_ids": "list<int32>",
            "loss_mask": "list<int8>",
            "logprobs": "list<float>",
        },
        Loss.IMITATE,
    ),
    "rollouts": DatasetType(
        Rollout,
        {
            "input_ids": "list<int32>",
            "loss_mask": "list<int8>",
            "logprobs": "list<float>",
            "advantages": "list<float>",
            "group": "string",
            "rewards": "json",
            "starts": "list<int32>",
        },
        Loss.REINFORCE,
    ),
    "preferences": DatasetType(
        Preference,
        {
            "prompt_ids": "list<int32>",
            "chosen_ids": "list<int32>",
            "chosen_mask": "list<int8>",
            "chosen_logprobs": "list<float>",
            "rejected_ids": "list<int32>",
            "rejected_mask": "list<int8>",
            "rejected_logprobs": "list<float>",
        },
        Loss.PREFER,
    ),
}

#: Columns that name what a row or a dropped candidate was made from: the fields of `Provenance`.
PROVENANCE: dict[str, str] = {
    "stage": "string",
    "tree": "string",
    "nodes": "list<int32>",
    "kind": "string",
    "detail": "json",
    "rejected_stage": "string",
    "rejected_tree": "string",
    "rejected": "list<int32>",
}


# writing --------------------------------------------------------------------------------------------------------------


def write_rows(folder: Path, rows: Iterable[Row | Preference], **about: Any) -> dict[str, Any]:
    """Writes a dataset and returns its manifest.

    Args:
        folder: Made if it is missing.
        rows: Rows of one type. A dataset without rows is one of sequences.
        about: Further entries of the manifest (counts of what was dropped, configuration).
    """
    make_folder(folder)
    coming = iter(rows)
    first = list(itertools.islice(coming, 1))
    row_class = type(first[0]) if first else Row
    name, described = next((name, described) for name, described in DATASET_TYPES.items() if described.row is row_class)
    kinds: Counter[str] = Counter()
    count = tokens = targets = 0
    with TableWriter(folder / ROWS, {**described.columns, **PROVENANCE}) as table:
        for row in itertools.chain(first, coming):
            table.add(
                {
                    **{column: _stored(getattr(row, column)) for column in described.columns},
                    **_provenance(row.provenance),
                }
            )
            kinds[row.provenance.kind] += 1
            count, tokens, targets = count + 1, tokens + row.tokens, targets + row.targets
    manifest = {
        "format": FORMAT,
        "type": name,
        "rows": count,
        "kinds": dict(kinds),
        "tokens": tokens,
        "trained_tokens": targets,
        "rows_hash": hash_file(folder / ROWS).blake3,
        "rows_footer": table.footer,
        **about,
    }
    write_json(folder / "manifest.json", manifest)
    return manifest


class DroppedWriter(TableWriter):
    """Writes the dropped candidates of a dataset, in the order in which they come, and counts them by reason."""

    def __init__(self, folder: Path) -> None:
        make_folder(folder)
        super().__init__(folder / DROPPED, {**PROVENANCE, "reason": "string"})
        self.reasons: Counter[str] = Counter()

    def drop(self, candidate: Dropped) -> None:
        self.reasons[candidate.reason] += 1
        self.add({**_provenance(candidate.provenance), "reason": candidate.reason})


def _provenance(provenance: Provenance) -> dict[str, Any]:
    return {column: _stored(value) for column, value in vars(provenance).items()}


def _stored(value: Any) -> Any:
    if not value:
        return None
    return json.dumps(value, sort_keys=True) if isinstance(value, Mapping) else value


# reading --------------------------------------------------------------------------------------------------------------


@dataclass
class _Manifest:
    """What a manifest must have."""

    type: str
    rows: int
    rows_footer: str = ""
    dropped_footer: str | None = None


def read_manifest(folder: Path) -> dict[str, Any]:
    """Reads the manifest of a dataset.

    Raises:
        DataError: There is no dataset in ``folder``, or one of another format.
    """
    try:
        found = read_json(folder / "manifest.json")
    except DataError as error:
        raise DataError(
            f"{folder} holds no readable dataset: {error.message}",
            hint="Make it with 'agentr import', or name a dataset of a run: RUN/rounds/01/dataset.",
        ) from error
    check_format(typed(dict[str, Any], found, f"{folder}/manifest.json"), f"the dataset {folder}")
    typed(_Manifest, found, f"{folder}/manifest.json")
    return found


def rows_hash(folder: Path) -> str:
    """Returns the hash of a dataset's rows, as its manifest has it: what a training was made of.

    Raises:
        DataError: As ``read_manifest``.
    """
    return read_manifest(folder).get("rows_hash", "")


def dataset_loss(folder: Path) -> Loss:
    """Returns the loss that a dataset is trained with.

    Raises:
        DataError: There is no dataset in ``folder``, or one of a type that is not known here.
    """
    return _described(folder, read_manifest(folder)["type"]).loss


def iter_rows(folder: Path) -> Iterator[Any]:
    """Yields the rows of a dataset of any type, in the order written; only a few are in memory at a time.

    Raises:
        DataError: The dataset is missing, or does not match its manifest.
    """
    manifest = read_manifest(folder)
    described = _described(folder, manifest["type"])
    for batch in read_table(folder / ROWS, _rows_footer(folder, manifest), rows=256):
        for entry in batch.to_pylist():
            yield _row_of(described, entry)


def read_row(folder: Path, index: int) -> Any:
    """Reads one row of a dataset, by its index.

    Raises:
        DataError: There is no such row (the error says how many there are), or the dataset is damaged.
    """
    (row,) = read_some(folder, [index])
    return row


def read_some(folder: Path, indices: Sequence[int]) -> list[Any]:
    """Reads rows of a dataset by their indices, in this order; of each file's part that has one of them, all rows pass
    through memory.

    Raises:
        DataError: As ``read_row``.
    """
    manifest = read_manifest(folder)
    if wrong := [index for index in indices if not 0 <= index < manifest["rows"]]:
        raise DataError(f"{folder} has no row {wrong[0]}", hint=f"Its rows: 0 to {manifest['rows'] - 1}.")
    described, found, first = _described(folder, manifest["type"]), {}, 0
    with open_table(folder / ROWS, _rows_footer(folder, manifest)) as file:
        for group in range(file.num_row_groups):
            count = file.metadata.row_group(group).num_rows
            if here := [index for index in set(indices) if first <= index < first + count]:
                rows = read_group(file, folder / ROWS, group)
                for index in here:
                    (entry,) = rows.slice(index - first, 1).to_pylist()
                    found[index] = _row_of(described, entry)
            first += count
    if len(found) < len(set(indices)):
        raise damaged(folder / ROWS, f"it ends before row {max(indices)}")
    return [found[index] for index in indices]


def iter_origins(folder: Path) -> Iterator[Provenance]:
    """Yields what each row of a dataset was made from, in the order written, without reading its tokens.

    Raises:
        DataError: As ``iter_rows``.
    """
    for batch in read_table(folder / ROWS, _rows_footer(folder, read_manifest(folder)), list(PROVENANCE)):
        for entry in batch.to_pylist():
            yield _provenance_of(entry)


def read_row_table(folder: Path) -> pa.Table:
    """Reads all rows of a dataset of any type as an Arrow table, as they are stored.

    Raises:
        DataError: As ``iter_rows``.
    """
    import pyarrow as pa

    manifest = read_manifest(folder)
    with open_table(folder / ROWS, _rows_footer(folder, manifest)) as file:
        groups = [read_group(file, folder / ROWS, group) for group in range(file.num_row_groups)]
        return pa.concat_tables(groups) if groups else file.schema_arrow.empty_table()


def _row_of(described: DatasetType, entry: dict[str, Any]) -> Any:
    own = {column: _read(kind, entry.get(column)) for column, kind in described.columns.items()}
    return described.row(**own, provenance=_provenance_of(entry))


def iter_dropped(folder: Path) -> Iterator[Dropped]:
    """Yields the dropped candidates of a dataset, in the order in which they came.

    Raises:
        DataError: The file is damaged.
    """
    footer = read_manifest(folder).get("dropped_footer")
    if footer is None:
        return
    for batch in read_table(folder / DROPPED, footer):
        for entry in batch.to_pylist():
            yield Dropped(_provenance_of(entry), entry["reason"])


def read_rows(folder: Path) -> list[Any]:
    """Reads the rows of a dataset, in the order written.

    Raises:
        DataError: As ``iter_rows``.
    """
    return list(iter_rows(folder))


def _described(folder: Path, name: str) -> DatasetType:
    if name not in DATASET_TYPES:
        known = ", ".join(DATASET_TYPES)
        hint = "Is it of a newer version of agentr?"
        raise DataError(f"{folder} holds a dataset of type {name!r}; known are {known}.", hint=hint)
    return DATASET_TYPES[name]


def _rows_footer(folder: Path, manifest: dict[str, Any]) -> str:
    """Returns the hash that the footer of the rows must have; the pages have checksums of their own."""
    return manifest.get("rows_footer", "")


def _read(kind: str, value: Any) -> Any:
    if kind.startswith("list<"):
        return tuple(value or ())
    return json.loads(value or "{}") if kind == "json" else value or ""


def _provenance_of(entry: dict[str, Any]) -> Provenance:
    return Provenance(**{column: _read(kind, entry.get(column)) for column, kind in PROVENANCE.items()})
