"""Who owns a run, on one machine and on several, and what an owner that lost it can still do: nothing."""

import json
import os
import shutil
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from agentr.errors import RunError
from agentr.store import files, lease
from agentr.store.lease import Lease
from agentr.store.run import RunStore
from tests.env_servers.support import wait_until


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "run").mkdir()
    return tmp_path / "run"


@pytest.fixture(autouse=True)
def _alone() -> Iterator[None]:
    """Lets go of leases that a test has abandoned."""
    yield
    files.guards.clear()
    lease._held.clear()


def elsewhere(root: Path, epoch: int = 1, **changes: object) -> Path:
    """Makes the owner look like one on another machine."""
    path = root / ".lease" / f"{epoch:06d}.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "machine": "other", "host": "other", **changes}))
    return path


def abandoned(root: Path, lease_s: float) -> Lease:
    """A lease whose owner does not renew it, as if its process were stopped."""
    held = Lease(root / ".lease", lease_s)
    held.take()
    held._ended.set()
    return held


def test_an_owner_elsewhere_that_renews_is_refused_by_name(root: Path) -> None:
    abandoned(root, 0.6)
    path, stop = elsewhere(root), threading.Event()

    def renew() -> None:
        beat = 0
        while not stop.wait(0.1):
            beat += 1
            files.write_json(path, {**json.loads(path.read_text()), "beat": beat})

    thread = threading.Thread(target=renew)
    thread.start()
    said: list[str] = []
    try:
        with pytest.raises(RunError, match=r"another driver works on .*run: pid \d+ on other, since"):
            Lease(root / ".lease", 0.6, said.append).take()
        assert Lease(root / ".lease").look().endswith("on other, since " + json.loads(path.read_text())["since"])
    finally:
        stop.set()
        thread.join()
    assert "waiting up to 1 s to see whether pid" in said[0], "a wait is not silent"


def test_who_comes_second_to_a_silent_owners_run_is_told_of_the_first(root: Path) -> None:
    """Not of the owner that both have waited for, which may be frozen for good."""
    abandoned(root, 0.9)
    elsewhere(root)

    def first(_: str) -> None:
        path = elsewhere(root)
        (root / ".lease/000002.json").write_text(path.read_text().replace('"host": "other"', '"host": "first"'))

    with pytest.raises(RunError, match=r"another driver works on .*run: pid \d+ on first, since"):
        Lease(root / ".lease", 0.9, first).take()


def test_an_owner_elsewhere_that_is_silent_is_replaced_after_its_lease_and_not_before(root: Path) -> None:
    abandoned(root, 0.9)
    elsewhere(root)
    started = time.monotonic()
    new = Lease(root / ".lease", 30.0)
    new.take()
    assert 0.9 <= time.monotonic() - started < 20, "its own lease counts, not the new one's"
    assert [path.name for path in (root / ".lease").iterdir()] == ["000002.json"]
    new.release()


def test_an_owner_elsewhere_that_released_it_is_replaced_at_once(root: Path) -> None:
    first = Lease(root / ".lease", 30.0)
    first.take()
    first.release()
    elsewhere(root)
    assert Lease(root / ".lease").look() == ""
    started = time.monotonic()
    second = Lease(root / ".lease", 30.0)
    second.take()
    assert time.monotonic() - started < 5
    second.release()


def test_an_owner_elsewhere_that_releases_it_while_it_is_waited_for_is_replaced_at_once(root: Path) -> None:
    abandoned(root, 9.0)
    elsewhere(root)
    release = threading.Timer(0.1, lambda: elsewhere(root, released=True))
    new, started = Lease(root / ".lease", 30.0, lambda text: release.start()), time.monotonic()
    new.take()
    assert time.monotonic() - started < 8
    new.release()


def test_an_owner_that_was_stopped_and_lost_the_run_changes_nothing_any_more(root: Path) -> None:
    old = abandoned(root, 0.5)
    files.write_json(root / "before.json", 1)
    elsewhere(root)
    new = Lease(root / ".lease", 30.0)
    new.take()
    for change in (
        lambda: files.write_json(root / "x.json", 1),
        lambda: files.append_line(root / "x.jsonl", {}),
        lambda: files.make_folder(root / "x"),
        lambda: files.remove(root / "before.json"),
        lambda: files.write_link(root / "best", Path("x")),
        lambda: files.copy_folder(root / ".lease", root / "copy"),
    ):
        with pytest.raises(RunError, match=r"run was taken over by pid \d+ on .*not heard of for 0.5 s"):
            change()
    assert sorted(path.name for path in root.iterdir()) == [".lease", "before.json"]
    files.write_json(root.parent / "outside.json", 1)
    old.release()
    assert not json.loads((root / ".lease/000002.json").read_text())["released"], (
        "a late release is not one of the new owner's"
    )
    new.release()


