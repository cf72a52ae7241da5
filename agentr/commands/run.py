"""Running an experiment from its configuration to its report: what the command line and the Ray job have in common."""

import logging
import os
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager, nullcontext, suppress
from functools import partial
from pathlib import Path

from agentr.cluster.causes import Cause, CauseKind
from agentr.cluster.connect import joined
from agentr.cluster.failures import as_ours
from agentr.config.identity import Identity
from agentr.config.model import ModelConfig
from agentr.config.schema import RunConfig
from agentr.config.turns import TurnsConfig
from agentr.cost.forecast import forecast, hardware_of
from agentr.cost.needs import require_room
from agentr.errors import DataError, ModelError, RunError
from agentr.logs import LogFile, messages, recording
from agentr.methods import methods_of
from agentr.models.load import load_codec, load_tokenizer
from agentr.observe.card import write_cards, write_run_card
from agentr.observe.prediction import note as note_prediction
from agentr.observe.prediction import predicted
from agentr.observe.progress import Reporter
from agentr.observe.summary import RunSummary
from agentr.observe.troubles import MIRROR, note
from agentr.policy.chat import ChatCodec
from agentr.read.run import Run
from agentr.read.stage import Rollouts, Trees
from agentr.rounds.experiment import Experiment
from agentr.rounds.loop import run_rounds
from agentr.rounds.plan import Plan
from agentr.rounds.services import Services
from agentr.signals import ending_cleanly
from agentr.store.files import disk_errors, make_folder
from agentr.store.layout import Layout
from agentr.store.mirror import Mirror
from agentr.store.restore import restore
from agentr.store.run import RunStore
from agentr.track.tracker import require
from agentr.track.tracking import Tracking
from agentr.train.checkpoints import is_complete
from agentr.ui.report import run_table, write_report
from env_servers.protocol import Tool

#: Longest wait for experiment trackers at the end of a run, and of a process that is to end, in seconds.
TRACKING_WAIT_S, LEAVE_S = 60.0, 3.0


def run_dir(run: RunConfig) -> Path:
    """Where the run is kept: ``run.dir``, or ``runs/<name>`` below the current folder.

    Raises:
        RunError: Nothing can be there, such as below a folder that may not be looked into.
    """
    path = Path(os.path.realpath(run.dir or f"runs/{run.name}"))  # resolve() raises at a loop of links
    with disk_errors(path), suppress(FileNotFoundError):
        path.stat()
    return path


@contextmanager
def serving(plan: Plan, logs: Path, reporter: Reporter) -> Iterator[Services]:
    """What experiments run on. Everything it started ends with the block."""
    services = Services(plan, logs, reporter)
    with ending_cleanly():
        try:
            yield services
        except Exception:  # what went wrong may be in Ray's logs
            services.close(keep_logs=True)
            raise
        finally:
            services.close()


@contextmanager
def opened(
    plan: Plan, reporter: Reporter, *, allow_change: bool = False, services: Services | None = None, again: str = ""
) -> Iterator[Experiment]:
    """An experiment whose run directory belongs to this process while the block runs.

    Args:
        services: What runs already, from ``serving``; by default the experiment has its own, and they end with the
            block.
        again: What goes on with it when it was stopped, if it is no whole experiment.

    Raises:
        RunError: Another driver has the run, or its configuration is another one; or it is a search, and no experiment.
    """
    config, folder = plan.config, run_dir(plan.config.run)
    require(config.tracking)
    if not again and Layout(folder).search.exists():
        raise RunError(
            f"{folder} holds a search from a turn, and no experiment", hint="'agentr search' goes on with it."
        )
    store = RunStore(folder, reporter.message, config.cluster.lease_s)
    restored = partial(restore, store, plan.identity, config.run.mirror, reporter.task, allow_change=allow_change)
    store.open(plan.identity, allow_change=allow_change, restore=restored)
    make_folder(store.layout.logs)
    try:
        with (
            reporter.logged(store.layout.driver_log),
            reporter.kept(store.layout.now),
            logging_to(store.layout.driver_log),
            recording(store.layout.logs / "driver.jsonl", "driver", run=config.run.name),
            mirrored(config.run, plan.identity, store, reporter, allow_change=allow_change),
            tracked(config.tracking, store, reporter),
            nullcontext(services) if services else serving(plan, store.layout.logs, reporter) as running,
        ):
            running.take_over(plan, store)
            try:
                yield Experiment(plan, store, running, reporter)
            except Exception as error:
                ours = as_ours(error, store.layout.driver_log)
                reporter.log(f"the run ended: {type(ours).__name__}: {ours}")
                if ours is error:
                    raise
                raise ours from error
    except (SystemExit, KeyboardInterrupt):
        reporter.message(
            f"stopped; what is finished is kept. Go on with: {again or f'agentr resume {store.root}'}", "yellow"
        )
        raise
    finally:
        store.close()


@contextmanager
def mirrored(
    run: RunConfig, identity: Identity, store: RunStore, reporter: Reporter, *, allow_change: bool = False
) -> Iterator[None]:
    """Mirrors a run while the block runs, and waits for the mirror at its end; not if the block was left to end the
    process.

    After an error it waits only as long as the mirror works.
    """
    if not run.mirror:
        yield
        return

    def failing(problem: str) -> None:
        hint = "Mend the store or run.mirror; the run goes on, and is mirrored once that is done."
        causes = [Cause(CauseKind.mirror_failing, f"nothing is mirrored to {run.mirror}", problem, hint)]
        note(store.event, MIRROR, causes if problem else [])

    notify = partial(reporter.message, style="yellow")
    mirror = Mirror(store, identity, run.mirror, notify, is_complete, failing=failing, allow_change=allow_change)
    mirror.start()
    try:
        with ending_cleanly():
            try:
                yield
            except Exception:  # not SystemExit and KeyboardInterrupt, which end the process without a wait
                _await(mirror, run, reporter, patient=False)
                raise
            _await(mirror, run, reporter, patient=True)
    finally:
        mirror.stop()


