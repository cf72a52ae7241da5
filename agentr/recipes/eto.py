"""ETO (Song et al. 2024, arXiv 2403.02502): explore each training task, prefer what earned more, round after round."""

from __future__ import annotations

from pathlib import Path

from agentr.build.preferences import build_contrast
from agentr.collect.stage import Kind
from agentr.config.methods import Against, Unit
from agentr.recipes.recipe import Recipe
from agentr.rounds.experiment import Checkpoint, Experiment


def collect(experiment: Experiment, r: int, policy: Checkpoint) -> None:
    """Runs of each task, and for step-wise pairs also runs from every point of the expert's episodes."""
    unit = experiment.config.build.contrast.unit
    if unit is not Unit.step:
        experiment.collect(r, policy, Kind.SAMPLE)
    if unit is not Unit.trajectory:
        experiment.steps(r, policy, experiment.demonstrations())


def build(experiment: Experiment, r: int) -> Path:
    """Pairs of a better and a worse run."""
    contrast = experiment.config.build.contrast
    forests = [experiment.forest(r, "collect")] if contrast.unit is not Unit.step else []
    forests += [experiment.forest(r, "steps")] if contrast.unit is not Unit.trajectory else []
    experts = experiment.demonstrations() if contrast.against is Against.expert else None
    return experiment.build(
        r,
        lambda folder: build_contrast(
            folder, forests, experts, build=experiment.config.build, codec=experiment.codec, seed=experiment.seed(r)
        ),
    )


RECIPE = Recipe(collect, build)
