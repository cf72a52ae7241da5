"""A disk that fails, or a process that dies, between any two system calls: what is there afterwards is the old state or
the new one.

All writes of the store go through ``agentr.store.files.disk``, so each point can be tried.
"""

import errno
import itertools
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from agentr.commands.doctor import examine
from agentr.config.identity import Identity
from agentr.errors import RunError
from agentr.methods import load
from agentr.search.stored import to_json
from agentr.store import files
from agentr.store.dataset import read_rows
from agentr.store.files import Disk
from agentr.store.forest import Forest
from agentr.store.growing import GrowingForest
from agentr.store.lease import Lease
from agentr.store.run import RunStore
from agentr.store.summaries import DatasetSummary, Summary, TreeSummary
from agentr.types import Outcome
from tests.runs import TINY, dataset, round_of
from tests.tiny import IMITATE
from tests.trees import door, episode

#: Names no code: noting which code a run is trusted with may fail, and the run goes on.
CONFIG = load(None)


class Killed(BaseException):
    """The process is gone: no code of it runs any more."""


class Failing(Disk):
    """A disk whose n-th call by this thread fails, or is the last one.

    Attributes:
        calls: How many calls were made.
    """

    def __init__(self, at: int, kill: bool) -> None:
        self.at = at
        self.kill = kill
        self.calls = 0
        self.thread = threading.get_ident()

    def __getattribute__(self, name: str) -> Any:
        found = super().__getattribute__(name)
        if name in ("at", "kill", "calls", "count", "thread") or name.startswith("__"):
            return found
        self.count()
        return found

    def count(self) -> None:
        if threading.get_ident() != self.thread:  # the heartbeat of the lease, whenever it comes
            return
        self.calls += 1
        if self.kill and self.calls >= self.at:
            raise Killed
        if self.calls == self.at:
            raise OSError(errno.ENOSPC, "No space left on device")


def trees() -> list[Any]:
    return [
        door(),
        *(
            episode(f"t{n}", ["open", "wait"], float(n % 2), Outcome.SUCCESS if n % 2 else Outcome.FAILURE, n)
            for n in range(4)
        ),
    ]


def seal_trees(root: Path) -> None:
    """Writes trees, seals their forest and their stage."""

    def work(folder: Path) -> TreeSummary:
        forest = Forest(folder)
        if not forest.sealed:
            forest = GrowingForest(folder)
            for tree in trees():
                if tree.task.key not in forest.finished():
                    forest.write(tree)
        return TreeSummary(trees=len(forest), trees_hash=forest.seal()["trees_hash"])

    opened(root, lambda store: store.stages.run("rounds/01/collect", TreeSummary, work))


def build_rows(root: Path) -> None:
    """Builds a dataset of trees that are there already, and seals it."""
    round_ = healthy(lambda: round_of(root, TINY, revise=[door()]))
    try:
        dataset(round_)
    finally:
        round_.experiment.store.close()


def adopt(root: Path) -> None:
    """Copies stages of another run."""
    other = root.with_name("other")
    if not other.exists():
        healthy(lambda: seal_trees(other))
    opened(root, lambda store: store.stages.adopt(RunStore(other).stages, ["rounds/01/collect"]))


def promote(root: Path) -> None:
    """Points the link at another checkpoint."""

    def work(store: RunStore) -> None:
        for name in ("one", "two"):
            files.make_folder(root / name)
            files.write_link(root / "best", Path(name))

    opened(root, work)


def opened(root: Path, work: Callable[[RunStore], Any]) -> None:
    store = RunStore(root, lease_s=2.0)
    store.open(Identity.of(CONFIG))
    try:
        work(store)
    finally:
        store.close()


def healthy(work: Callable[[], Any]) -> Any:
    disk, files.disk = files.disk, Disk()
    try:
        return work()
    finally:
        files.disk = disk


def state(root: Path) -> dict[str, Any]:
    """What a run holds, without times."""
    found: dict[str, Any] = {"best": (root / "best").readlink() if (root / "best").is_symlink() else None}
    for record in RunStore(root).records():
        found[record.name] = (record.state, record.content, record.summary, sorted(record.files))
        folder = root / record.name
        if not record.sealed:
            continue
        if (folder / "summary.parquet").exists():
            found[f"{record.name} trees"] = [to_json(tree) for tree in Forest(folder)]
        if (folder / "rows.parquet").exists():
            found[f"{record.name} rows"] = read_rows(folder)
    return found


