"""Agent-R (Yuan et al. 2025, arXiv 2501.11425): train on revisions of one's own search trees, round after round."""

from __future__ import annotations

from pathlib import Path

from agentr.build.assemble import build_revisions
from agentr.recipes.recipe import Recipe
from agentr.rounds.experiment import Checkpoint, Experiment


def collect(experiment: Experiment, r: int, policy: Checkpoint) -> None:
    """Search trees, and in them the revisions of bad paths."""
    experiment.revise(r, policy, experiment.collect(r, policy))


def build(experiment: Experiment, r: int) -> Path:
    """Revision trajectories and good trajectories."""
    config = experiment.config
    revised = experiment.forest(r, "revise")
    return experiment.build(
        r,
        lambda folder: build_revisions(
            folder,
            revised,
            experiment.demonstration_rows(),
            experiment.earlier_rows(r),
            revise=config.revise,
            build=config.build,
            alpha=experiment.alpha(r),
            codec=experiment.codec,
            action_format=experiment.action_format,
            seed=experiment.seed(r),
        ),
    )


RECIPE = Recipe(collect, build)
