"""DensePolicy (Zhao et al. 2024): grow one wide tree for each task and prefer, turn by turn, what led further."""

from __future__ import annotations

from pathlib import Path

from agentr.build.preferences import build_siblings
from agentr.collect.stage import Kind
from agentr.recipes.recipe import Recipe
from agentr.rounds.experiment import Checkpoint, Experiment


def collect(experiment: Experiment, r: int, policy: Checkpoint) -> None:
    """Adaptive trees."""
    experiment.collect(r, policy, Kind.DENSE)


def build(experiment: Experiment, r: int) -> Path:
    """Pairs of sibling turns."""
    trees = experiment.forest(r, "collect")
    return experiment.build(
        r,
        lambda folder: build_siblings(folder, trees, build=experiment.config.build, codec=experiment.codec, seed=experiment.seed(r)),
    )


RECIPE = Recipe(collect, build)
