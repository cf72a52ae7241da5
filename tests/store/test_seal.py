"""Seals: what they name, what they do not, and that nothing of a stage can change without their noticing."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from blake3 import blake3

from agentr.errors import DataError
from agentr.store.seal import (
    FORMAT,
    SEAL,
    FileRecord,
    OtherFormat,
    StageRecord,
    content_hash,
    files_of,
    hash_files,
    hash_folder,
    hash_of,
    read_checked,
    read_seal,
    verify,
    write_checked,
    write_seal,
)
from agentr.store.summaries import ModelSummary, Summary, TreeSummary

STAGE = "rounds/01/dataset"
FILES = {"rows.parquet": b"rows", "model/a.bin": b"weights", "model/deep/b.bin": b""}
SPARE = ("step.log", ".hidden", "work-3/x", "checkpoint-10/a.bin", "model/.cache/x", "damaged/rows.parquet", SEAL)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / STAGE
    for name, content in FILES.items():
        write(made / name, content)
    return made


def write(path: Path, content: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)


def sealed(folder: Path, **more: Any) -> StageRecord:
    """The record of a folder as it is."""
    record = {"name": STAGE, "state": "sealed", "started": 1.5, "seconds": 2.5, "summary": {"rows": 3}, **more}
    return StageRecord(files=hash_files(folder, files_of(folder)), **record)


def damage(folder: Path, record: StageRecord) -> dict[str, str]:
    found = list(verify(folder.parents[2], record))
    assert {one.stage for one in found} <= {STAGE} and not any(one.unreadable for one in found)
    return {one.path.removeprefix(f"{STAGE}/"): one.problem for one in found}


def test_a_seal_names_every_file_but_those_that_nobody_needs(folder: Path) -> None:
    for name in SPARE:
        write(folder / name, b"x")
    assert sorted(files_of(folder)) == sorted(FILES)
    assert files_of(folder / "none") == []
    expected = {name: FileRecord(len(content), blake3(content).hexdigest(length=16)) for name, content in FILES.items()}
    assert hash_files(folder, files_of(folder)) == expected


def test_whatever_happens_to_a_sealed_file_is_named(folder: Path) -> None:
    record = sealed(folder)
    assert damage(folder, record) == {}
    write(folder / "step.log", b"another one")
    assert damage(folder, record) == {}
    write(folder / "rows.parquet", b"rowz")
    write(folder / "model/a.bin", b"weight" * 1000)
    (folder / "model/deep/b.bin").unlink()
    assert damage(folder, record) == {
        "rows.parquet": "has another hash than when it was sealed",
        "model/a.bin": "has 6,000 bytes in place of 7",
        "model/deep/b.bin": "is missing",
    }


def test_a_file_that_may_not_be_read_is_not_called_damaged(folder: Path) -> None:
    record = sealed(folder)
    (folder / "rows.parquet").unlink()
    (folder / "rows.parquet").symlink_to("rows.parquet")  # a loop
    (one,) = verify(folder.parents[2], record)
    assert one.unreadable and str(one) == f"{STAGE}/rows.parquet: cannot be read: Too many levels of symbolic links"


def test_a_model_outside_the_run_is_known_by_what_it_holds_and_not_by_its_name(folder: Path, tmp_path: Path) -> None:
    model = folder / "model"
    write(model / "config.json", b"{}")
    record = sealed(folder, summary=ModelSummary(path=str(model), folder_hash=hash_folder(model)).stored())
    record = replace(record, files={})
    assert damage(folder, record) == {}
    moved = model.rename(tmp_path / "elsewhere")
    assert damage(folder, record) == {
        str(model): "is missing: name its new place ('agentr resume' and 'agentr doctor' take --model)"
    }
    assert hash_folder(moved) == record.summary["folder_hash"]
    record.summary["path"] = str(moved)
    assert damage(folder, record) == {}
    (moved / "a.bin").rename(moved / "c.bin")
    assert damage(folder, record) == {str(moved): "holds another model than when the run was started"}


def test_what_later_stages_read_decides_the_content(folder: Path) -> None:
    class Weights(Summary):
        content = ("model/*.bin", "model/deep/*")

    files = hash_files(folder, files_of(folder))
    changed = {name: {**files, name: replace(files[name], blake3="0" * 32)} for name in files}
    of_weights = content_hash(files, Weights())
    assert (
        content_hash(changed["rows.parquet"], Weights())
        == of_weights
        == content_hash(dict(reversed(files.items())), Weights())
    )
    assert len({of_weights, *(content_hash(changed[name], Weights()) for name in files if name != "rows.parquet")}) == 3
    assert content_hash(files, TreeSummary(trees_hash="1")) == content_hash(
        changed["rows.parquet"], TreeSummary(trees_hash="1")
    )
    assert content_hash(files, TreeSummary(trees_hash="1")) != content_hash(files, TreeSummary(trees_hash="2"))


def test_a_hash_of_data_does_not_depend_on_the_order_of_keys_and_on_nothing_else() -> None:
    assert (
        hash_of({"a": 1, "b": [1, 2]})
        == hash_of({"b": [1, 2], "a": 1})
        == blake3(b'{"a":1,"b":[1,2]}').hexdigest(length=16)
    )
    assert hash_of({"b": [1, 2]}) != hash_of({"b": [2, 1]})
    assert hash_of(Path("x")) == hash_of("x")


def test_a_seal_reads_back_equal_and_a_changed_byte_is_noticed(folder: Path) -> None:
    assert read_seal(folder) is None
    record = sealed(folder, inputs={"model": "0"}, config={"seed": 1}, content="1", pruned=["a"], agentr="1.0")
    assert record.sealed and not replace(record, state="running").sealed
    write_seal(folder, record)
    assert read_seal(folder) == record
    path = folder / SEAL
    path.write_text(path.read_text().replace('"seconds": 2.5', '"seconds": 2.6'))
    with pytest.raises(DataError, match=r"stage\.json is damaged: it does not match its own checksum"):
        read_seal(folder)


@pytest.mark.parametrize("stored", [{"a": 1}, {"a": 1, "checksum": "0"}, [], None])
def test_what_has_no_checksum_of_its_own_is_damaged(tmp_path: Path, stored: Any) -> None:
    (tmp_path / "x.json").write_text(json.dumps(stored))
    with pytest.raises(DataError, match=r"x\.json is damaged: it does not match its own checksum"):
        read_checked(tmp_path / "x.json")
    write_checked(tmp_path / "x.json", {"a": (1, Path("b"))})
    assert read_checked(tmp_path / "x.json") == {"a": [1, "b"]}


def test_a_record_of_another_version_is_read_or_refused() -> None:
    record = StageRecord(name=STAGE, state="sealed", started=0, seconds=0, summary={}, files={"a": FileRecord(1, "0")})
    assert StageRecord.of({**record.stored(), "colour": "blue"}) == record
    without = {key: value for key, value in record.stored().items() if key not in ("files", "format")}
    assert StageRecord.of(without) == replace(record, files={})
    with pytest.raises(DataError, match=r"record of a stage is damaged: .*summary"):
        StageRecord.of({key: value for key, value in record.stored().items() if key != "summary"})
    for other, by, wrote in (
        (FORMAT + 1, "9.0", "agentr 9.0 or later"),
        (FORMAT - 1, "0.1", "agentr 0.1 or earlier"),
        (FORMAT + 1, "", "the version of agentr that wrote it"),
    ):
        says = (
            f"this stage is stored in format {other}; this version of agentr reads format {FORMAT}. Read it with "
            f"{wrote}."
        )
        with pytest.raises(OtherFormat, match=says):
            StageRecord.of({**record.stored(), "format": other, "agentr": by})
