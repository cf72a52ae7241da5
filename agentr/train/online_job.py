"""A training whose rows come step by step, from whoever collects with the weights that it published.
Imports nothing heavy.

The folder ``feed`` is all that the two sides share, so either may die and come back::

    feed/000001/dataset/    the rollouts of a step; sealed when its manifest is there
    feed/stop.json          {"after": steps}: no more steps come
    feed/abandoned.json     whoever collected was stopped by an error: the worker ends; the next start removes it
    published/000001/       weights after the optimiser steps of a step: a Hugging Face folder, renamed into place;
                            below ``out``, or in memory

A worker that was killed goes on from its last checkpoint through the steps that are there, to the same weights.
"""

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from agentr.store.files import read_json, write_json
from agentr.train.job import TrainJob

#: Folder of a step's rows, below the step's own.
ROWS = "dataset"


@dataclass(frozen=True)
class OnlineJob(TrainJob):
    """One online training. ``dataset`` is the folder of its steps.

    Attributes:
        steps: Most steps; a step has ``config.grpo.updates`` optimiser steps.
        staleness: How many steps the collection may be ahead of the training: so many published weights are still
            needed.
        last: The step to end with, if it is not the last one of the schedule; 0 means that one.
        weights: Folder of the published weights; None for one below ``out``.
        dtype: Number format of the weights that are published: the engines'. In a coarser one, a step's small changes
            would be lost.
    """

    steps: int = 1
    staleness: int = 0
    last: int = 0
    weights: Path | None = None
    dtype: str = "float32"

    @property
    def updates(self) -> int:
        """Optimiser steps in all."""
        return self.steps * self.config.grpo.updates

    def require_rows(self) -> None:
        """Checks nothing: the rows are yet to come."""

    def made_of(self) -> dict[str, Any]:
        """Returns what decides what the job makes, besides its start checkpoint and the rollouts."""
        return {"steps": self.steps, "staleness": self.staleness, **asdict(self.config)}

    def step(self, number: int) -> Path:
        """Returns the folder of a step, counted from 1."""
        return self.dataset / f"{number:06d}"

    def rows_of(self, number: int) -> Path:
        """Returns the dataset of a step."""
        return self.step(number) / ROWS

    def fed(self, number: int) -> bool:
        """Returns whether the rows of a step are there."""
        return (self.rows_of(number) / "manifest.json").exists()

    def published(self, number: int) -> Path:
        """Returns the folder of the weights after a step; 0 is the start."""
        return self.all_published / f"{number:06d}" if number else self.start

    @property
    def all_published(self) -> Path:
        """The folder of the weights between steps."""
        return self.weights or self.out / "published"

    def missing(self) -> int | None:
        """Returns the step whose weights the next step is to be collected with, if they are not there."""
        fed = next(number for number in range(self.steps + 1) if not self.fed(number + 1))
        wanted = fed - self.staleness
        over = fed == self.steps or self.stopped() is not None
        return wanted if wanted > 0 and not over and not self.published(wanted).exists() else None

    def stop(self, after: int) -> None:
        """Says that no step comes after this one."""
        write_json(self.dataset / "stop.json", {"after": after})

    def stopped(self) -> int | None:
        """Returns the last step if the steps end before ``steps``."""
        path = self.dataset / "stop.json"
        return read_json(path)["after"] if path.exists() else None

    @property
    def abandoned(self) -> Path:
        """A file that is there while nobody collects, because whoever did was stopped by an error."""
        return self.dataset / "abandoned.json"
