"""``python -m tests.tools.chaos`` on one machine: parts of a step of online training are hit, and a soak measures what
it says.

By hand: ``pytest tests/chaos/test_command.py --by-hand``. All faults of all stages of Agent-R, in a quarter of an hour
on two cores: ``python -m tests.tools.chaos configs/smoke.yaml``.
"""

import json
import shutil
from pathlib import Path

import pytest

from agentr.store.files import read_lines
from tests.chaos.driver import chaos
from tests.chaos.online import written

pytestmark = [pytest.mark.cluster, pytest.mark.chaos, pytest.mark.timeout(1200)]


@pytest.fixture
def parent(undisturbed_online: Path, tmp_path: Path) -> Path:
    """A folder for the runs of a test, in which the undisturbed one is there already."""
    shutil.copytree(undisturbed_online, tmp_path / "chaos" / "undisturbed", symlinks=True)
    return tmp_path / "chaos"


#: Of a step of online training.
PARTS = ("engine", "environment", "coordinator", "worker", "driver", "supervisor", "controller", "coordinator:freeze")


@pytest.mark.by_hand
def test_parts_of_an_online_step_are_hit_and_nothing_is_lost(parent: Path) -> None:
    status, said = chaos(written(parent.parent), parent, *(f"--faults=rollouts:{part}" for part in PARTS), "--freeze=5")
    assert status == 0, said[-3000:]
    report = json.loads((parent / "chaos.json").read_text())
    assert report["same"] and report["contents"] and report["units"] > 100
    hit = {outcome["fault"]: outcome for outcome in report["faults"] if outcome["hit"]}
    assert sorted(hit) == sorted(f"rollouts:{part}" for part in PARTS), said[-3000:]
    for outcome in hit.values():
        assert outcome["recovered_s"] is not None and (outcome["lost"], outcome["twice"]) == (0, 0), outcome
        assert outcome["noticed_s"] is not None or outcome["fault"].endswith("freeze"), outcome
        assert not outcome["ended"], "the driver ended, and was started again"
    assert "none lost, none twice" in said and not list(parent.glob("disturbed-*/rounds/**/work-*"))


@pytest.mark.by_hand
def test_a_soak_runs_again_and_again_and_judges_each_quantity(parent: Path) -> None:
    status, said = chaos(
        written(parent.parent),
        parent,
        "--hours=0.008",
        "--every=10",
        "--seed=1",
        "--faults=*:environment",
        "--faults=*:coordinator",
    )
    found = json.loads((parent / "soak.json").read_text())
    assert status == 0, said[-3000:]
    assert found["runs"] and not any(found["runs"].values()), "a run of the soak is not the same"
    assert found["faults"] and all(outcome["hit"] for outcome in found["faults"])
    assert {slope["verdict"] for slope in found["slopes"]} == {"cannot be told"}, "half a minute says nothing"
    measured = {(slope["part"], slope["of"]) for slope in found["slopes"]}
    assert {
        ("driver", "memory, MiB"),
        ("engine", "file handles"),
        ("environment", "sessions"),
        ("worker", "memory, MiB"),
    } <= measured
    lines = read_lines(parent / "samples.jsonl")
    assert all(line["mib"] > 1 and line["handles"] > 2 for line in lines)