@contextmanager
def tracked(trackers: Sequence[str], store: RunStore, reporter: Reporter) -> Iterator[None]:
    """Tells the experiment trackers of ``tracking`` of a run while the block runs, and waits for them at its end.

    If the block was left to end the process, it hardly waits.
    """
    if not trackers:
        yield
        return
    tracking = Tracking(store.layout, trackers, lambda text: reporter.message(text, "yellow"))
    tracking.start()
    wait_s = LEAVE_S
    with ending_cleanly():
        try:
            yield
            wait_s = TRACKING_WAIT_S
        except Exception:  # as above
            wait_s = TRACKING_WAIT_S
            raise
        finally:
            if left := tracking.finish(wait_s):
                reporter.message(
                    f"not everything is logged yet: {', '.join(left)}. The next start of the run does it.", "yellow"
                )


def _await(mirror: Mirror, run: RunConfig, reporter: Reporter, *, patient: bool) -> None:
    with reporter.task(f"mirroring to {run.mirror}") as update:
        left = mirror.finish(run.mirror_wait_s, update, patient=patient)
    if left:
        reporter.message(
            f"not mirrored to {run.mirror}: {', '.join(left)}. The next start of the run mirrors it.", "yellow"
        )


def run(
    plan: Plan,
    reporter: Reporter,
    *,
    allow_change: bool = False,
    services: Services | None = None,
    only: Collection[str] = (),
) -> RunSummary:
    """Runs a whole experiment, or what is left of it, and reports. For ``services`` see `opened`.

    Args:
        only: Stages that alone are run; those before them must be sealed.

    Raises:
        AgentrError: With what was wrong and what to do. What was finished before is kept.
    """
    with opened(plan, reporter, allow_change=allow_change, services=services) as experiment:
        if joined(plan.places.cluster):
            experiment.services.cluster.connect()  # before the first stage; a Ray of one's own starts when it is needed
        _predict(plan, experiment)
        run_rounds(experiment, methods_of(plan), only)
        return report(Run(experiment.root), reporter)


def _predict(plan: Plan, experiment: Experiment) -> None:
    """Notes what each stage will take, once, where the hardware is known, and refuses what cannot fit there.

    Raises:
        ConfigError: A model's weights and what training needs of them are more than a device has.
    """
    on = hardware_of(plan)
    if on is None or predicted(Run(experiment.root)):
        return
    try:
        found = forecast(plan, on)
    except ModelError:  # whose size nobody knows before it is there
        return
    require_room(found.needs, on.device.title)
    note_prediction(
        experiment.store.event, on.device.title, {s.name: (s.low, s.seconds.value, s.high) for s in found.stages}
    )


def report(run: Run, reporter: Reporter, out: Path | None = None) -> RunSummary:
    """Writes the report of a run, with the cards of its checkpoints, and shows its table and its findings.

    Args:
        out: Folder to write it into, without cards; by default the run directory.
    """
    if out is not None:
        out.mkdir(parents=True, exist_ok=True)
    summary = write_report(run, out)
    write_run_card(run, (out or run.path) / run.layout.card.name)
    if out is None:
        write_cards(run)
    reporter.show(run_table(summary))
    for comparison in summary.comparisons:
        reporter.message(comparison.words)
    if summary.selection:
        reporter.message(summary.selection)
    page = (out or run.path) / run.layout.report.name
    reporter.message(f"Report: {page} (seed {run.config['run']['seed']}, {summary.seconds:.0f} s of work)")
    return summary


def codec_of(run: Run) -> ChatCodec:
    """Returns conversations as token ids, for the tokenizer of a run's model.

    Raises:
        DataError: The run has no model yet, or its configuration is damaged.
        ModelError: The model is not where the run says.
    """
    model, turns = run.section(ModelConfig, "model"), run.section(TurnsConfig, "turns")
    codec = load_codec(run.model, model, strange=True)
    stages = [stage for stage in run.stages().values() if isinstance(stage, Trees) and stage.sealed]
    grown = [
        step.trees for stage in stages if isinstance(stage, Rollouts) for step in [*stage.steps.values()][:1]
    ]  # online, they are of steps
    grown += [stage for stage in stages if not isinstance(stage, Rollouts)]
    tools = next((tools for trees in grown if (tools := trees.forest.manifest.get("stage", {}).get("tools"))), None)
    return codec if tools is None else codec.offering([Tool.model_validate_json(tool) for tool in tools], turns)


def decoder(run: Run) -> Callable[[Sequence[int]], str] | None:
    """Returns what makes text of token ids, special tokens included; None if the run has no model, or it is elsewhere
    now."""
    try:
        tokenizer = load_tokenizer(run.model)
    except (DataError, ModelError):
        return None
    return lambda ids: tokenizer.decode(list(ids))


@contextmanager
def logging_to(path: Path) -> Iterator[None]:
    """Adds warnings and errors of the driver to its log."""
    handler = logging.StreamHandler(LogFile(path))
    handler.setLevel(logging.WARNING)
    handler.addFilter(lambda record: record.name != messages.name)  # it is there
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
    logging.getLogger().addHandler(handler)
    try:
        yield
    finally:
        logging.getLogger().removeHandler(handler)
