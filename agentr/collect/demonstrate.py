"""Expert demonstrations by themselves: no policy, no model, no Ray."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import cast

from agentr.collect.coordinator import Progress
from agentr.collect.player import Player
from agentr.collect.stage import Kind, Stage, run_stage
from agentr.config.methods import SamplingConfig
from agentr.config.schema import PromptConfig
from agentr.envs.client import EnvClient
from agentr.policy.base import GenerateRequest, PolicyStats
from agentr.policy.chat import ChatCodec
from agentr.tasks.formats import action_format
from agentr.types import Completion, Message, Task

#: A context that no demonstration fills.
ENDLESS = 1 << 40


class NoPolicy:
    """Stands where a stage has no policy (demonstrations): being asked is a fault of the program."""

    async def generate(self, request: GenerateRequest) -> list[Completion]:
        raise RuntimeError("a stage without a policy asked for a completion")

    async def stats(self) -> PolicyStats:
        return PolicyStats()


class NoTokens:
    """Stands where trees are wanted for their text alone: every text has no tokens."""

    eos_id = -1

    def prompt(self, messages: Sequence[Message]) -> list[int]:
        return []

    def encode(self, text: str) -> list[int]:
        return []

    def turn(self, text: str) -> list[int]:
        return []

    def bridge(self, observation: str, *, closed: bool = True) -> list[int]:
        return []


async def demonstrate_all(
    client: EnvClient, tasks: Sequence[Task], folder: Path, codec: ChatCodec | None = None, in_flight: int = 16
) -> Progress:
    """Carries out the expert's actions on each task, into a forest at ``folder``; tasks without an expert are skipped.

    Args:
        codec: Of the model whose tokens the trees are to hold; None leaves them without, for export as text.

    Raises:
        RunError: A task failed for infrastructure reasons.
    """
    spec = await client.spec()
    player = Player(
        policy=NoPolicy(),
        env=client,
        codec=cast(ChatCodec, codec or NoTokens()),
        spec=spec,
        format=action_format(spec.action_format),
        prompt=PromptConfig(),
        sampling=SamplingConfig(),
        max_model_len=ENDLESS,
    )
    stage = Stage(Kind.EXPERT, folder, tuple(tasks), 0, "expert", SamplingConfig(), in_flight, max_failed=0.0)
    return await run_stage(stage, player, Progress())
