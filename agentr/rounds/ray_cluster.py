"""The Ray cluster that a run is on: joined, or started on this machine, when it is first needed."""

from collections.abc import Callable
from contextlib import nullcontext, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from agentr.cluster import connect as cluster
from agentr.cluster.draining import Draining
from agentr.cluster.node_watch import Lookouts
from agentr.cluster.nodes import ClusterNode, nodes
from agentr.cluster.preflight import preflight
from agentr.config.secrets import missing_secrets
from agentr.errors import RunError
from agentr.observe.progress import Reporter
from agentr.rounds.plan import Plan
from agentr.rounds.run_metrics import Gauges
from agentr.store.run import RunStore
from agentr.store.working import ALONE


@dataclass(frozen=True)
class Served:
    """The run that services serve now.

    Attributes:
        logs: Folder for the logs of child processes.
        store: Where it is kept; None for parts by themselves: a measurement, a test.
    """

    plan: Plan
    logs: Path
    reporter: Reporter
    store: RunStore | None = None

    @property
    def name(self) -> str:
        return self.plan.config.run.name

    @property
    def next_epoch(self) -> Callable[[], str]:
        """Gives each attempt a name of its own, by which an earlier one that lives on is shut out."""
        return self.store.lease.next_epoch if self.store is not None else lambda: ALONE

    def event(self, kind: str, **about: Any) -> None:
        """Notes an event in the run."""
        if self.store is not None:
            self.store.event(kind, **about)

    def noted(self, kind: str, **about: Any) -> None:
        """Notes an event in the run, if that can still be noted."""
        with suppress(RunError):
            self.event(kind, **about)


class RayCluster:
    """Ray, what is known of its nodes, and the numbers that the driver exports.

    Attributes:
        known: The nodes that were there when the run began.
    """

    def __init__(self, served: Served) -> None:
        self.served = served
        self.gauges = Gauges()
        self.known: list[ClusterNode] = []
        self.lookouts = Lookouts()
        self._ray: Any = None
        self._draining: Draining | None = None

    @property
    def up(self) -> bool:
        return self._ray is not None

    def connect(self) -> Any:
        """Returns Ray's module, connected. What imports Ray does so after it: Ray reads its environment then.

        Raises:
            ConfigError: The cluster lacks what the run needs; says what is missing where, and the settings to change.
            InfraError: It cannot be joined.
        """
        if self._ray is None:
            places, reporter = self.served.plan.places, self.served.reporter
            with reporter.task("Ray"):
                self._ray = cluster.connect(places.cluster)
            self.gauges.start(self.served.name)
            self._check()
            if cluster.joined(places.cluster):
                self._draining = Draining(
                    places, lambda text: reporter.message(text, "yellow"), lambda *a, **b: self.served.noted(*a, **b)
                )
        return self._ray

    def _check(self) -> None:
        """Checks that the cluster has what the run needs, before anything is started on it."""
        plan, store, reporter = self.served.plan, self.served.store, self.served.reporter
        if store is None:
            return
        here = cluster.joined(plan.config.cluster)
        with reporter.task("checking the cluster") if here else nullcontext():
            report = preflight(plan.places, store.root, here, reporter.message, missing_secrets(plan.config))
        for note in report.notes if here else ():
            reporter.message(f"        {note}", "yellow")
        report.require()
        self.known = report.there
        self.lookouts.post(report.there)

    def gpus(self) -> float:
        """How many GPUs the cluster has."""
        return self.connect().cluster_resources().get("GPU", 0)

    def machines(self) -> int:
        """How many machines the cluster has."""
        return sum(node["Alive"] for node in self.connect().nodes())

    def several(self) -> bool:
        """Whether parts may be on other machines than the driver's."""
        self.connect()
        settings = self.served.plan.places.cluster
        return cluster.joined(settings) and (len(nodes()) > 1 or settings.wait_s > 0)

    def close(self, *, keep_logs: bool = False) -> None:
        """Leaves the cluster; for ``keep_logs`` see `agentr.cluster.connect.leave`."""
        if self._draining is not None:
            self._draining.close()
        if self._ray is not None:
            cluster.leave(self._ray, keep_logs=keep_logs)
        self._ray, self.lookouts = None, Lookouts()