@pytest.fixture(autouse=True)
def _mended(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(files, "disk", Disk())
    monkeypatch.setattr(Lease, "_renew", lambda *_: None)  # its calls of the disk would come at any time
    yield


@pytest.mark.slow
@pytest.mark.parametrize("kill", [False, True], ids=["fails", "dies"])
@pytest.mark.parametrize("work", [seal_trees, build_rows, adopt, promote])
def test_no_call_is_between_two_states(work: Callable[[Path], None], kill: bool, tmp_path: Path) -> None:
    work(tmp_path / "undisturbed")
    expected = state(tmp_path / "undisturbed")
    at, points = 1, 0
    while True:
        root = tmp_path / f"run-{at}" / "run"
        root.parent.mkdir()
        files.disk = Failing(at, kill)
        try:
            work(root)
            break
        except (RunError, Killed):
            points += 1
        finally:
            files.disk = Disk()
        here = state(root) if root.exists() else {}
        for name, found in here.items():  # what is sealed is whole
            if isinstance(found, tuple) and found[0] == "sealed":
                assert found == expected[name], (at, name)
        if len(here) > 1:
            assert list(examine(root)) == [], at
        work(root)
        assert state(root) == expected, at
        at += 1
    assert points == at - 1 > 5
    print(f"{work.__name__}: {points} points")


def test_a_tree_is_in_its_journal_until_it_is_written(tmp_path: Path) -> None:
    for at in itertools.count(1):
        forest = GrowingForest(tmp_path / str(at))
        forest.log("door", {"drawn": 1})
        files.disk = Failing(at, kill=True)
        try:
            forest.write(door())
            break
        except Killed:
            pass
        finally:
            files.disk = Disk()
        after = GrowingForest(tmp_path / str(at))
        assert after.finished() == {"door"} or after.journal("door") == [{"drawn": 1}], at
    assert at > 4
    assert (forest.finished(), forest.journal("door")) == ({"door"}, [])


def test_a_tree_that_is_written_is_never_lost_while_its_forest_is_sealed(tmp_path: Path) -> None:
    """Nobody makes it again here, as nobody could without the policy of that time."""
    keys = {tree.task.key for tree in trees()}
    for at in itertools.count(1):
        forest = GrowingForest(tmp_path / str(at))
        for tree in trees():
            forest.write(tree)
        files.disk = Failing(at, kill=True)
        try:
            forest.seal()
            break
        except Killed:
            pass
        finally:
            files.disk = Disk()
        assert Forest(tmp_path / str(at)).finished() == keys, at
        assert GrowingForest(tmp_path / str(at)).seal()["trees"] == len(keys), at
    assert at > 10


def test_a_disk_that_is_full_leaves_the_stage_as_it_was(tmp_path: Path) -> None:
    """The error names the cause; after space was freed the same command goes on."""
    store = RunStore(tmp_path / "run")
    store.open(Identity.of(load(None, [IMITATE])))

    def much(folder: Path) -> DatasetSummary:
        for number in range(9):
            files.write_json(folder / f"{number}", number)
        return DatasetSummary()

    files.disk = Failing(20, kill=False)
    with pytest.raises(RunError, match=r"no space left on the device while writing .*Free some space"):
        store.stages.run("rounds/01/dataset", DatasetSummary, much)
    files.disk = Disk()
    assert not store.sealed("rounds/01/dataset")
    store.stages.run("rounds/01/dataset", DatasetSummary, lambda folder: DatasetSummary(rows=1))
    assert store.sealed("rounds/01/dataset")


def test_a_run_directory_that_is_gone_is_noticed_and_not_created_anew(tmp_path: Path) -> None:
    root = tmp_path / "run"
    store = RunStore(root)
    store.open(Identity.of(load(None, [IMITATE])))

    def vanish(folder: Path) -> Summary:
        root.rename(tmp_path / "moved")
        GrowingForest(folder).write(door())
        return Summary()

    with pytest.raises(RunError, match="is gone"):
        store.stages.run("rounds/01/collect", Summary, vanish)
    assert not root.exists()
    for write in (lambda: store.event("x"), lambda: store.stages.run("model", Summary, lambda folder: Summary())):
        with pytest.raises(RunError, match="is gone"):
            write()
    root.mkdir()  # another one in its place
    (root / ".lease").mkdir()
    with pytest.raises(RunError, match="is gone"):
        store.stages.run("model", Summary, lambda folder: Summary())
    assert [path.name for path in root.iterdir()] == [".lease"]
