"""Describes the progress of a run: one line for each stage."""

from __future__ import annotations

import time

from agentr.observe.progress import Now
from agentr.store.layout import DATASET, EVAL, RECOVERY, SELECTION, TRAIN, stage_of
from agentr.store.seal import StageRecord
from agentr.store.summaries import DatasetSummary, EvalSummary, TrainSummary, TreeSummary


def describe_now(now: Now) -> str:
    """Returns a line about what a driver is doing: how far, how fast, how long still, and when it said so."""
    parts = [f"{now.done:g} of {now.total:g}" if now.total else "", f"{now.rate:.2g} a second" if now.done else ""]
    parts += [f"{now.left_s:.0f} s to go" if now.left_s is not None else "", now.details]
    said = time.time() - now.at
    return f"{now.title}: {'; '.join(part for part in parts if part) or 'begun'} (said {said:.0f} s ago)"


def describe_stage(record: StageRecord) -> str:
    """Returns a line about the results of a sealed stage of an arm; nothing for other stages."""
    place = stage_of(record.name)
    if not record.sealed or place is None:
        return ""
    match place[1]:
        case name if name == DATASET:
            data = record.read(DatasetSummary)
            kinds = ", ".join(f"{kind} {rows}" for kind, rows in data.kinds.items())
            return f"rows {data.rows} ({kinds}), trained tokens {data.trained_tokens}"
        case name if name == TRAIN:
            train = record.read(TrainSummary)
            losses = [f"{loss:.4g}" for loss in (train.first_loss, train.last_loss) if loss is not None]
            return f"optimiser steps {train.steps}" + (f", loss {' -> '.join(losses)}" if losses else "")
        case name if name in (EVAL, SELECTION, RECOVERY):
            measured = record.read(EvalSummary)
            return f"success {100 * measured.success:.1f} % of {measured.tasks} tasks, {measured.steps:.1f} actions an episode"
    trees = record.read(TreeSummary)
    failed = f", failed {trees.failed}" if trees.failed else ""
    return f"trees {trees.trees}, solved {trees.solved}, calls {trees.cost.calls + trees.cost.judge_calls}{failed}"
