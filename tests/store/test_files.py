"""Folders that appear whole, and what makes one a model."""

import errno
import os
import resource
import shutil
from collections.abc import Iterable
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save_file

from agentr.errors import ModelError, RunError
from agentr.store.files import disk_errors, files_below, write_aside, write_bytes
from agentr.store.model_folder import require_model


def test_who_reads_a_file_sees_the_old_one_or_the_new_one(tmp_path: Path) -> None:
    path = tmp_path / "manifest.json"
    write_bytes(path, b"old")
    with path.open("rb") as reader:
        write_bytes(path, b"new and longer")
        assert reader.read() == b"old"
    assert path.read_bytes() == b"new and longer" and list(tmp_path.iterdir()) == [path]


def test_a_folder_appears_whole_in_place_of_the_old_one(tmp_path: Path) -> None:
    final = tmp_path / "deep" / "model"
    (tmp_path / "deep" / ".model.part").mkdir(parents=True)
    (tmp_path / "deep" / ".model.part" / "left by a kill").write_text("")
    final.mkdir()
    (final / "old").write_text("")
    with write_aside(final) as folder:
        assert list(folder.iterdir()) == []
        (folder / "new").write_text("")
        assert [path.name for path in final.iterdir()] == ["old"]
    assert [path.name for path in final.iterdir()] == ["new"]
    assert list(final.parent.iterdir()) == [final]


@pytest.mark.parametrize("error", [ValueError("boom"), KeyboardInterrupt()])
def test_a_folder_that_failed_leaves_the_old_one_and_no_part(tmp_path: Path, error: BaseException) -> None:
    final = tmp_path / "model"
    final.mkdir()
    (final / "old").write_text("")
    with pytest.raises(type(error)), write_aside(final) as folder:
        (folder / "half").write_text("")
        raise error
    assert [path.name for path in final.iterdir()] == ["old"]
    assert list(tmp_path.iterdir()) == [final]


def test_a_full_disk_is_named(tmp_path: Path) -> None:
    with (
        pytest.raises(RunError, match=r"no space left on the device while writing .*model"),
        write_aside(tmp_path / "model"),
    ):
        raise OSError(errno.ENOSPC, "No space left on device")
    assert list(tmp_path.iterdir()) == []


def test_a_limit_on_files_is_named(tmp_path: Path) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, hard))
    try:
        with pytest.raises(
            RunError,
            match=r"x cannot be written: it is larger than this process may write\. Raise the limit \(ulimit -f",
        ):
            write_bytes(tmp_path / "x", bytes(2000))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    "of, named",
    [("", "out/model"), ("out/model", "out/model"), ("out/.model.part/weights", "out/model"), ("run/rows", "run/rows")],
)
def test_what_may_not_be_read_or_written_is_named(tmp_path: Path, of: str, named: str) -> None:
    """The place that is written, or what was to be read for it."""
    error = PermissionError(errno.EACCES, "Permission denied", *([str(tmp_path / of)] if of else []))
    with (
        pytest.raises(RunError, match=f"^{tmp_path / named} cannot be read or written: Permission denied"),
        disk_errors(tmp_path / "out/model"),
    ):
        raise error


def test_what_is_below_a_folder_comes_in_order_whatever_others_delete(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("b/file", "a/deep/file", "a.txt", "work-1/checkpoints/file", "later/file"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("")
    (tmp_path / "link").symlink_to(tmp_path / "b")
    real, looked = os.scandir, list[str]()

    def scandir(path: Any) -> AbstractContextManager[Iterable[os.DirEntry[str]]]:
        if not isinstance(path, Path):
            return real(path)  # those who delete
        looked.append(path.name)
        with real(path) as entries:
            found = list(entries)
        if path == tmp_path:
            shutil.rmtree(tmp_path / "later")  # between a look at the folder and one into it
        return nullcontext(found)

    monkeypatch.setattr("agentr.store.files.os.scandir", scandir)
    found = [path.relative_to(tmp_path).as_posix() for path in files_below(tmp_path, ("work-*", "*.txt"))]
    assert found == ["a/deep/file", "b/file", "link"] and "work-1" not in looked and "later" in looked
    assert list(files_below(tmp_path / "nowhere")) == [] == list(files_below(tmp_path / "a.txt"))


def test_what_a_model_folder_lacks_is_named(tmp_path: Path) -> None:
    with pytest.raises(
        ModelError, match=r"the start checkpoint .*nowhere has no config\.json: it is not a model folder"
    ):
        require_model(tmp_path / "nowhere", "the start checkpoint")
    (tmp_path / "config.json").write_text("{}", encoding="utf-8")
    with pytest.raises(ModelError, match=r"has no weights \(\*\.safetensors\)"):
        require_model(tmp_path)
    (tmp_path / "model.safetensors").write_bytes(b"")
    with pytest.raises(ModelError, match="has no tokenizer"):
        require_model(tmp_path)
    (tmp_path / "tokenizer.json").write_text("{}", encoding="utf-8")
    with pytest.raises(
        ModelError, match=r"cannot be loaded: model\.safetensors is no file of safetensors, or damaged\. Download"
    ):
        require_model(tmp_path)
    save_file(
        {"a": np.zeros(100, np.float32), "b": np.ones((3, 5), np.float16)},
        tmp_path / "model.safetensors",
        {"format": "pt"},
    )
    require_model(tmp_path)
    whole = (tmp_path / "model.safetensors").read_bytes()
    (tmp_path / "model.safetensors").write_bytes(whole[:-30])
    with pytest.raises(
        ModelError, match=rf"model\.safetensors has {len(whole) - 30} bytes, and {len(whole)} are announced in it"
    ):
        require_model(tmp_path)
