"""The configuration that goes on from trees to online training, with real parts: what the online round starts from, and
rounds that learn of their own greedy mistakes."""

from pathlib import Path

import pytest

import agentr
from agentr.read.stage import Rollouts
from tests.chaos.driver import SMALL, end, start

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(900)]

#: Two rounds of Agent-R of a few steps, then two online steps of four tasks with two rollouts each.
CUT = [
    *SMALL,
    "run.rounds=3",
    "turns.repeat_refused=redraw",
    "method.revise.begin=greedy",
    "method.revise.end=expert",
    "method.revise.alpha=[1.0]",
    "warm_start.train.steps=20",
    "train=[{steps: 4, batch_size: 4, micro_batch_size: 2, bf16: false, max_length: 768}]",
    "collect.tasks={split: train, where: {depth: 1}, limit: 8}",
    "eval.tasks={split: test, where: {depth: 1}, limit: 4}",
    "from_round.3.method.steps=2",
    "from_round.3.method.tasks=4",
    "from_round.3.method.episodes=2",
    "from_round.3.method.validation={every: 1, tasks: {split: dev, where: {depth: 1}, limit: 4}}",
    "from_round.3.train=[{batch_size: 8, micro_batch_size: 4, bf16: false, max_length: 768, grpo: {minibatches: 1}}]",
]


def test_an_online_round_goes_on_from_rounds_of_trees(tmp_path: Path) -> None:
    root, log = tmp_path / "run", tmp_path / "log"
    driver = start(log, "run", "configs/agent_r_then_grpo.yaml", f"run.dir={root}", *CUT)
    try:
        assert driver.wait(800) == 0, log.read_text()[-3000:]
    finally:
        end(driver)
    run = agentr.open(root)
    assert run.complete and [arm.title for arm in run.arms] == ["warm start", "round 1", "round 2", "round 3"]
    online = run.rounds[3]
    rollouts = online.rollouts
    assert isinstance(rollouts, Rollouts) and list(rollouts.steps) == [1, 2] and len(rollouts) == 8
    assert {tree.policy for tree in rollouts.steps[1].trees} == {"rounds/02/train"}, "the last round of trees begins it"
    assert set(rollouts.validations()) >= {1, 2} and online.train.summary.online_steps == 2
    assert {tree.policy for tree in run.rounds[2].collect} == {"rounds/01/train"}
    for round_ in run.rounds[1:3]:
        alone, revised = (list(round_.stages()[stage]) for stage in ("greedy", "revise"))
        assert len(alone) == len(revised) == 8
        cost = [sum(tree.cost.completions for tree in trees) for trees in (alone, revised)]
        assert cost[0] == cost[1], "an expert is no policy"
        mended = [revision for tree in revised for revision in tree.revisions]
        assert mended and all(revision.end >= 0 for revision in mended)
        assert round_.dataset.summary.kinds["revision"] > 0
    greedy = list(run.rounds[1].eval)  # what is sampled from so small a model has few actions at all
    chosen = sum(not node.logprobs for tree in greedy for node in tree.nodes[1:])
    assert chosen == sum(tree.events.get("redrawn", 0) for tree in greedy) > 0, "turns instead of refused ones"
