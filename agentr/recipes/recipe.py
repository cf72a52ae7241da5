"""What a method is: how a round explores, and what it makes of that. All else is the same for all of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from agentr.rounds.experiment import Checkpoint, Experiment


@dataclass(frozen=True)
class Recipe:
    """A method.

    Attributes:
        collect: Runs the stages of a round that make trees, given the policy that explores.
        build: Makes the round's dataset from them and returns its folder. Its type decides how the round trains: sequences are
            imitated, of preferences the chosen side is preferred (DPO).
    """

    collect: Callable[[Experiment, int, Checkpoint], None]
    build: Callable[[Experiment, int], Path]

    def run(self, experiment: Experiment) -> None:
        """Warm start, then for each round: explore, build, train, evaluate. Ends with the control arm and the promotion."""
        config = experiment.config
        experiment.services.engines_early = True
        warm_start, demonstrations = experiment.warm_start()
        experiment.evaluate("rounds/00", warm_start)

        policy = warm_start
        for r in experiment.rounds():
            self.collect(experiment, r, policy)
            dataset = self.build(experiment, r)
            start = policy if config.trainer.continue_from == "previous" else warm_start
            policy = experiment.train(f"rounds/{r:02d}", dataset, start, experiment.train_config(r))
            experiment.evaluate(f"rounds/{r:02d}", policy)

        if config.run.control and config.run.rounds:
            experiment.control(warm_start, demonstrations)
        experiment.promote()
