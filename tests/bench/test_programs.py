"""The benchmark of programs."""

import json

import pytest

from env_servers.sandbox import launch
from tests.bench.tool import bench


@pytest.mark.skipif(not launch.available(), reason="programs cannot be isolated here")
def test_what_programs_take() -> None:
    figures = json.loads(bench("programs", "--quick", "--json"))
    assert figures["held"] == 4 and figures["held_mib"] > 1 and figures["program_mib"] > 1
    assert figures["branch_ms"]["24"] > 0 and figures["idle_cpu"] < 1
    assert all(figures[key] > 0 for key in ("start_ms", "starts_per_s", "call_ms", "client_ms", "calls_per_s"))
