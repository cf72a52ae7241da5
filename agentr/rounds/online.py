"""Online methods: a round that trains on what it has just collected (``agentr.rounds.steps``)."""

import hashlib
import math
from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, TypeVar

from agentr.collect.grow import Grow
from agentr.collect.job import Work
from agentr.config.checks import Problem
from agentr.config.policy import SHARED_MEMORY, PolicyBackend, Sync
from agentr.config.schema import Config, TaskSelection
from agentr.config.training import Share, TrainConfig
from agentr.errors import ConfigError, DataError
from agentr.rewards.group import Group, Reward
from agentr.rewards.judge import How
from agentr.rounds.experiment import Experiment
from agentr.rounds.judging import try_judges
from agentr.rounds.method import Method
from agentr.rounds.online_config import OnlineConfig
from agentr.rounds.round import Round
from agentr.rounds.steps import Steps
from agentr.rows.pareto import choose, measure
from agentr.rows.rollouts import rollout_rows
from agentr.search import Sample
from agentr.store.forest import Forest
from agentr.store.layout import PROBE, ROLLOUTS, TRAIN, Checkpoint, arm_of
from agentr.store.rows import Dropped, Rollout
from agentr.store.summaries import TrainSummary
from agentr.train.online_job import OnlineJob
from agentr.types import Loss, Task

C = TypeVar("C", bound=OnlineConfig)


