"""Online training, killed in every part of a step: it comes to the same rollouts, rows, losses and weights."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

import agentr
from agentr.config.schema import SHARED_MEMORY
from agentr.search.stored import to_json
from agentr.store.files import read_lines
from tests.chaos.driver import Driver, end, kill, start, wait_for

pytestmark = [pytest.mark.cluster, pytest.mark.chaos, pytest.mark.timeout(1200)]

#: Seven steps of a model that knows nothing, for a reward that it can learn at once: shorter turns. Rollouts branch, tasks are chosen, and
#: collection is a step ahead of training. Two steps are validated.
ONLINE = """
run: {name: online, rounds: 1}
method:
  type: tree_grpo
  steps: 7
  tasks: 3
  max_staleness: 1
  pareto: {tasks: 9, episodes: 3, settled: keep}
  episodes: 4
  max_steps: 3
  rewards: [{name: length, options: {per_token: 0.02}}]
  validation: {every: 3, tasks: {split: dev, where: {depth: 1}, limit: 4}}
model: {source: nano, dtype: float32, max_model_len: 768}
env: {name: textcraft, options: {recipes: exact, distractors: 3}, retries: 8}
prompt: {instruction: false}
policy: {max_num_seqs: 16, kv_cache_gib: 0.25}
warm_start: {enabled: false}
collect: {tasks: {split: train, where: {depth: 1}, limit: 12}, sampling: {max_tokens: 32}, in_flight: 2, infra_retries: 8}
build: {max_length: 768}
train:
  - {batch_size: 6, micro_batch_size: 3, learning_rate: 1.0e-4, bf16: false, max_length: 768, share_prefixes: true,
     checkpoint_every: 2, grpo: {minibatches: 2}}
eval: {tasks: {split: test, where: {depth: 1}, limit: 4}, sampling: {max_tokens: 32}, max_steps: 3}
"""


def started(root: Path, *overrides: str) -> Driver:
    config = root.parent / "online.yaml"
    config.write_text(ONLINE)
    return start(root.parent / "log", "run", str(config), f"run.dir={root}", *overrides)


def contents(root: Path) -> dict[str, Any]:
    """All that a run of online training decides."""
    run = agentr.open(root)
    rollouts, train = run.rounds[1].rollouts, run.rounds[1].train
    found: dict[str, Any] = {f"trees {key}": to_json(rollouts[key]) for key in rollouts.keys()}  # noqa: SIM118 - no dict
    found |= {f"rows {number}": list(step.dataset.rows) for number, step in rollouts.steps.items()}
    found |= {f"loss {line['step']}": (line["loss"], line.get("entropy")) for line in train.curve_lines()}
    found |= {f"validation {path.parent.name}": path.read_text() for path in sorted(rollouts.path.glob("validation/*/evaluation.json"))}
    return {**found, "weights": (train.model / "model.safetensors").read_bytes(), "best": train.summary.best_step}


def noted(root: Path, step: int) -> bool:
    return any(line["step"] >= step for line in read_lines(root / "rounds/01/rollouts/steps.jsonl"))


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    root = tmp_path_factory.mktemp("undisturbed") / "run"
    assert started(root).wait(600) == 0, (root.parent / "log").read_text()[-3000:]
    found = contents(root)
    assert sum(name.startswith("rows") for name in found) == 7 and sum(name.startswith("validation") for name in found) == 3
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
