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
from agentr.config.methods import DenseConfig, ReviseConfig, SamplingConfig, SearchConfig, SiblingsConfig
from agentr.search import UCT, Dense, Node, Sample, Stepwise, Strategy, Tree
from agentr.seeds import derived_seed
from agentr.store.forest import Forest
from agentr.types import Task


class Kind(StrEnum):
    SEARCH = "search"
    """Grow a tree by MCTS."""
    SAMPLE = "sample"
    """Independent rollouts: evaluation, exploration."""
    DENSE = "dense"
    """Grow a tree by DensePolicy's adaptive search."""
    STEPWISE = "stepwise"
    """Roll out from every point of another forest's paths (an expert's)."""
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
        episodes: Rollouts of each task, for SAMPLE; of each point of its path, for STEPWISE.
        max_steps: Actions in a rollout, for SAMPLE and STEPWISE; 0 means the environment's own limit.
        siblings: The rule by which DENSE counts pairs.
        source: Folder of the forest to revise (REVISE), of the failed episodes (RECOVER), or of the paths to roll out from (STEPWISE).
        given: Turns to play by task id, for EXPERT; None asks the environment's own expert.
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
    max_completions: int = 0
    search: SearchConfig | None = None
    dense: DenseConfig | None = None
    siblings: SiblingsConfig | None = None
    episodes: int = 1
    max_steps: int = 0
    max_invalid: int = 0
    source: Path | None = None
    given: dict[str, tuple[str, ...]] | None = None
    revise: ReviseConfig | None = None
    alpha: float = 1.0


async def run_stage(stage: Stage, player: Player, progress: Progress) -> Progress:
    """Runs a stage to its end; what is already there is not made again.

    Raises:
        RunError: Too many units failed for infrastructure reasons.
    """
    forest = Forest(stage.folder)
    player = replace(player, sampling=stage.sampling, version=stage.version, begun=progress.begin)
    strategy = _strategy(stage, player.spec.step_limit)
    return await run_units(
        stage.tasks,
        _maker(stage, strategy, player, forest),
        forest,
        progress,
        in_flight=stage.in_flight,
        infra_retries=stage.infra_retries,
        max_failed=stage.max_failed,
        max_completions=stage.max_completions,
        most=strategy.most if strategy else 0,
    )


def _strategy(stage: Stage, step_limit: int) -> Strategy | None:
    """How the stage's trees grow, None for kinds in which no policy explores."""
    match stage.kind:
        case Kind.SEARCH:
            return UCT(stage.search or SearchConfig())
        case Kind.SAMPLE:
            return Sample(stage.episodes, stage.max_steps or step_limit, stage.max_invalid)
        case Kind.DENSE:
            return Dense(stage.dense or DenseConfig(), stage.siblings or SiblingsConfig())
        case Kind.STEPWISE:
            return Stepwise(stage.episodes, stage.max_steps or step_limit, stage.max_invalid)
        case Kind.RECOVER:
            return Sample(1, stage.max_steps or step_limit, stage.max_invalid)
        case Kind.EXPERT | Kind.REVISE:
            return None


def _maker(stage: Stage, strategy: Strategy | None, player: Player, forest: Forest) -> Make:
    def seed(task: Task) -> int:
        return derived_seed(stage.seed, stage.kind, task.key)

    if stage.kind is Kind.EXPERT:
        given = stage.given
        return lambda task: demonstrate(task, player, seed(task), None if given is None else given[task.id])
    source = None if stage.source is None else Forest(stage.source)
    if strategy is None:
        assert source is not None, "a REVISE stage needs the forest that it revises"
        config, limit = stage.revise or ReviseConfig(), (stage.search or SearchConfig()).max_depth
        return lambda task: revise(source.read(task.key), player, config, stage.alpha, limit)

    def prefix(task: Task) -> list[Node]:
        if source is None:
            return []
        tree = source.read(task.key)
        return best_path(tree) if stage.kind is Kind.STEPWISE else bad_prefix(tree, stage.seed)

    return lambda task: grow(task, strategy, player, forest, seed(task), prefix(task))


def best_path(tree: Tree) -> list[Node]:
    """The path to the ended leaf with the highest return; of an expert's tree, its episode."""
    return tree.path(max(tree.ended(), key=lambda n: (n.reward, -n.id)).id)


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
