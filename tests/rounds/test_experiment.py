"""Stages of an experiment that need nothing to run: which trajectories are played, and which checkpoint is the best."""

import json
import shutil
from pathlib import Path
from typing import cast

import pytest

import agentr
from agentr.cluster.causes import CauseKind
from agentr.collect.demonstrate import Demonstrate
from agentr.collect.units import StageProgress, as_dict
from agentr.config.identity import Identity
from agentr.errors import ConfigError, ModelError, RunError
from agentr.methods import load, method_of, plan_of
from agentr.models.nano import WEIGHTS
from agentr.observe.progress import Reporter
from agentr.observe.summary import summarise
from agentr.observe.troubles import troubles
from agentr.rounds.experiment import Experiment
from agentr.rounds.loop import promote
from agentr.rounds.services import Services
from agentr.rounds.warm_start import scripted_words
from agentr.rows.imports import demonstrated_turns
from agentr.search.tree import Tree
from agentr.store.files import read_lines
from agentr.store.growing import GrowingForest
from agentr.store.layout import EVAL, MODEL, SELECTION, TRAIN, Checkpoint, arm_of
from agentr.store.rows import Preference, Provenance
from agentr.store.run import RunStore
from agentr.store.seal import hash_folder
from agentr.store.summaries import EvalSummary, ModelSummary, TrainSummary
from agentr.types import Message, Outcome, Task
from tests.notes import Notes
from tests.runs import round_of
from tests.tiny import IMITATE
from tests.trees import add, child


def experiment(folder: Path, *overrides: str) -> Experiment:
    """An experiment without services."""
    store = RunStore(folder / "run")
    config = load(None, [IMITATE, *overrides, f"run.dir={folder / 'run'}"])
    store.open(Identity.of(config))
    return Experiment(plan_of(config), store, cast(Services, None), Reporter())


def test_trajectories_find_their_tasks(tmp_path: Path) -> None:
    file = tmp_path / "demos.json"
    turns = [{"from": "human", "value": "Go."}, {"from": "gpt", "value": "Action: look"}]
    file.write_text(json.dumps([{"id": name, "conversations": turns} for name in ("a", "b")]))
    work = Demonstrate(demonstrated_turns([file]))
    tasks = {name: Task("env", name, "train", {}) for name in "bcd"}
    assert work.scripted_turns == {"a": ("Action: look",), "b": ("Action: look",)}
    assert work.tasks([tasks["b"], tasks["c"]], None) == [tasks["b"]]
    assert "1 of 2 trajectories" in scripted_words(work, [tasks["b"], tasks["c"]], ["demos.json"])
    with pytest.raises(ConfigError, match="has the id of a task") as error:
        scripted_words(work, [tasks["c"], tasks["d"]], ["demos.json"])
    assert "a, b" in error.value.hint and "c, d" in error.value.hint
    assert Demonstrate().tasks([tasks["c"]], None) == [tasks["c"]], "the environment's own expert plays all"


def test_a_stage_whose_trees_are_identical_is_told(tmp_path: Path) -> None:
    """Of a policy without temperature all episodes of a task are the same."""
    for name, second in (("same", "x: 0.0"), ("different", "y: 1.0")):
        run = experiment(tmp_path / name)
        forest = GrowingForest(tmp_path / name / "trees", "rounds/01/collect")
        task = Task("toy", "a", "train", {})
        tree = Tree.start(task, (Message("user", "go"),), (1,), 0)
        for text in ("x: 0.0", second):
            add(tree, 0, child(text, 0.0, Outcome.FAILURE))
        progress = StageProgress()
        progress.add(tree)
        forest.write(tree)
        forest.seal(stage={}, progress=as_dict(progress))
        run._tell_identical(forest)
        found = [
            cause["kind"] for trouble in troubles(read_lines(run.root / "events.jsonl")) for cause in trouble["causes"]
        ]
        assert found == ([CauseKind.trees_identical] if name == "same" else [])


def measured(run: Experiment, successes: list[float]) -> None:
    """Seals a training and an evaluation of the warm start and of each round."""
    for number, success in enumerate(successes):
        arm = arm_of(number)

        def train(folder: Path) -> TrainSummary:
            (folder / "model").mkdir()
            return TrainSummary(steps=1)

        run.store.stages.run(arm.stage(TRAIN), TrainSummary, train)
        run.store.stages.run(arm.stage(EVAL), EvalSummary, lambda _, success=success: EvalSummary(success=success))


