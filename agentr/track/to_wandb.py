"""Weights & Biases: its server, or with ``WANDB_MODE=offline`` files in the run directory, for ``wandb sync``."""

import os
from collections.abc import Sequence
from pathlib import Path

import wandb

from agentr.track.points import Point
from agentr.track.tracker import PROJECT, About
from agentr.track.wandb_file import rows


class WeightsAndBiases:
    def start(self, about: About) -> None:
        place = Path(os.environ.get("WANDB_DIR") or about.folder)
        self._before = sorted(place.glob(f"wandb/offline-run-*-{about.id}/*.wandb"))
        self._run = wandb.init(
            project=os.environ.get("WANDB_PROJECT") or PROJECT,
            name=about.name,
            id=about.id,
            resume="allow",
            config=about.config,
            dir=place,
            reinit="create_new",
            settings=wandb.Settings(
                console="off", silent=True, disable_git=True, disable_code=True, x_disable_stats=True
            ),
        )
        self._axes: set[str] = set()

    def held(self, points: Sequence[Point], logged: int) -> int:
        """A point's number is its step for W&B, which takes them in ascending order.
        What was logged last may be lost with a process."""
        if not self._run.offline:
            return self._run.step
        return max((row["_step"] + 1 for path in self._before for row in rows(path)), default=0)

    def log(self, point: Point) -> None:
        for group in {"/".join(name.split("/")[:2]) for name in point.numbers} - self._axes:
            self._axes.add(group)
            self._run.define_metric(f"{group}/*", step_metric=point.axis)
        self._run.log({**point.numbers, point.axis: point.step}, step=point.number - 1, commit=True)

    def finish(self) -> None:
        self._run.finish()
