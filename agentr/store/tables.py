"""Reads and writes sealed tables: Parquet files whose hashes are in manifests. A file that does not match its hash is refused."""

from __future__ import annotations

import hashlib
import io
from pathlib import Path
from typing import Any

from agentr.errors import DataError
from agentr.store.files import write_bytes


def write_table(path: Path, columns: dict[str, Any]) -> str:
    """Writes columns of equal length, as Arrow arrays by their names, and returns the file's SHA-256."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    buffer = io.BytesIO()
    pq.write_table(pa.table(columns), buffer)
    write_bytes(path, buffer.getvalue())
    return hashlib.sha256(buffer.getvalue()).hexdigest()


def read_table(path: Path, sha256: str, hint: str) -> dict[str, list[Any]]:
    """Reads the columns of a table, by their names.

    Args:
        hint: What to do about a table that is damaged.

    Raises:
        DataError: The file is missing, or does not match the hash in its manifest.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    data = path.read_bytes() if path.exists() else b""
    if hashlib.sha256(data).hexdigest() != sha256:
        raise DataError(f"{path} is missing or does not match its manifest.", hint=hint)
    return pq.read_table(pa.BufferReader(data), use_threads=False).to_pydict()  # Arrow's threads may abort a process as it ends
