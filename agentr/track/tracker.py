"""The seam: what a tracker is to agentr, and which there are."""

import importlib
import importlib.util
import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from agentr.errors import ConfigError
from agentr.secrets import SecretKind, read_all
from agentr.track.points import Point

#: Each tracker's module beside this one, the package that it needs, and how the variables of its environment begin.
_TRACKERS = {
    "tensorboard": ("TensorBoard", "tensorboard", ()),
    "mlflow": ("MLflow", "mlflow", ("MLFLOW_",)),
    "wandb": ("WeightsAndBiases", "wandb", ("WANDB_",)),
    "trackio": ("Trackio", "trackio", ("TRACKIO_", "HF_TOKEN")),
}

#: Project, or experiment, in which runs are found, unless the tracker's own environment names another.
PROJECT = "agentr"


@dataclass(frozen=True)
class About:
    """The run that is logged.

    Attributes:
        id: The same through all restarts of the run, and no other run's.
        config: The configuration by its full keys, without secrets.
        folder: For what the tracker keeps on disk, unless its environment names another place.
    """

    id: str
    name: str
    config: dict[str, Any]
    folder: Path


class Tracker(Protocol):
    """Tells one tracker, in a process of its own.
    Any exception means that it could not be logged now; then another process starts."""

    def start(self, about: About) -> None:
        """Begins the tracker's run, or goes on with it if there is one of this id."""

    def held(self, points: Sequence[Point], logged: int) -> int:
        """Returns how many of the points, from the first on, it holds.

        Args:
            logged: How many were logged for certain. A process that was killed may have logged more, or less may
                have been kept.
        """
        ...

    def log(self, point: Point) -> None:
        """Logs the next point."""

    def finish(self) -> None:
        """Ends the session. The tracker's run may be continued."""


def tracker(name: str) -> Tracker:
    """Returns a tracker by its name; its library is imported now."""
    return getattr(importlib.import_module(f"agentr.track.to_{name}"), _TRACKERS[name][0])()


def require(names: Iterable[str]) -> None:
    """Checks that the packages of trackers are there, and that their keys can be sent.

    Raises:
        ConfigError: One is missing, or cannot.
    """
    names = list(names)
    environment(names)
    missing = [name for name in names if importlib.util.find_spec(_TRACKERS[name][1]) is None]
    if missing:
        hint = f"Install it with pip install {' '.join(missing)}, or take it out of tracking."
        raise ConfigError(f"tracking: the package of {', '.join(missing)} is not installed here", hint=hint)


def environment(names: Iterable[str]) -> dict[str, str]:
    """Returns the variables of this process's environment by which trackers are set up: addresses, projects, keys."""
    begins = tuple(begin for name in names for begin in _TRACKERS[name][2])
    read_all(SecretKind.TRACKER, begins)
    return {name: value for name, value in os.environ.items() if name.startswith(begins)} if begins else {}
