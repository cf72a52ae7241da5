"""Running an experiment from its configuration to its report: what the command line and the Ray job have in common."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from types import FrameType
from typing import NoReturn

from agentr.config.schema import Config
from agentr.models.load import load_codec
from agentr.observe.progress import Reporter
from agentr.observe.report import table, write_report
from agentr.observe.summary import RunSummary
from agentr.recipes import load, recipe_of
from agentr.rounds.experiment import Experiment
from agentr.rounds.loop import run_rounds
from agentr.rounds.services import Services
from agentr.store.layout import MODEL
from agentr.store.run import RunStore
from agentr.store.summaries import ModelSummary


def run_dir(config: Config) -> Path:
    """Where the run is kept: ``run.dir``, or ``runs/<name>`` below the current folder."""
    return Path(config.run.dir or f"runs/{config.run.name}").resolve()


@contextmanager
def serving(config: Config, logs: Path, reporter: Reporter) -> Iterator[Services]:
    """What experiments run on. Everything it started ends with the block."""
    services = Services(config, logs, reporter)
    try:
        with _terminate_cleanly():
            yield services
    finally:
        services.close()


@contextmanager
def opened(config: Config, reporter: Reporter, *, allow_change: bool = False, services: Services | None = None) -> Iterator[Experiment]:
    """An experiment whose run directory belongs to this process while the block runs.

    Args:
        services: What runs already, from ``serving``; by default the experiment has its own, and they end with the block.

    Raises:
        RunError: Another driver has the run, or its configuration is another one.
    """
    store = RunStore(run_dir(config))
    store.open(config, allow_change=allow_change)
    try:
        with nullcontext(services) if services else serving(config, store.layout.logs, reporter) as running:
            running.take_over(config)
            yield Experiment(config, store, running, reporter)
    finally:
        store.close()


def run(config: Config, reporter: Reporter, *, allow_change: bool = False, services: Services | None = None) -> RunSummary:
    """Runs a whole experiment, or what is left of it, and reports. For ``services`` see `opened`.

    Raises:
        AgentrError: With what was wrong and what to do. What was finished before is kept.
    """
    with opened(config, reporter, allow_change=allow_change, services=services) as experiment:
        run_rounds(experiment, recipe_of(config))
        return report(experiment.store, reporter)


def report(store: RunStore, reporter: Reporter) -> RunSummary:
    """Writes the report of a run and shows its table and its findings."""
    stored = store.stored_config()
    model = store.record(MODEL)
    decode: Callable | None = None
    if model is not None and model.sealed:
        config = load(store.layout.config, files=False)
        codec = load_codec(store.model_path(model.read(ModelSummary).path), config.model)
        decode = lambda ids: codec.decode(ids, special=True)  # noqa: E731
    summary = write_report(store, decode)
    reporter.console.print(table(summary))
    for comparison in summary.comparisons:
        reporter.say(comparison.words)
    reporter.say(f"Report: {store.layout.report} (seed {stored['run']['seed']}, {summary.seconds:.0f} s of work)")
    return summary


@contextmanager
def _terminate_cleanly() -> Iterator[None]:
    """SIGTERM (a stopped job, a stopped container) leaves through the same door as an exception, so that services are closed."""

    def leave(number: int, _: FrameType | None) -> NoReturn:
        raise SystemExit(128 + number)

    previous = signal.signal(signal.SIGTERM, leave)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, previous)
