"""The run directory: stages sealed once, owners, changed configurations, torn and corrupt files, a full disk."""

import errno
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import textwrap
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentr.background import Beside
from agentr.config.identity import Identity
from agentr.errors import DataError, RunError
from agentr.methods import load
from agentr.search.stored import to_json
from agentr.store import files
from agentr.store.forest import Forest
from agentr.store.growing import GrowingForest
from agentr.store.records import read_config
from agentr.store.run import RunStore
from agentr.store.summaries import DatasetSummary, Summary
from agentr.store.tree_table import COLUMNS
from tests.tiny import IMITATE
from tests.trees import door


@pytest.fixture
def store(tmp_path: Path) -> RunStore:
    opened = RunStore(tmp_path / "run")
    opened.open(Identity.of(load(None, [IMITATE])))
    return opened


def test_a_stage_is_sealed_while_workers_still_delete_what_they_worked_in(store: RunStore) -> None:
    """A training is done when its result is there; its working folder may hold gigabytes that are deleted after."""

    def work(folder: Path) -> DatasetSummary:
        deep = folder / "work-000001.0001.001"
        for number in range(400):
            (deep / f"checkpoints/{number}").mkdir(parents=True)
        (folder / "rows").write_text("1")
        deleting.append(Beside(lambda: shutil.rmtree(deep)))
        return DatasetSummary(rows=1)

    for number in range(12):
        deleting: list[Beside[None]] = []
        store.stages.run(f"rounds/{number + 1:02d}/dataset", DatasetSummary, work)
        deleting[0].result()
        record = store.record(f"rounds/{number + 1:02d}/dataset")
        assert record is not None and list(record.files) == ["rows"]


def test_a_sealed_stage_is_never_done_again(store: RunStore) -> None:
    done: list[Path] = []

    def work(folder: Path) -> DatasetSummary:
        done.append(folder)
        return DatasetSummary(rows=3, kinds={"good": 3}, more={"written by": "somebody"})

    first = store.stages.run("rounds/01/dataset", DatasetSummary, work)
    assert first == DatasetSummary(rows=3, kinds={"good": 3}, more={"written by": "somebody"})
    assert store.stages.run("rounds/01/dataset", DatasetSummary, work) == first
    assert RunStore(store.root).stages.run("rounds/01/dataset", DatasetSummary, work) == first, (
        "it reads back as it was returned"
    )
    assert done == [store.root / "rounds/01/dataset"]


