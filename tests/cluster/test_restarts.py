"""Restarts within a window, and not within a life."""

from pathlib import Path

import pytest

from agentr.cluster import restarts
from agentr.cluster.restarts import Restarts
from agentr.errors import EngineLost, RunError


def test_more_restarts_than_allowed_within_the_window_are_refused_and_old_ones_are_forgotten(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [1000.0]
    monkeypatch.setattr(restarts.time, "time", lambda: now[0])
    counted = Restarts(tmp_path / "logs", limit=2, window_s=60.0).named("rollout-0", "ab")
    for _ in range(3):  # the start and two restarts
        counted.count()
        now[0] += 10
    with pytest.raises(EngineLost, match=r"rollout-0 died 3 times within 60 s.*cluster\.actor_restarts"):
        counted.count()
    now[0] += 1000
    for _ in range(3):
        counted.count()
    other = Restarts(tmp_path, limit=2, window_s=60.0).named("rollout-0", "cd")
    other.count()  # of another life of the run


def test_a_run_directory_that_is_gone_is_not_made_anew(tmp_path: Path) -> None:
    with pytest.raises(RunError, match="its folder is gone"):
        Restarts(tmp_path / "run/logs", limit=2, window_s=60.0).named("rollout-0", "ab").count()
    assert not (tmp_path / "run").exists()
