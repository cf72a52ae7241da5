"""Demonstrations: an expert's turns, played in the environment into trees of one branch, or a stronger model's
episodes. The policy is not asked."""

import logging
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import cast

from agentr.collect.advisor import asking
from agentr.collect.agent import Agent
from agentr.collect.grow import grow
from agentr.collect.job import TreeJob, Unit, Work, run_job
from agentr.collect.sessions import Sessions
from agentr.collect.units import Limits, StageProgress
from agentr.config.policy import AdvisorConfig, SamplingConfig
from agentr.config.turns import PromptConfig
from agentr.envs.client import EnvClient
from agentr.policy.base import GenerateRequest, PolicyStats
from agentr.policy.chat import ChatCodec
from agentr.search import Origin, Sample, Tree
from agentr.store.forest import Forest
from agentr.store.growing import GrowingForest
from agentr.tasks.formats import action_format, written
from agentr.tasks.prompt import as_call
from agentr.types import Completion, Message, Task

log = logging.getLogger(__name__)

#: A context that no demonstration fills.
ENDLESS = 1 << 40


@dataclass(frozen=True)
class Demonstrate(Work):
    """Play the expert's episode of each task.

    Attributes:
        scripted_turns: Turns to play by task id, in place of the environment's own expert. Other tasks are left out.
    """

    scripted_turns: Mapping[str, tuple[str, ...]] | None = None

    kind = "expert"

    def tasks(self, tasks: Sequence[Task], source: Forest | None) -> list[Task]:
        return [task for task in tasks if self.scripted_turns is None or task.id in self.scripted_turns]

    async def make(self, unit: Unit) -> Tree | None:
        scripted = None if self.scripted_turns is None else self.scripted_turns[unit.task.id]
        return await demonstrate(unit.task, unit.agent, unit.seed, scripted)


@dataclass(frozen=True)
class Taught(Work):
    """Let a model behind an API play each task in the expert's place.

    Attributes:
        teacher: The model.
        episodes: Of a task.
    """

    teacher: AdvisorConfig
    episodes: int

    kind = "taught"

    @property
    def at_once(self) -> int:
        return self.episodes

    @asynccontextmanager
    async def helper(self, agent: Agent, forest: GrowingForest) -> AsyncIterator[Agent]:
        """Gives the agent that the teacher is."""
        async with asking(self.teacher, agent.codec.plain, agent.secrets) as policy:
            yield replace(agent, policy=policy, sampling=self.teacher.sampling)

    async def make(self, unit: Unit) -> Tree:
        strategy = Sample(self.episodes).bounded(unit.agent.spec.step_limit)
        tree = await grow(unit.task, strategy, unit.helper, unit.forest, unit.seed)
        for node in tree.nodes[1:]:
            node.origin = Origin.EXPERT
        return tree


async def demonstrate(task: Task, agent: Agent, seed: int, scripted: Sequence[str] | None = None) -> Tree | None:
    """Returns the expert's episode as a tree of one branch, or None if there is no expert for the task or the format
    cannot hold its turns.

    Args:
        scripted: An expert's turns to play in place of the environment's own.

    Raises:
        InfraError: The environment did not answer, or its answers were not those of a replay.
    """
    if scripted is None:
        steps = await agent.env.expert(task)
        if steps is None:
            return None
        scripted = [turn for thought, action in steps if (turn := written(agent.format, thought, action)) is not None]
        if len(scripted) < len(steps):
            log.warning(
                "%s is left out: the format %s cannot hold each of the expert's turns", task.key, agent.format.name
            )
            return None
    elif agent.codec.calls:
        scripted = [as_call(turn, agent.spec.action_format, agent.codec.calls) for turn in scripted]
    tree, session = await agent.start(task, seed)
    sessions = Sessions(tree, agent.env, session)
    try:
        node = 0
        for text in scripted:
            turns = await agent.act(tree, node, session, text)
            child, session = turns.children[0], turns.sessions[0]
            node = tree.add(node, child, Origin.EXPERT).id
            sessions.keep(node, session)
            if child.outcome is not None:
                tree.back_up(node)
                break
    finally:
        sessions.close()
    return tree


class NoPolicy:
    """Stands where a stage has no policy (demonstrations): being asked is a fault of the program."""

    async def generate(self, request: GenerateRequest) -> list[Completion]:
        raise RuntimeError("a stage without a policy asked for a completion")

    async def stats(self) -> PolicyStats:
        return PolicyStats()


class NoTokens:
    """Stands where trees are wanted for their text alone: every text has no tokens."""

    end_id = -1
    stop_ids = ()
    calls = None

    def prompt(self, messages: Sequence[Message]) -> list[int]:
        return []

    def encode(self, text: str) -> list[int]:
        return []

    def turn(self, text: str) -> list[int]:
        return []

    def answer(self, text: str, ids: Sequence[int]) -> str:
        return text

    def begins_in_reasoning(self, text: str, ids: Sequence[int]) -> bool:
        return False

    def reasoning(self, ids: Sequence[int]) -> int:
        return 0

    def bridge(self, observation: str, *, closed: bool = True, role: str = "user") -> list[int]:
        return []

    def answered_by(self, turn: str) -> str:
        return "user"


async def demonstrate_all(
    client: EnvClient, tasks: Sequence[Task], folder: Path, codec: ChatCodec | None = None, in_flight: int = 16
) -> StageProgress:
    """Carries out the expert's actions on each task, into a forest at ``folder``; tasks without an expert are skipped.

    Args:
        codec: Of the model whose tokens the trees are to hold; None leaves them without, for export as text.

    Raises:
        RunError: A task failed for infrastructure reasons.
    """
    spec = await client.spec()
    agent = Agent(
        policy=NoPolicy(),
        env=client,
        codec=cast(ChatCodec, codec or NoTokens()),
        spec=spec,
        format=action_format(spec.action_format),
        prompt=PromptConfig(),
        sampling=SamplingConfig(),
        max_model_len=ENDLESS,
    )
    limits = Limits(in_flight=in_flight, max_failed=0.0)
    job = TreeJob(folder=folder, tasks=tuple(tasks), seed=0, policy="expert", work=Demonstrate(), limits=limits)
    return await run_job(job, agent, StageProgress())
