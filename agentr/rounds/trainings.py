"""Trainings of a run on its cluster: chains of jobs that are waited for, and online ones that go on beside what
collects."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, replace
from typing import Any, TypeVar

from agentr.background import Beside
from agentr.cluster.roles import Role
from agentr.rounds.ray_cluster import RayCluster, Served
from agentr.rounds.watchdog import Watchdog
from agentr.store.summaries import TrainSummary
from agentr.train.checks import AwaitedTraining
from agentr.train.job import TrainJob
from agentr.train.launch import Workers
from agentr.train.online_job import OnlineJob

T = TypeVar("T", bound=TrainJob)


class Trainings:
    """What trains.

    Attributes:
        awaited: The training that is waited for, and how far it is.
    """

    def __init__(self, served: Served, cluster: RayCluster, watchdog: Watchdog) -> None:
        self.served = served
        self.awaited: AwaitedTraining | None = None
        self._cluster = cluster
        self._watchdog = watchdog
        self._workers = Workers(served.logs)

    def run(self, jobs: list[TrainJob], title: str) -> list[TrainSummary]:
        """Trains a chain of jobs and returns their results."""
        from agentr.train.checkpoints import saved_steps

        jobs = self._placed(*jobs)
        with self._watchdog.armed(title), self.served.reporter.task(title, "optimiser steps") as update:
            self.awaited = AwaitedTraining(jobs[0], "no optimiser step was finished yet")
            named = {job.name: job for job in jobs}
            job, step = jobs[0], 0

            def follow(line: dict[str, Any]) -> None:
                nonlocal job, step
                job, step, steps = named[line["job"]], line.get("step", 0), line.get("steps", 0)
                self._watchdog.feed(line.get("job"), step)
                self._cluster.gauges.trained(line)
                self.awaited = AwaitedTraining(job, f"the last optimiser step was {step} of {steps}")
                update(step, steps, f"loss {line.get('loss', float('nan')):.3g}")

            try:
                results = self._workers.train(jobs, follow)
            except (KeyboardInterrupt, SystemExit):
                saved = saved_steps(job.checkpoints)
                lost = f"optimiser steps {saved + 1} to {step} are lost" if step > saved else "nothing is lost"
                said = f"{job.title}: stopped; {lost}, it goes on after optimiser step {saved} (train.checkpoint_every)"
                self.served.reporter.message(said, "yellow")
                raise
            finally:
                self.awaited = None
        return [TrainSummary.read(asdict(result)) for result in results]

    def beside(self, job: OnlineJob) -> Beside[TrainSummary]:
        """Starts an online training, which goes on beside what the caller does."""
        placed, follow = self._placed(job), self._cluster.gauges.trained
        return Beside(lambda: TrainSummary.read(asdict(self._workers.train(placed, follow)[0])))

    def close(self) -> None:
        """Ends the workers."""
        self._workers.close()

    @contextmanager
    def awaiting(self, job: TrainJob, what: str) -> Iterator[None]:
        """Watches a training that goes on beside, while the block waits for something of it."""
        self.awaited = AwaitedTraining(job, f"{what} are not there")
        try:
            with self._watchdog.armed(f"{job.title}: {what}"):
                yield
        finally:
            self.awaited = None

    def _placed(self, *jobs: T) -> list[T]:
        """Gives jobs of one attempt their places."""
        plan = self.served.plan
        _, gpus = plan.places.booked(self._cluster.gpus())
        epoch, labels, watch_s = (
            self.served.next_epoch(),
            plan.places.labels[Role.trainer],
            plan.config.watchdog.after_s / 2,
        )
        return [replace(job, epoch=epoch, nodes=labels, gpus=gpus, watch_s=watch_s) for job in jobs]
