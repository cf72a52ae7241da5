"""The other recipes from the command line, with the driver killed and started again in the stages that are theirs: ETO in its
exploration and in DPO, DensePolicy in the growth of its trees."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from agentr.store.files import read_lines
from agentr.store.forest import Forest
from agentr.store.rows import read_manifest
from tests.chaos.driver import end, start, wait_for

pytestmark = [pytest.mark.cluster, pytest.mark.chaos, pytest.mark.timeout(1800)]

#: A round from the warm start of the undisturbed run, which solves some tasks of depth 1 and some not.
OVERRIDES = [
    "run.rounds=1",
    "warm_start.enabled=false",
    "collect.tasks={split: train, where: {depth: 1}, limit: 24}",
    "collect.max_completions=0",
    "collect.in_flight=4",
    "train=[{steps: 8, batch_size: 4, micro_batch_size: 4, bf16: false, max_length: 768, checkpoint_every: 2, learning_rate: 1.0e-5}]",
    "eval.tasks={split: test, where: {depth: 1}, limit: 12}",
]

RECIPES = {
    "eto": ["collect.episodes=4", "build.contrast.pairs_per_task=4"],
    "dense_policy": ["collect.dense={base: 4, max_depth: 5, window: 4, stop_pairs: 6, stop_rollouts: 12}", "build.siblings.min_gap=0.1"],
}


@pytest.mark.parametrize("recipe", RECIPES)
def test_a_killed_driver_loses_nothing(recipe: str, undisturbed: Path, tmp_path: Path) -> None:
    root, log = tmp_path / "run", tmp_path / "log"
    config = f"configs/compare/{recipe}.yaml"
    overrides = [*OVERRIDES, *RECIPES[recipe], f"model.path={undisturbed / 'rounds/00/train/model'}"]
    trees = Forest(root / "rounds/01/collect")
    moments: list[tuple[Callable[[], object], str]] = [
        (lambda: len(trees.finished()) >= 6 or trees.sealed, "some trees"),
        (lambda: list((root / "rounds/01/train/checkpoints").glob("*/complete.json")), "a checkpoint of the DPO training"),
    ]
    driver = start(config, root, log, overrides)
    try:
        for reached, what in moments if recipe == "eto" else moments[:1]:
            wait_for(reached, driver, what)
            driver.kill()
            driver.wait(60)
            driver = start(config, root, log, overrides)
        assert driver.wait(900) == 0, log.read_text()[-3000:]
    finally:
        end(driver)

    events = read_lines(root / "events.jsonl")
    sealed = Counter(e["stage"] for e in events if e["event"] == "stage_sealed")
    stages = [f"rounds/01/{s}" for s in ("collect", "dataset", "train", "eval")]
    assert all(sealed[stage] == 1 for stage in stages), sealed
    assert max(sealed.values()) == 1, "a stage was sealed twice"
    assert len(Forest(root / "rounds/01/collect")) == 24
    assert read_manifest(root / "rounds/01/dataset")["type"] == "preferences"
    lines = read_lines(root / "rounds/01/train/metrics.jsonl")
    assert [line["step"] for line in lines] == sorted({line["step"] for line in lines}), "each step is reported once"
    assert json.loads((root / "report.json").read_text())["complete"]
