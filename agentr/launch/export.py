"""Exporting a round of a run in the format of another tool."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path

import agentr
from agentr.build.export import FindTree, export_rows, export_trees
from agentr.build.export_text import TEXT_FORMATS, export_texts
from agentr.errors import DataError
from agentr.launch.run import codec_of
from agentr.read.run import Run
from agentr.read.stage import Trees
from agentr.search.tree import Tree
from agentr.store.layout import DATASET
from agentr.store.rows import Provenance
from agentr.tasks.formats import action_format

#: Trees that are kept while rows are written, which name them in no order.
_TREES = 256


def export(run_dir: Path, round_: int, kind: str, out: Path) -> str:
    """Writes one round's dataset or trees, and returns what was written in words.

    Args:
        kind: A format of ``agentr.build.export`` or ``export_text``, or ``agent_r_trees`` for the trees.
        out: File to write; for trees a folder.

    Raises:
        DataError: The run has no such round, the round has no trees where they are needed, or the format is unknown.
    """
    run = agentr.open(run_dir)
    if not 0 <= round_ < len(run.rounds):
        there = f"0 to {len(run.rounds) - 1}" if len(run.rounds) else "none yet"
        raise DataError(f"{run_dir} has no round {round_}", hint=f"Its rounds: {there}.")
    here = run.rounds[round_]
    # The last stage that left trees: its trees are those that the rows were made from.
    trees = next((stage for stage in reversed(here.exploration().values()) if stage.sealed), None)
    if kind == "agent_r_trees":
        if trees is None:
            raise DataError(f"{run_dir} has no trees of round {round_}", hint=f"Collect first: agentr collect CONFIG --round {round_}")
        return f"{export_trees(out, trees)} trees in {out}"
    out.parent.mkdir(parents=True, exist_ok=True)
    dataset = here[DATASET]
    if kind in TEXT_FORMATS:
        entries, inexact = export_texts(out, dataset.rows, codec_of(run), kind)
        return f"{entries} rows in {out}; {inexact} of them would be read back with other tokens or other targets"
    turns = action_format(trees.forest.manifest["stage"]["action_format"]) if trees is not None else None
    entries = export_rows(out, dataset.rows, _finder(run, trees) if trees is not None else None, turns, kind)
    left_out = len(dataset.rows) - entries
    return f"{entries} rows in {out}" + (f"; {left_out} name no tree of the run and are left out" if left_out else "")


def _finder(run: Run, trees: Trees) -> FindTree:
    """Returns what gives the tree that a row was made from, or None if it was made from none.

    Args:
        trees: Where rows of version 1 are looked for, which do not name a stage; demonstrations are never there.
    """

    @lru_cache(maxsize=_TREES)
    def read(stage: str, key: str) -> Tree:
        return run.stage(stage)[key]

    known = set(trees.keys())

    def find(made: Provenance) -> Tree | None:
        if made.stage:
            return read(made.stage, made.tree)
        return read(trees.name, made.tree) if made.tree in known and made.kind != "demonstration" else None

    return find
