"""What a run began, and what became of it: the counts add up, also of stages that failed and left out."""

from pathlib import Path

import pytest

import agentr
from agentr.collect.units import StageProgress, as_dict
from agentr.observe.accounts import Account, accounts
from agentr.observe.card import write_run_card
from agentr.store.files import read_json, write_json
from agentr.store.growing import GrowingForest
from agentr.store.layout import CONTROL, arm_of
from agentr.store.run import RunStore
from agentr.store.summaries import TreeSummary
from agentr.types import Outcome
from tests.runs import small
from tests.support import tiny_model
from tests.trees import episode


def grown(root: Path, stage: str, solved: int, unsolved: int, *, failed: int, skipped: int, unknown: int = 0) -> None:
    """Adds a stage of trees to a run."""

    def make(folder: Path) -> TreeSummary:
        forest, progress = GrowingForest(folder), StageProgress(failed=failed, skipped=skipped)
        for number in range(solved + unsolved):
            won = number < solved
            outcome = Outcome.SUCCESS if won else Outcome.FAILURE
            forest.write(tree := episode(f"t{number}", ["x"], float(won), outcome, 1))
            progress.add(tree)
        progress.total = solved + unsolved + failed + skipped + unknown
        forest.seal(stage={}, progress=as_dict(progress))
        return TreeSummary(trees=solved + unsolved, failed=failed, solved=solved)

    store = RunStore(root)
    store.take()
    store.stages.run(stage, TreeSummary, make)
    store.close()


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return small(tmp_path / "run", tiny_model(tmp_path / "model"))


def test_what_is_begun_is_finished_failed_or_left_out(root: Path) -> None:
    grown(root, "rounds/02/collect", 3, 4, failed=2, skipped=5)
    grown(root, "rounds/03/collect", 1, 0, failed=0, skipped=0, unknown=2)
    run = agentr.open(root)
    found = {one.title: one for one in accounts(run, [])}
    assert found["round 2: collect"] == Account("round 2: collect", "task", 14, 7, 3, 2, {"skipped": 5})
    assert found["round 3: collect"].left_out == {"unaccounted for": 2}
    rows = found["round 1: dataset"]
    assert rows.finished == len(run.rounds[1].dataset.rows) and rows.of == "candidate" and rows.succeeded is None
    assert rows.left_out == run.rounds[1].dataset.summary.dropped
    for one in found.values():
        assert one.begun == one.finished + one.failed + sum(one.left_out.values()), one
        assert one.succeeded is None or one.succeeded <= one.finished
    assert {one.title for one in accounts(run, [], [arm_of(2)])} == {"round 2: collect"}
    assert list(accounts(run, [], [CONTROL])) == []


def test_the_card_of_a_run_has_them_with_what_it_came_to(root: Path) -> None:
    grown(root, "rounds/02/collect", 3, 4, failed=2, skipped=5)
    store = RunStore(root)
    store.take()
    with pytest.raises(RuntimeError):
        store.stages.run("rounds/02/revise", TreeSummary, lambda _: (_ for _ in ()).throw(RuntimeError()))
    store.close()
    write_run_card(agentr.open(root), root / "card.md")
    text = (root / "card.md").read_text()
    assert "| round 2: collect | 14 tasks | 7 | 3 | 2 | skipped 5 |" in text
    assert "- Not finished: round 2: revise." in text and "round 1 against warm start: +0.0 points" in text
    assert "| round 1 | 33.3 \\[0.0, 100.0\\] | 3 | good 1, revision 1 | 2 |" in text
    assert "One seed." in text and str(root) not in text


def test_a_stage_whose_counts_are_damaged_is_named_beside_the_others(root: Path) -> None:
    file = root / "rounds/01/dataset/manifest.json"
    write_json(file, {**read_json(file), "dropped": {"too long": "many"}})
    (root / "rounds/01/collect/manifest.json").unlink()
    write_run_card(agentr.open(root), root / "card.md")
    text = (root / "card.md").read_text()
    assert "round 1: dataset cannot be read: " in text and "round 1: collect cannot be read: " in text
    assert "| round 1: dataset |" not in text and "| round 1: eval | 3 tasks |" in text
