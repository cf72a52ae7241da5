"""What a coordinator is asked to do: one stage, as plain data that can cross processes, and the table of what each kind makes."""

from __future__ import annotations

import random
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path

from agentr.collect.coordinator import Make, Progress, run_units
from agentr.collect.grow import demonstrate, grow
from agentr.collect.player import Player
from agentr.collect.revise import revise
from agentr.config.schema import ReviseConfig, SamplingConfig, SearchConfig
from agentr.search import UCT, Node, Sample, Tree, derived_seed
from agentr.store.forest import Forest
from agentr.types import Task


class Kind(StrEnum):
    SEARCH = "search"
    """Grow a tree by MCTS."""
    SAMPLE = "sample"
    """Independent rollouts: evaluation, exploration."""
    EXPERT = "expert"
    """The environment's expert."""
    RECOVER = "recover"
    """Go on from a failed episode of another forest, cut at a random turn (Agent-R, Table 3)."""
    REVISE = "revise"
    """Add revision branches to the trees of another forest."""


@dataclass(frozen=True)
class Stage:
    """One stage of tree making.

    Attributes:
        folder: Where its forest is.
        version: Version of the policy (part of every unit's identity).
        episodes: Rollouts of each task, for SAMPLE.
        max_steps: Actions in a rollout, for SAMPLE; 0 means the environment's own limit.
        source: Folder of the forest to revise, or of the failed episodes, for REVISE and RECOVER.
        alpha: Least return of a good path, for REVISE.
    """

    kind: Kind
    folder: Path
    tasks: tuple[Task, ...]
    seed: int
    version: str
    sampling: SamplingConfig
    in_flight: int = 32
    infra_retries: int = 3
    max_failed: float = 0.05
    search: SearchConfig | None = None
    episodes: int = 1
    max_steps: int = 0
    max_invalid: int = 0
    source: Path | None = None
    revise: ReviseConfig | None = None
    alpha: float = 1.0


async def run_stage(stage: Stage, player: Player, progress: Progress) -> Progress:
    """Runs a stage to its end; what is already there is not made again.

    Raises:
        RunError: Too many units failed for infrastructure reasons.
    """
    forest = Forest(stage.folder)
    player = replace(player, sampling=stage.sampling, version=stage.version)
    return await run_units(
        stage.tasks,
        _maker(stage, player, forest),
        forest,
        progress,
        in_flight=stage.in_flight,
        infra_retries=stage.infra_retries,
        max_failed=stage.max_failed,
    )


def _maker(stage: Stage, player: Player, forest: Forest) -> Make:
    def seed(task: Task) -> int:
        return derived_seed(stage.seed, stage.kind, task.key)

    match stage.kind:
        case Kind.SEARCH:
            uct = UCT(stage.search or SearchConfig())
            return lambda task: grow(task, uct, player, forest, seed(task))
        case Kind.SAMPLE:
            sample = Sample(stage.episodes, stage.max_steps or player.spec.step_limit, stage.max_invalid)
            return lambda task: grow(task, sample, player, forest, seed(task))
        case Kind.RECOVER:
            assert stage.source is not None, "a RECOVER stage needs the forest of failed episodes"
            failed = Forest(stage.source)
            once = Sample(1, stage.max_steps or player.spec.step_limit, stage.max_invalid)
            return lambda task: grow(task, once, player, forest, seed(task), bad_prefix(failed.read(task.key), stage.seed))
        case Kind.EXPERT:
            return lambda task: demonstrate(task, player, seed(task))
        case Kind.REVISE:
            assert stage.source is not None, "a REVISE stage needs the forest that it revises"
            source, config = Forest(stage.source), stage.revise or ReviseConfig()
            limit = (stage.search or SearchConfig()).max_depth
            return lambda task: revise(source.read(task.key), player, config, stage.alpha, limit)


def bad_prefix(tree: Tree, seed: int) -> list[Node]:
    """The beginning of a failed episode: its path cut after a random turn, but before its last one.

    The same for every policy that is to go on from there, since it depends on the tree and ``seed`` alone.
    """
    leaf = next(n for n in tree.ended() if n.reward == 0 and n.depth > 1)
    path = tree.path(leaf.id)
    return path[: random.Random(derived_seed(seed, "cut", tree.task.key)).randint(1, len(path) - 1)]


def can_recover(tree: Tree) -> bool:
    """Whether the tree has a failed episode with a turn to cut after."""
    return any(n.reward == 0 and n.depth > 1 for n in tree.ended())
