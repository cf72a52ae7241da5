"""A round's dataset of preferences: pairs from its trees, pairs from files beside them, a manifest that accounts for all."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from agentr.build.assemble import nothing_made
from agentr.build.contrast import contrast_rows
from agentr.build.imports import import_file
from agentr.build.siblings import mix_pairs, preference_rows
from agentr.config.methods import BuildConfig
from agentr.errors import DataError
from agentr.policy.chat import ChatCodec
from agentr.search.tree import Tree
from agentr.store.forest import Forest
from agentr.store.rows import Preference, write_rows


def build_contrast(
    folder: Path, forests: Iterable[Iterable[Tree]], experts: Forest | None, *, build: BuildConfig, codec: ChatCodec, seed: int
) -> dict[str, Any]:
    """Writes ETO's dataset of one round and returns its manifest.

    Args:
        forests: The policy's runs, and its runs from the points of the experts' episodes.
        experts: The tasks' demonstrations, where runs are compared with them.

    Raises:
        DataError: The trees gave no pair at all.
    """
    dropped: Counter[str] = Counter()
    pairs: list[Preference] = []
    known = experts.finished() if experts is not None else set()
    for forest in forests:
        for tree in forest:
            expert = experts.read(tree.task.key) if experts is not None and tree.task.key in known else None
            pairs += contrast_rows(tree, expert, build.contrast, build, dropped)
    return _write_preferences(folder, pairs, build, codec, seed, dropped)


def build_siblings(folder: Path, trees: Iterable[Tree], *, build: BuildConfig, codec: ChatCodec, seed: int) -> dict[str, Any]:
    """Writes DensePolicy's dataset of one round and returns its manifest.

    Raises:
        DataError: The trees gave no pair at all.
    """
    dropped: Counter[str] = Counter()
    by_task = {tree.task: list(preference_rows(tree, build.siblings, build, dropped)) for tree in trees}
    return _write_preferences(folder, mix_pairs(by_task, build.siblings, seed), build, codec, seed, dropped)


def _write_preferences(
    folder: Path, pairs: list[Preference], build: BuildConfig, codec: ChatCodec, seed: int, dropped: Counter[str]
) -> dict[str, Any]:
    if not pairs:
        raise nothing_made("preference pair", {k: v for k, v in dropped.items() if v})
    rows = list(pairs)
    for number, extra in enumerate(build.extra_pairs):
        imported, refused = import_file(Path(extra.path), "auto", codec, build.max_length)
        dropped.update(refused)
        found = [pair for pair in imported if isinstance(pair, Preference)]
        if len(found) < len(imported):
            raise DataError(f"{extra.path} in build.extra_pairs holds sequences, and pairs are wanted")
        random.Random(f"extra/{seed}/{number}").shuffle(found)
        rows += found[: extra.limit or None]
    random.Random(f"order/{seed}").shuffle(rows)
    return write_rows(folder, rows, dropped={k: v for k, v in dropped.items() if v}, tasks=len({p.provenance.tree for p in pairs}))
