"""A round's dataset of sequences: rows from its trees, demonstrations and general data beside them, a manifest that accounts for all."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from agentr.build.mixture import general_rows, mix
from agentr.build.revision import demonstrated_rows, good_rows, revision_rows
from agentr.config.methods import BuildConfig, ReviseConfig
from agentr.errors import DataError
from agentr.policy.chat import ChatCodec
from agentr.search.tree import Tree
from agentr.store.rows import Row, write_rows
from agentr.tasks.formats import ActionFormat


def demonstration_rows(trees: Iterable[Tree], build: BuildConfig) -> list[Row]:
    """The experts' episodes that earned a success, trained on every turn."""
    return [row for tree in trees for row in demonstrated_rows(tree, build) if _fits(row, build)]


def build_revisions(
    folder: Path,
    trees: Iterable[Tree],
    demonstrations: Sequence[Row],
    earlier: Sequence[Row] = (),
    *,
    revise: ReviseConfig,
    build: BuildConfig,
    alpha: float,
    codec: ChatCodec,
    action_format: ActionFormat,
    seed: int,
) -> dict[str, Any]:
    """Writes Agent-R's dataset of one round and returns its manifest.

    Args:
        demonstrations: Rows that `build.demonstrations` draws from.
        earlier: The agent's own rows of earlier rounds, to be trained on again.

    Raises:
        DataError: The trees gave no row at all.
    """
    dropped: Counter[str] = Counter()
    by_task: dict[str, list[Row]] = {}
    spliced: Counter[str] = Counter()
    for tree in trees:
        rows = [*revision_rows(tree, revise, build, codec, action_format, dropped), *good_rows(tree, build, alpha)]
        _keep_short(tree, rows, by_task, build, dropped)
        for revision in tree.search.get("revisions", ()):
            spliced["tried"] += 1
            spliced["text splice would fail"] += not revision["spliced"]
            spliced["kept after execution"] += revision["end"] >= 0
    counts = {"dropped": dropped, "splices": dict(spliced)}
    return _write_sequences(folder, by_task, demonstrations, earlier, build, codec, seed, counts)


def build_filtered(
    folder: Path,
    trees: Iterable[Tree],
    demonstrations: Sequence[Row],
    earlier: Sequence[Row] = (),
    *,
    build: BuildConfig,
    alpha: float,
    codec: ChatCodec,
    seed: int,
) -> dict[str, Any]:
    """Writes RFT's dataset of one round, the runs with a return of at least ``alpha``, and returns its manifest. Arguments and errors
    as in ``build_revisions``."""
    dropped: Counter[str] = Counter()
    by_task: dict[str, list[Row]] = {}
    for tree in trees:
        _keep_short(tree, list(good_rows(tree, build, alpha)), by_task, build, dropped)
    return _write_sequences(folder, by_task, demonstrations, earlier, build, codec, seed, {"dropped": dropped})


def is_own(row: Row) -> bool:
    """Whether a row came from the agent's own trees, not from demonstrations or general data."""
    return row.provenance.kind in ("revision", "good")


def _keep_short(tree: Tree, rows: list[Row], by_task: dict[str, list[Row]], build: BuildConfig, dropped: Counter[str]) -> None:
    short = [row for row in rows if _fits(row, build)]
    dropped["longer than build.max_length"] += len(rows) - len(short)
    if short:
        by_task[tree.task.key] = short


def _write_sequences(
    folder: Path,
    by_task: dict[str, list[Row]],
    demonstrations: Sequence[Row],
    earlier: Sequence[Row],
    build: BuildConfig,
    codec: ChatCodec,
    seed: int,
    counts: dict[str, Any],
) -> dict[str, Any]:
    own = _balanced(by_task) if build.balance_tasks else [row for rows in by_task.values() for row in rows]
    dropped = {k: v for k, v in counts["dropped"].items() if v}
    if not own:
        raise nothing_made("training row", dropped)
    rows = mix([*earlier, *own], demonstrations, build.demonstrations, seed)
    if build.general_path:
        general = general_rows(Path(build.general_path), codec, build.max_length)
        rows = mix(rows, general, 1 - build.eta, seed)
    random.Random(f"order/{seed}").shuffle(rows)
    return write_rows(folder, rows, **{**counts, "dropped": dropped}, tasks=len(by_task))


def nothing_made(what: str, dropped: dict[str, int]) -> DataError:
    """What is raised when a round's trees gave no row at all."""
    return DataError(
        f"the trees of this round gave no {what}: " + (", ".join(f"{n} x {why}" for why, n in dropped.items()) or "no success"),
        hint="Give the search more width or iterations, choose easier tasks, or lower the thresholds of the builder.",
    )


def _fits(row: Row, build: BuildConfig) -> bool:
    return len(row.input_ids) <= build.max_length


def _balanced(by_task: dict[str, list[Row]]) -> list[Row]:
    """Each task's rows repeated, whole, until it has as many as the task with most."""
    most = max(map(len, by_task.values()), default=0)
    return [row for rows in by_task.values() for row in rows * max(1, most // len(rows))]
