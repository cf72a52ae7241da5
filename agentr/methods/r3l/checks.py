"""R3L: what is begun again where, and what is imitated."""

from collections.abc import Mapping, Sequence
from typing import Any

from agentr.methods.r3l.retry import decide
from agentr.methods.r3l.rows import corrections
from agentr.rewards.group import Reward, group_of
from agentr.search.evolution import Evolution
from agentr.search.written import named, tree_of


def begun(written: str, steps: int) -> int:
    """How many turns of an episode a retry keeps, by what was written of it; -1 if there is none."""
    made = Evolution(parent=1)
    decide(made, written, steps)
    return made.kept if made.guidance else -1


def imitated(paths: Sequence[str], retries: Mapping[str, str]) -> list[str]:
    """The last turns of the retries that are imitated.

    Args:
        retries: The last turn of an episode, and that of its retry.
    """
    tree = tree_of(paths)
    for before, after in retries.items():
        tree.evolutions.append(Evolution(parent=named(tree, before).id, end=named(tree, after).id))
    group = group_of(tree)
    names = {named(tree, name).id: name for name in retries.values()}
    return [names[found.made.end] for found in corrections(group, [Reward(one.earned) for one in group.episodes])]


def rows(method: Any) -> int:
    """Most rows of a task."""
    return method.rows