class Online(Method[C]):
    """A method that trains on what it has just collected. Its configuration extends ``OnlineConfig``.

    A subclass implements ``rollouts``.
    """

    loss: ClassVar[Loss] = Loss.REINFORCE
    online: ClassVar[bool] = True

    @abstractmethod
    def rollouts(self) -> Work:
        """Returns what is done with each task of a step."""

    def rows(self, round_: Round, group: Group, rewards: Sequence[Reward]) -> Iterator[Rollout | Dropped]:
        """Yields the rows of a task in a step: by default those of its rollouts.

        Args:
            rewards: Of each rollout.
        """
        config, reasoning = self.config, round_.config.build.train_on_reasoning
        yield from rollout_rows(group, rewards, config.advantages, train_on_reasoning=reasoning, trees=config.trees)

    def exploration(self, round_: int) -> Mapping[str, Work]:
        return {ROLLOUTS: self.rollouts()}

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
        if config.trainer.share is Share.time:
            yield from config.pairs_on_gpus()
            if config.trainer.use_gpu and method.max_staleness:
                message = f"{method.max_staleness}: engines that sleep while the trainer trains cannot be ahead of it"
                yield Problem("method.max_staleness", message, "Set it to 0, or trainer.share to together or split.")
        rows = method.tasks * method.rows
        for index, train in enumerate(config.train):
            if train.batch_size * train.grpo.minibatches != rows:
                message = (
                    f"{train.batch_size} x {train.grpo.minibatches} minibatches is not method.tasks = {method.tasks} x "
                    f"the {method.rows} rows of each = {rows}"
                )
                divides = rows % train.grpo.minibatches == 0
                hint = f"Set it to {rows // train.grpo.minibatches}." if divides else "Choose numbers that divide."
                yield Problem(f"train[{index}].batch_size", message, hint)
            if train.steps or train.epochs != 1.0:
                message = (
                    "the optimiser steps are method.steps x grpo.minibatches x grpo.iterations = "
                    f"{method.steps * train.grpo.updates}"
                )
                yield Problem(f"train[{index}].{'steps' if train.steps else 'epochs'}", message, "Leave it out.")
        if (
            method.validation.every
            and method.validation.tasks.split == config.eval.tasks.split
            and not config.env.allow_leaks
        ):
            message = (
                f"split {config.eval.tasks.split!r} is what the run is measured on: choosing by it would flatter the "
                "result"
            )
            yield Problem("method.validation.tasks.split", message, "Choose another held-out split.")

    def before(self, experiment: Experiment, round_: int) -> None:
        if not experiment.store.sealed(arm_of(round_).stage(ROLLOUTS)):
            try_judges(self.config, experiment)

    def stages(self, round_: int) -> list[str]:
        return [*([PROBE] if self.config.pareto.tasks else []), ROLLOUTS, TRAIN]

    def improve(self, round_: Round, start: Checkpoint) -> Checkpoint:
        return self.train(round_, start)

    def train(self, round_: Round, start: Checkpoint) -> Checkpoint:
        experiment, config = round_.experiment, round_.config
        name, rollouts = round_.arm.stage(TRAIN), round_.arm.stage(ROLLOUTS)
        probe = round_.run(PROBE, self._probe()) if self.config.pareto.tasks else None

        def work(folder: Path) -> TrainSummary:
            experiment.store.stages.use(start.name)
            job = OnlineJob(
                dataset=experiment.store.layout.stage(rollouts),
                start=start.path,
                out=folder,
                config=experiment.plan.seeded(experiment.plan.train(round_.number)),
                trainer=config.trainer,
                name=name.replace("/", "-"),
                chat_template=experiment.codec.replaced,
                stop_ids=experiment.codec.stop_ids,
                steps=self.config.steps,
                staleness=self.config.max_staleness,
                weights=self._weights(round_, name),
                dtype=config.model.dtype.value,
            )
            tasks, differing = (round_.tasks, None) if probe is None else self._chosen(round_, probe)
            return Steps(
                self.config, self.rollouts(), partial(self.rows, round_), round_, job, start, tasks, differing
            ).run()

        made_with = {"method": config.method, "train": experiment.plan.train(round_.number), "seed": round_.seed}
        return experiment.checkpoint(name, experiment.store.stages.run(name, TrainSummary, work, made_with))

    def _weights(self, round_: Round, name: str) -> Path | None:
        """Returns where weights are published; None for the run directory.

        Raises:
            ConfigError: They are to be in the memory of one machine, and there are several.
        """
        if round_.config.policy.sync is Sync.files:
            return None
        machines = round_.experiment.services.cluster.machines()
        if machines > 1:
            message = f"policy.sync = memory is for one machine, and the cluster has {machines}"
            raise ConfigError(message, hint="Set policy.sync=files, with a run directory that all of them see.")
        run = hashlib.blake2b(str(round_.experiment.root.resolve()).encode(), digest_size=8).hexdigest()
        return SHARED_MEMORY / f"agentr-{run}-{name.replace('/', '-')}"

    def _chosen(self, round_: Round, probe: Forest) -> tuple[list[Task], list[dict[str, Any]]]:
        """Returns the tasks on which the policy's episodes differ most, and how much those of each task do.

        Raises:
            DataError: None is left.
        """
        config = self.config.pareto
        measured = measure(probe, config.dispersion, round_.answer_prefix)
        chosen = [one.task for one in choose(measured, config)]
        settled = sum(one.settled for one in measured)
        if not chosen:
            raise DataError(
                f"Pareto sampling has chosen none of {len(measured)} tasks: the policy solves {settled} of them always "
                "or never",
                hint=(
                    "Raise method.pareto.tasks or .episodes, choose easier or harder tasks, or set "
                    "method.pareto.settled=keep."
                ),
            )
        round_.experiment.reporter.message(
            f"        {len(chosen)} of {len(measured)} tasks are trained on; {settled} were solved always or never"
        )
        ids = {task.id for task in chosen}
        return chosen, [
            {"task": m.task.id, "earned": m.earned, "calls": m.calls, "chosen": m.task.id in ids} for m in measured
        ]

    def trees(self, tasks: int | None) -> int | None:
        most = max(self.config.tasks, self.config.max_tasks)
        steps = self.config.steps * (most if tasks is None else min(most, tasks))
        return steps + (tasks or 0 if self.config.pareto.tasks else 0)

    def optimiser_steps(self, train: TrainConfig, rows: int | None) -> int | None:
        return self.config.steps * train.grpo.updates

    def describe(self) -> str:
        each = f"{self.config.tasks} tasks x {self.config.episodes} rollouts"
        return f"{self.config.steps} online steps of {each}, each trained on at once{self._judged()}"

    def _judged(self) -> str:
        """What is asked of a judge, at most, where the tasks of the round are enough for it."""
        config, judge = self.config, self.config.judge
        each = [
            1 if reward.options.get("how") == How.ranking else config.episodes
            for reward in config.rewards
            if reward.name == "judge"
        ]
        asked = config.steps * max(config.tasks, config.max_tasks) * sum(each)
        tokens, limit = asked * judge.sampling.max_tokens, judge.openai.max_cost
        price = tokens * judge.openai.completion_price_per_mtok / 1e6
        cost = f", which cost {price:.2f}" if price else ""
        said = (
            f"; {judge.openai.model} is asked to judge at most {asked:,} times, for {tokens:,} generated tokens{cost}; "
            f"as often again where answers cannot be read; {f'the limit is {limit:g}' if limit else 'without a limit'}"
        )
        return said if asked else ""

    def _probe(self) -> Work:
        """Returns what shows how much the policy's episodes of a task differ."""
        return Grow(Sample(self.config.pareto.episodes, self.config.max_steps, self.config.max_invalid))

    def validations(self) -> tuple[int, TaskSelection | None]:
        validation = self.config.validation
        return (math.ceil(self.config.steps / validation.every), validation.tasks) if validation.every else (0, None)
