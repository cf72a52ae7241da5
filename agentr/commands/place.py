"""A turn of a stored tree, as a place from which somebody goes on: a person who plays, or another search."""

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from agentr.config.schema import Config
from agentr.envs.session import Recorded
from agentr.errors import ConfigError
from agentr.methods import load, plan_of
from agentr.read.run import Run
from agentr.read.stage import Trees
from agentr.search import Node, Tree
from agentr.store.layout import stage_of, step_of


@dataclass(frozen=True)
class Place:
    """The state after a turn.

    Attributes:
        stage: The stage that the tree is of.
        node: The turn; 0 is the beginning of the task.
    """

    run: Run
    stage: str
    tree: Tree
    node: int

    @property
    def turns(self) -> list[Node]:
        """The turns that led here."""
        return self.tree.path(self.node)

    @property
    def recorded(self) -> list[Recorded]:
        """What was done on the way, and what was answered."""
        return [Recorded(turn.played, turn.observation) for turn in self.turns if turn.played]

    @cached_property
    def config(self) -> Config:
        """The configuration of the round that the tree is of."""
        place = stage_of(step[0] if (step := step_of(self.stage)) else self.stage)
        return plan_of(load(self.run.layout.config, files=False, whole=True)).at(place[0].number if place else 0)


def find_place(path: Path, stage: str, key: str, node: int) -> Place:
    """Finds a turn of a stored tree.

    Args:
        path: The run directory.
        stage: Stage of the tree; empty for the last one that has it.
        key: The tree's key, or its task's id.

    Raises:
        ConfigError: There is no such turn, or the episode ended there.
        DataError: There is no such run, stage or tree; the error names the nearest.
    """
    run = Run(path)
    if not key:
        raise ConfigError("no tree is named", hint="Give --tree KEY; 'agentr ui' lists them.")
    trees = run.stage(stage) if stage else run.last_trees(key)
    if not isinstance(trees, Trees):
        raise ConfigError(
            f"the stage {stage} holds no trees", hint="Name a stage of trees, such as --stage rounds/01/collect."
        )
    tree = trees[key]
    if not 0 <= node < len(tree.nodes):
        raise ConfigError(f"the tree {key!r} has no node {node}", hint=f"Its nodes: 0 to {len(tree.nodes) - 1}.")
    if tree.nodes[node].outcome is not None:
        hint = f"Begin before it: --turn {tree.nodes[node].parent}." if node else "The task leaves no room for a turn."
        raise ConfigError(f"the episode ended at node {node}", hint=hint)
    return Place(run, trees.name, tree, node)
