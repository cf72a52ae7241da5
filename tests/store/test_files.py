"""Folders that appear whole, and what makes one a model."""

from __future__ import annotations

import errno
import fcntl
import os
import resource
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file

from agentr.errors import ModelError, RunError
from agentr.store.files import write_aside, write_bytes
from agentr.store.model_folder import require_model


def test_who_reads_a_file_sees_the_old_one_or_the_new_one(tmp_path: Path) -> None:
    path = tmp_path / "manifest.json"
    write_bytes(path, b"old")
    with path.open("rb") as reader:
        write_bytes(path, b"new and longer")
        assert reader.read() == b"old"
    assert path.read_bytes() == b"new and longer" and list(tmp_path.iterdir()) == [path]


#: A process that is killed while it writes a file; and one that says so and waits until it may go on.
WRITER = """
import os, signal, sys
from pathlib import Path
from agentr.store.files import writing
with writing(Path(sys.argv[1])) as file:
    file.write(b"half" * 500_000)
    if sys.argv[2] == "killed":
        os.kill(os.getpid(), signal.SIGKILL)
    print("begun", flush=True)
    sys.stdin.read()
"""


def begun(path: Path, how: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, "-c", WRITER, str(path), how], stdin=subprocess.PIPE, stdout=subprocess.PIPE)


@pytest.mark.parametrize("name", ["demo.tar.zst", "x" * 200, "a b", "zeisig\n", ".hidden"])
def test_what_a_killed_writer_left_goes_with_the_next_write_of_the_same_file(name: str, tmp_path: Path) -> None:
    path = tmp_path / name
    for _ in range(2):
        begun(path, "killed").communicate(timeout=60)
    (left,) = tmp_path.iterdir()
    assert left.name.endswith(".part") and left.stat().st_size >= 1 << 20
    write_bytes(path, b"whole")
    assert list(tmp_path.iterdir()) == [path] and path.read_bytes() == b"whole"


def test_what_another_writer_is_at_is_left_to_it(tmp_path: Path) -> None:
    """Of two at once each writes a whole file; whoever ends last has the name. One that was killed meanwhile leaves the others alone."""
    path = tmp_path / "demo.tar.zst"
    writer = begun(path, "waits")
    assert writer.stdout is not None and writer.stdout.readline() == b"begun\n"
    write_bytes(path, b"whole")
    assert path.read_bytes() == b"whole" and len(list(tmp_path.iterdir())) == 2
    writer.communicate(timeout=60)
    assert writer.returncode == 0 and path.read_bytes() == b"half" * 500_000 and list(tmp_path.iterdir()) == [path]


def test_many_writers_of_one_file_at_once_leave_one_whole_file(tmp_path: Path) -> None:
    path = tmp_path / "file"
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda number: write_bytes(path, bytes([number]) * 50_000), range(120)))
    data = path.read_bytes()
    assert len(data) == 50_000 and len(set(data)) == 1 and list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("kind", ["a link out", "a broken link", "a fifo", "a folder", "a file that may not be read"])
def test_what_stands_at_the_name_of_a_part_is_never_written_to(kind: str, tmp_path: Path) -> None:
    folder, other = tmp_path / "folder", tmp_path / "other"
    folder.mkdir()
    other.write_text("mine")
    part = folder / ".file.part"
    if kind == "a fifo":
        os.mkfifo(part)
    elif kind == "a folder":
        (part / "inner").mkdir(parents=True)
    elif kind == "a file that may not be read":
        part.write_text("theirs")
        part.chmod(0)
    else:
        part.symlink_to(other if kind == "a link out" else tmp_path / "nothing")
    write_bytes(folder / "file", b"whole")
    assert (folder / "file").read_bytes() == b"whole" and other.read_text() == "mine" and not (tmp_path / "nothing").exists()
    assert not (folder / "file").is_symlink()
    assert {path.name for path in folder.iterdir()} <= {"file", ".file.part"}


def test_a_file_system_without_locks_keeps_what_may_be_anothers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def none(*_: object) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(fcntl, "flock", none)
    (tmp_path / ".file.part").write_text("another's")
    for data in (b"one", b"two"):
        write_bytes(tmp_path / "file", data)
    assert (tmp_path / "file").read_bytes() == b"two" and (tmp_path / ".file.part").read_text() == "another's"
    assert len(list(tmp_path.iterdir())) == 2


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
    with pytest.raises(RunError, match=r"no space left on the device while writing .*model"), write_aside(tmp_path / "model"):
        raise OSError(errno.ENOSPC, "No space left on device")
    assert list(tmp_path.iterdir()) == []


def test_a_limit_on_files_is_named(tmp_path: Path) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, hard))
    try:
        with pytest.raises(RunError, match=r"x cannot be written: it is larger than this process may write\. Raise the limit \(ulimit -f"):
            write_bytes(tmp_path / "x", bytes(2000))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert not list(tmp_path.iterdir())


def test_what_a_model_folder_lacks_is_named(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"the start checkpoint .*nowhere has no config\.json: it is not a model folder"):
        require_model(tmp_path / "nowhere", "the start checkpoint")
    (tmp_path / "config.json").write_text("{}", encoding="utf-8")
    with pytest.raises(ModelError, match=r"has no weights \(\*\.safetensors\)"):
        require_model(tmp_path)
    (tmp_path / "model.safetensors").write_bytes(b"")
    with pytest.raises(ModelError, match="has no tokenizer"):
        require_model(tmp_path)
    (tmp_path / "tokenizer.json").write_text("{}", encoding="utf-8")
    with pytest.raises(ModelError, match=r"cannot be loaded: model\.safetensors is no file of safetensors, or damaged\. Download"):
        require_model(tmp_path)
    save_file({"a": np.zeros(100, np.float32), "b": np.ones((3, 5), np.float16)}, tmp_path / "model.safetensors", {"format": "pt"})
    require_model(tmp_path)
    whole = (tmp_path / "model.safetensors").read_bytes()
    (tmp_path / "model.safetensors").write_bytes(whole[:-30])
    with pytest.raises(ModelError, match=rf"model\.safetensors has {len(whole) - 30} bytes, and {len(whole)} are announced in it"):
        require_model(tmp_path)
