"""Stages of an experiment that need nothing to run."""

from __future__ import annotations

import json
from pathlib import Path
from typing import cast

import pytest
from agentr.collect.stage import Kind, Stage
from agentr.config.methods import SamplingConfig

from agentr.config.load import load
from agentr.errors import ConfigError
from agentr.observe.progress import Reporter
from agentr.rounds.experiment import Experiment
from agentr.rounds.services import Services
from agentr.store.run import RunStore
from agentr.types import Task


def test_trajectories_find_their_tasks(tmp_path: Path) -> None:
    file = tmp_path / "demos.json"
    turns = [{"from": "human", "value": "Go."}, {"from": "gpt", "value": "Action: look"}]
    file.write_text(json.dumps([{"id": name, "conversations": turns} for name in ("a", "b")]))
    config = load(None, [f"warm_start.files=[{file}]"])
    experiment = Experiment(config, RunStore(tmp_path / "run"), cast(Services, None), Reporter())

    def stage(*ids: str) -> Stage:
        tasks = tuple(Task("env", name, "train", {}) for name in ids)
        return Stage(Kind.EXPERT, tmp_path / "run", tasks, 0, "", SamplingConfig())

    found = experiment._given(stage("b", "c"))
    assert [task.id for task in found.tasks] == ["b"]
    assert found.given == {"b": ("Action: look",)}
    with pytest.raises(ConfigError, match="has the id of a task") as error:
        experiment._given(stage("c", "d"))
    assert "a, b" in error.value.hint and "c, d" in error.value.hint
