"""The rollouts of online training, as they are read: by step and all together, traced both ways, and mended."""

import json
from pathlib import Path

import pytest

import agentr
from agentr.commands.doctor import Remedy, examine, repair
from agentr.config.identity import Identity
from agentr.errors import DataError
from agentr.methods import load
from agentr.observe.summary import Sharing, summarise
from agentr.observe.tables import tables
from agentr.rewards.group import Reward, group_of
from agentr.rounds.step_notes import alarms
from agentr.rows.advantages import AdvantageConfig
from agentr.rows.dataset import write_dataset
from agentr.rows.rollouts import rollout_rows
from agentr.store.files import append_line, make_folder
from agentr.store.growing import GrowingForest
from agentr.store.run import RunStore
from agentr.store.summaries import TrainSummary, TreeSummary
from tests.commands.test_doctor import flip
from tests.tiny import REINFORCE
from tests.trees import tree_of

LINE = {
    "tokens": 2.0,
    "groups": 4,
    "silent_groups": 3,
    "turns": 3.0,
    "episodes": 2,
    "completions": 4,
    "completion_tokens": 3,
    "env_steps_executed": 5,
}
ROLLOUTS, TRAIN = "rounds/01/rollouts", "rounds/01/train"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A run of two steps with a tree each, of the same task. The longer rollout of a step is too long for a row."""
    store = RunStore(tmp_path / "run")
    store.open(Identity.of(load(None, [REINFORCE, "train=[{batch_size: 256}]"])))

    def steps(folder: Path) -> TreeSummary:
        for step, paths in enumerate((["go / left: 1.0", "stay: 0.0"], ["go / right / on: 0.0", "stay: 1.0"]), start=1):
            here = folder / f"{step:06d}"
            make_folder(here)
            forest = GrowingForest(here, f"{ROLLOUTS}/{step:06d}")
            tree = tree_of(*paths)
            tree.policy = f"{TRAIN}@{step - 1}"
            forest.write(tree)
            forest.seal()
            (tree,) = forest
            rows = rollout_rows(
                group_of(tree),
                [Reward(e.earned, {"outcome": e.earned}) for e in group_of(tree).episodes],
                AdvantageConfig(),
            )
            write_dataset(here / "dataset", rows, len(tree.prompt_ids) + 3)
            append_line(folder / "steps.jsonl", {"step": step, "success": 0.5, "rewards": {"outcome": 0.5}, **LINE})
        return TreeSummary(trees=2)

    def train(folder: Path) -> TrainSummary:
        store.stages.run(ROLLOUTS, TreeSummary, steps)
        store.stages.use(ROLLOUTS)
        (folder / "model").mkdir()
        (folder / "model/weights").write_text("w")
        return TrainSummary(checkpoint=f"{TRAIN}/model", steps=2)

    store.stages.run(TRAIN, TrainSummary, train)
    store.close()
    return tmp_path / "run"


def test_steps_are_read_one_by_one_and_all_together(root: Path) -> None:
    rollouts = agentr.open(root).rounds[1].rollouts
    assert list(rollouts.steps) == [1, 2] and len(rollouts) == 2
    assert rollouts.keys() == ["000001/door", "000002/door"]
    assert [tree.policy for tree in rollouts] == [f"{TRAIN}@0", f"{TRAIN}@1"]
    assert rollouts["000002/door"] == rollouts.steps[2].trees["door"] != rollouts["000001/door"]
    assert rollouts.table(["key", "successes"]).to_pydict() == {
        "key": ["door", "door"],
        "successes": [1, 1],
        "step": [1, 2],
    }
    curve = rollouts.curve().to_pydict()
    assert curve["step"] == [1, 2] and curve["reward/outcome"] == [0.5, 0.5] and curve["silent_groups"] == [3, 3]
    for key in ("door", "000003/door", "x/door"):
        with pytest.raises(DataError, match=f"no tree '{key}'.*steps: 1 to 2; a key is like 000001/KEY"):
            rollouts[key]


def test_rows_and_turns_of_a_step_lead_to_each_other(root: Path) -> None:
    run = agentr.open(root)
    dataset = run.stage(f"{ROLLOUTS}/000002/dataset")
    assert dataset.type == "rollouts" and len(dataset.rows) == 1
    traced = dataset.rows.trace(0)
    assert traced.chosen.policy == f"{TRAIN}@1" and [node.action for node in traced.chosen.nodes if node] == ["stay"]
    assert dataset.rows[0].rewards == {"total": 1.0, "outcome": 1.0} and dataset.rows[0].advantages[-1] > 0
    uses = run.rounds[1].rollouts.trace("000002/door", 4)
    assert [(use.dataset, use.index) for use in uses] == [(f"{ROLLOUTS}/000002/dataset", 0)]
    (dropped,) = run.stage(f"{ROLLOUTS}/000002").trace("door", 1)
    assert dropped.index is None and dropped.reason == "longer than build.max_length"


ESTIMATE = {"mean": 0.25, "low": 0.1, "high": 0.4, "n": 4}


def test_what_the_steps_came_to_is_summed_and_shown(root: Path) -> None:
    folder = root / ROLLOUTS / "validation/000002"
    folder.mkdir(parents=True)
    (folder / "evaluation.json").write_text(
        json.dumps(
            {
                "success": ESTIMATE,
                "reward": ESTIMATE,
                "steps": 1.0,
                "invalid_rate": 0.0,
                "repeated_rate": 0.0,
                "repeats": {},
                "outcomes": {},
            }
        )
    )
    summary = summarise(agentr.open(root))
    (arm,) = summary.arms
    assert [line["validation"] for line in arm.steps] == [None, 0.25] and arm.trees == 2
    (shared,) = [table for table in tables(summary) if table.title == "What rollouts had in common"]
    assert shared.lines["round 1"]["drawn"] == 8 and shared.lines["round 1"]["carried out"] == 10


@pytest.mark.parametrize(("line", "entropy", "words"), [
    ({}, None, []),
    ({"silent_groups": 4}, 0.5, ["nothing to learn from"]),
    ({"tokens": 6.5}, 0.009, ["3 times as long", "entropy is below 0.01"]),
])  # fmt: skip
def test_a_collapse_is_noticed(line: dict, entropy: float | None, words: list[str]) -> None:
    found = list(alarms({**LINE, **line}, LINE, entropy))
    assert len(found) == len(words) and all(word in alarm for word, alarm in zip(words, found, strict=True))


def test_damaged_rollouts_are_made_anew_together_with_the_weights(root: Path) -> None:
    flip(root / ROLLOUTS / "000001/trees/00000.parquet")
    (finding,) = examine(root)
    assert finding.stage == ROLLOUTS and finding.remedy is Remedy.MADE_ANEW and finding.depends == (TRAIN,)
    (done,) = repair(root, [finding])
    assert "made together" in done
    assert list(agentr.open(root).records()) == []
    assert sorted(path.name for path in (root / "damaged").rglob("rounds/01/*")) == ["rollouts", "train"]


def test_what_rollouts_share_is_counted(root: Path) -> None:
    """Two steps of two rollouts of three turns each, in which four turns were drawn and five carried out."""
    (arm,) = summarise(agentr.open(root)).arms
    assert arm.sharing == Sharing(turns=12, drawn=8, carried_out=10, tokens=8, drawn_tokens=6, computed=1.0)
    for tokens, computed in ((100.0, 40.0), (300.0, 160.0)):
        append_line(
            root / TRAIN / "metrics.jsonl", {"step": 1, "loss": 0.0, "row_tokens": tokens, "computed_tokens": computed}
        )
    (arm,) = summarise(agentr.open(root)).arms
    assert arm.sharing is not None and arm.sharing.computed == 0.5
