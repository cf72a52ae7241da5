"""Looks for the cause when nothing moves: asks every part of a run how it is, with deadlines."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from agentr.cluster.causes import Cause, CauseKind
from agentr.cluster.checks import check_disks, check_head, check_nodes
from agentr.cluster.node_watch import Lookouts
from agentr.cluster.nodes import ClusterNode, nodes
from agentr.cluster.places import Places
from agentr.envs.checks import check_servers
from agentr.envs.fleet import EnvServers
from agentr.policy.checks import check_engines, check_problems
from agentr.train.checks import AwaitedTraining, check_training

#: Seconds of silence after which the coordinator counts as silent.
SILENT_S = 10.0


@dataclass
class Parts:
    """What may be asked. Each is what it is now; None or empty where there is none.

    Attributes:
        engines: Handles of the engines' actors, by name.
        env_url: Of the user's own environment server.
        progress: The coordinator's last answer.
        silent_s: For how long the coordinator has not answered.
        training: The training that is waited for.
        known: The nodes that were there when the run began.
    """

    places: Places
    run_dir: Path
    engines: dict[str, Any]
    servers: EnvServers | None
    env_url: str
    progress: dict[str, Any] | None
    silent_s: float
    training: AwaitedTraining | None
    known: list[ClusterNode]
    lookouts: Lookouts


def diagnose(parts: Parts) -> list[Cause]:
    """Returns why nothing moves, the most likely cause first.
    Never nothing: what no check explains is said to be so."""
    checks: dict[str, Callable[[], Iterator[Cause]]] = {
        "head": check_head,
        "nodes": lambda: check_nodes(parts.known, nodes()),
        "disks": lambda: check_disks(parts.run_dir, parts.lookouts),
        "engines": lambda: check_engines(parts.engines, parts.places),
        "servers": lambda: check_servers(parts.servers, parts.env_url),
        "coordinator": lambda: _coordinator(parts),
        "policy": lambda: check_problems((parts.progress or {}).get("waiting") or {}, parts.places.policy),
        "trees": lambda: _trees(parts),
        "training": lambda: check_training(parts.training, parts.places) if parts.training is not None else iter(()),
    }
    found: list[Cause] = []
    for name, check in checks.items():
        try:
            found += check()
        except Exception as error:  # noqa: BLE001 - a check that fails must not hide the others
            found.append(
                Cause(
                    CauseKind.check_failed,
                    f"{name} cannot be looked at",
                    f"{type(error).__name__}: {error}",
                    "Is Ray alive?",
                )
            )
        if any(cause.kind is CauseKind.head_silent for cause in found):
            break  # the other checks would wait for it
    return found or [_unexplained(parts.progress or {})]


def _coordinator(parts: Parts) -> Iterator[Cause]:
    if parts.silent_s > SILENT_S:
        what, evidence = (
            "the coordinator's loop is blocked, or its node is cut off",
            f"it has not answered for {parts.silent_s:.0f} s",
        )
        yield Cause(CauseKind.coordinator_silent, what, evidence, "Lower collect.in_flight if its CPU is full.")


def _trees(parts: Parts) -> Iterator[Cause]:
    progress = parts.progress or {}
    if progress.get("retried"):
        evidence = f"{progress['retried']} times, at last: {progress.get('last_error')}"
        hint = "Mend the cause; collect.infra_retries and collect.max_failed set when the stage is given up."
        yield Cause(CauseKind.trees_failing, "trees fail and are tried again", evidence, hint)


def _unexplained(progress: dict[str, Any]) -> Cause:
    trees = (
        f"{progress.get('in_flight', 0)} trees grow, {progress.get('done', 0)} of {progress.get('total', 0)} are done"
    )
    evidence = f"{trees}, last error: {progress.get('last_error') or 'none'}"
    hint = "Is one call just very slow? See watchdog.after_s."
    return Cause(CauseKind.unknown, "no part of the run is at fault that can be seen", evidence, hint)
