"""Rejection-sampling fine-tuning: train on one's own runs that earned enough (the baseline RFT of ETO's paper, arXiv 2403.02502)."""

from __future__ import annotations

from pathlib import Path

from agentr.build.assemble import build_filtered
from agentr.collect.stage import Kind
from agentr.recipes.recipe import Recipe
from agentr.rounds.experiment import Checkpoint, Experiment


def collect(experiment: Experiment, r: int, policy: Checkpoint) -> None:
    """``collect.episodes`` runs of each task."""
    experiment.collect(r, policy, Kind.SAMPLE)


def build(experiment: Experiment, r: int) -> Path:
    """The runs with a return of at least ``revise.alpha``."""
    runs = experiment.forest(r, "collect")
    return experiment.build(
        r,
        lambda folder: build_filtered(
            folder,
            runs,
            experiment.demonstration_rows(),
            experiment.earlier_rows(r),
            build=experiment.config.build,
            alpha=experiment.alpha(r),
            codec=experiment.codec,
            seed=experiment.seed(r),
        ),
    )


RECIPE = Recipe(collect, build)
