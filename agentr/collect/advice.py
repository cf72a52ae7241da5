"""What stands between two turns, and advice there: the policy sees it, and rows need not show it."""

from collections.abc import Sequence
from dataclasses import replace

from agentr.policy.chat import ChatCodec
from agentr.search.tree import Tree


def bridge(codec: ChatCodec, text: str, shown: Sequence[int], observation: str) -> tuple[int, ...]:
    """The ids between a turn, of which the policy sees these from then on, and the next."""
    closed = bool(shown) and shown[-1] == codec.end_id
    return tuple(codec.bridge(observation, closed=closed, role=codec.answered_by(text)))


def advised(tree: Tree, node: int, advice: str, codec: ChatCodec) -> Tree:
    """Returns a tree as the policy sees it with advice behind what was observed at ``node``, in the same message: a
    view, to which nothing is to be added."""
    if not node:
        *before, last = tree.messages
        messages = (*before, replace(last, content=f"{last.content}\n\n{advice}"))
        return replace(tree, messages=messages, prompt_ids=tuple(codec.prompt(messages)))
    turn, nodes = tree.nodes[node], list(tree.nodes)
    seen = f"{turn.observation}\n\n{advice}"
    shown = turn.token_ids if tree.hiding is None else turn.token_ids[turn.reasoning :]
    nodes[node] = replace(turn, observation=seen, bridge_ids=bridge(codec, turn.text, shown, seen))
    return replace(tree, nodes=nodes)
