"""What ``make test`` shows of an installation beside the fast tests: a policy that imitates, one that prefers, one that
reinforces.

Each is a whole run of the command line with a real engine, environment server and trainer, as small as it can be: it
shows that everything works here, not that training helps.
"""

import json
from collections import Counter
from math import isfinite
from pathlib import Path

import pytest

import agentr
from agentr.read.run import Run
from agentr.store.forest import Forest
from tests.chaos.driver import SMALL, STAGES, Driver, end, start, wait_for
from tests.chaos.online import written

pytestmark = [pytest.mark.cluster, pytest.mark.installation, pytest.mark.timeout(900)]

#: As few tasks and steps as there can be.
TINY = [
    "warm_start.tasks=[{split: train, where: {depth: 1}, limit: 16}]",
    "warm_start.train.steps=8",
    "collect.tasks={split: train, where: {depth: 1}, limit: 8}",
    "train=[{steps: 4, batch_size: 4, micro_batch_size: 2, bf16: false, max_length: 768, checkpoint_every: 2}]",
    "eval.tasks={split: test, where: {depth: 1}, limit: 4}",
]


def finished(driver: Driver, root: Path) -> Run:
    """Waits for the run's end and returns it: each stage is sealed once, and the report is there."""
    try:
        assert driver.wait(600) == 0, (root.parent / "log").read_text()[-3000:]
    finally:
        end(driver)
    run = agentr.open(root)
    sealed = Counter(event["stage"] for event in run.events() if event["event"] == "stage_sealed")
    assert set(sealed.values()) == {1}, "a stage was done again"
    assert json.loads((root / "report.json").read_text())["complete"]
    assert all(isfinite(line["loss"]) for line in run.rounds[1].train.curve_lines())
    return run


def test_a_policy_imitates_is_killed_and_goes_on(tmp_path: Path) -> None:
    """Agent-R, fine-tuned; the driver dies while trees grow, and the same command does the rest."""
    root, log = tmp_path / "run", tmp_path / "log"
    command = ["run", "configs/demo.yaml", f"run.dir={root}", *SMALL, *TINY]
    driver = start(log, *command)
    try:
        wait_for(lambda: Forest(root / "rounds/01/collect").finished(), driver, "the first tree")
        driver.kill()
        driver.wait()
    finally:
        end(driver)
    run = finished(start(log, *command), root)
    assert list(run.stages()) == STAGES
    assert len(run.rounds[1].collect) == 8 and run.rounds[1].train.summary.steps == 4
    assert run.rounds[1].eval.evaluation.success.n == 4


def test_a_policy_prefers(tmp_path: Path) -> None:
    """ETO, with DPO: the demonstrations are better than what a policy does that knows nothing."""
    root = tmp_path / "run"
    command = [
        "run",
        "configs/eto_textcraft.yaml",
        f"run.dir={root}",
        "cluster.dashboard=false",
        "run.rounds=1",
        "run.control=false",
        *TINY,
    ]
    run = finished(start(tmp_path / "log", *command), root)
    assert len(run.rounds[1].dataset.rows) > 0 and run.rounds[1].train.summary.steps == 4


def test_a_policy_reinforces(tmp_path: Path) -> None:
    """Tree-GRPO, for a reward that differs between any two rollouts: every step trains."""
    root = tmp_path / "run"
    options = ["method.steps=2", "method.validation.every=1", "train.0.checkpoint_every=1"]
    run = finished(start(tmp_path / "log", "run", str(written(tmp_path)), f"run.dir={root}", *options), root)
    assert [len(step.dataset.rows) > 0 for step in run.rounds[1].rollouts.steps.values()] == [True, True]
    assert run.rounds[1].train.summary.online_steps == 2
    assert all(line["loss"] != 0 for line in run.rounds[1].train.curve_lines())
