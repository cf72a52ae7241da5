"""Tables as Parquet files, written a row at a time, read a few rows at a time.

Every page has a checksum, which is compared when the page is read. The footer has none, and Arrow ends the process over
some damaged footers: whoever keeps a table also keeps the hash of its footer, which is compared before Arrow sees the
file.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from blake3 import blake3

from agentr.errors import DataError
from agentr.store.files import writing

if TYPE_CHECKING:
    import pyarrow as pa

#: Most rows of a row group.
ROWS = 4096

#: What to do about a damaged file of a run.
HINT = "Say 'agentr doctor RUN': it names what is damaged, and what can be made anew."


class TableWriter(AbstractContextManager[Any]):
    """Writes a table in one atomic step, a row group at a time.

    Args:
        path: The file; it is there, whole, when the block was left without an error.
        columns: Arrow types by the columns' names, as ``arrow_type`` reads them.
        group_bytes: A row group is also closed when its values have so many bytes (of text, bytes and lists).
        compressed: Whether to compress; values that are compressed already gain nothing.
    """

    def __init__(
        self, path: Path, columns: Mapping[str, str], *, group_bytes: int = 1 << 21, compressed: bool = True
    ) -> None:
        self.schema = schema(columns)
        self._path = path
        self._kinds = columns
        self._columns: dict[str, list[Any]] = {name: [] for name in columns}
        self._group_bytes = group_bytes
        self._compressed = compressed
        self._bytes = 0
        self._rows = 0
        self._stack = ExitStack()
        #: Hash of the table's footer, once the block was left.
        self.footer = ""

    def __enter__(self) -> Self:
        import pyarrow.parquet as pq

        with ExitStack() as stack:
            file = stack.enter_context(writing(self._path))
            # Statistics of a column of bytes or lists would hold whole values, several times.
            small = [name for name, kind in self._kinds.items() if not kind.startswith(("list<", "binary", "json"))]
            kind = {
                "compression": "zstd" if self._compressed else "none",
                "use_dictionary": self._compressed,
                "write_statistics": small,
            }
            self._writer = stack.enter_context(pq.ParquetWriter(file, self.schema, write_page_checksum=True, **kind))
            self._stack = stack.pop_all()
        return self

    def add(self, row: Mapping[str, Any]) -> None:
        """Adds a row: a value for each column, None where there is none."""
        for name, values in self._columns.items():
            value = row[name]
            values.append(value)
            if isinstance(value, bytes | str):
                self._bytes += len(value)
            elif isinstance(value, Sequence):
                self._bytes += 4 * len(value)
        self._rows += 1
        if self._rows >= ROWS or self._bytes >= self._group_bytes:
            self._flush()

    def _flush(self) -> None:
        import pyarrow as pa

        if not self._rows:
            return
        arrays = [
            pa.array(values, field.type) for values, field in zip(self._columns.values(), self.schema, strict=True)
        ]
        self._writer.write_table(pa.Table.from_arrays(arrays, schema=self.schema), row_group_size=self._rows)
        for values in self._columns.values():
            values.clear()
        self._rows = self._bytes = 0

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            try:
                self._flush()
            except BaseException as failed:
                if not self._stack.__exit__(type(failed), failed, failed.__traceback__):
                    raise
        self._stack.__exit__(kind, error, trace)
        if kind is None:
            self.footer = footer_hash(self._path)


def read_table(
    path: Path, footer: str, columns: Sequence[str] | None = None, rows: int = ROWS
) -> Iterator[pa.RecordBatch]:
    """Yields the rows of a table, some at a time.

    Args:
        footer: Hash of its footer.
        columns: Those to read, if the table has them; all by default.
        rows: Most rows at a time.

    Raises:
        DataError: The file is missing or damaged.
    """
    with open_table(path, footer) as file:
        try:
            known = [name for name in file.schema_arrow.names if columns is None or name in columns]
            # Without threads: Arrow's may abort a process as it ends.
            yield from file.iter_batches(rows, columns=known, use_threads=False)
        except (OSError, ValueError) as error:  # Arrow's errors are either
            raise damaged(path, error) from error


def open_table(path: Path, footer: str) -> Any:
    """Opens a table for reading by row groups: a ``pyarrow.parquet.ParquetFile``.

    Raises:
        DataError: The file is missing, or its footer is damaged.
    """
    import pyarrow.parquet as pq

    try:
        if footer_hash(path) != footer:
            raise damaged(path, "its footer has another hash than when it was written")
        return pq.ParquetFile(path, page_checksum_verification=True)
    except (OSError, ValueError) as error:
        raise damaged(path, error) from error


def read_group(file: Any, path: Path, group: int) -> pa.Table:
    """Reads a row group of a table that ``open_table`` opened.

    Raises:
        DataError: A page of it is damaged.
    """
    try:
        return file.read_row_group(group, use_threads=False)
    except (OSError, ValueError) as error:  # Arrow's errors are either
        raise damaged(path, error) from error


def footer_hash(path: Path) -> str:
    """Returns the hash of a table's footer.

    Raises:
        OSError: The file cannot be read.
    """
    with path.open("rb") as file:
        size = file.seek(0, 2)
        file.seek(max(0, size - 8))
        length = int.from_bytes(file.read(4), "little")
        file.seek(max(0, size - 8 - length))
        return blake3(file.read()).hexdigest(length=16)


def damaged(path: Path, problem: object) -> DataError:
    """Returns the error for a damaged file of a run."""
    return DataError(f"{path} is damaged or missing: {' '.join(str(problem).split())}", hint=HINT)


def schema(columns: Mapping[str, str]) -> pa.Schema:
    """Returns the Arrow schema of columns with these types."""
    import pyarrow as pa

    return pa.schema([pa.field(name, arrow_type(kind)) for name, kind in columns.items()])


def arrow_type(name: str) -> Any:
    """Returns an Arrow type by its name, such as ``int32``, ``string``, ``json`` (text) or ``list<int32>``."""
    import pyarrow as pa

    if name == "json":
        return pa.string()
    if name.startswith("list<"):
        return pa.list_(pa.type_for_alias(name[5:-1]))
    return pa.type_for_alias(name)
