"""Who works on a run: a lease in the run directory, which holds wherever the directory is shared.

``.lease/000003.json`` names the third process that took the run, by its *epoch*: the file can be created once only, so
two processes never have the same epoch, and the highest one owns the run. The owner renews the file every few seconds.
A process that wants the run looks whether the owner lives: on the same machine by its process, from elsewhere by
whether it renews. No locks of files are needed, which many shared file systems do not have.

An owner that was stopped for longer than its lease (a frozen machine, a cut network) cannot know that another one took
the run. So it looks again before its next change to the run directory (``agentr.store.files.guards``), and changes
nothing if it lost the run. What works for an owner elsewhere is fenced by ``agentr.store.working``.
"""

import contextlib
import itertools
import json
import os
import socket
import threading
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from agentr.errors import DataError, RunError
from agentr.outside import typed
from agentr.store.files import disk, disk_errors, guards, make_folder, read_json, remove, write_json

#: Seconds after which an owner that was not heard of counts as dead.
LEASE_S = 30.0
#: The leases that this process holds.
_held: set[Path] = set()
#: How often an owner renews its lease within that time.
_BEATS = 6


@dataclass(frozen=True, kw_only=True)
class Holder:
    """What an owner writes of itself.

    Attributes:
        machine: The machine as far as processes can be seen: its name, its boot, the namespace of its processes.
        born: When the process was started, in ticks since the boot: numbers of processes are used again.
        folder: Inode of the folder of leases: a copy of a run directory has another one.
        beat: How often the lease was renewed.
        released: The owner has ended its work.
    """

    pid: int
    host: str
    machine: str
    born: str
    folder: int
    since: str
    lease_s: float
    beat: int = 0
    released: bool = False

    @property
    def name(self) -> str:
        return f"pid {self.pid} on {self.host}, since {self.since}"


