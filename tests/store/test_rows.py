"""Datasets on disk: types, losses, rows read back equal."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from agentr.errors import DataError
from agentr.store.dataset import dataset_loss, read_any, read_manifest, read_preferences, read_rows, write_rows
from agentr.store.rows import Preference, Provenance, Row
from agentr.types import Loss

ROWS = [Row((1, 2, 3), (0, 1, 1), Provenance("a", (0, 1), "good", {"return": 0.5}))]
PAIRS = [Preference((1, 2), (3,), (1,), (4, 5), (1, 0), Provenance("a", (0, 1), "trajectory", rejected=(0, 2)))]


def test_a_dataset_names_its_type_and_its_loss(tmp_path: Path) -> None:
    assert write_rows(tmp_path / "rows", ROWS)["type"] == "sequences"
    assert write_rows(tmp_path / "pairs", PAIRS)["type"] == "preferences"
    assert dataset_loss(tmp_path / "rows") is Loss.IMITATE
    assert dataset_loss(tmp_path / "pairs") is Loss.PREFER
    assert read_any(tmp_path / "rows") == read_rows(tmp_path / "rows") == ROWS
    assert read_any(tmp_path / "pairs") == read_preferences(tmp_path / "pairs") == PAIRS
    with pytest.raises(DataError, match="holds preferences, and sequences are wanted"):
        read_rows(tmp_path / "pairs")


def test_an_empty_dataset_is_one_of_sequences(tmp_path: Path) -> None:
    write_rows(tmp_path, [])
    assert dataset_loss(tmp_path) is Loss.IMITATE
    assert read_any(tmp_path) == read_preferences(tmp_path) == []


def test_a_type_of_a_later_version_is_named(tmp_path: Path) -> None:
    write_rows(tmp_path, ROWS)
    (tmp_path / "manifest.json").write_text(json.dumps({**read_manifest(tmp_path), "type": "groups"}), encoding="utf-8")
    with pytest.raises(DataError, match="dataset of type 'groups'; known are sequences, rollouts, preferences"):
        dataset_loss(tmp_path)
    with pytest.raises(DataError, match="dataset of type 'groups'"):
        read_any(tmp_path)


def test_all_ids_of_a_row() -> None:
    assert ROWS[0].sequences() == ((1, 2, 3),)
    assert PAIRS[0].sequences() == ((1, 2), (3,), (4, 5))
    assert (PAIRS[0].longest, PAIRS[0].tokens, PAIRS[0].targets) == (4, 7, 2)
