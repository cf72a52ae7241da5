"""Converts paths of a tree to token sequences with loss masks.

A sequence is the opening prompt, then for each turn its own ids and the bridge to the next turn. The mask is 1 on the ids of trained
turns and 0 everywhere else: on the opening, on every observation and on every untrained turn, by construction. Only a method that asks for
it trains on observations (ET-Agent's original does).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from agentr.policy.chat import ChatCodec
from agentr.search.tree import Node, Tree
from agentr.store.rows import Dropped, Preference, Provenance, Row

#: Begins the names of counts in a row's provenance: turns that were chosen to be context, by reason.
CONTEXT = "context: "


@dataclass(frozen=True)
class Turn:
    """A turn of a sequence.

    Attributes:
        token_ids: Its ids.
        bridge_ids: The ids to the next turn.
        trained: Whether it is trained on.
        node: Its node; -1 for inserted text.
        logprobs: Log-probability of each id; empty if no policy drew the turn.
    """

    token_ids: tuple[int, ...]
    bridge_ids: tuple[int, ...]
    trained: bool
    node: int = -1
    logprobs: tuple[float, ...] = ()


@dataclass(frozen=True)
class Joined:
    """Turns as one sequence: ids, loss mask and log-probabilities, all of shape [L]; no log-probabilities if no policy drew a turn."""

    ids: tuple[int, ...]
    mask: tuple[int, ...]
    logprobs: tuple[float | None, ...]


def recorded(nodes: Iterable[Node], trained: bool, on_invalid: bool = True) -> list[Turn]:
    """Returns nodes of a tree as turns of a sequence.

    A turn that was drawn where the policy no longer saw the oldest ones is context: a sequence shows it more than that.

    Args:
        trained: Whether the turns are trained on.
        on_invalid: Whether turns that the environment did not understand are trained on, too.
    """
    return [Turn(n.token_ids, n.bridge_ids, trained and not n.forgotten and (n.valid or on_invalid), n.id, n.logprobs) for n in nodes]


def inserted(codec: ChatCodec, text: str, observation: str, trained: bool) -> Turn:
    """Returns a turn that was never taken, with an observation that the environment never gave, for the original's splices."""
    return Turn(tuple(codec.turn(text)), tuple(codec.bridge(observation)), trained)


def joined(turns: Sequence[Turn], observations: bool = False) -> Joined:
    """Returns turns with the bridges between them as one sequence. The bridge after the last turn is left out.

    Args:
        observations: Whether what comes after a trained turn is trained on, too.
    """
    ids: list[int] = []
    mask: list[int] = []
    logprobs: list[float | None] = []
    for position, turn in enumerate(turns):
        ids += turn.token_ids
        mask += [int(turn.trained)] * len(turn.token_ids)
        logprobs += turn.logprobs or [None] * len(turn.token_ids)
        if position < len(turns) - 1:
            ids += turn.bridge_ids
            mask += [int(turn.trained and observations)] * len(turn.bridge_ids)
            logprobs += [None] * len(turn.bridge_ids)
    return Joined(tuple(ids), tuple(mask), tuple(logprobs) if any(turn.logprobs for turn in turns) else ())


def provenance(tree: Tree, turns: Sequence[Turn], kind: str, **detail: float | int | str) -> Provenance:
    """Returns what a row of these turns was made from."""
    return Provenance(tree.task.key, tuple(turn.node for turn in turns), kind, detail, stage=tree.stage)


def make_row(
    tree: Tree,
    turns: Sequence[Turn],
    kind: str,
    observations: bool = False,
    context: Mapping[str, int] | None = None,
    **detail: float | int | str,
) -> Row | None:
    """Makes a row of turns after the tree's opening; None if no token would be trained on.

    Args:
        observations: Whether observations are trained on, too.
        context: Turns that were chosen to be context, by reason; they are counted in the provenance.
    """
    detail |= {CONTEXT + reason: count for reason, count in (context or {}).items()}
    made = joined(turns, observations)
    if not any(made.mask):
        return None
    opening = tree.prompt_ids
    return Row(
        (*opening, *made.ids),
        (*(0 for _ in opening), *made.mask),
        provenance(tree, turns, kind, **detail),
        (*(None for _ in opening), *made.logprobs) if made.logprobs else (),
    )


def make_pair(
    prompt_ids: Sequence[int],
    chosen: tuple[Tree, Sequence[Turn]],
    rejected: tuple[Tree, Sequence[Turn]],
    kind: str,
    **detail: float | int | str,
) -> Preference | None:
    """Makes a pair of continuations of one prompt; None if a side has no token to train on.

    Args:
        chosen: The tree of a side, and its turns.
        rejected: The same for the other side.
    """
    better, worse = joined(chosen[1]), joined(rejected[1])
    if not any(better.mask) or not any(worse.mask):
        return None
    made = pair_provenance(chosen, rejected, kind, **detail)
    return Preference(tuple(prompt_ids), better.ids, better.mask, worse.ids, worse.mask, made, better.logprobs, worse.logprobs)


def pair_provenance(
    chosen: tuple[Tree, Sequence[Turn]], rejected: tuple[Tree, Sequence[Turn]], kind: str, **detail: float | int | str
) -> Provenance:
    """Returns what a pair of these sides was made from."""
    (tree, turns), (other, other_turns) = chosen, rejected
    return replace(
        provenance(tree, turns, kind, **detail),
        rejected=tuple(turn.node for turn in other_turns),
        rejected_tree=other.task.key,
        rejected_stage=other.stage,
    )


def dropped(tree: Tree, reason: str, nodes: Iterable[int] = (), rejected: Iterable[int] = (), other: Tree | None = None) -> Dropped:
    """Returns a candidate that became no row.

    Args:
        nodes: The nodes that it would have been made from, as far as that was known; of a pair's better side.
        rejected: Of a pair's worse side.
        other: The tree of that side, if it is another one.
    """
    worse = tuple(rejected)
    theirs = (other or tree) if worse else None
    made = Provenance(tree.task.key, tuple(nodes), "", {}, worse, tree.stage)
    return Dropped(replace(made, rejected_tree=theirs.task.key, rejected_stage=theirs.stage) if theirs else made, reason)
