"""The file that stands for the reference model."""

from pathlib import Path

import numpy as np
import pytest

from agentr.train.reference import read_reference, write_reference

LOGPROBS = np.array([[-1.5, -2.5], [np.nan, np.nan]], dtype=np.float32)


def test_a_reference_is_read_back_for_its_own_dataset_and_start_only(tmp_path: Path) -> None:
    path = tmp_path / "reference.npz"
    assert read_reference(path, "data", "start") is None
    write_reference(path, LOGPROBS, "data", "start")
    found = read_reference(path, "data", "start")
    assert found is not None
    assert found.dtype == np.float32
    assert np.array_equal(found, LOGPROBS, equal_nan=True)
    assert read_reference(path, "other", "start") is None
    assert read_reference(path, "data", "other") is None


@pytest.mark.parametrize("keep", [0, 10, -1])
def test_a_torn_reference_is_none(tmp_path: Path, keep: int) -> None:
    path = tmp_path / "reference.npz"
    write_reference(path, LOGPROBS, "data", "start")
    path.write_bytes(path.read_bytes()[:keep])
    assert read_reference(path, "data", "start") is None
