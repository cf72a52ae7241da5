"""Whole or ignored."""

import json
import logging
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from agentr.errors import DataError
from agentr.train.checkpoints import SEAL, is_complete, latest, publish, seal
from agentr.train.job import TrainJob, TrainResult


def make_checkpoint(folder: Path, step: int) -> Path:
    path = folder / f"checkpoint-{step}"
    (path / "global_step").mkdir(parents=True)
    (path / "global_step" / "optimizer.pt").write_bytes(b"x" * 100)
    seal(path)
    return path


def test_the_latest_complete_checkpoint_is_found_by_its_number(tmp_path: Path) -> None:
    assert latest(tmp_path) is None
    make_checkpoint(tmp_path, 90)
    newest = make_checkpoint(tmp_path, 100)
    assert latest(tmp_path) == newest


@pytest.mark.parametrize("damage", ["unsealed", "truncated", "missing", "bad seal"])
def test_a_torn_checkpoint_is_skipped_with_a_warning(
    tmp_path: Path, damage: str, caplog: pytest.LogCaptureFixture
) -> None:
    good, torn = make_checkpoint(tmp_path, 10), make_checkpoint(tmp_path, 20)
    if damage == "unsealed":
        (torn / SEAL).unlink()
    elif damage == "truncated":
        (torn / "global_step" / "optimizer.pt").write_bytes(b"x" * 50)
    elif damage == "missing":
        (torn / "global_step" / "optimizer.pt").unlink()
    else:
        (torn / SEAL).write_text("{", encoding="utf-8")
    assert not is_complete(torn)
    with caplog.at_level(logging.WARNING):
        assert latest(tmp_path) == good
    assert "torn checkpoint" in caplog.text
    assert not torn.exists()


def test_a_model_appears_whole_with_everything_but_the_old_weights_and_their_card(tmp_path: Path) -> None:
    start, final = tmp_path / "start", tmp_path / "model"
    start.mkdir()
    for name in ("config.json", "tokenizer.json", "model.safetensors", "README.md"):
        (start / name).write_text(f"old {name}", encoding="utf-8")

    def save(folder: Path) -> None:
        assert not final.exists()
        (folder / "model.safetensors").write_text("new", encoding="utf-8")
        (folder / "config.json").write_text("rewritten", encoding="utf-8")

    publish(save, final, TrainJob(tmp_path / "d", start, tmp_path))
    contents = {path.name: path.read_text(encoding="utf-8") for path in final.iterdir()}
    assert contents == {
        "config.json": "old config.json",
        "tokenizer.json": "old tokenizer.json",
        "model.safetensors": "new",
    }
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".")] == []


def test_a_checkpoint_has_the_template_and_the_end_of_turns_that_it_was_trained_with(tmp_path: Path) -> None:
    start = tmp_path / "start"
    start.mkdir()
    (start / "chat_template.jinja").write_text("the model's own", encoding="utf-8")
    (start / "generation_config.json").write_text('{"eos_token_id": 2, "top_p": 0.9}', encoding="utf-8")

    def save(folder: Path) -> None:
        (folder / "model.safetensors").write_text("new", encoding="utf-8")

    job = TrainJob(tmp_path / "d", start, tmp_path, chat_template="the run's", stop_ids=(7,))
    publish(save, tmp_path / "model", job)
    assert (tmp_path / "model" / "chat_template.jinja").read_text(encoding="utf-8") == "the run's"
    assert json.loads((tmp_path / "model" / "generation_config.json").read_text()) == {
        "eos_token_id": [2, 7],
        "top_p": 0.9,
    }


def test_a_result_is_read_back_equal(tmp_path: Path) -> None:
    job = TrainJob(tmp_path / "d", tmp_path / "s", tmp_path)
    assert job.finished() is None
    result = TrainResult(
        checkpoint=str(job.model),
        steps=3,
        epochs=1.5,
        rows=10,
        tokens=200,
        trained_tokens=80,
        first_loss=2.0,
        last_loss=1.0,
        seconds=4.0,
        tokens_per_second=50.0,
    )
    job.finish(result)
    assert job.finished() == result
    moved = replace(job, out=Path(shutil.copytree(tmp_path, tmp_path / "moved")))
    assert moved.finished() == replace(result, checkpoint=str(moved.model))
    (tmp_path / "result.json").write_text("{}", encoding="utf-8")
    with pytest.raises(DataError, match="is not a training result"):
        job.finished()


def test_metrics_cut_off_by_a_kill_are_read_up_to_there(tmp_path: Path) -> None:
    job = TrainJob(tmp_path / "d", tmp_path / "s", tmp_path)
    job.metrics.write_text('{"step": 1}\n{"step": 2}\n{"ste', encoding="utf-8")
    assert [line["step"] for line in job.read_metrics()] == [1, 2]
