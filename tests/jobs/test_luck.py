"""Agent-R where part of the state is hidden, with real parts: turns are tried in other worlds, and all is the same
again after the coordinator and the driver were killed in the midst of it."""

from pathlib import Path
from typing import Any

import pytest

import agentr
from agentr.search.stored import to_json
from agentr.store.forest import Forest
from tests.chaos.driver import end, kill, start, wait_for

pytestmark = [pytest.mark.cluster, pytest.mark.chaos, pytest.mark.timeout(900)]

CUT = [
    "cluster.dashboard=false",
    "run.rounds=1",
    "policy.engines=1",
    "trainer.workers=1",
    "method.revise.worlds=2",
    "warm_start.train.steps=60",
    "train.0.steps=4",
    "collect.tasks={split: train, limit: 24}",
    "collect.in_flight=3",
    "collect.infra_retries=8",
    "env.retries=8",
    "eval.tasks={split: test, limit: 4}",
]


def contents(root: Path) -> dict[str, Any]:
    """All that the round decides."""
    round_ = agentr.open(root).rounds[1]
    found: dict[str, Any] = {tree.task.key: to_json(tree) for tree in round_.stages()["revise"]}
    weights = (round_.train.model / "model.safetensors").read_bytes()
    return {**found, "rows": list(round_.dataset.rows), "weights": weights}


def test_luck_is_the_same_whoever_dies(tmp_path: Path) -> None:
    def started(name: str) -> Any:
        return start(tmp_path / f"{name}.log", "run", "examples/doors/agent_r.yaml", f"run.dir={tmp_path / name}", *CUT)

    driver = started("whole")
    try:
        assert driver.wait(400) == 0, (tmp_path / "whole.log").read_text()[-3000:]
    finally:
        end(driver)
    whole = contents(tmp_path / "whole")
    tried = agentr.open(tmp_path / "whole").rounds[1].dataset.summary.splices
    assert 0 < tried["of them luck"] < tried["turns tried in other worlds"]

    driver, root = started("killed"), tmp_path / "killed"
    revised = Forest(root / "rounds/01/revise")
    try:
        wait_for(lambda: len(revised.finished()) > 2, driver, "revised trees")
        kill(driver, r"ray::.*Coordinator(?!Actor)")
        wait_for(lambda: len(revised.finished()) > 8, driver, "more of them")
        driver.kill()
        driver.wait()
        driver = started("killed")
        assert driver.wait(400) == 0, (tmp_path / "killed.log").read_text()[-3000:]
    finally:
        end(driver)
    killed = contents(root)
    assert killed.keys() == whole.keys()
    assert [name for name in whole if whole[name] != killed[name]] == []
