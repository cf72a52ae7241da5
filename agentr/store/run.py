"""Keeps the state of a run in its directory: the sealed stages, their summaries, and the process that owns the run.

A restart reads everything that it needs from this state. ``agentr.store.layout`` names the files.
"""

import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from agentr.config.identity import Identity
from agentr.config.text import dump_yaml
from agentr.errors import RunError
from agentr.store.files import append_line, disk_errors, write_bytes
from agentr.store.inside import check_folder
from agentr.store.layout import Layout
from agentr.store.lease import LEASE_S, Lease
from agentr.store.origin import made_by
from agentr.store.records import read_config, read_index, read_records, write_index
from agentr.store.seal import StageRecord
from agentr.store.stages import Stages
from agentr.store.trust import remember


class RunStore:
    """A run directory, as the process that works on it sees it. To read one, see ``agentr.open``.

    Args:
        root: The directory; :meth:`open` makes it if it is missing.
        notify: Called with what a person should know, such as stages that are stale.
        lease_s: After how many seconds of silence another process may take the run.

    Attributes:
        on_event: Called with each event, its kind and what it is about, before it is written.
        stages: Runs stages.
    """

    def __init__(self, root: Path, notify: Callable[[str], None] = lambda text: None, lease_s: float = LEASE_S) -> None:
        self.root = root
        self.layout = Layout(root)
        self.notify = notify
        self.on_event: Callable[[str, Mapping[str, Any]], None] = lambda kind, about: None
        self.lease = Lease(self.layout.lease, lease_s, lambda text: self.notify(text))
        self.stages = Stages(root, self.event, lambda text: self.notify(text))

    # opening ----------------------------------------------------------------------------------------------------------

    def open(
        self, identity: Identity, *, allow_change: bool = False, restore: Callable[[], None] = lambda: None
    ) -> None:
        """Takes the run for this process, and checks that its configuration is unchanged.

        Args:
            restore: Is called as soon as the directory is this process's: it may fill one that holds no run.

        Raises:
            RunError: Another driver works on the run, or the configuration changed; the error names the owner, or the
                keys.
            OtherFormat: The run is of another format. Nothing was written.
        """
        read_index(self.root)
        with disk_errors(self.root):
            self.root.mkdir(parents=True, exist_ok=True)
        check_folder(self.root)
        self.lease.take()
        try:
            restore()
            self._keep(identity, allow_change)
            self.event("opened", **made_by())
        except BaseException:  # also when interrupted: the run must not stay taken
            self.close()
            raise

    def _keep(self, identity: Identity, allow_change: bool) -> None:
        index = read_index(self.root)
        index.stages = read_records(self.root, index)  # what is sealed and not in the index, or what the index lost
        stored = index.config or (read_config(self.root) if self.layout.config.exists() else {})
        if stored:
            changes = identity.changes(stored)
            # A run that failed before anything was finished may be mended.
            made = any(record.state != "running" for record in index.stages.values())
            if changes and not allow_change and made:
                raise RunError(
                    f"{self.root} was started with another configuration: " + "; ".join(changes),
                    hint="Choose another run.dir, put the values back, or go on with the new ones: 'agentr run' and "
                    "'agentr resume' take "
                    "--allow-config-change.",
                )
            for change in changes:
                self.event("config_changed", change=change)
        remember(self.root, identity.values)  # first: a run that is killed here has to be its owner's
        write_bytes(self.layout.config, dump_yaml(identity.values).encode())
        if index.problem and index.stages:
            self.event("manifest_made_anew", problem=index.problem, stages=len(index.stages))
        index.name, index.config = identity.name, identity.values
        write_index(self.root, index)

    def take(self) -> None:
        """Takes the run for this process, as it is.

        Raises:
            RunError: Another process works on it.
            DataError: Something in it leads outside of it.
        """
        check_folder(self.root)
        self.lease.take()

    def close(self) -> None:
        self.lease.release()

    def owner(self) -> str:
        """Returns the name of the live driver, or nothing if no process works on the run. Takes no lock."""
        return self.lease.look()

    # places -----------------------------------------------------------------------------------------------------------

    def stored_path(self, path: Path) -> str:
        """Returns a path as a summary keeps it: relative to the run directory if it lies there, so that the run can be
        moved."""
        inside = path.is_relative_to(self.root)
        return path.relative_to(self.root).as_posix() if inside else str(path)

    def model_path(self, stored: str) -> Path:
        """Returns the folder of a model from what ``stored_path`` returned."""
        return self.root / stored

    def record(self, name: str) -> StageRecord | None:
        return read_records(self.root).get(name)

    def records(self) -> list[StageRecord]:
        """Returns all stages in the order in which they were first started."""
        return list(read_records(self.root).values())

    def sealed(self, name: str) -> bool:
        record = self.record(name)
        return record is not None and record.sealed

    def event(self, kind: str, **about: Any) -> None:
        """Adds an event to the run's log."""
        self.on_event(kind, about)
        append_line(self.layout.events, {"time": round(time.time(), 3), "event": kind, **about})
