"""Restarts of a process, counted within a window: a week on machines that are taken away needs many, a fault that
returns needs few."""

from __future__ import annotations

import socket
import time
from dataclasses import dataclass, replace
from pathlib import Path

from agentr.config.cluster import ClusterConfig
from agentr.errors import EngineLost
from agentr.store.files import append_line, make_folder, read_lines


@dataclass(frozen=True)
class Restarts:
    """Counts the starts of something in a file, which outlives each of its processes.

    Attributes:
        folder: Of the file.
        name: What is started, such as ``rollout-0``; each life of a run gives it another ``life``.
    """

    folder: Path
    limit: int
    window_s: float
    name: str = ""
    life: str = ""

    @classmethod
    def of(cls, config: ClusterConfig, folder: Path) -> Restarts:
        return cls(folder, config.actor_restarts, config.restart_window_s)

    def named(self, name: str, life: str) -> Restarts:
        return replace(self, name=name, life=life)

    def count(self) -> int:
        """Counts a start, and returns how many there were before it.

        Raises:
            EngineLost: There were more restarts within the window than are allowed.
        """
        if not self.name:
            return 0
        path = self.folder / f"starts-{self.name}-{self.life}.jsonl"
        now = time.time()
        before = [line["time"] for line in read_lines(path)]
        recent = [then for then in before if now - then <= self.window_s]
        make_folder(self.folder)
        append_line(path, {"time": round(now, 3), "host": socket.gethostname()})
        if len(recent) > self.limit:
            hint = (
                "See its log for the cause; cluster.actor_restarts and cluster.restart_window_s set how often it is "
                "started again."
            )
            raise EngineLost(f"{self.name} died {len(recent)} times within {self.window_s:g} s", hint=hint)
        return len(before)
