"""What can be said of a move without knowing the way to the goal: whether it came to anything, and whether the next turn reflects on it."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from agentr.search.tree import Node


def repeated(path: Sequence[Node], move: int) -> bool:
    """Whether the same action stood in the path before, and the environment gave the same answer."""
    node = path[move]
    return any(earlier.action == node.action and earlier.observation == node.observation for earlier in path[:move])


def in_vain(path: Sequence[Node], move: int) -> bool:
    """Whether a move came to nothing: the environment did not understand it or could not carry it out, or it was a repetition."""
    return not path[move].valid or repeated(path, move)


def reflects(node: Node, sentences: Collection[str]) -> bool:
    """Whether a turn says one of the sentences that reflections open with."""
    return any(sentence in node.text for sentence in sentences)
