"""Runs as objects: the public interface."""

import subprocess
import sys
import threading
from pathlib import Path

import pytest

import agentr
from agentr.errors import DataError
from agentr.read.run import Run
from agentr.search.stored import to_json
from agentr.store.dataset import DATASET_TYPES, PROVENANCE
from agentr.store.growing import GrowingForest
from agentr.store.summaries import TrainSummary, TreeSummary
from agentr.store.tree_table import COLUMNS, MEANING
from agentr.types import Outcome, Task
from tests.runs import TINY, dataset, round_of
from tests.trees import door, episode


@pytest.fixture
def run(tmp_path: Path) -> Run:
    """A round: its trees, their dataset, and a training."""
    trees = [door(), episode("t1", ["open", "wait"], 0.0, Outcome.FAILURE, 1)]
    round_ = round_of(tmp_path / "run", TINY, collect=trees, revise=[door()])
    dataset(round_)

    def train(folder: Path) -> TrainSummary:
        (folder / "model").mkdir()
        (folder / "metrics.jsonl").write_text('{"step": 1, "loss": 2.5}\n{"step": 2, "loss": 0.5}\n')
        return TrainSummary(checkpoint="rounds/01/train/model", steps=2, last_loss=0.5)

    round_.experiment.store.stages.run("rounds/01/train", TrainSummary, train)
    round_.experiment.store.close()
    return agentr.open(tmp_path / "run")


def test_rounds_and_stages(run: Run) -> None:
    assert (run.name, run.config["method"]["type"], run.owner) == (
        "experiment",
        TINY[0].removeprefix("method.type="),
        "",
    )
    assert list(run.stages()) == [
        "model",
        "rounds/00/demonstrations",
        *(f"rounds/01/{n}" for n in ("collect", "revise", "dataset", "train")),
    ]
    assert [round_.title for round_ in run.rounds] == ["warm start", "round 1"]
    assert run.rounds[-1].number == 1 and len(run.rounds) == 2
    assert list(run.rounds[1].exploration()) == ["collect", "revise"]
    assert [policy.name for policy in run.policies()] == ["rounds/01/train"]
    assert [(policy.arm, policy.title) for policy in run.policies(base=True)] == [
        ("base", "base model"),
        ("rounds/01", "round 1"),
    ]
    assert (
        run.policy("rounds/01") == run.policy("rounds/01/train") == run.policies()[0]
        and run.policy("base").path == run.model
    )
    with pytest.raises(DataError, match="no policy 'rounds/02'") as error:
        run.policy("rounds/02")
    assert error.value.hint == "There are base, rounds/01." and run.search == {}
    assert run.rounds[1].train.curve().to_pydict() == {"step": [1, 2], "loss": [2.5, 0.5]}
    assert run.metrics().to_pydict()["stage"] == list(run.stages())
    assert [event["event"] for event in run.events()][:3] == ["opened", "stage_started", "stage_sealed"]
    assert {"agentr", "command", "packages", "hardware", "python"} <= run.events()[0].keys()
    for stage in run.stages().values():
        assert stage.sealed and stage.verify() == []


def test_what_is_not_there_is_answered_with_the_nearest(run: Run, tmp_path: Path) -> None:
    with pytest.raises(IndexError, match="no round 2; it has 0 to 1"):
        run.rounds[2]
    with pytest.raises(AttributeError, match=r"no stage 'rounds/01/colect'.*rounds/01/collect"):
        _ = run.rounds[1].colect
    with pytest.raises(DataError, match=r"no stage 'rounds/01/trian'.*rounds/01/train"):
        run.stage("rounds/01/trian")
    with pytest.raises(DataError, match=r"no stage of .* has a tree 'dor'.*The nearest: door"):
        run.last_trees("dor")
    with pytest.raises(DataError, match=r"no tree 'dor'.*door"):
        run.rounds[1].collect["dor"]
    with pytest.raises(DataError, match=r"has no row 2.*0 to 1"):
        run.rounds[1].dataset.rows[2]
    with pytest.raises(DataError, match=r"has no node 99.*0 to 8"):
        run.rounds[1].revise.trace("door", 99)
    with pytest.raises(DataError, match=rf"{tmp_path} holds no run.*Runs below it: {tmp_path}/run"):
        agentr.open(tmp_path)


