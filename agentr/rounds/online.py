"""Online methods: a round that trains on what it has just collected (``agentr.rounds.steps``)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import ClassVar, TypeVar

from agentr.build.dataset import Candidate
from agentr.collect.job import Work
from agentr.config.checks import Problem
from agentr.config.schema import Config, PolicyBackend
from agentr.config.training import TrainConfig
from agentr.errors import RunError
from agentr.rounds.online_config import OnlineConfig
from agentr.rounds.recipe import Recipe
from agentr.rounds.round import Round
from agentr.rounds.steps import Steps
from agentr.store.layout import ROLLOUTS, TRAIN, Checkpoint
from agentr.store.summaries import TrainSummary
from agentr.train.online_job import OnlineJob
from agentr.types import Loss

C = TypeVar("C", bound=OnlineConfig)


class Online(Recipe[C]):
    """A method that trains on what it has just collected. Its configuration extends ``OnlineConfig``.

    A subclass implements ``exploration`` with one stage: the work of a step.
    """

    loss: ClassVar[Loss] = Loss.REINFORCE

    @classmethod
    def check(cls, config: Config) -> Iterator[Problem]:
        method = config.method
        assert isinstance(method, OnlineConfig)
        if config.policy.backend is PolicyBackend.openai:
            message = f"{cls.name} trains the weights that collect, and policy.backend = openai has none here"
            yield Problem("policy.backend", message, "Set policy.backend=vllm.")
        sampling = config.collect.sampling
        for key, value in (("temperature", sampling.temperature), ("top_p", sampling.top_p)):
            if value != 1.0:
                message = f"{value:g} draws from another distribution than the one whose probabilities are trained on"
                yield Problem(f"collect.sampling.{key}", message, "Set it to 1.")
        rows = method.tasks * method.episodes
        for index, train in enumerate(config.train):
            if train.batch_size * train.grpo.minibatches != rows:
                message = f"{train.batch_size} x {train.grpo.minibatches} minibatches is not method.tasks x episodes = {rows}"
                divides = rows % train.grpo.minibatches == 0
                hint = f"Set it to {rows // train.grpo.minibatches}." if divides else "Choose numbers that divide."
                yield Problem(f"train[{index}].batch_size", message, hint)
            if train.steps or train.epochs != 1.0:
                message = f"the optimiser steps are method.steps x grpo.minibatches x grpo.iterations = {method.steps * train.grpo.updates}"
                yield Problem(f"train[{index}].{'steps' if train.steps else 'epochs'}", message, "Leave it out.")
        if method.validation.every and method.validation.tasks.split == config.eval.tasks.split and not config.env.allow_leaks:
            message = f"split {config.eval.tasks.split!r} is what the run is measured on: choosing a step by it would flatter the result"
            yield Problem("method.validation.tasks.split", message, "Choose another held-out split.")

    def explore(self, round_: Round) -> None:
        raise RunError(f"{self.name} collects while it trains", hint=f"Say: agentr train CONFIG --round {round_.number}")

    def build(self, round_: Round) -> Path:
        raise RunError(f"{self.name} builds its rows while it trains", hint=f"Say: agentr train CONFIG --round {round_.number}")

    def rows(self, round_: Round) -> Iterator[Candidate]:
        """Yields nothing: the steps make their own."""
        return iter(())

    def improve(self, round_: Round, start: Checkpoint) -> Checkpoint:
        return self.train(round_, start)

    def train(self, round_: Round, start: Checkpoint) -> Checkpoint:
        experiment, config = round_.experiment, round_.config
        name, rollouts = round_.arm.stage(TRAIN), round_.arm.stage(ROLLOUTS)

        def work(folder: Path) -> TrainSummary:
            experiment.store.use(start.name)
            train = experiment.train_config(round_.number)
            job = OnlineJob(
                dataset=experiment.store.layout.stage(rollouts),
                start=start.path,
                out=folder,
                config=replace(train, seed=train.seed + config.run.seed),
                trainer=config.trainer,
                name=name.replace("/", "-"),
                steps=self.config.steps,
                staleness=self.config.max_staleness,
                dtype=config.model.dtype.value,
            )
            return Steps(self.config, self.work(round_), round_, job, start).run()

        made_with = {"method": config.method, "train": experiment.train_config(round_.number), "seed": round_.seed}
        experiment.store.stage(name, TrainSummary, work, made_with)
        return experiment.store.layout.checkpoint(name)

    def trees(self, tasks: int | None) -> int | None:
        most = max(self.config.tasks, self.config.max_tasks)
        return self.config.steps * (most if tasks is None else min(most, tasks))

    def optimiser_steps(self, train: TrainConfig, rows: int | None) -> int | None:
        return self.config.steps * train.grpo.updates

    def describe(self) -> str:
        each = f"{self.config.tasks} tasks x {self.config.episodes} rollouts"
        return f"{self.config.steps} steps of {each}, each trained on at once"

    def work(self, round_: Round) -> Work:
        """Returns what is done with each task of a step."""
        (work,) = self.exploration(round_.number).values()
        return work
