"""What is unfinished in a stage belongs to one process: an old one that lives on changes nothing that anybody sees."""

import os
from dataclasses import replace
from pathlib import Path

import pytest

from agentr.errors import RunError
from agentr.search.stored import to_json
from agentr.store.files import write_json
from agentr.store.forest import Forest
from agentr.store.growing import GrowingForest
from agentr.store.working import working
from agentr.train.job import TrainJob, TrainResult
from agentr.types import Outcome
from tests.trees import door, episode

OLD, NEW = "000003.0007", "000004.0001"


def test_an_old_coordinator_cannot_write_any_more_and_nothing_of_it_is_seen(tmp_path: Path) -> None:
    old = GrowingForest(tmp_path, epoch=OLD)
    old.write(door())
    old.log("t1", {"n": 1})
    new = GrowingForest(tmp_path, epoch=NEW)
    assert new.finished() == {"door"} and new.journal("t1") == [{"n": 1}], "what was done is kept"
    other = episode("t2", ["open"], 1.0, Outcome.SUCCESS, 1)
    for change in (
        lambda: old.write(other),
        lambda: old.log("t1", {"n": 2}),
        lambda: old.log("t3", {"n": 1}),
        lambda: old.fail("t1", "why"),
    ):
        with pytest.raises(RunError, match="its folder is gone"):
            change()
    new.log("t1", {"n": 20})
    assert new.journal("t1") == [{"n": 1}, {"n": 20}]
    assert Forest(tmp_path).finished() == {"door"} and Forest(tmp_path).failures() == {}
    new.seal()
    with pytest.raises(RunError, match="its folder is gone"):
        old.write(other)
    assert [to_json(tree) for tree in Forest(tmp_path)] == [to_json(door())]


def test_a_line_that_an_old_coordinator_was_writing_goes_nowhere(tmp_path: Path) -> None:
    old = GrowingForest(tmp_path, epoch=OLD)
    old.log("t1", {"n": 1})
    descriptor = os.open(old.work / "journal" / "t1.jsonl", os.O_WRONLY | os.O_APPEND)
    new = GrowingForest(tmp_path, epoch=NEW)
    os.write(descriptor, b'{"n":2}\n')
    os.close(descriptor)
    new.log("t1", {"n": 20})
    assert new.journal("t1") == [{"n": 1}, {"n": 20}]


def test_an_old_coordinator_that_starts_late_is_refused(tmp_path: Path) -> None:
    GrowingForest(tmp_path, epoch=NEW).write(door())
    with pytest.raises(RunError, match=r"worked on by a later process \(000004\.0001, this is 000003\.0007\)"):
        GrowingForest(tmp_path, epoch=OLD)
    assert Forest(tmp_path).finished() == {"door"}


def test_a_folder_that_an_old_process_made_again_is_not_looked_at(tmp_path: Path) -> None:
    GrowingForest(tmp_path, epoch=OLD)
    new = GrowingForest(tmp_path, epoch=NEW)
    new.write(door())
    (tmp_path / f"work-{OLD}" / "finished").mkdir(parents=True)
    assert Forest(tmp_path).finished() == {"door"}
    GrowingForest(tmp_path, epoch="000005.0001")
    assert [path.name for path in tmp_path.glob("work-*")] == ["work-000005.0001"]


# training -------------------------------------------------------------------------------------------------------------

RESULT = TrainResult(
    checkpoint="",
    steps=1,
    epochs=1.0,
    rows=1,
    tokens=1,
    trained_tokens=1,
    first_loss=1.0,
    last_loss=1.0,
    seconds=1.0,
    tokens_per_second=1.0,
)


def attempt(job: TrainJob, made: str) -> TrainJob:
    """An attempt that has worked for a while."""
    found = replace(job, attempt=job.next_attempt())
    (found.checkpoints / "checkpoint-1").mkdir(parents=True, exist_ok=True)
    found.metrics.write_text(f'{{"step": 1, "by": "{made}"}}\n')
    (found.work / "model").mkdir(exist_ok=True)
    (found.work / "model" / "by").write_text(made)
    return found


def test_an_old_trainer_finishes_nothing(tmp_path: Path) -> None:
    job = TrainJob(tmp_path / "data", tmp_path / "start", tmp_path / "out", epoch=OLD)
    job.out.mkdir()
    old = attempt(job, "old")
    again = replace(job, attempt=job.next_attempt())  # a worker group that was started again by the same driver
    assert (again.checkpoints / "checkpoint-1").exists() and again.attempt > old.attempt
    new = attempt(replace(job, epoch=NEW), "new")
    for late in (old, again):
        with pytest.raises(RunError, match="a later attempt goes on"):
            late.require_current()
        with pytest.raises(RunError, match="its folder is gone"):
            late.finish(RESULT)
    assert job.finished() is None and not job.model.exists()
    assert job.work == new.work, "whoever looks on sees the last attempt"
    new.finish(RESULT)
    assert (
        job.finished() is not None and (job.model / "by").read_text() == "new" and job.read_metrics()[0]["by"] == "new"
    )
    assert working(job.out) is None


def test_a_trainer_that_died_while_it_finished_begins_where_it_was(tmp_path: Path) -> None:
    job = TrainJob(tmp_path / "data", tmp_path / "start", tmp_path / "out", epoch=OLD)
    job.out.mkdir()
    first = attempt(job, "first")
    for name in ("model", "metrics.jsonl"):
        (first.work / name).rename(job.out / name)
    second = replace(job, epoch=NEW)
    second = replace(second, attempt=second.next_attempt())
    assert second.read_metrics()[0]["by"] == "first" and not job.model.exists()
    write_json(second.failure, {"message": "why", "hint": ""})
    assert job.failure.exists()