def test_an_owner_that_was_stopped_and_not_replaced_goes_on(root: Path) -> None:
    held = abandoned(root, 0.2)
    time.sleep(0.3)
    files.write_json(root / "x.json", 1)
    assert json.loads((root / ".lease/000001.json").read_text())["beat"] == 1, "it says that it lives before it goes on"
    held.release()


def test_the_lease_is_renewed_and_its_renewals_are_seen(root: Path) -> None:
    held = Lease(root / ".lease", 0.6)
    held.take()
    wait_until(lambda: json.loads((root / ".lease/000001.json").read_text())["beat"] >= 2, "the lease to be renewed")
    held.release()
    beat = json.loads((root / ".lease/000001.json").read_text())["beat"]
    time.sleep(0.3)
    assert json.loads((root / ".lease/000001.json").read_text())["beat"] == beat


def test_of_many_that_want_a_dead_owners_run_one_gets_it(root: Path) -> None:
    abandoned(root, 0.5).release()
    elsewhere(root, released=False)
    code = f"""
        import sys, time
        from pathlib import Path
        from agentr.store.lease import Lease
        lease = Lease(Path({str(root / ".lease")!r}), 0.5)
        try:
            lease.take()
        except Exception as error:
            sys.exit(3 if "another driver works on" in str(error) else 4)
        time.sleep(4)
    """
    many = [subprocess.Popen([sys.executable, "-c", textwrap.dedent(code)]) for _ in range(6)]
    assert sorted(process.wait(60) for process in many) == [0, 3, 3, 3, 3, 3]


def test_a_copy_of_a_run_is_not_its_owners(root: Path) -> None:
    held = Lease(root / ".lease")
    held.take()
    copy = Path(shutil.copytree(root, root.with_name("copy")))
    path = elsewhere(copy, machine=held._holder.machine, pid=1, born=lease._born(1))  # type: ignore[union-attr]
    assert path.exists() and Lease(copy / ".lease").look() == ""
    other = Lease(copy / ".lease")
    other.take()
    other.release()
    held.release()


def test_a_number_of_a_process_that_is_used_again_is_not_its_owner(root: Path) -> None:
    held = abandoned(root, 30.0)
    held.release()
    boot = Path("/proc/sys/kernel/random/boot_id")
    assert not boot.exists() or boot.read_text().strip() in lease._machine(), "after a restart it is another one"
    elsewhere(root, machine=lease._machine(), pid=1, born="1234567890123", released=False)
    started = time.monotonic()
    other = Lease(root / ".lease")
    other.take()
    assert time.monotonic() - started < 5
    other.release()


def test_an_owner_elsewhere_is_named_until_it_was_silent_for_twice_its_lease(root: Path) -> None:
    abandoned(root, 100.0)
    path = elsewhere(root)
    for silent, named in ((150.0, True), (250.0, False)):
        os.utime(path, (then := time.time() - silent, then))
        assert Lease(root / ".lease", 1.0).look().startswith("pid ") is named, f"silent for {silent} s"


def test_a_process_that_has_ended_and_was_not_waited_for_is_no_owner(root: Path) -> None:
    abandoned(root, 30.0)
    with subprocess.Popen(["sleep", "60"]) as owner:
        born = lease._born(owner.pid)
        elsewhere(root, machine=lease._machine(), pid=owner.pid, born=born)
        assert Lease(root / ".lease").look().startswith(f"pid {owner.pid} on ")
        owner.kill()
        wait_until(lambda: lease._born(owner.pid) == "", "the process to end")
        assert Path(f"/proc/{owner.pid}").exists(), "its parent has not waited for it"
        assert Lease(root / ".lease").look() == ""


@pytest.mark.parametrize("torn", [b"", b"{", b"[]"])
def test_a_lease_that_was_torn_is_waited_for_and_replaced(root: Path, torn: bytes) -> None:
    (root / ".lease").mkdir()
    (root / ".lease/000007.json").write_bytes(torn)
    new = Lease(root / ".lease", 0.3)
    new.take()
    assert (root / ".lease/000008.json").exists()
    new.release()


def test_epochs_grow_within_an_owner_and_from_one_to_the_next(root: Path) -> None:
    seen: list[str] = []
    for _ in range(2):
        store = RunStore(root)
        store.take()
        seen += [store.lease.next_epoch() for _ in range(11)]
        store.close()
    assert seen == sorted(set(seen)) and len(seen) == 22


def test_two_runs_in_one_process_do_not_disturb_each_other(tmp_path: Path) -> None:
    before = list(files.guards)
    stores = [RunStore(tmp_path / name) for name in "ab"]
    for store in stores:
        store.root.mkdir()
        store.take()
    with pytest.raises(RunError, match="another driver works on"):
        RunStore(tmp_path / "a").take()
    stores[0].close()
    stores[1].event("still there")
    stores[1].close()
    assert files.guards == before