def test_stages_and_policies_are_found_by_every_name_of_their_round(run: Run) -> None:
    for text in ("rounds/1/train", "round 1: train", "1/train", "round1/train"):
        assert run.stage(text).name == "rounds/01/train"
    for text in ("1", "01", "round1", "round 1", "rounds/01", "rounds/01/", "rounds/01/train", "round 1: train"):
        assert run.policy(text).name == "rounds/01/train"
    with pytest.raises(DataError, match="has no policy 'round2'"):
        run.policy("round2")


def test_the_round_that_is_meant_where_none_is_named_is_the_best_or_the_last(tmp_path: Path) -> None:
    for number in (1, 2):
        round_ = round_of(tmp_path / "run", TINY, number=number, collect=[door()], revise=[door()])
        dataset(round_)
        round_.experiment.store.close()
    run = agentr.open(tmp_path / "run")

    def found(stage: str) -> str:
        return run.round_with(lambda there: stage in there.stages()).title

    assert (run.best, found("dataset")) == (None, "round 2")
    for text in ("{}", '{"round": 7}', '{"round": "control"}'):
        (tmp_path / "run/best.json").write_text(text)
        assert found("dataset") == "round 2", "what the file says is no round that is there"
    (tmp_path / "run/best.json").write_text('{"round": "rounds/01"}')
    assert (found("dataset"), found("demonstrations")) == ("round 1", "warm start"), (
        "the best, where it has what is asked for"
    )
    with pytest.raises(DataError, match=r"no round with what is asked for yet.*agentr status"):
        found("train")


def test_trees_are_listed_by_columns_and_read_by_key_or_task(run: Run) -> None:
    collect = run.rounds[1].collect
    table = collect.table(["key", "turns", "successes", "best", "mean", "revisions"]).to_pylist()
    assert table[0] == {
        "key": "door",
        "turns": 8,
        "successes": 2,
        "best": 1.0,
        "mean": pytest.approx(2.2 / 4),
        "revisions": 2,
    }
    assert collect.table().column_names == list(COLUMNS) == list(MEANING)
    assert to_json(collect["door"]) == to_json(door()) and collect["t1"].stage == "rounds/01/collect"
    assert [tree.task.key for tree in collect] == collect.keys() == ["door", "t1"]
    assert len(collect) == 2 and collect.expansions().num_rows == 0


def test_a_row_is_traced_to_its_nodes_and_a_node_to_its_rows(run: Run) -> None:
    rows = run.rounds[1].dataset.rows
    for index, row in enumerate(rows):
        trace = rows.trace(index)
        assert trace.row == row and trace.chosen.stage == "rounds/01/revise" and trace.rejected is None
        assert tuple(node.id for node in trace.chosen.nodes if node) == row.provenance.nodes
        for node in row.provenance.nodes:
            uses = run.rounds[1].revise.trace("door", node)
            assert index in [use.index for use in uses], "and back"
    (failed,) = run.rounds[1].revise.trace("door", 5)
    assert (failed.index, failed.reason) == (None, "trajectory with too low a return")
    assert run.rounds[1].revise.trace("door", 0) == [], "nothing is made of the root"


def test_rows_as_a_table_and_as_hugging_face_has_them(run: Run) -> None:
    dataset = run.rounds[1].dataset
    assert dataset.rows.table().num_rows == len(dataset.rows) == 2
    found = dataset.to_datasets()
    assert found[0]["input_ids"] == list(dataset.rows[0].input_ids) and found[0]["stage"] == "rounds/01/revise"
    assert dataset.rows.table().to_pandas()["kind"].tolist() == [row.provenance.kind for row in dataset.rows]


