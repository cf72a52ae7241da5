"""Converts paths of a tree to token sequences with loss masks.

A sequence is the opening prompt, then for each turn its own ids and the bridge to the next turn. The mask is 1 on the ids of trained
turns and 0 everywhere else: on the opening, on every observation and on every untrained turn, by construction.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from agentr.policy.chat import ChatCodec
from agentr.search.tree import Node, Tree
from agentr.store.rows import Preference, Provenance, Row


@dataclass(frozen=True)
class Dropped:
    """A candidate that became no row.

    Attributes:
        tree: Key of the candidate's tree.
        reason: Reason, as the dataset's manifest counts it.
    """

    tree: str
    reason: str


@dataclass(frozen=True)
class Turn:
    """A turn of a sequence: its ids, the ids to the next turn, and whether it is trained on. ``node`` is -1 for inserted text."""

    token_ids: tuple[int, ...]
    bridge_ids: tuple[int, ...]
    trained: bool
    node: int = -1


def recorded(nodes: Iterable[Node], trained: bool, on_invalid: bool = True) -> list[Turn]:
    """Returns nodes of a tree as turns of a sequence.

    Args:
        trained: Whether the turns are trained on.
        on_invalid: Whether turns that the environment did not understand are trained on, too.
    """
    return [Turn(n.token_ids, n.bridge_ids, trained and (n.valid or on_invalid), n.id) for n in nodes]


def inserted(codec: ChatCodec, text: str, observation: str, trained: bool) -> Turn:
    """Returns a turn that was never taken, with an observation that the environment never gave, for the original's splices."""
    return Turn(tuple(codec.turn(text)), tuple(codec.bridge(observation)), trained)


def joined(turns: Sequence[Turn]) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Returns ids and mask of turns with the bridges between them, both of shape [L]. The bridge after the last turn is left out."""
    ids: list[int] = []
    mask: list[int] = []
    for position, turn in enumerate(turns):
        ids += turn.token_ids
        mask += [int(turn.trained)] * len(turn.token_ids)
        if position < len(turns) - 1:
            ids += turn.bridge_ids
            mask += [0] * len(turn.bridge_ids)
    return tuple(ids), tuple(mask)


def make_row(tree: Tree, turns: Sequence[Turn], kind: str, **detail: float | int | str) -> Row | None:
    """Makes a row of turns after the tree's opening; None if no token would be trained on."""
    ids, mask = joined(turns)
    if not any(mask):
        return None
    opening = tree.prompt_ids
    return Row((*opening, *ids), (*(0 for _ in opening), *mask), Provenance(tree.task.key, tuple(t.node for t in turns), kind, detail))


def make_pair(
    tree: Tree, prompt_ids: Sequence[int], chosen: Sequence[Turn], rejected: Sequence[Turn], kind: str, **detail: float | int | str
) -> Preference | None:
    """Makes a pair of continuations of one prompt; None if a side has no token to train on."""
    (chosen_ids, chosen_mask), (rejected_ids, rejected_mask) = joined(chosen), joined(rejected)
    if not any(chosen_mask) or not any(rejected_mask):
        return None
    provenance = Provenance(tree.task.key, tuple(t.node for t in chosen), kind, detail, tuple(t.node for t in rejected))
    return Preference(tuple(prompt_ids), chosen_ids, chosen_mask, rejected_ids, rejected_mask, provenance)
