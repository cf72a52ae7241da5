"""Converts conversations between text and token ids.

From text: the opening is rendered with the chat template, then come turns with bridges between them, as in a tree. From ids: the reader
finds the template's tokens between the contents and decodes the contents. Ids made from text by the tokenizer are converted back exactly;
ids that a policy sampled may spell the same text in other tokens, and text does not keep that spelling.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from agentr.errors import DataError, ModelError
from agentr.policy.chat import ChatCodec
from agentr.types import Message

Role = Literal["system", "user", "assistant"]

#: Stands for a content, to find what stands around it.
_MARKS = ("content 7c1f a", "content 7c1f b")
_OPENINGS: tuple[tuple[Role, ...], ...] = (("user",), ("system", "user"))


def answers(codec: ChatCodec, turns: Sequence[Message], trained: Sequence[bool]) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Returns ids and loss mask, both of shape [L], of turns that begin and end with a turn of the agent.

    Args:
        trained: For each message, whether it is a target. Messages of others than the agent are never targets.
    """
    ids: list[int] = []
    mask: list[int] = []
    for position, (turn, target) in enumerate(zip(turns, trained, strict=True)):
        own = position % 2 == 0
        part = codec.turn(turn.content) if own else codec.bridge(turn.content)
        ids += part
        mask += [int(own and target)] * len(part)
    return tuple(ids), tuple(mask)


@dataclass(frozen=True)
class Passage:
    """A message, and the ids of its content: from ``start`` to before ``end``."""

    message: Message
    start: int
    end: int


class ConversationReader:
    """Reads token ids of one tokenizer back into messages: the inverse of :class:`agentr.policy.chat.ChatCodec`."""

    def __init__(self, codec: ChatCodec) -> None:
        self._codec = codec
        self._openings: list[tuple[tuple[Role, ...], list[list[int]]]] = []
        for roles in _OPENINGS:
            marked = [Message(role, mark) for role, mark in zip(roles, _MARKS[: len(roles)], strict=True)]
            try:
                self._openings.append((roles, self._around(codec.prompt(marked), len(roles))))
            except ModelError:  # the template has no place for a system message, so no prompt holds one
                continue
        before, self._after = self._around(codec.bridge(_MARKS[0]), 1)
        self._before = [codec.eos_id, *before]

    def conversation(self, ids: Sequence[int]) -> list[Passage]:
        """Returns the messages of a whole conversation, or of a prompt.

        Raises:
            DataError: The ids do not begin as the tokenizer's chat template does.
        """
        for roles, pieces in self._openings:
            found = self._opening(list(ids), roles, pieces)
            if found is not None:
                return found
        raise DataError(
            f"these ids are no conversation of {self._codec.name}: they begin {self._codec.decode(ids[:20], special=True)!r}",
            hint="Export with the model that the dataset was made for.",
        )

    def continuation(self, ids: Sequence[int]) -> list[Passage]:
        """Returns the messages after a prompt; the first is the agent's."""
        return self._turns(list(ids), 0)

    def _opening(self, ids: list[int], roles: tuple[Role, ...], pieces: list[list[int]]) -> list[Passage] | None:
        if ids[: len(pieces[0])] != pieces[0]:
            return None
        found, start = [], len(pieces[0])
        for role, piece in zip(roles, pieces[1:], strict=True):
            end = _find(ids, piece, start)
            if end < 0:
                return None
            found.append(self._passage(role, ids, start, end))
            start = end + len(piece)
        return found + self._turns(ids, start)

    def _turns(self, ids: list[int], start: int) -> list[Passage]:
        found: list[Passage] = []
        while start < len(ids):
            end = _find(ids, self._before, start)
            seen = end + len(self._before)
            close = _find(ids, self._after, seen) if end >= 0 else -1
            if close < 0:
                closed = ids[-1] == self._codec.eos_id
                return [*found, self._passage("assistant", ids, start, len(ids) - closed)]
            found += [self._passage("assistant", ids, start, end), self._passage("user", ids, seen, close)]
            start = close + len(self._after)
        return found

    def _passage(self, role: Role, ids: list[int], start: int, end: int) -> Passage:
        return Passage(Message(role, self._codec.decode(ids[start:end])), start, end)

    def _around(self, ids: list[int], contents: int) -> list[list[int]]:
        """Returns the ids before, between and after the marks: ``contents + 1`` pieces."""
        pieces, start = [], 0
        for mark in _MARKS[:contents]:
            own = self._codec.encode(mark)
            at = _find(ids, own, start)
            pieces.append(ids[start:at])
            start = at + len(own)
        return [*pieces, ids[start:]]


def _find(ids: list[int], part: list[int], start: int = 0) -> int:
    """Returns the first position of ``part`` in ``ids`` from ``start`` on, or -1."""
    last = len(ids) - len(part)
    while start <= last:
        try:
            start = ids.index(part[0], start, last + 1)
        except ValueError:
            return -1
        if ids[start : start + len(part)] == part:
            return start
        start += 1
    return -1
