"""The benchmark of the run directory."""

import json

import pytest

from tests.bench.tool import bench


@pytest.mark.slow
def test_the_store_is_measured() -> None:
    found = json.loads(bench("store", "--trees", "40", "--nodes", "20", "--json"))
    assert found["trees"] == 40 and {"seal", "list", "one tree", "build", "export"} <= found.keys()
    assert found["export"]["size"] > 0
    assert "10 trees of 20 nodes" in bench("store", "--trees", "10", "--nodes", "20")
