"""Exporting a round of a run in the format of another tool."""

from __future__ import annotations

from pathlib import Path

from agentr.build.export import export_rows, export_trees
from agentr.build.export_text import TEXT_FORMATS, export_texts
from agentr.errors import DataError
from agentr.models.load import load_codec
from agentr.observe.summary import COMMON_STAGES
from agentr.recipes import load
from agentr.store.dataset import read_any, read_rows
from agentr.store.forest import Forest
from agentr.store.layout import DATASET, MODEL, arm_of, stage_of
from agentr.store.run import RunStore
from agentr.store.summaries import ModelSummary
from agentr.tasks.formats import action_format


def export(run_dir: Path, round_: int, kind: str, out: Path) -> str:
    """Writes one round's dataset or trees, and returns what was written in words.

    Args:
        kind: A format of ``agentr.build.export`` or ``export_text``, or ``agent_r_trees`` for the trees.
        out: File to write; for trees a folder.

    Raises:
        DataError: The run has no such round, the round has no trees where they are needed, or the format is unknown.
    """
    store = RunStore(run_dir)
    store.stored_config()
    arm = arm_of(round_)
    rows = store.layout.stage(arm.stage(DATASET))
    # The last stage that left trees: its trees are those that the rows were made from.
    places = [(record.name, stage_of(record.name)) for record in store.records() if record.sealed]
    stages = [name for name, place in places if place is not None and place[0] == arm and place[1] not in COMMON_STAGES]
    forest = Forest(store.layout.stage(stages[-1])) if stages else None
    if kind == "agent_r_trees":
        if forest is None:
            raise DataError(f"{run_dir} has no trees of round {round_}", hint=f"Collect first: agentr collect CONFIG --round {round_}")
        return f"{export_trees(out, forest)} trees in {out}"
    if kind in TEXT_FORMATS:
        model = store.record(MODEL)
        if model is None:
            raise DataError(f"{run_dir} has no model yet", hint="Start it with 'agentr run CONFIG'.")
        codec = load_codec(store.model_path(model.read(ModelSummary).path), load(store.layout.config, files=False).model)
        entries, inexact = export_texts(out, read_any(rows), codec, kind)
        return f"{entries} rows in {out}; {inexact} of them in other tokens than the policy's when read back"
    turns = action_format(forest.manifest["stage"]["action_format"]) if forest is not None else None
    return f"{export_rows(out, read_rows(rows), forest, turns, kind)} rows in {out}"
