"""R3L: the policy writes what went wrong in each of its rollouts, and begins again there with its own advice (arXiv
2601.03715).

A task's group is half rollouts from the opening and half retries. A retry is trained on without the advice that it was
drawn with, and of a rollout and its retry only what comes after they part. Two more kinds of rows keep the two skills
alive: reflections whose retry earned more, and these retries with the advice.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Annotated

from pydantic import Field, PositiveInt

from agentr.collect.job import Work
from agentr.config.checks import Problem
from agentr.config.policy import AdvisorConfig, SamplingConfig, Who
from agentr.config.schema import Config
from agentr.config.training import RatioLevel
from agentr.config.turns import FullContext
from agentr.methods.r3l.retry import Retry
from agentr.methods.r3l.rows import auxiliary_rows
from agentr.rewards.group import Group, Reward
from agentr.rounds.method import read_presets
from agentr.rounds.online import Online
from agentr.rounds.online_config import OnlineConfig
from agentr.rounds.round import Round
from agentr.rows.advantages import AdvantageConfig
from agentr.store.rows import Dropped, Rollout


@dataclass
class R3LConfig(OnlineConfig):
    """Reflect, then retry (docs/r3l.md)."""

    type: str = "r3l"
    episodes: Annotated[int, Field(ge=2)] = 8
    """Rollouts of a task with their retries, which are compared with each other (R3L: 8)."""
    initial: PositiveInt = 4
    """Rollouts of a task that begin at its opening; each is begun again at most once, until there are episodes (R3L:
    half of them)."""
    reflect: AdvisorConfig = field(
        default_factory=lambda: AdvisorConfig(sampling=SamplingConfig(temperature=1.0, max_tokens=512))
    )
    """Who writes what went wrong: the policy (R3L), or a model behind an API."""
    auxiliary: bool = True
    """Train on reflections that helped, and on retries with the advice that they had."""
    advantages: AdvantageConfig = field(default_factory=lambda: AdvantageConfig(shared=False, amplify=3.0, best=3.0))
    """What rewards are compared with: pivotal credit and positive amplification."""

    def problems(self) -> Iterator[Problem]:
        yield from super().problems()
        if not self.initial < self.episodes <= 2 * self.initial:
            message = (
                f"{self.episodes - self.initial} retries of {self.initial} rollouts, each of which has at most one"
            )
            yield Problem("initial", message, "Set it to half of episodes.")
        if self.reflect.who is Who.nobody:
            yield Problem("reflect.who", "nobody writes what went wrong", "Set it to policy or openai.")

    @property
    def rows(self) -> int:
        return self.episodes + 2 * (self.episodes - self.initial) * self.auxiliary


class R3L(Online[R3LConfig]):
    """Rollouts that the policy reflects on and begins again where it went wrong, a policy gradient on how all compare,
    step after step."""

    name = "r3l"
    title = "R3L (arXiv 2601.03715)"
    environments = ("alfworld", "webshop", "sciworld")
    page = "docs/r3l.md"
    config_class = R3LConfig
    presets = read_presets(__file__)

    @classmethod
    def check(cls, config: Config) -> Iterator[Problem]:
        yield from super().check(config)
        if config.turns.full_context is FullContext.truncate:
            message = "oldest turns are left out of prompts, and with them what retries are told"
            yield Problem("turns.full_context", message, "Set it to end.")
        for index, train in enumerate(config.train):
            if train.grpo.ratio is not RatioLevel.none:
                message = (
                    "retries are drawn with advice that rows do not show: a ratio to those probabilities says nothing"
                )
                yield Problem(f"train[{index}].grpo.ratio", message, "Set it to none.")

    def rollouts(self) -> Work:
        config = self.config
        limits = (config.max_steps, config.max_invalid)
        return Retry(config.initial, config.episodes - config.initial, config.reflect, *limits)

    def describe(self) -> str:
        config = self.config
        most = config.steps * max(config.tasks, config.max_tasks) * config.initial
        asked = config.reflect.openai.model if config.reflect.who is Who.openai else "the policy"
        return f"{super().describe()}; {asked} is asked for at most {most:,} reflections"

    def rows(self, round_: Round, group: Group, rewards: Sequence[Reward]) -> Iterator[Rollout | Dropped]:
        yield from super().rows(round_, group, rewards)
        if self.config.auxiliary:
            reasoning = round_.config.build.train_on_reasoning
            yield from auxiliary_rows(group, rewards, round_.codec, on_reasoning=reasoning)


METHOD = R3L
