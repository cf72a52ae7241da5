"""ET-Agent with real parts: the flywheel with every operator, killed on the way, then the rest of the run."""

from pathlib import Path

import pytest

import agentr
from agentr.collect.advisor import ANSWERS
from agentr.collect.operators import OPERATORS
from agentr.observe.accounts import accounts
from agentr.store.files import read_lines
from agentr.store.forest import Forest
from tests.chaos.driver import SMALL, end, kill, start, wait_for
from tests.support import held_in

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(900)]

GROUND = "configs/compare/tasks/textcraft.yaml"

#: A small model that has cloned a few demonstrations; whatever it makes is good enough to learn.
EVOLVING = [
    *(override for override in SMALL if not override.startswith("method.")),
    "method.type=et_agent",
    "method.max_steps=5",
    "method.max_invalid=2",
    "method.evolve.evolutions=2",
    "method.evolve.right=[rollout,drop_redundant,refine_redundant,rewrite_thoughts]",
    "method.evolve.wrong=[rollout,correct_flawed,hint_step,hint_end,correct_step]",
    "method.evolve.teacher.sampling.max_tokens=32",
    "method.evolve.judge.who=policy",
    "method.evolve.judge.sampling.max_tokens=16",
    "method.filter.min_return=[0.0]",
    "method.filter.failed_calls=9",
    "collect.tasks={split: train, where: {depth: 1}, limit: 6}",
    "train=[{steps: 4, batch_size: 4, micro_batch_size: 4, bf16: false, max_length: 768}]",
    "eval.tasks={split: test, where: {depth: 1}, limit: 4}",
    "eval.conciseness=true",
    "eval.judge.who=policy",
    "eval.judge.sampling.max_tokens=16",
    "eval.recovery=true",
    "eval.recovery_from=[random,refusal,two_refusals,harm]",
    "eval.sampled=2",
    "run.ceiling=true",
]


def test_the_flywheel_and_what_follows(tmp_path: Path) -> None:
    root, log = tmp_path / "run", tmp_path / "log"
    driver = start(log, "run", GROUND, f"run.dir={root}", *EVOLVING)
    try:
        wait_for(lambda: Forest(root / "rounds/01/evolve").finished(), driver, "the first evolved tree")
        kill(driver, r"ray::.*Coordinator(?!Actor)")
        assert driver.wait(600) == 0, log.read_text()[-3000:]
    finally:
        end(driver)
    run = agentr.open(root)
    round_ = run.rounds[1]
    trees = list(Forest(root / "rounds/01/evolve"))
    tried = {made.operator for tree in trees for made in tree.evolutions}
    assert {"rollout", "correct_flawed", "hint_step", "hint_end", "correct_step"} <= tried <= set(OPERATORS)
    operators = round_.stages()["dataset"].summary.operators
    assert sum(operated["tried"] for operated in operators.values()) == sum(len(tree.evolutions) for tree in trees)
    verdicts = round_.stages()["dataset"].summary.verdicts
    known = {
        place
        for tree in trees
        for made in tree.evolutions
        for place in ((tree.task.key, made.parent), (tree.task.key, made.end))
    }
    assert 0 < sum(sum(said.values()) for said in verdicts.values()) <= len(known)
    asked = read_lines(root / "rounds/01/evolve" / ANSWERS)
    assert (
        len({line["asked"] for line in asked})
        == len(asked)
        >= sum(made.asked for tree in trees for made in tree.evolutions)
        > 0
    )
    assert round_.train.summary.steps > 0 and round_.eval.evaluation.behaviour["calls"].n == 4
    successes = sum(bool(tree.successes()) for tree in round_.eval)
    assert len(list(round_.shortened)) == successes and bool(round_.shortened.measures) == bool(successes)
    assert round_.judged.measures["judged right"].n == 4 and all(
        leaf.verdict for tree in round_.judged for leaf in tree.ended()
    )
    assert round_.recovery.sealed and round_.after_refusal.sealed and round_.after_two_refusals.sealed
    assert round_.after_harm.sealed and set(round_.after_harm.tasks()) <= set(run.rounds[0].eval.tasks())
    assert round_.sampled.evaluation.passes.keys() == {"pass@1", "pass@2", "pass^2"}
    assert set(run.ceiling.demonstrations.tasks()) == set(round_.collect.tasks()), "exactly what was searched"
    assert run.ceiling.train.summary.steps == round_.train.summary.steps and run.complete
    assert all(one.begun == one.finished + one.failed + sum(one.left_out.values()) for one in accounts(run, []))
    assert "| ceiling: demonstrations | 6 tasks | 6 |" in (root / "card.md").read_text()
    tables = {table["title"]: table for table in held_in(root / "report.html")["api/run?run=run"]["tables"]}
    assert "judge agrees" in tables["Economy"]["lines"]["round 1"]
    assert any("episodes the judge finds" in note for note in tables["Flywheel, round 1"]["notes"])
