"""Running an experiment from its configuration to its report: what the command line and the Ray job have in common."""

from __future__ import annotations

import logging
import signal
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path
from types import FrameType
from typing import NoReturn

from agentr.config.schema import Config
from agentr.errors import DataError, ModelError
from agentr.models.load import load_codec
from agentr.observe.progress import Reporter
from agentr.observe.report import table, write_report
from agentr.observe.summary import RunSummary
from agentr.policy.chat import ChatCodec
from agentr.read.run import Run
from agentr.recipes import config_at, load, recipe_of
from agentr.rounds.experiment import Experiment
from agentr.rounds.loop import run_rounds
from agentr.rounds.services import Services
from agentr.store.files import make_folder
from agentr.store.run import RunStore


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
    make_folder(store.layout.logs)
    try:
        with (
            reporter.logged(store.layout.driver_log),
            _logging_to(store.layout.driver_log),
            nullcontext(services) if services else serving(config, store.layout.logs, reporter) as running,
        ):
            running.take_over(config)
            yield Experiment(config, store, running, reporter, lambda round_: config_at(config, round_))
    finally:
        store.close()


def run(config: Config, reporter: Reporter, *, allow_change: bool = False, services: Services | None = None) -> RunSummary:
    """Runs a whole experiment, or what is left of it, and reports. For ``services`` see `opened`.

    Raises:
        AgentrError: With what was wrong and what to do. What was finished before is kept.
    """
    with opened(config, reporter, allow_change=allow_change, services=services) as experiment:
        run_rounds(experiment, lambda round_: recipe_of(experiment.config_at(round_)))
        return report(Run(experiment.root), reporter)


def report(run: Run, reporter: Reporter, out: Path | None = None) -> RunSummary:
    """Writes the report of a run and shows its table and its findings.

    Args:
        out: Folder to write it into; by default the run directory.
    """
    if out is not None:
        out.mkdir(parents=True, exist_ok=True)
    summary = write_report(run, decoder(run), out)
    reporter.show(table(summary))
    for comparison in summary.comparisons:
        reporter.say(comparison.words)
    page = (out or run.path) / run.layout.report.name
    reporter.say(f"Report: {page} (seed {run.config['run']['seed']}, {summary.seconds:.0f} s of work)")
    return summary


def codec_of(run: Run) -> ChatCodec:
    """Returns conversations as token ids, for the tokenizer of a run's model.

    Raises:
        DataError: The run has no model yet.
        ModelError: The model is not where the run says.
    """
    return load_codec(run.model, load(run.layout.config, files=False).model)


def decoder(run: Run) -> Callable[[Sequence[int]], str] | None:
    """Returns what makes text of token ids, special tokens included; None if the run has no model, or it is elsewhere now."""
    try:
        codec = codec_of(run)
    except (DataError, ModelError):
        return None
    return lambda ids: codec.decode(ids, special=True)


@contextmanager
def _logging_to(path: Path) -> Iterator[None]:
    """Adds warnings and errors of the driver to its log."""
    handler = logging.FileHandler(path, encoding="utf-8", delay=True)
    handler.setLevel(logging.WARNING)
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
    logging.getLogger().addHandler(handler)
    try:
        yield
    finally:
        logging.getLogger().removeHandler(handler)
        handler.close()


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
