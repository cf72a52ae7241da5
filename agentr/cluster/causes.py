"""Why a run does not get on: the kinds of causes that there are, and one that was found."""

from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any


class CauseKind(StrEnum):
    """Kinds of causes, for whoever counts or filters them. ``docs/cluster.md`` has a line on each."""

    unschedulable = "unschedulable"
    resources_awaited = "resources_awaited"
    engine_starting = "engine_starting"
    engine_dead = "engine_dead"
    engine_stuck = "engine_stuck"
    engine_unavailable = "engine_unavailable"
    cache_thrash = "cache_thrash"
    server_dead = "server_dead"
    server_hung = "server_hung"
    server_full = "server_full"
    server_overloaded = "server_overloaded"
    coordinator_silent = "coordinator_silent"
    head_silent = "head_silent"
    node_lost = "node_lost"
    node_unreachable = "node_unreachable"
    disk_full = "disk_full"
    rank_stuck = "rank_stuck"
    api_refusing = "api_refusing"
    trees_failing = "trees_failing"
    trees_identical = "trees_identical"
    no_rows = "no_rows"
    mirror_failing = "mirror_failing"
    check_failed = "check_failed"
    unknown = "unknown"


@dataclass(frozen=True)
class Cause:
    """Why a run does not get on.

    Attributes:
        what: In a sentence.
        evidence: What was seen.
        setting: What to do or to set.
    """

    kind: CauseKind
    what: str
    evidence: str
    setting: str

    def __str__(self) -> str:
        return f"{self.what} ({self.evidence}). {self.setting}"

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)
