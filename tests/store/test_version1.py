"""A run that version 1 of the stored form left, made by it (one round of Agent-R on six tasks; without weights): everything reads it."""

from __future__ import annotations

import json
import tarfile
from pathlib import Path
from shutil import copytree

import pytest
import zstandard

import agentr
from agentr.launch.doctor import examine
from agentr.launch.export import export
from agentr.launch.pack import extract
from agentr.launch.run import report
from agentr.observe.progress import Reporter
from agentr.recipes import load
from agentr.search.stored import to_json
from agentr.store.forest import Forest
from agentr.store.growing import GrowingForest
from agentr.store.records import read_index
from agentr.store.run import RunStore
from agentr.store.seal import FORMAT, SEAL
from agentr.store.summaries import Summary, TreeSummary

ARCHIVE = Path(__file__).with_name("version1.tar.zst")


@pytest.fixture(scope="module")
def unpacked(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the run and of what version 1 exported of it."""
    folder = tmp_path_factory.mktemp("version1")
    with zstandard.ZstdDecompressor().stream_reader(ARCHIVE.open("rb")) as data, tarfile.open(fileobj=data, mode="r|") as tar:
        extract(tar, folder, ARCHIVE)
    return folder


@pytest.fixture
def old(unpacked: Path, tmp_path: Path) -> Path:
    return Path(copytree(unpacked / "version1", tmp_path / "moved" / "run"))


def test_it_is_read_as_objects(old: Path) -> None:
    run = agentr.open(old)
    first = run.rounds[1]
    assert list(first.stages()) == ["collect", "revise", "dataset", "train", "eval"]
    assert (len(first.collect), first.collect.summary.trees, first.dataset.summary.rows) == (6, 6, 9)
    assert first.collect.table(["key", "turns", "successes"]).num_rows == 6
    tree = first.revise[first.revise.keys()[0]]
    assert tree.stage == "rounds/01/revise" and tree.nodes[1].token_ids and tree.nodes[1].draws == 1
    assert sum(tree.cost.cached_tokens for tree in first.collect) == first.collect.summary.cost.cached_tokens > 0
    assert [row.provenance.kind for row in first.dataset.rows].count("revision") == first.dataset.summary.kinds["revision"]
    assert first.dataset.rows.trace(0).chosen.problem == "this row was written before rows named the stage of their tree"
    assert list(first.dataset.dropped()) == []
    assert first.train.summary.checkpoint == "rounds/01/train/model"


@pytest.mark.parametrize(("kind", "name"), [("trl", "trl.jsonl"), ("llamafactory", "llamafactory.json")])
def test_it_is_exported_as_version_1_did(old: Path, unpacked: Path, tmp_path: Path, kind: str, name: str) -> None:
    export(old, 1, kind, tmp_path / name)
    assert (tmp_path / name).read_text() == (unpacked / name).read_text()


def test_its_conversations_are_those_that_version_1_exported_and_the_demonstrations(old: Path, unpacked: Path, tmp_path: Path) -> None:
    """Version 1 left rows out that are no trees of the round."""
    export(old, 1, "sharegpt", tmp_path / "rows.json")
    now, then = (json.loads(path.read_text()) for path in (tmp_path / "rows.json", unpacked / "sharegpt.json"))
    own = [entry for entry in now if not entry["id"].startswith("demonstration")]
    assert (len(now), len(own)) == (9, 6)
    assert [(e["task"], e["conversations"]) for e in own] == [(e["task"], e["conversations"]) for e in then]


def test_it_is_reported(old: Path) -> None:
    summary = report(agentr.open(old), Reporter())
    assert [(arm.title, arm.trees, arm.rows, arm.calls) for arm in summary.arms] == [("warm start", 0, 20, 0), ("round 1", 6, 9, 107)]
    assert "That did not work." in (old / "report.html").read_text(), "the example of a revision"


def test_its_absolute_paths_lead_to_where_it_is_now(old: Path) -> None:
    """Earlier ones kept absolute paths into the run directory, and of a model of the user's own."""
    manifest = json.loads((old / "manifest.json").read_text())
    manifest["stages"]["model"]["summary"]["path"] = "/home/somebody/runs/version1/model/nano"
    (old / "manifest.json").write_text(json.dumps(manifest))
    assert agentr.open(old).model == old / "model/nano"
    for own in ("/models/llama", "/models/model/llama", "/runs/another/rounds/00/train/model"):
        manifest["stages"]["model"]["summary"]["path"] = own
        (old / "manifest.json").write_text(json.dumps(manifest))
        assert agentr.open(old).model == Path(own)


def test_it_is_continued(old: Path) -> None:
    """Its stages stay as they are, and new ones are stored as this version does."""
    store = RunStore(old)
    store.open(load(store.layout.config, [f"run.dir={old}"], files=False))
    never = lambda folder: pytest.fail("a sealed stage is done again")  # noqa: E731
    assert store.stage("rounds/01/collect", TreeSummary, never).trees == 6
    store.stage("rounds/02/collect", Summary, lambda folder: Summary())
    store.close()
    assert (read_index(old).stages["rounds/01/collect"].format, read_index(old).stages["rounds/02/collect"].format) == (1, FORMAT)
    assert (old / "rounds/02/collect" / SEAL).exists() and not (old / "rounds/01/collect" / SEAL).exists()
    assert [record.name for record in RunStore(old).records()][-1] == "rounds/02/collect"
    again = RunStore(old)
    again.open(load(store.layout.config, [f"run.dir={old}"], files=False))
    assert again.stage("rounds/01/collect", TreeSummary, never).trees == 6


def test_a_stage_that_was_growing_is_taken_over(old: Path, tmp_path: Path) -> None:
    sealed = Forest(old / "rounds/01/collect")
    table = sealed._version1
    assert table is not None
    growing = tmp_path / "collect"
    (growing / "trees").mkdir(parents=True)
    for key in table.keys()[:3]:
        (growing / "trees" / f"{key}.json.zst").write_bytes(table._table["tree"][table._rows[key]].as_py())
    forest = GrowingForest(growing)
    assert forest.damaged == []
    assert sorted(forest.finished()) == table.keys()[:3] and not (growing / "trees").exists()
    forest.seal()
    assert [to_json(tree) for tree in Forest(growing)] == [to_json(sealed.read(key)) for key in table.keys()[:3]]


def test_its_damaged_trees_and_rows_are_found(old: Path) -> None:
    assert list(examine(old)) == []
    for name in ("rounds/01/revise/trees.parquet", "rounds/01/dataset/rows.parquet"):
        data = bytearray((old / name).read_bytes())
        data[len(data) // 2] ^= 1
        (old / name).write_bytes(data)
    assert [finding.stage for finding in examine(old)] == ["rounds/01/revise", "rounds/01/dataset"]
