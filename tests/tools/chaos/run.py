"""``python -m tests.tools.chaos``: the same configuration twice on one cluster, once left alone and once disturbed."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from agentr.cluster.connect import connect
from agentr.cluster.nodes import nodes
from agentr.cluster.places import Places
from agentr.config.schema import Config
from agentr.errors import ConfigError
from agentr.observe.progress import Reporter
from agentr.signals import ending_cleanly
from agentr.store.layout import Layout
from agentr.store.records import read_records
from tests.tools.chaos.disturb import Disturber
from tests.tools.chaos.driver import Driver
from tests.tools.chaos.faults import Fault, schedule
from tests.tools.chaos.progress import Progress
from tests.tools.chaos.report import REPORT, Report, write
from tests.tools.chaos.units import compare

#: Attempts at a request or a tree: a fault every few seconds is more than a run's own numbers are made for.
ATTEMPTS = 8


@dataclass(frozen=True)
class Plan:
    """What to run, and where.

    Attributes:
        file: The configuration, with ``overrides``.
        parent: Folder of the two runs.
    """

    config: Config
    file: Path
    overrides: Sequence[str]
    parent: Path

    def command(self, root: Path, faults: int) -> list[str]:
        """Returns the driver's command, with budgets of restarts and attempts that so many faults do not use up."""
        return ["-m", "agentr.cli", "run", str(self.file), *self.overrides, *self.budgets(faults), f"run.dir={root}"]

    def budgets(self, faults: int) -> list[str]:
        config = self.config
        return [
            f"cluster.actor_restarts={max(config.cluster.actor_restarts, faults)}",
            f"trainer.max_failures={max(config.trainer.max_failures, faults)}",
            f"collect.infra_retries={max(config.collect.infra_retries, ATTEMPTS)}",
            f"env.retries={max(config.env.retries, ATTEMPTS)}",
            f"policy.retries={max(config.policy.retries, ATTEMPTS)}",
        ]


def parent_of(config: Config) -> Path:
    """Returns the folder of the runs: ``run.dir``, or ``runs/<name>-chaos`` below the current folder.

    Raises:
        ConfigError: It holds a run itself.
    """
    parent = Path(config.run.dir or f"runs/{config.run.name}-chaos").resolve()
    if Layout(parent).manifest.exists():
        raise ConfigError(
            f"{parent} holds a run", hint="Give another run.dir: the folder that the runs of the test will be in."
        )
    return parent


def disturb(plan: Plan, chosen: Sequence[Fault], reporter: Reporter, *, freeze_s: float, patience_s: float) -> Report:
    """Runs a configuration undisturbed, then disturbed by faults, and compares the two.

    An undisturbed run that is there already is continued or taken as it is. What was missed in a disturbed run, because
    its stage was over before, is tried in another one, as long as that hits more.

    Raises:
        AgentrError: A run could not be finished.
    """
    with cluster(plan.config) as address:
        contents = not Places.of(plan.config).engines_on_gpu(sum(node.gpus for node in nodes()))
        reference = undisturbed(plan, address, reporter)
        report = Report(reference, contents)
        left = list(chosen)
        while left:
            root = _next(plan.parent)
            driver = Driver(plan.command(root, len(left)), address, root.with_suffix(".log"), len(left) + 3)
            reporter.message(f"disturbed: {root} (log: {driver.log})")
            try:
                driver.start()
                disturber = Disturber(
                    driver, Progress(root), freeze_s=freeze_s, patience_s=patience_s, notify=reporter.message
                )
                outcomes = disturber.run(schedule(left, sizes(reference)))
                driver.wait()
            finally:
                driver.end()
            report.add(root, outcomes, compare(reference, root, contents=contents), driver.ended)
            write(report, plan.parent / REPORT)
            missed = [
                fault for fault in left if str(fault) not in {outcome.fault for outcome in outcomes if outcome.hit}
            ]
            if len(missed) == len(left):
                break
            left = missed
    return report


@contextmanager
def cluster(config: Config) -> Iterator[str]:
    """Joins or starts the Ray cluster that all runs of the test share, and yields its address."""
    ray: Any = connect(config.cluster)
    try:
        with ending_cleanly():
            yield ray.get_runtime_context().gcs_address
    finally:
        ray.shutdown()


def undisturbed(plan: Plan, address: str, reporter: Reporter) -> Path:
    """Runs the configuration without faults, or what is left of it, and returns its directory."""
    plan.parent.mkdir(parents=True, exist_ok=True)
    root = plan.parent / "undisturbed"
    driver = Driver(plan.command(root, 0), address, root.with_suffix(".log"), 1)
    with reporter.task(f"undisturbed: {root} (log: {driver.log})"):
        try:
            driver.start()
            driver.wait()
        finally:
            driver.end()
    return root


def sizes(root: Path) -> dict[str, tuple[int, int]]:
    """Returns trees and optimiser steps of a run's stages, in the order in which they were started."""
    progress = Progress(root)
    return {name: progress.size(name) for name in read_records(root)}


def _next(parent: Path) -> Path:
    numbers = [int(path.name.rpartition("-")[2]) for path in parent.glob("disturbed-[0-9][0-9]")]
    return parent / f"disturbed-{max(numbers, default=0) + 1:02d}"