def test_the_best_checkpoint_is_the_earliest_with_the_highest_success(tmp_path: Path) -> None:
    run = experiment(tmp_path, "run.rounds=2")
    measured(run, [0.1, 0.4, 0.4])
    promote(run)
    assert run.store.layout.best.resolve() == run.store.layout.checkpoint("rounds/01/train").path
    found = json.loads((run.root / "best.json").read_text())
    assert found == {
        "round": "rounds/01",
        "success": 0.4,
        "all": {"rounds/00": 0.1, "rounds/01": 0.4, "rounds/02": 0.4},
        "split": "dev",
    }
    promote(run)
    assert run.store.layout.best.is_symlink(), "a link of ours is replaced"


def test_another_split_chooses_the_best_checkpoint_and_which_weights_are_kept(tmp_path: Path) -> None:
    run = experiment(tmp_path, "run.rounds=2", "eval.select=test")
    measured(run, [0.1, 0.4, 0.3])
    for number, success in enumerate([0.1, 0.2, 0.5]):
        run.store.stages.run(
            arm_of(number).stage(SELECTION), EvalSummary, lambda _, success=success: EvalSummary(success=success)
        )
    promote(run)
    assert run.store.layout.best.resolve() == run.store.layout.checkpoint("rounds/02/train").path
    found = json.loads((run.root / "best.json").read_text())
    assert (found["round"], found["success"], found["split"]) == ("rounds/02", 0.5, "test")


@pytest.mark.parametrize(
    ("select", "words"), [("", "flattered by the choice"), ("test", "'dev', which chooses nothing")]
)
def test_the_report_says_on_which_tasks_the_best_round_is_chosen(tmp_path: Path, select: str, words: str) -> None:
    run = experiment(tmp_path, "run.rounds=2", f"eval.select='{select}'")
    run.store.stages.run(arm_of(0).stage(TRAIN), TrainSummary, lambda folder: TrainSummary(steps=1))
    run.store.close()
    assert words in summarise(agentr.open(run.root)).selection


def test_the_reported_split_cannot_be_the_one_that_chooses() -> None:
    with pytest.raises(ConfigError, match="would flatter the result"):
        load(None, [IMITATE, "eval.select=dev"])


def test_a_model_elsewhere_is_known_by_its_hash_and_by_what_names_it(tmp_path: Path) -> None:
    outside = shutil.copytree(WEIGHTS, tmp_path / "model")
    run = experiment(tmp_path, f"model.path={outside}", "model.source=hf")
    run.services = cast(Services, Notes())
    assert run.base_model() == Checkpoint(MODEL, outside)
    record = run.store.record(MODEL)
    assert record is not None and record.read(ModelSummary).folder_hash == hash_folder(outside)
    assert {key.partition(".")[0] for key in record.config} == {"model"}


def test_a_folder_of_the_users_is_not_deleted_for_the_link(tmp_path: Path) -> None:
    run = experiment(tmp_path, "run.rounds=1")
    measured(run, [0.1, 0.4])
    run.store.layout.best.mkdir()
    (run.store.layout.best / "mine").write_text("dear")
    with pytest.raises(RunError, match=r"best is in the way of the link"):
        promote(run)
    assert (run.store.layout.best / "mine").read_text() == "dear"


def test_rows_for_another_loss_than_the_method_says_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    round_ = round_of(tmp_path, [IMITATE])
    method = method_of(round_.config.method)
    pair = Preference((1,), (2,), (1,), (3,), (1,), Provenance("t", (), "trajectory"))
    monkeypatch.setattr(type(method), "rows", lambda *_: iter([pair]))
    with pytest.raises(RunError, match="imitate says that its rows are for the loss imitate, and they are for prefer"):
        method.build(round_)
    assert not round_.experiment.store.sealed("rounds/01/dataset")


def test_a_model_without_a_place_for_tools_is_refused_before_anything_starts(tmp_path: Path) -> None:
    run = experiment(tmp_path, "model.source=nano", "model.max_model_len=1024", "turns.format=tool_calls")
    with pytest.raises(ModelError, match=r"writes no tool call.*turns\.format=environment"):
        run.base_model()
