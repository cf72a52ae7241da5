"""Trees of policies that reason, for codecs whose templates know of it."""

from collections.abc import Sequence
from typing import Any

from agentr.policy.chat import ChatCodec
from agentr.search import Child, Origin, Tree
from agentr.tasks.formats import ReAct
from agentr.types import FinishReason, Message, Outcome, Task


def drawn(codec: ChatCodec, text: str) -> tuple[int, ...]:
    """Ids of a turn that a policy drew, which may write the tokens of the template."""
    return (*codec._plain.raw(text), codec.end_id)


def begun(codec: ChatCodec, *, keeps: bool = False) -> Tree:
    """A tree without turns, in which reasoning stays in later prompts or does not."""
    opening = (Message("user", "Open the door."),)
    tree = Tree.start(Task("toy", "door", "train"), opening, tuple(codec.prompt(opening)), 0)
    tree.hiding = None if keeps else codec.hiding
    return tree


def taken(
    codec: ChatCodec,
    tree: Tree,
    turn: str | Sequence[int],
    reward: float = 0.0,
    outcome: Outcome | None = None,
    **more: Any,
) -> Child:
    """A turn of a tree, from what was drawn or from ids."""
    ids = drawn(codec, turn) if isinstance(turn, str) else tuple(turn)
    text = codec.decode(ids)
    seen, reasoning = more.pop("observation", "You see a door."), codec.reasoning(ids)
    shown = ids if tree.hiding is None else ids[reasoning:]
    action = ReAct().parse(codec.answer(text, ids)).action or ""
    made = {
        "token_ids": ids,
        "bridge_ids": tuple(codec.bridge(seen, closed=shown[-1:] == (codec.end_id,))),
        "logprobs": (-0.5,) * len(ids),
        "finish": FinishReason.STOP,
        "valid": bool(action),
    }
    return Child(
        text=text,
        action=action,
        observation=seen,
        reward=reward,
        outcome=outcome,
        reasoning=reasoning,
        **{**made, **more},
    )


def grown(
    codec: ChatCodec, turns: Sequence[str | Sequence[int]], observations: Sequence[str] = (), *, keeps: bool = False
) -> Tree:
    """A tree of one path of the policy's, which ends in success."""
    tree = begun(codec, keeps=keeps)
    for number, turn in enumerate(turns, 1):
        more = {"observation": observations[number - 1]} if observations else {}
        end = (1.0, Outcome.SUCCESS) if number == len(turns) else (0.0, None)
        tree.add(number - 1, taken(codec, tree, turn, *end, **more), Origin.POLICY)
    tree.back_up(len(turns))
    return tree
