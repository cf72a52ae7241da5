"""Online training, killed in every part of a step: it comes to the same rollouts, rows, losses and weights."""

import shutil
from pathlib import Path
from typing import Any

import pytest

import agentr
from agentr.config.policy import SHARED_MEMORY
from agentr.search.stored import to_json
from agentr.store.files import read_lines
from tests.chaos.driver import end, kill, wait_for
from tests.chaos.online import started

pytestmark = [pytest.mark.cluster, pytest.mark.chaos, pytest.mark.by_hand, pytest.mark.timeout(1200)]


def contents(root: Path) -> dict[str, Any]:
    """All that a run of online training decides."""
    run = agentr.open(root)
    rollouts, train = run.rounds[1].rollouts, run.rounds[1].train
    found: dict[str, Any] = {f"trees {key}": to_json(rollouts[key]) for key in rollouts.keys()}  # noqa: SIM118 - no dict
    found |= {f"rows {number}": list(step.dataset.rows) for number, step in rollouts.steps.items()}
    found |= {f"loss {line['step']}": (line["loss"], line.get("entropy")) for line in train.curve_lines()}
    found |= {
        f"validation {path.parent.name}": path.read_text()
        for path in sorted(rollouts.path.glob("validation/*/evaluation.json"))
    }
    return {**found, "weights": (train.model / "model.safetensors").read_bytes(), "best": train.summary.best_step}


def noted(root: Path, step: int) -> bool:
    return any(line["step"] >= step for line in read_lines(root / "rounds/01/rollouts/steps.jsonl"))


@pytest.fixture(scope="module")
def undisturbed(undisturbed_online: Path) -> dict[str, Any]:
    found = contents(undisturbed_online)
    assert (
        sum(name.startswith("rows") for name in found) == 7
        and sum(name.startswith("validation") for name in found) == 3
    )
    assert len({str(value) for name, value in found.items() if name.startswith("loss")}) == 7
    return found


def test_every_part_is_killed(undisturbed: dict[str, Any], tmp_path: Path) -> None:
    root = tmp_path / "run"
    before = set(SHARED_MEMORY.glob("agentr-*"))
    driver = started(root, "policy.sync=memory")
    try:
        wait_for(lambda: noted(root, 1), driver, "step 1")
        kill(driver, r"ray::.*EngineActor")
        wait_for(lambda: noted(root, 2), driver, "step 2")
        kill(driver, r"-m env_servers serve")
        wait_for(lambda: noted(root, 3), driver, "step 3")
        kill(driver, r"ray::.*RayTrainWorker|ray::.*TrainWorker")
        wait_for(lambda: noted(root, 4), driver, "step 4")
        kill(driver, r"ray::.*Coordinator(?!Actor)")
        wait_for(lambda: noted(root, 5), driver, "step 5")
        driver.kill()
        driver.wait()
        (memory,) = set(SHARED_MEMORY.glob("agentr-*")) - before
        shutil.rmtree(memory)  # as if the machine had been started anew
        driver = started(root, "policy.sync=memory")
        assert driver.wait(600) == 0, (tmp_path / "log").read_text()[-3000:]
    finally:
        end(driver)
    assert set(SHARED_MEMORY.glob("agentr-*")) == before
    found = contents(root)
    assert found.keys() == undisturbed.keys()
    assert [name for name in found if found[name] != undisturbed[name]] == []
