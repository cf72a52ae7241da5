"""Behavioural cloning alone: more steps on the demonstrations. What every other recipe has to beat."""

from __future__ import annotations

from pathlib import Path

from agentr.recipes.recipe import Recipe
from agentr.rounds.experiment import Checkpoint, Experiment
from agentr.store.rows import read_rows, write_rows


def collect(experiment: Experiment, r: int, policy: Checkpoint) -> None:
    """Nothing: it does not explore."""


def build(experiment: Experiment, r: int) -> Path:
    """The demonstrations, once more."""
    demonstrations = experiment.demonstration_dataset(experiment.demonstrations())
    return experiment.build(r, lambda folder: write_rows(folder, read_rows(demonstrations)))


RECIPE = Recipe(collect, build)
