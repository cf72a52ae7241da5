"""Datasets on disk: types, losses, rows read back equal."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from agentr.errors import DataError
from agentr.store.dataset import dataset_loss, read_manifest, read_rows, write_rows
from agentr.store.rows import Preference, Provenance, Rollout, Row
from agentr.types import Loss

ROWS = [Row((1, 2, 3), (0, 1, 1), Provenance("a", (0, 1), "good", {"return": 0.5}))]
PAIRS = [Preference((1, 2), (3,), (1,), (4, 5), (1, 0), Provenance("a", (0, 1), "trajectory", rejected=(0, 2)))]

#: Two targets, of which the policy drew the last two tokens.
DRAWN = Rollout(
    (1, 2, 3), (0, 1, 1), Provenance("a", (1,), "rollout"), (None, -0.5, -0.25), (0.0, 1.0, -1.0), "a", {"total": 1.0}
)


def test_a_dataset_names_its_type_and_its_loss(tmp_path: Path) -> None:
    assert write_rows(tmp_path / "rows", ROWS)["type"] == "sequences"
    assert write_rows(tmp_path / "pairs", PAIRS)["type"] == "preferences"
    assert write_rows(tmp_path / "rollouts", [DRAWN])["type"] == "rollouts"
    assert dataset_loss(tmp_path / "rows") is Loss.IMITATE
    assert dataset_loss(tmp_path / "pairs") is Loss.PREFER
    assert dataset_loss(tmp_path / "rollouts") is Loss.REINFORCE
    assert read_rows(tmp_path / "rollouts") == [DRAWN]
    assert read_rows(tmp_path / "rollouts")[0].rewards == {"total": 1.0}
    assert read_rows(tmp_path / "rows") == ROWS
    assert read_rows(tmp_path / "pairs") == PAIRS


def test_an_empty_dataset_is_one_of_sequences(tmp_path: Path) -> None:
    write_rows(tmp_path, [])
    assert dataset_loss(tmp_path) is Loss.IMITATE
    assert read_rows(tmp_path) == []


def test_a_manifest_counts_rows_by_kind_and_their_tokens(tmp_path: Path) -> None:
    """The first token of a sequence has no prediction: a mask on it is no trained token."""
    more = [Row((1, 2), (1, 1), Provenance("b", (1,), kind)) for kind in ("good", "revision")]
    manifest = write_rows(tmp_path, [*ROWS, *more], source="here")
    assert (manifest["rows"], manifest["kinds"]) == (3, {"good": 2, "revision": 1})
    assert (manifest["tokens"], manifest["trained_tokens"], manifest["source"]) == (7, 4, "here")
    assert manifest == read_manifest(tmp_path)


def test_a_type_of_a_later_version_is_named(tmp_path: Path) -> None:
    write_rows(tmp_path, ROWS)
    (tmp_path / "manifest.json").write_text(json.dumps({**read_manifest(tmp_path), "type": "groups"}), encoding="utf-8")
    with pytest.raises(DataError, match="dataset of type 'groups'; known are sequences, rollouts, preferences"):
        dataset_loss(tmp_path)
    with pytest.raises(DataError, match="dataset of type 'groups'"):
        read_rows(tmp_path)


def test_all_ids_of_a_row() -> None:
    assert ROWS[0].sequences() == ((1, 2, 3),)
    assert PAIRS[0].sequences() == ((1, 2), (3,), (4, 5))
    assert (PAIRS[0].longest, PAIRS[0].tokens, PAIRS[0].targets) == (4, 7, 2)


def test_what_goes_through_the_model_and_what_counts() -> None:
    row = Row((1, 2, 3), (1, 0, 1), Provenance("a", (1,), "good"))
    assert (row.longest, row.tokens, row.targets) == (3, 3, 1), "nothing predicts the first token"
    longer = Preference((1, 2), (3, 4, 5), (1, 0, 1), (6,), (1,), Provenance("a", (1,), "step"))
    assert (longer.longest, longer.tokens, longer.targets) == (5, 8, 3)


def test_a_rollout_is_silent_if_no_target_has_an_advantage() -> None:
    assert not DRAWN.silent
    assert replace(DRAWN, advantages=(1.0, 0.0, 0.0)).silent
    assert not replace(DRAWN, advantages=(0.0, 0.0, -0.5)).silent


FAULTS: list[tuple[Any, dict[str, Any], str]] = [
    (ROWS[0], {"loss_mask": (0, 1)}, "a row of a has 3 ids and 2 mask values"),
    (ROWS[0], {"loss_mask": (0, 0, 0)}, "a row of a trains on nothing"),
    (ROWS[0], {"logprobs": (-0.5, -0.5)}, "a row of a has 3 ids and other numbers of log-probabilities"),
    (DRAWN, {"loss_mask": (0, 0, 0)}, "a row of a trains on nothing"),
    (DRAWN, {"advantages": (1.0, 1.0)}, "a row of a has 3 ids and other numbers of log-probabilities or advantages"),
    (DRAWN, {"advantages": ()}, "a row of a has targets without an advantage or a log-probability"),
    (DRAWN, {"logprobs": (None, -0.5, None)}, "a row of a has targets without an advantage or a log-probability"),
    (DRAWN, {"logprobs": ()}, "a row of a has no log-probabilities: a policy must have drawn it"),
    (PAIRS[0], {"prompt_ids": ()}, "a pair of a has no prompt"),
    (PAIRS[0], {"chosen_mask": (1, 1)}, "a chosen row of a has 1 ids and 2 mask values"),
    (PAIRS[0], {"chosen_mask": (0,)}, "a chosen row of a trains on nothing"),
    (PAIRS[0], {"chosen_logprobs": (-0.5, -0.5)}, "a chosen row of a has 1 ids and other numbers"),
    (PAIRS[0], {"rejected_mask": (1,)}, "a rejected row of a has 2 ids and 1 mask values"),
    (PAIRS[0], {"rejected_mask": (0, 0)}, "a rejected row of a trains on nothing"),
    (PAIRS[0], {"rejected_logprobs": (-0.5,)}, "a rejected row of a has 2 ids and other numbers"),
]


@pytest.mark.parametrize(("row", "change", "says"), FAULTS)
def test_a_row_that_cannot_be_trained_on_is_refused_with_what_is_wrong(
    row: Any, change: dict[str, Any], says: str
) -> None:
    with pytest.raises(DataError, match=says):
        replace(row, **change)