class Lease:
    """The lease of a run directory.

    Args:
        folder: Where the files are; its parent is the run directory.
        lease_s: After how many seconds of silence another process may take the run.
        notify: Called with a message when it takes long.
    """

    def __init__(
        self, folder: Path, lease_s: float = LEASE_S, notify: Callable[[str], None] = lambda text: None
    ) -> None:
        self.folder = folder
        self.lease_s = lease_s
        self.notify = notify
        self._epoch = 0
        self._holder: Holder | None = None
        self._place = folder
        self._renewed = 0.0
        self._numbers = itertools.count(1)
        self._lock = threading.Lock()
        self._ended = threading.Event()

    def take(self) -> None:
        """Takes the run for this process. Waits for ``lease_s`` if an owner on another machine does not stir.

        Raises:
            RunError: Another process has it; the error names it.
        """
        with disk_errors(self.folder):
            make_folder(self.folder)
        while True:
            epoch = self._newest()
            owner = self._read(epoch)
            if epoch and self._lives(epoch, owner):
                owner = self._read(self._newest()) or owner  # another one may have taken it while this one waited
                name = owner.name if owner else "an unknown process"
                hint = "Watch it with 'agentr status', or end that process first."
                raise RunError(f"another driver works on {self.folder.parent}: {name}", hint=hint)
            self._holder = _myself(self.folder, self.lease_s)
            if self._create(epoch + 1):
                break
        self._epoch, self._renewed = epoch + 1, _now()
        for path in self.folder.glob("*.json"):
            if path != self._file(self._epoch):
                remove(path)
        self._ended.clear()
        guards.append(self._guard)
        self._place = self.folder.resolve()
        _held.add(self._place)
        threading.Thread(target=self._renew, args=(self._ended,), name="lease", daemon=True).start()

    def release(self) -> None:
        """Gives the run back. Does nothing if it is not held."""
        if self._holder is None:
            return
        self._ended.set()
        guards.remove(self._guard)
        _held.discard(self._place)
        with self._lock:
            holder, self._holder = self._holder, None
            with contextlib.suppress(RunError, OSError):
                if self._newest() == self._epoch:
                    write_json(self._file(self._epoch), asdict(replace(holder, released=True)))

    def next_epoch(self) -> str:
        """Returns an epoch for someone who works for this owner: higher than all before it, lower than those of later
        owners."""
        return f"{self._epoch:06d}.{next(self._numbers):04d}"

    def check(self) -> None:
        """Checks that the run is still this process's. If it is not held, there is nothing to check.

        Raises:
            RunError: The run directory is gone or another one, or another process took the run.
        """
        if self._holder is None:
            return
        if not self._file(self._epoch).exists():
            self._lost()
        # by its own clock, others may think it dead: look again, and report it
        if _now() - self._renewed > self.lease_s / 2:
            with self._lock:
                if self._newest() != self._epoch:
                    self._lost()
                self._write(replace(self._holder, beat=self._holder.beat + 1))
                if self._newest() != self._epoch:
                    self._lost()

    def look(self) -> str:
        """Returns the name of the process that owns the run, or nothing if none does. Takes and waits for nothing."""
        epoch = self._newest()
        owner = self._read(epoch)
        if owner is None or owner.released:
            return ""
        if owner.machine == _machine():
            return owner.name if _runs(owner, self.folder) else ""
        try:
            silent = time.time() - self._file(epoch).stat().st_mtime
        except OSError:
            return ""
        return owner.name if silent < 2 * owner.lease_s else ""

    # ------------------------------------------------------------------------------------------------------------------

    def _guard(self, path: Path) -> None:
        if path.is_relative_to(self.folder.parent) and not path.is_relative_to(self.folder):
            self.check()

    def _lost(self) -> None:
        root = self.folder.parent
        newest = self._read(self._newest())
        if newest is None or not self.folder.exists():
            hint = "Was it moved or deleted? Put it back, or give its new place, and start the same run again."
            raise RunError(f"the run directory {root} is gone while this process works on it", hint=hint)
        hint = (
            f"This process was not heard of for {self.lease_s:g} s. What it had finished is there; the other one goes "
            "on."
        )
        raise RunError(f"{root} was taken over by {newest.name}", hint=hint)

    def _lives(self, epoch: int, owner: Holder | None) -> bool:
        """Finds out whether an owner lives, which takes up to ``lease_s`` if it is on another machine."""
        if owner is not None and (owner.released or owner.machine == _machine()):
            return not owner.released and _runs(owner, self.folder)
        silence = owner.lease_s if owner is not None else self.lease_s
        who = owner.name if owner is not None else "whoever took it"
        self.notify(f"waiting up to {silence:.0f} s to see whether {who} still works on {self.folder.parent}")
        deadline = time.monotonic() + silence
        while time.monotonic() < deadline:
            time.sleep(silence / 30)
            if self._newest() != epoch or self._read(epoch) != owner:
                return not ((now := self._read(self._newest())) is not None and now.released)
        return False

    def _renew(self, ended: threading.Event) -> None:
        """Renews the lease until it is released. What goes wrong is found again by whoever writes next."""
        while not ended.wait(self.lease_s / _BEATS):
            with contextlib.suppress(RunError, OSError), self._lock:
                if self._holder is None or self._newest() != self._epoch:
                    return
                self._write(replace(self._holder, beat=self._holder.beat + 1))

    def _newest(self) -> int:
        return max((int(path.stem) for path in self.folder.glob("[0-9]*.json") if path.stem.isdecimal()), default=0)

    def _file(self, epoch: int) -> Path:
        return self.folder / f"{epoch:06d}.json"

    def _read(self, epoch: int) -> Holder | None:
        """Reads who has an epoch; None if there is none, or if it is being written."""
        try:
            return typed(Holder, read_json(self._file(epoch)), "a lease")
        except DataError:
            return None

    def _create(self, epoch: int) -> bool:
        """Creates the file of an epoch; False if another process was faster."""
        assert self._holder is not None
        with disk_errors(self._file(epoch)):
            try:
                descriptor = disk.create(self._file(epoch))
            except FileExistsError:
                return False
            try:
                disk.write(descriptor, json.dumps(asdict(self._holder)).encode())
            except OSError:
                disk.unlink(self._file(epoch))
                raise
            finally:
                os.close(descriptor)
        return True

    def _write(self, holder: Holder) -> None:
        write_json(self._file(self._epoch), asdict(holder))
        self._holder, self._renewed = holder, _now()


def _now() -> float:
    """Returns a time that goes on while the machine sleeps."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def _myself(folder: Path, lease_s: float) -> Holder:
    since = time.strftime("%Y-%m-%d %H:%M:%S")
    return Holder(
        pid=os.getpid(),
        host=socket.gethostname(),
        machine=_machine(),
        born=_born(os.getpid()),
        folder=folder.stat().st_ino,
        since=since,
        lease_s=lease_s,
    )


def _machine() -> str:
    boot = Path("/proc/sys/kernel/random/boot_id")
    return (
        f"{socket.gethostname()} {boot.read_text().strip() if boot.exists() else ''} "
        f"{Path('/proc/self/ns/pid').readlink()}"
    )


def _born(pid: int) -> str:
    """Returns when a process was started, or nothing if there is none or it has ended."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return ""
    return "" if fields[0] in "ZX" else fields[19]


def _runs(owner: Holder, folder: Path) -> bool:
    """Returns whether an owner on this machine runs, and owns this folder and not one that this is a copy of."""
    if owner.pid == os.getpid():
        return folder.resolve() in _held
    return _born(owner.pid) == owner.born and owner.folder == folder.stat().st_ino
