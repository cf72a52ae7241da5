"""``agentr chaos`` on one machine: every part of a step of online training is hit, and a soak measures what it says.

All faults of all stages of Agent-R, by hand, in about 15 minutes on two cores: ``agentr chaos configs/smoke.yaml``.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from agentr.store.files import read_lines
from tests.chaos.driver import end, start
from tests.chaos.online import written

pytestmark = [pytest.mark.cluster, pytest.mark.chaos, pytest.mark.timeout(1200)]


@pytest.fixture
def parent(undisturbed_online: Path, tmp_path: Path) -> Path:
    """A folder for the runs of a test, in which the undisturbed one is there already."""
    shutil.copytree(undisturbed_online, tmp_path / "chaos" / "undisturbed", symlinks=True)
    return tmp_path / "chaos"


def chaos(parent: Path, *arguments: str) -> tuple[int, str]:
    log = parent.parent / "log"
    command = start(log, "chaos", str(written(parent.parent)), f"run.dir={parent}", *arguments)
    try:
        return command.wait(1100), log.read_text()
    finally:
        end(command)


def test_every_part_of_an_online_step_is_hit_and_nothing_is_lost(parent: Path) -> None:
    status, said = chaos(parent, "--faults=rollouts:*", "--faults=rollouts:coordinator:freeze", "--freeze=5")
    assert status == 0, said[-3000:]
    report = json.loads((parent / "chaos.json").read_text())
    assert report["same"] and report["contents"] and report["units"] > 100
    hit = {outcome["fault"]: outcome for outcome in report["faults"] if outcome["hit"]}
    parts = ("engine", "environment", "supervisor", "coordinator", "coordinator:freeze", "worker", "controller", "driver")
    assert sorted(hit) == sorted(f"rollouts:{part}" for part in parts), said[-3000:]
    for outcome in hit.values():
        assert outcome["recovered_s"] is not None and (outcome["lost"], outcome["twice"]) == (0, 0), outcome
        assert outcome["noticed_s"] is not None or outcome["fault"].endswith("freeze"), outcome
    assert "none lost, none twice" in said and not list(parent.glob("disturbed-*/rounds/**/work-*"))


def test_a_soak_runs_again_and_again_and_judges_each_quantity(parent: Path) -> None:
    status, said = chaos(parent, "--hours=0.01", "--every=12", "--seed=1", "--faults=rollouts:e*", "--faults=rollouts:coordinator")
    found = json.loads((parent / "soak.json").read_text())
    assert status == 0, said[-3000:]
    assert found["runs"] and not any(found["runs"].values()), "a run of the soak is not the same"
    assert found["faults"] and all(outcome["hit"] for outcome in found["faults"])
    assert {slope["verdict"] for slope in found["slopes"]} == {"cannot be told"}, "half a minute says nothing"
    measured = {(slope["part"], slope["of"]) for slope in found["slopes"]}
    assert {("driver", "memory, MiB"), ("engine", "file handles"), ("environment", "sessions"), ("worker", "memory, MiB")} <= measured
    lines = read_lines(parent / "samples.jsonl")
    assert all(line["mib"] > 1 and line["handles"] > 2 for line in lines)