@pytest.mark.slow
def test_a_growing_stage_is_read_also_while_it_is_sealed(tmp_path: Path) -> None:
    """Whoever reads while a stage is sealed sees every tree, before and after, and no error."""
    round_ = round_of(tmp_path, TINY)
    store, keys = round_.experiment.store, [f"t{n:03d}" for n in range(60)]
    going, problems, seen = threading.Event(), [], 0

    def grow(folder: Path):
        nonlocal seen
        forest = GrowingForest(folder)
        for key in keys:
            forest.write(episode(key, ["open"], 1.0, Outcome.SUCCESS, 1))
        watched = agentr.open(tmp_path).rounds[1].collect
        assert len(watched) == 60 and watched["t001"].successes() and not watched.sealed

        def watch() -> None:
            nonlocal seen
            while not going.is_set():
                collect = agentr.open(tmp_path).rounds[1].collect
                try:
                    assert len(list(collect)) == len(collect.keys()) == collect.table(["key"]).num_rows == 60
                    seen += 1
                except Exception as error:  # noqa: BLE001  (whatever it is, it is what the test is about)
                    problems.append(error)

        watcher = threading.Thread(target=watch)
        watcher.start()
        try:
            while seen < 2 and not problems:
                pass
            manifest = forest.seal(stage={"action_format": "react"})
            before = seen
            while seen < before + 3 and not problems:
                pass
        finally:
            going.set()
            watcher.join()

        return TreeSummary(trees=60, trees_hash=manifest["trees_hash"])

    store.stages.run("rounds/01/collect", TreeSummary, grow)
    assert problems == []


def test_opening_needs_no_torch_and_no_ray(run: Run) -> None:
    code = f"import sys, agentr; agentr.open({str(run.path)!r}).rounds[1].collect.table(); print(sorted(sys.modules))"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    for module in ("torch", "ray", "transformers", "vllm"):
        assert f"'{module}'" not in loaded


def test_readers_never_stand_in_the_way_of_a_driver(run: Run) -> None:
    """While somebody asks for the owner all the time, a driver can still take the run, every time."""
    from agentr.store.run import RunStore

    code = f"import agentr\nrun = agentr.open({str(run.path)!r})\nprint('on', flush=True)\nwhile True: run.owner"
    watcher = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    try:
        assert watcher.stdout is not None and watcher.stdout.readline() == "on\n"
        for _ in range(200):
            store = RunStore(run.path)
            store.take()
            store.close()
    finally:
        watcher.kill()
        watcher.wait()


def test_the_readmes_example_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    text = (Path(__file__).parents[2] / "README.md").read_text()
    (example,) = [block.split("```")[0] for block in text.split("```python\n")[1:] if "agentr.open" in block]
    trees = [door() for _ in range(20)]
    for number, tree in enumerate(trees):
        tree.task = Task("toy", f"door {number}", "train")
    round_ = round_of(tmp_path / "runs/demo", TINY, number=2, collect=trees, revise=trees)
    round_.experiment.store.stages.run(
        "rounds/01/train", TrainSummary, lambda folder: TrainSummary(checkpoint="rounds/01/train/model")
    )
    dataset(round_)
    round_.experiment.store.close()
    monkeypatch.chdir(tmp_path)
    exec(compile(example, "README.md", "exec"), {})
    said = capsys.readouterr().out
    assert (
        "Policy(name='rounds/01/train'" in said
        and "rounds/02/revise door~20~" in said
        and "Use(dataset='rounds/02/dataset'" in said
    )


def test_the_page_names_every_file_and_column(run: Run) -> None:
    text = (Path(__file__).parents[2] / "docs" / "run_directory.md").read_text()
    for name in (*COLUMNS, *PROVENANCE, *(column for kind in DATASET_TYPES.values() for column in kind.columns)):
        assert f"`{name}`" in text, name
    for path in run.path.rglob("*"):
        if path.is_file() and "model" not in path.parts:
            assert path.name in text, path
