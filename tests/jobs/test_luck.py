"""Agent-R where part of the state is hidden, with real parts: turns are tried in other worlds, and all is the same
again after the coordinator and the driver were killed in the midst of it."""

from pathlib import Path
from typing import Any

import pytest

import agentr
from agentr.search.stored import to_json
from agentr.store.forest import Forest
from tests.chaos.driver import same_whoever_dies

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
    def revised(root: Path) -> int:
        return len(Forest(root / "rounds/01/revise").finished())

    config = ["examples/doors/agent_r.yaml", *CUT]
    same_whoever_dies(tmp_path, config, contents, lambda root: revised(root) > 2, lambda root: revised(root) > 8)
    tried = agentr.open(tmp_path / "whole").rounds[1].dataset.summary.splices
    assert 0 < tried["of them luck"] < tried["turns tried in other worlds"]
