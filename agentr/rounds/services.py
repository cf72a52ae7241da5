"""What the stages run on: Ray, the engines, the environment servers, the coordinators, the trainer.
Each starts when it is first needed."""

import os
import signal
from dataclasses import replace
from pathlib import Path
from typing import Any

from agentr.cluster.causes import Cause
from agentr.collect.job import TreeJob
from agentr.config.training import Share
from agentr.observe.progress import Reporter, Update
from agentr.observe.troubles import announce
from agentr.rounds.collecting import Collecting
from agentr.rounds.diagnosis import Parts, diagnose
from agentr.rounds.engines import Engines
from agentr.rounds.plan import Plan
from agentr.rounds.ray_cluster import RayCluster, Served
from agentr.rounds.trainings import Trainings
from agentr.rounds.watchdog import Watchdog
from agentr.store.layout import Checkpoint, title_of
from agentr.store.run import RunStore
from agentr.store.summaries import TrainSummary
from agentr.train.job import TrainJob

#: Seconds without any progress after which a run ends, with what was found and how to go on; longer than the longest
#: step.
END_S = 7200.0


class Services:
    """The running parts of an experiment, or of one experiment after another (`take_over`).

    Args:
        logs: Folder for the logs of child processes.

    Attributes:
        engines_early: Whether engines may start beside a training, for the evaluation that follows it. A whole
            experiment sets this, a stage by itself does not.
    """

    def __init__(self, plan: Plan, logs: Path, reporter: Reporter) -> None:
        self._served = served = Served(plan, logs, reporter)
        self.watchdog = Watchdog(
            plan.config.watchdog.after_s, lambda: diagnose(self._parts()), self._stands_still, END_S, self._give_up
        )
        self.cluster = RayCluster(served)
        self.engines = Engines(served, self.cluster)
        self.collecting = Collecting(served, self.cluster, self.watchdog)
        self.trainings = Trainings(served, self.cluster, self.watchdog)
        self.engines_early = False

    def take_over(self, plan: Plan, store: RunStore) -> None:
        """Serves the experiment of ``plan`` from here on.
        What it would start the same runs on; the coordinators start anew."""
        before, self._served = self._served, replace(self._served, plan=plan, store=store)
        if plan.places.cluster != before.plan.places.cluster:
            self.close()
        for part in (self.collecting, self.engines):
            part.take_over(self._served)
        self.cluster.served = self.trainings.served = self._served
        store.on_event = self.cluster.gauges.event
        self.watchdog.after_s, self.engines_early = plan.config.watchdog.after_s, False
        if self.cluster.up:
            self.cluster.gauges.start(plan.config.run.name)

    def collect(
        self, title: str, job: TreeJob, policy: Checkpoint | None, update: Update | None = None
    ) -> dict[str, Any]:
        """Runs a job of trees, with engines if it has a policy (`Collecting.run`)."""
        path = policy.path if policy is not None else None
        return self.collecting.run(title, job, path, self.engines.start(path) if path is not None else [], update)

    def train(self, jobs: list[TrainJob], title: str) -> list[TrainSummary]:
        """Trains a chain of jobs and returns their results. Engines on the same accelerators make room first."""
        trainer = self._served.plan.places.trainer
        self.cluster.connect()
        if trainer.use_gpu and trainer.share is Share.time:
            self.engines.make_room()
        elif self.engines_early and self.collecting.model is not None:
            # Overlap the two start-ups: each spends most of its time importing, on one core.
            self.engines.start(self.collecting.model)
        return self.trainings.run(jobs, title)

    def close(self, *, keep_logs: bool = False) -> None:
        """Ends everything that was started here; for ``keep_logs`` see `agentr.cluster.connect.leave`."""
        if not self.cluster.up:
            return
        self.watchdog.close()
        self.cluster.gauges.close()
        self.trainings.close()
        self.collecting.close()
        self.engines.stop()
        self.cluster.close(keep_logs=keep_logs)

    # watching ---------------------------------------------------------------------------------------------------------

    def _parts(self) -> Parts:
        """What the watchdog may ask."""
        served, collecting = self._served, self.collecting
        waits_for_trees = collecting.progress is not None and self.trainings.awaited is None
        return Parts(
            places=served.plan.places,
            run_dir=served.store.root if served.store is not None else served.logs,
            engines=self.engines.by_name if waits_for_trees else {},
            servers=collecting.servers if waits_for_trees else None,
            env_url=served.plan.config.env.url if waits_for_trees else "",
            progress=collecting.progress,
            silent_s=collecting.silent_s if waits_for_trees else 0.0,
            training=self.trainings.awaited,
            known=self.cluster.known,
            lookouts=self.cluster.lookouts,
        )

    def _stands_still(self, title: str, causes: list[Cause], since: str) -> None:
        announce(self._served.reporter, self._served.event, title, causes, since)

    def _give_up(self, title: str, seconds: float) -> None:
        """Ends the run as a signal does: what is finished is kept, and the way on is said."""
        self._served.reporter.message(f"{title_of(title)} did not move for {seconds:.0f} s : the run ends", "red")
        self._served.noted("gave_up", title=title, seconds=round(seconds))
        os.kill(os.getpid(), signal.SIGTERM)
