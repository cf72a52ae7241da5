"""Reads JSON, lines of JSON and tables (Parquet) from a user's file, and checks what their objects hold."""

import gzip
import json
import zlib
from collections import Counter
from collections.abc import Iterator, Set
from pathlib import Path
from typing import Any


def read_records(file: Path, first: int = 0) -> Iterator[tuple[str, Any]]:
    """The records of a table (Parquet), a JSON list or JSON lines, also gzipped, each with its place for an error to
    name.

    Args:
        first: Number of the first record of a table or a list.

    Raises:
        ValueError: The file cannot be read, or is none of these.
    """
    try:
        with file.open("rb") as opened:
            head = opened.read(4)
        if head == b"PAR1":
            from pyarrow import parquet

            yield from (
                (f"{file}, entry {number}", record)
                for number, record in enumerate(parquet.read_table(file).to_pylist(), first)
            )
            return
        # Lines end with a line feed alone: a text may hold other line separators, which JSON does not escape.
        with (gzip.open if head[:2] == b"\x1f\x8b" else open)(file, "rt", encoding="utf-8-sig", newline="\n") as lines:
            for number, line in enumerate(lines, 1):
                if line.lstrip().startswith("[") and number == 1:
                    records = enumerate(_value(line + lines.read(), str(file)), first)
                    yield from ((f"{file}, entry {number}", record) for number, record in records)
                elif line.strip():
                    yield f"{file}, line {number}", _value(line, f"{file}, line {number}")
    except (OSError, EOFError, zlib.error, UnicodeDecodeError) as error:
        raise ValueError(f"{file} cannot be read: {error}") from error


def read_json(file: Path) -> Any:
    """The one value of a JSON file.

    Raises:
        ValueError: It is not JSON, or cannot be read.
    """
    try:
        return _value(file.read_text(encoding="utf-8-sig"), str(file))
    except (OSError, UnicodeDecodeError) as error:
        raise ValueError(f"{file} cannot be read: {error}") from error


def _value(text: str, where: str) -> Any:
    try:
        return json.loads(text, object_pairs_hook=_object)
    # also of numbers with thousands of digits, and lists in lists in lists
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{where}: not JSON: {error}") from error


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Makes an object; of a key that is there twice, Python's reader would keep the last one in silence."""
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("a key is there twice")
    return found


def checked(
    value: Any, where: str, known: Set[str], not_read: Set[str] = frozenset(), count: Counter[str] | None = None
) -> dict[str, Any]:
    """An object without what is null. Keys of ``not_read`` are known to say nothing of what is read, and counted.

    Raises:
        ValueError: It is no object, or has a key that is not known and says something. ``where`` says in the message
            what it is.
    """
    at = f"{where}: " if where else ""
    if not isinstance(value, dict):
        raise ValueError(f"{at}an object is wanted, not {type(value).__name__}")
    for key in sorted(value.keys() - known):
        if not blank(value[key]) and key not in not_read:
            raise ValueError(
                f"{at}the key {key!r} is not known; leave it out of the file, or rename it if it says what a known one "
                "does"
            )
        if not blank(value[key]) and count is not None:
            count[key] += 1
    return {key: part for key, part in value.items() if part is not None}


def text_of(value: Any, where: str) -> str:
    """A text that can be encoded.

    Raises:
        ValueError: It is none, or holds half a surrogate pair, as cut-off emoji leave it in JSON.
    """
    if not isinstance(value, str):
        raise ValueError(f"{where}: a text is wanted, not {type(value).__name__}")
    value.encode()
    return value


def blank(value: Any) -> bool:
    """Whether a value says nothing: null, NaN, or empty."""
    return value is None or value != value or value in ([], {}) or (isinstance(value, str) and not value.strip())
