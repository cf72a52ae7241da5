"""`python -m tests.tools.bench scale` as one calls it, small; and its rule of what limits."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from agentr.errors import ConfigError
from tests.tools.bench.scale_table import limit
from tests.tools.bench.simulated import Load


def bench(*arguments: str, **environ: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "tests.tools.bench", "scale", *arguments]
    return subprocess.run(
        command, capture_output=True, text=True, check=False, timeout=120, env={**os.environ, **environ}
    )


@pytest.mark.cluster
@pytest.mark.timeout(150)
def test_two_engines_and_two_coordinators(tmp_path: Path):
    figures, disk = tmp_path / "figures.json", tmp_path / "disk"
    disk.mkdir()
    arguments = (
        "--engines=2",
        "--seconds=12",
        "--latency=0.05",
        "--slots=8",
        "--tokens=20",
        "--coordinators=2",
        f"--folder={disk}",
        f"--json={figures}",
    )
    done = bench(*arguments)
    assert done.returncode == 0, done.stderr[-3000:]
    (point,) = json.loads(figures.read_text())["points"]
    assert point["engines"] == 2 and point["growing"] == point["trees"] == 4
    positive = (
        "expansions",
        "per_s",
        "ideal",
        "prompt_tokens",
        "coordinator_ms",
        "environment_ms",
        "engines_ms",
        "coordinator_mb",
    )
    assert all(point[name] > 0 for name in positive), point
    assert 0 < point["share"] <= 1.05
    assert 0 <= point["lag_p50_ms"] <= point["lag_p99_ms"]
    assert point["finished"] > 0, "trees ended and others began while it was measured"
    assert point["journaled"] >= point["total"] >= point["expansions"], "every expansion that was counted is on disk"
    assert point["retried"] == {}
    assert point["limit"] and "share" in done.stdout
    assert list(disk.iterdir()) == [], "the measured trees are thrown away"


@pytest.mark.parametrize("numbers", ["0,8", "some"])
def test_numbers_that_make_no_sense(numbers: str):
    done = bench(f"--engines={numbers}")
    assert done.returncode != 0
    assert "such as" in done.stderr


def test_slots_without_room():
    with pytest.raises(ConfigError, match="no room"):
        Load(slots=2, width=4)


def test_ideal():
    load = Load(latency_s=2.0, sigma=0.0, slots=128, width=4)
    assert load.ideal(8) == 8 * 32 / 2.0
    assert Load(latency_s=2.0, sigma=0.0, slots=128, width=4, trees=64).ideal(8) == 64 / 2.0, "no more calls than trees"
    assert Load(latency_s=2.0, sigma=0.0, slots=128, width=4, trees=1024).ideal(8) == load.ideal(8)


@pytest.mark.parametrize(
    ("share", "free", "who"),
    [
        (0.95, "", "the engines"),
        (0.5, "", "the coordinator"),
        (0.5, "coordinator", "the coordinator"),
        (0.5, "coordinator late", "an environment server"),
        (0.5, "coordinator late environment", "the simulation"),
        (0.5, "coordinator late environment engines", "the machine"),
        (0.5, "coordinator late environment engines machine", "the start"),
    ],
)
def test_what_limits(share: float, free: str, who: str):
    busy = dict.fromkeys(("coordinator", "late", "environment", "engines", "machine"), 0.9)
    assert limit(share, **(busy | dict.fromkeys(free.split(), 0.0)), growing=0.5).startswith(who)


def test_nothing_limits():
    assert limit(0.5, coordinator=0.5, late=0.0, environment=0.5, engines=0.5, machine=0.5, growing=1.0).startswith(
        "no process"
    )