def test_a_stage_that_failed_is_tried_again_and_its_time_adds_up(
    store: RunStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [1000.0]
    monkeypatch.setattr(time, "time", lambda: now[0])

    def fail(folder: Path) -> Summary:
        now[0] += 3
        raise ValueError("boom")

    def work(folder: Path) -> Summary:
        now[0] += 4
        return Summary()

    with pytest.raises(ValueError, match="boom"):
        store.stages.run("x", Summary, fail)
    record = store.record("x")
    assert record is not None
    assert record.state == "running"
    assert not record.sealed
    assert "boom" in (store.root / "events.jsonl").read_text()
    now[0] += 100  # nobody worked on it
    store.stages.run("x", Summary, work)
    assert store.sealed("x")
    again = store.record("x")
    assert again is not None
    assert (record.seconds, again.seconds) == (3.0, 7.0)


def test_the_seconds_of_a_stage_within_a_stage_are_its_own(store: RunStore, monkeypatch: pytest.MonkeyPatch) -> None:
    now = [1000.0]
    monkeypatch.setattr(time, "time", lambda: now[0])

    def inner(_: Path) -> Summary:
        now[0] += 5
        return Summary()

    def outer(_: Path) -> Summary:
        now[0] += 1
        store.stages.run("inner", Summary, inner)
        now[0] += 2
        return Summary()

    store.stages.run("outer", Summary, outer)
    assert [(record.name, record.seconds) for record in store.records()] == [("outer", 3.0), ("inner", 5.0)]


def test_a_changed_configuration_is_refused_by_name(store: RunStore) -> None:
    store.close()
    store.open(Identity.of(load(None, [IMITATE, "run.seed=9"])))  # before the first stage it may be mended
    store.close()
    store.open(Identity.of(load(None, [IMITATE])))
    store.stages.run("model", Summary, lambda folder: Summary())
    store.close()
    again = RunStore(store.root)
    with pytest.raises(RunError, match=r"run\.seed: 0 -> 5"):
        again.open(Identity.of(load(None, [IMITATE, "run.seed=5"])))
    again.open(Identity.of(load(None, [IMITATE, "cluster.cpus=3", "run.rounds=7"])))
    again.close()
    again.open(Identity.of(load(None, [IMITATE, "run.seed=5"])), allow_change=True)
    assert events(again, "config_changed")[-1]["change"].startswith("run.seed: 0 -> 5")


def dataset(folder: Path) -> DatasetSummary:
    (folder / "rows").write_text("rows")
    return DatasetSummary(rows=3)


def events(store: RunStore, kind: str) -> list[dict[str, Any]]:
    return [event for event in files.read_lines(store.root / "events.jsonl") if event["event"] == kind]


def test_three_reasons_for_which_a_stage_is_stale_are_named_and_the_others_counted(
    store: RunStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    shown: list[str] = []
    monkeypatch.setattr(store.stages, "_notify", shown.append)
    store.stages.run("rounds/01/dataset", DatasetSummary, dataset, dict.fromkeys("abcde", 1))
    store.stages.run("rounds/01/dataset", DatasetSummary, dataset, dict.fromkeys("abcde", 2))
    assert "is stale: a: 1 -> 2; b: 1 -> 2; c: 1 -> 2; and 2 more. It stays" in shown[0]


def test_a_stage_that_is_set_aside_is_noted_with_its_place(store: RunStore) -> None:
    store.stages.run("rounds/01/dataset", DatasetSummary, dataset)
    place = store.stages.set_aside("rounds/01/dataset")
    assert place is not None
    (noted,) = events(store, "stage_set_aside")
    assert (noted["stage"], store.root / noted["place"]) == ("rounds/01/dataset", place)


def test_trees_that_grow_are_listed_by_all_columns(tmp_path: Path) -> None:
    forest = GrowingForest(tmp_path)
    forest.write(door())
    assert forest.summary().column_names == list(COLUMNS) and forest.summary(["task"]).column_names == ["task"]


def test_a_sealed_stage_that_would_be_made_with_other_values_is_said_to_be_stale_and_stays(store: RunStore) -> None:
    made_with = {"seed": 1, "template": "x" * 10_000}
    first = store.stages.run("rounds/01/dataset", DatasetSummary, dataset, made_with)
    assert store.stages.run("rounds/01/dataset", DatasetSummary, dataset, made_with) == first and not events(
        store, "stage_stale"
    )

    def never(folder: Path) -> DatasetSummary:
        raise AssertionError("a sealed stage is not made again")

    other = {"seed": 2, "template": "x" * 9_999 + "y"}
    assert store.stages.run("rounds/01/dataset", DatasetSummary, never, other) == first
    (event,) = events(store, "stage_stale")
    assert (
        event["stage"] == "rounds/01/dataset" and event["reasons"][0] == "seed: 1 -> 2" and len(event["reasons"]) == 2
    )
    record = store.record("rounds/01/dataset")
    assert record is not None and record.config["seed"] == 1 and len(record.config["template"]) < 100, (
        "a long value is kept as its hash"
    )


def test_files_are_compared_with_their_hashes_once_while_they_do_not_change(store: RunStore) -> None:
    store.stages.run("rounds/01/dataset", DatasetSummary, dataset)
    path, reader = store.root / "rounds/01/dataset/rows", RunStore(store.root)
    before = path.stat().st_mtime_ns
    reader.stages.checked("rounds/01/dataset")
    path.write_text("rowz")
    os.utime(path, ns=(before, before))
    reader.stages.checked("rounds/01/dataset")
    with pytest.raises(
        DataError, match=r"the stage rounds/01/dataset of .* is damaged: rounds/01/dataset/rows: has another hash"
    ):
        RunStore(store.root).stages.checked("rounds/01/dataset")
    os.utime(path, ns=(before, before + 1))
    with pytest.raises(DataError, match="has another hash"):
        reader.stages.checked("rounds/01/dataset")
    with pytest.raises(RunError, match="has no rounds/02/dataset yet"):
        store.stages.checked("rounds/02/dataset")


def test_stages_of_another_run_are_adopted_whole_where_there_are_none(store: RunStore, tmp_path: Path) -> None:
    for name in ("rounds/01/dataset", "rounds/02/dataset"):
        store.stages.run(name, DatasetSummary, dataset, {"seed": 1})
    other = RunStore(tmp_path / "other")
    other.open(Identity.of(load(None, [IMITATE])))
    own = other.stages.run("rounds/02/dataset", DatasetSummary, lambda folder: DatasetSummary(rows=5))
    other.stages.adopt(store.stages, ["rounds/01/dataset", "rounds/02/dataset", "rounds/03/dataset"])
    assert other.record("rounds/01/dataset") == store.record("rounds/01/dataset")
    assert (other.root / "rounds/01/dataset/rows").read_text() == "rows"
    assert other.stages.run("rounds/02/dataset", DatasetSummary, dataset) == own and not other.sealed(
        "rounds/03/dataset"
    )
    (event,) = events(other, "stage_adopted")
    assert (event["stage"], event["source"]) == ("rounds/01/dataset", "../run")
    (store.root / "rounds/01/dataset/rows").write_text("damaged")
    with pytest.raises(DataError, match="rows: has 7 bytes in place of 4"):
        RunStore(tmp_path / "third").stages.adopt(RunStore(store.root).stages, ["rounds/01/dataset"])
    assert not (tmp_path / "third").exists()


def test_what_a_teacher_answered_is_kept_of_all_processes_when_trees_are_sealed(tmp_path: Path) -> None:
    growing = [GrowingForest(tmp_path / "forest") for _ in range(2)]
    for number, forest in enumerate(growing):
        files.append_line(forest.work / f"answers-{number}.jsonl", {"asked": str(number)})
    growing[0].write(door())
    forest = Forest(tmp_path / "forest")
    assert forest.seal()["trees"] == 1
    assert files.read_lines(tmp_path / "forest/answers.jsonl") == [{"asked": "0"}, {"asked": "1"}]
    assert forest.seal()["trees"] == 1 and len(files.read_lines(tmp_path / "forest/answers.jsonl")) == 2


def test_a_second_driver_is_refused_with_the_owners_name(store: RunStore) -> None:
    code = f"""
        from pathlib import Path
        from agentr.config.identity import Identity
        from agentr.methods import load
        from agentr.store.run import RunStore
        RunStore(Path({str(store.root)!r})).open(Identity.of(load(None, [{IMITATE!r}])))
    """
    second = subprocess.run([sys.executable, "-c", textwrap.dedent(code)], capture_output=True, text=True, check=False)
    assert second.returncode != 0
    assert "another driver works on" in second.stderr
    assert "pid" in second.stderr
    assert RunStore(store.root).owner().startswith("pid")
    store.close()
    assert RunStore(store.root).owner() == ""


def test_files_follow_the_umask(tmp_path: Path) -> None:
    """A run may be read by whom its owner lets read files, and by nobody else."""
    for mask, mode in ((0o022, 0o644), (0o077, 0o600), (0o002, 0o664)):
        before = os.umask(mask)
        try:
            files.write_json(tmp_path / f"{mask}.json", {})
            files.append_line(tmp_path / f"{mask}.jsonl", {})
            with files.write_aside(tmp_path / f"{mask}") as folder:
                (folder / "weights").touch(0o600)
        finally:
            os.umask(before)
        assert {
            path.stat().st_mode & 0o777 for path in (*tmp_path.glob(f"{mask}.*"), tmp_path / f"{mask}" / "weights")
        } == {mode}


def test_a_run_that_is_refused_is_not_kept_locked(store: RunStore) -> None:
    store.stages.run("model", Summary, lambda folder: Summary())
    store.close()
    with pytest.raises(RunError, match=r"another configuration: run\.seed: 0 -> 3"):
        RunStore(store.root).open(Identity.of(load(None, [IMITATE, "run.seed=3"])))
    (store.root / "config.yaml").write_text("run: {recipe: eto}")
    (store.root / "manifest.json").unlink()
    with pytest.raises(DataError, match="earlier version"):
        RunStore(store.root).open(Identity.of(load(None, [IMITATE])))
    assert RunStore(store.root).owner() == ""


def test_a_run_whose_first_stage_failed_may_be_mended(store: RunStore) -> None:
    """Nothing was made by its configuration yet; once something is sealed, that holds."""

    def fail(_: Path) -> Summary:
        raise RunError("no such model")

    with pytest.raises(RunError, match="no such model"):
        store.stages.run("model", Summary, fail)
    store.close()
    mended = RunStore(store.root)
    mended.open(Identity.of(load(None, [IMITATE, "run.seed=3"])))
    mended.stages.run("model", Summary, lambda folder: Summary())
    mended.close()
    assert read_config(store.root)["run"]["seed"] == 3
    with pytest.raises(RunError, match=r"another configuration: run\.seed: 3 -> 4"):
        RunStore(store.root).open(Identity.of(load(None, [IMITATE, "run.seed=4"])))


def test_a_killed_drivers_run_can_be_taken_over(tmp_path: Path) -> None:
    code = f"""
        import os, signal
        from pathlib import Path
        from agentr.config.identity import Identity
        from agentr.methods import load
        from agentr.store.run import RunStore
        from agentr.store.summaries import Summary
        store = RunStore(Path({str(tmp_path)!r}))
        store.open(Identity.of(load(None, [{IMITATE!r}])))
        store.stages.run("a", Summary, lambda folder: Summary())
        store.stages.run("b", Summary, lambda folder: os.kill(os.getpid(), signal.SIGKILL))
    """
    dead = subprocess.run([sys.executable, "-c", textwrap.dedent(code)], check=False)
    assert dead.returncode == -9
    store = RunStore(tmp_path)
    store.open(Identity.of(load(None, [IMITATE])))
    assert store.sealed("a")
    assert not store.sealed("b")


def test_an_empty_directory_holds_no_run(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="holds no run"):
        read_config(tmp_path)


def test_a_full_disk_is_an_error_with_a_name_and_leaves_no_part(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(files.disk, "sync", full)
    with pytest.raises(RunError, match=r"no space left on the device while writing .*tree"):
        files.write_bytes(tmp_path / "tree", b"x")
    assert list(tmp_path.iterdir()) == []


def test_the_device_that_is_always_full() -> None:
    with (
        pytest.raises(RunError, match="no space left"),
        files.disk_errors(Path("/dev/full")),
        Path("/dev/full").open("wb", 0) as file,
    ):
        file.write(b"x")


def test_json_lines_survive_a_torn_tail_but_not_damage_in_the_middle(tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    files.append_line(path, {"a": 1})
    files.append_line(path, {"b": 2})
    with path.open("ab") as file:
        file.write(b'{"c": ')
    assert files.read_lines(path) == [{"a": 1}, {"b": 2}]
    for damaged in (b'{"a": 1}\n{"b"\n{"c": 3}\n', b'{"a": 1}\n{"b"\n'):  # a line that was ended is no torn tail
        path.write_bytes(damaged)
        with pytest.raises(DataError, match="line 2 is damaged"):
            files.read_lines(path)


@pytest.mark.parametrize(
    ("path", "remedy"),
    [("/dev/shm/agentr-run/model", "memory .*policy.sync=files"), ("/data/run/model", "some space and")],
)
def test_a_full_device_is_named_as_what_it_is(path: str, remedy: str) -> None:
    with pytest.raises(RunError) as raised, files.disk_errors(Path(path)):
        raise OSError(errno.ENOSPC, "No space left on device")
    assert re.search(remedy, raised.value.hint)


LINES = st.lists(
    st.dictionaries(st.text(max_size=4), st.none() | st.integers() | st.text(max_size=6), max_size=3),
    min_size=1,
    max_size=4,
)


@settings(deadline=None, max_examples=12)
@given(LINES)
def test_a_file_of_lines_goes_on_behind_any_cut(lines: list[dict[str, Any]]) -> None:
    """What a full disk or a kill left of a line is taken away by the next one; a line that lacks only its end stays."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "events.jsonl"
        for line in lines:
            files.append_line(path, line)
        whole = path.read_bytes()
        for place in range(len(whole) + 1):
            path.write_bytes(whole[:place])
            there = [
                line for number, line in enumerate(lines) if len(b"\n".join(whole.split(b"\n")[: number + 1])) <= place
            ]
            assert files.read_lines(path) == there
            files.append_line(path, {"next": place})
            files.append_line(path, {"last": place})
            assert files.read_lines(path) == [*there, {"next": place}, {"last": place}]
            assert [json.loads(line) for line in path.read_text().splitlines()] == files.read_lines(path), (
                "for any other reader, too"
            )


def test_a_full_disk_cuts_a_line_and_the_run_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Filling(files.Disk):
        def write(self, descriptor: int, data: bytes | memoryview) -> int:
            if len(data) < 12:
                raise OSError(errno.ENOSPC, "No space left on device")
            return os.write(descriptor, data[:12])

    path = tmp_path / "steps.jsonl"
    files.append_line(path, {"step": 1})
    with monkeypatch.context() as full:
        full.setattr(files, "disk", Filling())
        with pytest.raises(RunError, match="no space left"):
            files.append_line(path, {"step": 2, "said": "much more"})
    assert not path.read_bytes().endswith(b"\n"), "the disk took a part"
    for step in (2, 3):
        files.append_line(path, {"step": step})
    assert files.read_lines(path) == [{"step": 1}, {"step": 2}, {"step": 3}]


def test_a_forest_is_the_same_before_and_after_it_is_sealed(tmp_path: Path) -> None:
    forest = GrowingForest(tmp_path)
    forest.write(door())
    before = [to_json(t) for t in forest]
    manifest = forest.seal(kind="test")
    assert manifest["trees"] == 1
    assert [to_json(t) for t in Forest(tmp_path)] == before
    assert not list(tmp_path.glob("work-*"))
    assert Forest(tmp_path).seal() == manifest


def test_a_damaged_tree_is_named_and_set_aside_to_be_grown_anew(tmp_path: Path) -> None:
    forest = GrowingForest(tmp_path)
    forest.write(door())
    (path,) = (forest.work / "finished").iterdir()
    damaged = path.read_bytes()[:40]
    path.write_bytes(damaged)
    forest.log("window", {"a": 1})
    journal = forest.work / "journal" / "window.jsonl"
    journal.write_bytes(b"{broken\n" + journal.read_bytes())
    with pytest.raises(DataError, match=r"tree 'door'.*damaged"):
        forest.read("door")
    with pytest.raises(DataError, match=r"damaged.*set aside and grown anew"):
        forest.seal()
    forest = GrowingForest(tmp_path)
    assert forest.damaged == ["door", "window"], "all of them in one go"
    assert (forest.finished(), forest.journal("window")) == (set(), [])
    assert (tmp_path / "damaged" / path.name).read_bytes() == damaged, "nothing is deleted"
    assert GrowingForest(tmp_path).damaged == []


@pytest.mark.parametrize(
    "damage", [lambda data: b"", lambda data: data[:-9], lambda data: data[:300] + b"x" + data[301:]]
)
def test_a_sealed_forest_that_was_tampered_with_is_refused(tmp_path: Path, damage: Callable[[bytes], bytes]) -> None:
    forest = GrowingForest(tmp_path)
    forest.write(door())
    forest.seal()
    path = tmp_path / "trees" / "00000.parquet"
    path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(DataError, match="damaged"):
        list(Forest(tmp_path))
    with pytest.raises(DataError, match="damaged"):
        Forest(tmp_path).read("door")


def test_a_tree_that_is_not_there_is_answered_with_the_nearest(tmp_path: Path) -> None:
    forest = GrowingForest(tmp_path)
    for sealed in (False, True):
        if sealed:
            forest.write(door())
            forest.seal()
        with pytest.raises(DataError, match=r"holds no tree 'dor'" + (r".*\n?.*The nearest: door" if sealed else "")):
            forest.read("dor")


def test_failures_are_forgotten_once_the_tree_is_there(tmp_path: Path) -> None:
    forest = GrowingForest(tmp_path)
    forest.fail("door", "server gone")
    forest.fail("window", "server gone")
    assert set(forest.failures()) == {"door", "window"}
    forest.write(door())
    assert set(forest.failures()) == {"window"}


@pytest.mark.parametrize(
    "damage", ["", "{", '{"format": 3, "name": "x", "config": {}, "stages": [], "checksum": "0"}', None]
)
def test_a_lost_manifest_is_made_anew_from_the_seals(store: RunStore, damage: str | None) -> None:
    store.stages.run("rounds/01/dataset", DatasetSummary, lambda folder: DatasetSummary(rows=3))
    store.stages.run("model", Summary, lambda folder: Summary())
    store.close()
    before = {record.name: record for record in RunStore(store.root).records()}
    if damage is None:
        store.layout.manifest.unlink()
    else:
        store.layout.manifest.write_text(damage)
    assert {record.name: record for record in RunStore(store.root).records()} == before, "it is read without"
    again = RunStore(store.root)
    again.open(Identity.of(load(None, [IMITATE])))
    assert again.stages.run("rounds/01/dataset", DatasetSummary, lambda folder: pytest.fail("it is sealed")).rows == 3
    again.close()
    assert {record.name: record for record in RunStore(store.root).records()} == before
    assert "manifest_made_anew" in store.layout.events.read_text()
