"""`agentr bench collect` as one calls it, with the small model that ships."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(600)]


def bench(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "agentr.cli", "bench", "collect", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=500)


def test_ours_against_the_originals_way(tmp_path: Path):
    done = bench(
        f"run.dir={tmp_path / 'run'}",
        "model={source: nano, dtype: float32}",
        "policy.kv_cache_gib=0.25",
        "policy.threads=1",
        "warm_start.train={steps: 30, learning_rate: 1.0e-3, batch_size: 8, micro_batch_size: 8, max_length: 768}",
        "method.search.iterations=2",
        "--trees=4",
        "--reference-trees=2",
        "--json",
    )
    assert done.returncode == 0, done.stderr[-3000:]
    result = json.loads(done.stdout)
    ours, reference = result["ours"], result["reference"]
    assert (ours["trees"], reference["trees"]) == (4, 2)
    assert ours["nodes"] > 10 and reference["nodes"] > 10, (
        "the policy took too few actions for the comparison to say anything"
    )
    assert 0.9 < ours["replay_factor"] <= 1.0, "siblings of one action share a step"
    # A little below 1 is possible: the ideal takes the trees one after the other, and here one may decode what another
    # prefills.
    assert 0.95 < ours["excess_prefill"] <= 1.5
    # One completion a call, each with its whole prompt computed, and each action after a replay of its path.
    assert reference["calls"] == reference["completions"] > ours["completions"] / ours["calls"] > 1
    assert reference["replay_factor"] > 1.5
    assert reference["excess_prefill"] > 2 * ours["excess_prefill"]
    assert result["speedup"] == pytest.approx(ours["trees_per_minute"] / reference["trees_per_minute"])
    assert list((tmp_path / "run").glob("trees-*")) == [], "the measured trees are thrown away"


def test_more_reference_trees_than_trees(tmp_path: Path):
    done = bench(f"run.dir={tmp_path / 'run'}", "--trees=2", "--reference-trees=3")
    assert done.returncode != 0
    assert "3 reference trees of 2" in done.stderr
