"""The configuration that all online methods have."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Annotated

from pydantic import Field, NonNegativeInt, PositiveInt

from agentr.config.checks import Problem, Section
from agentr.config.policy import AdvisorConfig, SamplingConfig, Who
from agentr.config.schema import MethodConfig, TaskSelection
from agentr.rewards import Gate, RewardConfig
from agentr.rows.advantages import AdvantageConfig
from agentr.rows.pareto import ParetoConfig


@dataclass
class ValidationConfig(Section):
    """How a training is watched on tasks that it does not train on.
    The step that does best there is the one that is kept."""

    every: NonNegativeInt = 0
    """Online steps between two measurements; 0 means never, and the last one's weights are kept."""
    tasks: TaskSelection = field(default_factory=lambda: TaskSelection(split="dev", limit=100))
    """Tasks to measure on; others than eval.tasks, or the choice of the online step would flatter the result."""
    patience: NonNegativeInt = 0
    """Stop after so many measurements without a new best; 0 means never."""


@dataclass
class OnlineConfig(MethodConfig):
    """A method that trains on what it has just collected."""

    steps: PositiveInt = 30
    """Steps of a round."""
    tasks: PositiveInt = 32
    """Tasks of an online step, drawn from those of the round (collect.tasks) so that all have their turn."""
    max_tasks: NonNegativeInt = 0
    """Where rollouts of a task are all worth the same, others take its place, up to so many in an online step (dynamic
    sampling, arXiv 2503.14476, section 3.2); 0 means that the tasks of a step stay as they are drawn."""
    episodes: Annotated[int, Field(ge=2)] = 8
    """Rollouts of a task, which are compared with each other."""
    max_steps: NonNegativeInt = 0
    """Actions in a rollout; 0 means the environment's own limit."""
    max_invalid: NonNegativeInt = 0
    """A rollout ends after so many invalid actions in a row; 0 means never."""
    pareto: ParetoConfig = field(default_factory=ParetoConfig)
    """Which of the round's tasks are trained on."""
    rewards: list[RewardConfig] = field(default_factory=lambda: [RewardConfig()])
    """What a rollout is worth: the sum of these."""
    judge: AdvisorConfig = field(
        default_factory=lambda: AdvisorConfig(who=Who.nobody, sampling=SamplingConfig(temperature=0.0, max_tokens=512))
    )
    """Who is asked by the reward judge: openai, with the address and the budget."""
    gate: Gate = Gate.outcome
    """For whom shaping counts: prices (length, calls), factors (et_agent), a bonus (arpo), and what a reward of one's
    own says is shaping. With a gate and without shaping nothing is changed."""
    advantages: AdvantageConfig = field(default_factory=AdvantageConfig)
    """What rewards are compared with."""
    max_staleness: NonNegativeInt = 0
    """Steps that the collection may be ahead of the training, to go on beside it; 0 is on-policy."""
    validation: ValidationConfig = field(default_factory=ValidationConfig)
    """How the training is watched."""

    @property
    def rows(self) -> int:
        """Most rows of a task in an online step."""
        return self.episodes

    @property
    def trees(self) -> int:
        """Rollouts of a task that begin a tree each, as ``agentr.rows.advantages`` takes them; 0 if each first turn
        does."""
        return 0

    def problems(self) -> Iterator[Problem]:
        if not self.rewards:
            yield Problem("rewards", "the list is empty", "Name at least one; see 'agentr list rewards'.")
        if any(reward.name == "judge" for reward in self.rewards) and self.judge.who is not Who.openai:
            message = f"{self.judge.who.value} is asked, and the reward judge asks a model behind an API"
            yield Problem("judge.who", message, "Set method.judge={who: openai, openai: {base_url: .., model: ..}}.")
        if self.max_tasks and self.max_tasks < self.tasks:
            yield Problem(
                "max_tasks", f"{self.max_tasks} is less than tasks = {self.tasks}", "Raise it, or set it to 0."
            )
        if self.validation.patience and not self.validation.every:
            yield Problem("validation.patience", "there are no measurements to wait for", "Set validation.every.")


@dataclass
class BranchingConfig(OnlineConfig):
    """An online method whose rollouts branch."""

    initial: PositiveInt = 2
    """Rollouts of a task that begin at its opening together; the others branch off (ARPO: 8 of 16)."""

    def problems(self) -> Iterator[Problem]:
        yield from super().problems()
        if self.initial > self.episodes:
            yield Problem(
                "initial",
                f"{self.initial} rollouts from the opening are more than episodes = {self.episodes}",
                "Lower it.",
            )
