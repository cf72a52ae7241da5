"""How an online training is watched on tasks that it does not train on.
The step that does best there is the one that is kept."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from agentr.collect.grow import Grow
from agentr.collect.job import TreeJob
from agentr.collect.units import Limits
from agentr.evaluate.metrics import evaluate
from agentr.rounds.online_config import ValidationConfig
from agentr.rounds.round import Round
from agentr.search import Sample
from agentr.store.files import copy_folder, make_folder, read_json, write_json
from agentr.store.forest import Forest
from agentr.store.layout import BEST_STEP, EVALUATION, Checkpoint
from agentr.train.online_job import OnlineJob


@dataclass(frozen=True)
class Validation:
    """The measurements while a round's training goes on."""

    config: ValidationConfig
    round: Round
    job: OnlineJob

    @property
    def best_weights(self) -> Path:
        """Weights of the best step, until the training is done."""
        return self.job.out / "best"

    def best(self) -> dict[str, Any] | None:
        """Returns the best step and its success; None before the first measurement."""
        path = self.job.dataset / BEST_STEP
        return read_json(path) if path.exists() else None

    def due(self, step: int) -> bool:
        """Returns whether a step is to be measured, and was not."""
        every = self.config.every
        return bool(every) and (step % every == 0 or step == self.job.steps) and not self.done(step)

    def done(self, step: int) -> bool:
        """Returns whether a step was measured."""
        return (self._folder(step) / EVALUATION).exists()

    def _folder(self, step: int) -> Path:
        return self.job.dataset / "validation" / f"{step:06d}"

    def measure(self, step: int, policy_at: Callable[[int], Checkpoint]) -> None:
        """Measures the weights after a step, keeps them if they are the best so far, and may end the training.

        Args:
            policy_at: Gives the weights after a step once they are there.
        """
        settings, config, experiment = self.config, self.round.config.eval, self.round.experiment
        folder, policy = self._folder(step), policy_at(step)
        make_folder(folder, below=self.job.dataset)
        forest = Forest(folder)
        if not forest.sealed:
            job = TreeJob(
                folder=folder,
                tasks=tuple(experiment.services.collecting.tasks(settings.tasks, training=False)),
                seed=experiment.plan.seed(0),
                policy=policy.name,
                work=Grow(Sample(config.episodes, config.max_steps, config.max_invalid)),
                sampling=config.sampling,
                limits=replace(Limits.of(self.round.config.collect), in_flight=config.in_flight),
            )
            progress = experiment.services.collect(f"validation after online step {step}", job, policy, lambda *_: None)
            forest.seal(stage={"kind": "validation", "version": policy.name}, progress=progress)
        found = evaluate(forest)
        best = self.best()
        if best is None or found.success.mean > best["success"]:
            best = {"step": step, "success": found.success.mean}
            copy_folder(policy.path, self.best_weights)
            write_json(self.job.dataset / BEST_STEP, best)
        write_json(folder / EVALUATION, found.as_dict())
        experiment.reporter.message(
            f"        online step {step}: {found.success.as_percent()} % on {found.success.n} tasks of "
            f"{settings.tasks.split} (best: online step {best['step']}, {100 * best['success']:.1f} %)"
        )
        if settings.patience and step - best["step"] >= settings.patience * settings.every and step < self.job.steps:
            experiment.reporter.message(
                f"        no better for {settings.patience} measurements: online step {step} was the last"
            )
            self.job.stop(step)
