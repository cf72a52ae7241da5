"""Reads JSON and lines of JSON from a user's file."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any


def read_jsonl(file: Path) -> Iterator[tuple[int, Any]]:
    """Line number (from 1) and value of each line that is not empty.

    Raises:
        ValueError: A line is not JSON.
    """
    with gzip.open(file, "rt", encoding="utf-8") if file.suffix == ".gz" else file.open(encoding="utf-8") as lines:
        for number, line in enumerate(lines, 1):
            if line.strip():
                try:
                    yield number, json.loads(line)
                except json.JSONDecodeError as error:
                    raise ValueError(f"{file}, line {number}: not JSON: {error}") from error


def read_json(file: Path) -> Any:
    """The one value of a JSON file.

    Raises:
        ValueError: It is not JSON.
    """
    try:
        return json.loads(file.read_text(encoding="utf-8"))
    except json.JSONDecodeError as error:
        raise ValueError(f"{file}: not JSON: {error}") from error
