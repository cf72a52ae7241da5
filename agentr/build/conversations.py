"""Converts conversations between text and token ids.

From text: the opening is rendered with the chat template, then come turns with bridges between them, as in a tree. From ids: the reader
finds the template's tokens between the contents and decodes the contents. Ids made from text by the tokenizer are converted back exactly;
ids that a policy sampled may spell the same text in other tokens, and text does not keep that spelling.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

from agentr.errors import DataError, ModelError
from agentr.policy.chat import ChatCodec
from agentr.types import Message

Role = Literal["system", "user", "assistant"]

#: Stand for contents, to find what stands around them: two for each place, which begin and end otherwise.
_MARKS = (("content 7c1f a", "other 7c1f z"), ("words 7c1f b", "more 7c1f y"))
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


@dataclass(frozen=True)
class Frame:
    """What stands around contents: what stays the same when a content is another one.

    Attributes:
        pieces: The ids before, between and after the contents, one more than there are contents.
        joined: For each content, the white space before and after it that the tokenizer joins with it.
    """

    pieces: list[list[int]]
    joined: list[tuple[str, str]]

    @classmethod
    def of(cls, codec: ChatCodec, encode: Callable[[Sequence[str]], list[int]], contents: int) -> Frame:
        """Finds the frame of what ``encode`` writes around contents."""
        marks = [mark for mark, _ in _MARKS[:contents]]
        ids = encode(marks)
        others = [encode([*marks[:i], _MARKS[i][1], *marks[i + 1 :]]) for i in range(contents)]
        starts = [len(ids) - _shared(ids[::-1], other[::-1]) for other in others]
        ends = [_shared(ids, other) for other in others]
        texts = [codec.decode(ids[end:start]).partition(mark) for start, end, mark in zip(starts, ends, marks, strict=True)]
        pieces = [ids[start:end] for start, end in zip([0, *starts], [*ends, len(ids)], strict=True)]
        return cls(pieces, [(before, after) for before, _, after in texts])

    def content(self, text: str, position: int) -> str:
        """Returns a decoded content without the white space that was joined with it."""
        before, after = self.joined[position]
        return text.removeprefix(before).removesuffix(after)


class ConversationReader:
    """Reads token ids of one tokenizer back into messages: the inverse of :class:`agentr.policy.chat.ChatCodec`."""

    def __init__(self, codec: ChatCodec) -> None:
        self._codec = codec
        self._openings: list[tuple[tuple[Role, ...], Frame]] = []
        for roles in _OPENINGS:

            def prompt(contents: Sequence[str], roles: tuple[Role, ...] = roles) -> list[int]:
                return codec.prompt([Message(role, content) for role, content in zip(roles, contents, strict=True)])

            try:
                self._openings.append((roles, Frame.of(codec, prompt, len(roles))))
            except ModelError:  # the template has no place for a system message, so no prompt holds one
                continue
        # Some templates write a system message into the user's turn, others one of their own: what says more is looked for first.
        self._openings.sort(key=lambda opening: -len(opening[1].pieces[0]))
        self._bridge = Frame.of(codec, lambda contents: codec.bridge(contents[0]), 1)
        self._before = [codec.end_id, *self._bridge.pieces[0]]
        self._after = self._bridge.pieces[1]

    def conversation(self, ids: Sequence[int]) -> list[Passage]:
        """Returns the messages of a whole conversation, or of a prompt.

        Raises:
            DataError: The ids do not begin as the tokenizer's chat template does.
        """
        for roles, frame in self._openings:
            found = self._opening(list(ids), roles, frame)
            if found is not None:
                return found
        raise DataError(
            f"these ids are no conversation of {self._codec.name}: they begin {self._codec.decode(ids[:20], special=True)!r}",
            hint="Export with the model that the dataset was made for.",
        )

    def continuation(self, ids: Sequence[int]) -> list[Passage]:
        """Returns the messages after a prompt; the first is the agent's."""
        return self._turns(list(ids), 0)

    def _opening(self, ids: list[int], roles: tuple[Role, ...], frame: Frame) -> list[Passage] | None:
        first, *pieces = frame.pieces
        if ids[: len(first)] != first:
            return None
        found, start = [], len(first)
        for position, (role, piece) in enumerate(zip(roles, pieces, strict=True)):
            end = _find(ids, piece, start)
            if end < 0:
                return None
            text = frame.content(self._codec.decode(ids[start:end]), position)
            found.append(Passage(Message(role, text), start, end))
            start = end + len(piece)
        return found + self._turns(ids, start)

    def _turns(self, ids: list[int], start: int) -> list[Passage]:
        found: list[Passage] = []
        while start < len(ids):
            end = _find(ids, self._before, start)
            seen = end + len(self._before)
            close = _find(ids, self._after, seen) if end >= 0 else -1
            if close < 0:
                closed = ids[-1] == self._codec.end_id
                return [*found, self._turn(ids, start, len(ids) - closed)]
            observation = self._bridge.content(self._codec.decode(ids[seen:close]), 0)
            found += [self._turn(ids, start, end), Passage(Message("user", observation), seen, close)]
            start = close + len(self._after)
        return found

    def _turn(self, ids: list[int], start: int, end: int) -> Passage:
        return Passage(Message("assistant", self._codec.said(self._codec.decode(ids[start:end]))), start, end)


def _shared(one: Sequence[int], other: Sequence[int]) -> int:
    """Returns how many ids two sequences begin with alike."""
    return next((i for i, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other)))


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
