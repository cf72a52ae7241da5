"""Reads JSON, lines of JSON and tables (Parquet) from a user's file."""

from __future__ import annotations

import gzip
import json
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any


def read_records(file: Path) -> Iterator[tuple[str, Any]]:
    """The records of a ``.parquet``, ``.json`` (a list), ``.jsonl`` or ``.jsonl.gz`` file, each with its place for an error to name.

    Raises:
        ValueError: The file cannot be read, or has another ending.
    """
    if file.name.endswith((".jsonl", ".jsonl.gz")):
        yield from ((f"{file}, line {number}", record) for number, record in read_jsonl(file))
        return
    if file.suffix == ".parquet":
        import pyarrow
        from pyarrow import parquet

        try:
            records = parquet.read_table(file).to_pylist()
        except (OSError, pyarrow.ArrowException) as error:
            raise ValueError(f"{file} is no table (Parquet) that can be read: {error}") from error
    elif file.suffix == ".json":
        records = read_json(file)
        if not isinstance(records, list):
            raise ValueError(f"{file}: a .json file of records holds a list")
    else:
        raise ValueError(f"{file}: records are in a .parquet, .jsonl, .jsonl.gz or .json file")
    yield from ((f"{file}, record {number}", record) for number, record in enumerate(records))


def read_jsonl(file: Path) -> Iterator[tuple[int, Any]]:
    """Line number (from 1) and value of each line that is not empty.

    Raises:
        ValueError: A line is not JSON, or the file cannot be read.
    """
    try:
        with gzip.open(file, "rt", encoding="utf-8-sig") if file.suffix == ".gz" else file.open(encoding="utf-8-sig") as lines:
            for number, line in enumerate(lines, 1):
                if line.strip():
                    yield number, _value(line, f"{file}, line {number}")
    except (OSError, EOFError, zlib.error, UnicodeDecodeError) as error:
        raise ValueError(f"{file} cannot be read: {error}") from error


def read_json(file: Path) -> Any:
    """The one value of a JSON file.

    Raises:
        ValueError: It is not JSON, or cannot be read.
    """
    try:
        text = file.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise ValueError(f"{file} cannot be read: {error}") from error
    return _value(text, str(file))


def _value(text: str, where: str) -> Any:
    try:
        return json.loads(text, object_pairs_hook=_object)
    except (ValueError, RecursionError) as error:  # also of numbers with thousands of digits, and lists in lists in lists
        raise ValueError(f"{where}: not JSON: {error}") from error


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Makes an object; of a key that is there twice, Python's reader would keep the last one in silence."""
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("a key is there twice")
    return found
