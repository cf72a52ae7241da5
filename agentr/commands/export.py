"""Exporting a round of a run in the format of another tool."""

from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path

import agentr
from agentr.commands.run import codec_of
from agentr.errors import DataError
from agentr.read.run import Run, RunRound
from agentr.rows.export import FORMATS, FindTree, export_rows
from agentr.rows.export_trees import export_trees
from agentr.rows.exported import Exported, make_place
from agentr.search.tree import Tree
from agentr.store.layout import DATASET, ROLLOUTS

#: The format of trees; those of rows are in ``agentr.rows.export``.
TREES = "agent_r_trees"

#: Trees that are kept while rows are written, which name them in no order.
_KEPT = 256


def export(run_dir: Path, round_: int, kind: str, out: Path, *, per_turn: bool = False) -> Exported:
    """Writes one round's dataset or trees, and returns what was written, left out and changed.

    Args:
        kind: A format of ``agentr.rows.export``, or ``agent_r_trees`` for the trees.
        out: File to write; for trees a folder.
        per_turn: As `agentr.rows.export.export_rows`.

    Raises:
        DataError: The run has no such round, the round has no rows or trees, or the format is unknown or has no place
            for them.
    """
    run = agentr.open(run_dir)
    if not 0 <= round_ < len(run.rounds):
        there = f"0 to {len(run.rounds) - 1}" if len(run.rounds) else "none yet"
        raise DataError(f"{run_dir} has no round {round_}", hint=f"Its rounds: {there}.")
    here = run.rounds[round_]
    if kind == TREES:
        if per_turn:
            raise DataError(f"the format {TREES} has no form for one turn", hint="Leave --per-turn out.")
        return export_trees(out, _trees(here))
    if kind not in FORMATS:
        raise DataError(f"unknown export format {kind!r}", hint=f"Formats: {', '.join((*FORMATS, TREES))}.")
    if ROLLOUTS in here.stages():
        hint = (
            f"They are read from Python: agentr.open({str(run_dir)!r}).rounds[{round_}].rollouts.steps[1].dataset.rows"
        )
        raise DataError(
            f"round {round_} trained online: its rows have advantages, which no format has a place for", hint=hint
        )
    make_place(out)
    rows = here[DATASET].rows
    return export_rows(out, rows, None if kind == "trl" else codec_of(run), kind, per_turn=per_turn, find=_finder(run))


def is_source(here: RunRound, kind: str) -> bool:
    """Returns whether a round has what an export of this format is made of."""
    stages = here.exploration() if kind == TREES else here.stages()
    return any(stage.sealed for name, stage in stages.items() if kind == TREES or name in (DATASET, ROLLOUTS))


def _trees(here: RunRound) -> Iterator[Tree]:
    """Yields the trees of all stages of exploration; of a stage that another one includes, those of the other."""
    stages = [stage for stage in here.exploration().values() if stage.sealed]
    if not stages:
        raise DataError(
            f"{here.run.path} has no trees of round {here.number}", hint=f"Go on with 'agentr resume {here.run.path}'."
        )
    included = {stage.summary.includes for stage in stages}
    for stage in stages:
        if stage.name not in included:
            yield from stage


def _finder(run: Run) -> FindTree:
    """Returns what gives the tree that a row was made from; None for rows of files."""

    @lru_cache(maxsize=_KEPT)
    def read(stage: str, key: str) -> Tree:
        return run.stage(stage)[key]

    return lambda made: read(made.stage, made.tree) if made.stage else None
