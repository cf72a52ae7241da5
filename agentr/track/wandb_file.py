"""Reads the rows of a file that Weights & Biases wrote offline: records in the form of LevelDB's logs, as protocol
buffers."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from wandb.proto.wandb_internal_pb2 import Record  # type: ignore[attr-defined]

_HEADER = 7  # of the file as of a record: of the latter a checksum (4), the length (2), the kind (1)
_BLOCK = 32 * 1024
_WHOLE, _FIRST, _MIDDLE, _LAST = 1, 2, 3, 4


def rows(path: Path) -> Iterator[dict[str, Any]]:
    """Yields the logged rows of a file, as far as they are whole: a killed process leaves its last block unwritten."""
    for data in _records(path.read_bytes()):
        record = Record.FromString(data)
        if record.WhichOneof("record_type") == "history":
            yield {item.key or "/".join(item.nested_key): json.loads(item.value_json) for item in record.history.item}


def _records(data: bytes) -> Iterator[bytes]:
    place, parts = _HEADER, b""
    while place + _HEADER <= len(data):
        if (left := _BLOCK - place % _BLOCK) < _HEADER:
            place += left
            continue
        length, kind = int.from_bytes(data[place + 4 : place + 6], "little"), data[place + 6]
        end = place + _HEADER + length
        if kind not in (_WHOLE, _FIRST, _MIDDLE, _LAST) or end > len(data):
            return
        parts = data[place + _HEADER : end] if kind in (_WHOLE, _FIRST) else parts + data[place + _HEADER : end]
        if kind in (_WHOLE, _LAST):
            yield parts
        place = end
