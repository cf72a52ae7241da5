"""Reads JSON, lines of JSON and tables (Parquet) from a user's file."""

from __future__ import annotations

import gzip
import json
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any


def read_records(file: Path, first: int = 0) -> Iterator[tuple[str, Any]]:
    """The records of a table (Parquet), a JSON list or JSON lines, also gzipped, each with its place for an error to name.

    Args:
        first: Number of the first record of a table or a list.

    Raises:
        ValueError: The file cannot be read, or is none of these.
    """
    records, text = None, ""
    try:
        data = file.read_bytes()
        if data.startswith(b"PAR1"):
            from pyarrow import parquet

            records = parquet.read_table(file).to_pylist()
        else:
            text = (gzip.decompress(data) if data.startswith(b"\x1f\x8b") else data).decode("utf-8-sig")
    except (OSError, EOFError, zlib.error, ValueError) as error:  # ArrowInvalid is a ValueError
        raise ValueError(f"{file} cannot be read: {error}") from error
    if text.lstrip().startswith("["):
        records = _value(text, str(file))
    if records is not None:
        yield from ((f"{file}, entry {number}", record) for number, record in enumerate(records, first))
        return
    # Not splitlines(): a text may hold other line separators, which JSON does not escape.
    for number, line in enumerate(text.split("\n"), 1):
        if line.strip():
            yield f"{file}, line {number}", _value(line, f"{file}, line {number}")


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
