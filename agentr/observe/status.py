"""Describes the progress of a run: one line for each stage."""

import time
from collections.abc import Mapping, Sequence

from agentr.observe.prediction import Span
from agentr.observe.progress import Now
from agentr.observe.summary import summarise
from agentr.read.run import Run
from agentr.store.layout import DATASET, EVAL, RECOVERIES, SAMPLED, SELECTION, TRAIN, stage_of
from agentr.store.seal import StageRecord
from agentr.store.summaries import DatasetSummary, EvalSummary, TrainSummary, TreeSummary
from agentr.types import Cost
from agentr.words import counted, span


def describe_now(now: Now) -> str:
    """Returns a line about what a driver is doing: which stage, how far, how fast, how long still, and when it said
    so."""
    return f"{now.title}: {now.words or 'begun'} (said {span(time.time() - now.at)} ago)"


def describe_plan(records: Mapping[str, StageRecord], planned: Sequence[str]) -> str:
    """Returns how many stages of a run are sealed, and of how many if that is known."""
    wanted = [*planned, *(name for name in records if name not in planned)] if planned else []
    sealed = sum(record.sealed for record in records.values())
    return f"{sealed} of {len(wanted)} stages are sealed" if wanted else f"{counted(sealed, 'stage')} sealed"


def describe_left(left: Span | None) -> str:
    """Returns a line about how long the rest of a run takes; empty if that is not known."""
    if left is None:
        return ""
    low, mid, high = map(span, left)
    return f"about {mid} left ({low} to {high}), by what was predicted and what the sealed stages took"


def describe_outcome(run: Run) -> list[str]:
    """Returns lines about what came of a run, once all that it consists of is sealed; none before that."""
    records, planned = run.records(), run.planned()
    if not planned or not all(name in records and records[name].sealed for name in planned):
        return []
    found = [comparison.words for comparison in summarise(run).comparisons]
    best = next((policy for policy in run.policies() if run.best and policy.arm == run.best.folder), None)
    if best is None or best.success is None:
        return found
    return [*found, f"Best: {best.arm}, held-out success {100 * best.success:.1f} %; its weights: {run.layout.best}"]


def describe_stage(record: StageRecord, records: Mapping[str, StageRecord]) -> str:
    """Returns a line about the results of a sealed stage of an arm; nothing for other stages.

    Args:
        records: Those of the run: what a stage has of another one is not its own work.
    """
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
        case name if name in (EVAL, SELECTION, SAMPLED, *RECOVERIES):
            measured = record.read(EvalSummary)
            return (
                f"success {100 * measured.success:.1f} % of {measured.tasks} tasks, {measured.steps:.1f} actions an "
                "episode"
            )
    trees = record.read(TreeSummary)
    failed = f", failed {trees.failed}" if trees.failed else ""
    source = records.get(trees.includes or "")
    before = source.read(TreeSummary).cost if source is not None else Cost()
    calls = trees.cost.calls + trees.cost.judge_calls - before.calls - before.judge_calls
    return f"trees {trees.trees}, solved {trees.solved}, calls {calls}{failed}"
