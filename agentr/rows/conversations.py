"""Converts conversations between text and token ids.

From text: the opening is rendered with the chat template, then come turns with bridges between them, as in a tree. From
ids: the reader finds the template's tokens between the contents and decodes the contents. Ids made from text by the
tokenizer are converted back exactly; ids that a policy sampled may spell the same text in other tokens, and text does
not keep that spelling.

Rows and pairs as messages are `SpokenRow` and `SpokenPair`; `by_turn` and `parting` make rows of one trained turn of
them, whose loss mask is a prompt and an answer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from agentr.errors import DataError, ModelError
from agentr.policy.chat import ChatCodec
from agentr.store.rows import Preference, Row
from agentr.types import Answerer, Message

Role = Literal["system", "user", "assistant"]

#: Stand for contents, to find what stands around them: two for each place, which begin and end otherwise.
_MARKS = (("content 7c1f a", "other 7c1f z"), ("words 7c1f b", "more 7c1f y"))
_OPENINGS: tuple[tuple[Role, ...], ...] = (("user",), ("system", "user"))


def answers(
    codec: ChatCodec, turns: Sequence[Message], trained: Sequence[bool]
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Returns ids and loss mask, both of shape [L], of turns that begin and end with a turn of the agent.

    Args:
        trained: For each message, whether it is a target. Messages of others than the agent are never targets.
    """
    ids: list[int] = []
    mask: list[int] = []
    for position, (turn, target) in enumerate(zip(turns, trained, strict=True)):
        own = position % 2 == 0
        part = (
            codec.turn(turn.content)
            if own
            else codec.bridge(turn.content, role="tool" if turn.role == "tool" else "user")
        )
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
        texts = [
            codec.decode(ids[end:start]).partition(mark) for start, end, mark in zip(starts, ends, marks, strict=True)
        ]
        pieces = [ids[start:end] for start, end in zip([0, *starts], [*ends, len(ids)], strict=True)]
        return cls(pieces, [(before, after) for before, _, after in texts])

    def content(self, text: str, position: int) -> str:
        """Returns a decoded content without the white space that was joined with it."""
        before, after = self.joined[position]
        return text.removeprefix(before).removesuffix(after)


class ConversationReader:
    """Reads token ids of one tokenizer back into messages: the inverse of :class:`agentr.policy.chat.ChatCodec`."""

    def __init__(self, codec: ChatCodec) -> None:
        self.codec = codec
        self._openings: list[tuple[tuple[Role, ...], Frame]] = []
        for roles in _OPENINGS:

            def prompt(contents: Sequence[str], roles: tuple[Role, ...] = roles) -> list[int]:
                return codec.prompt([Message(role, content) for role, content in zip(roles, contents, strict=True)])

            try:
                self._openings.append((roles, Frame.of(codec, prompt, len(roles))))
            except ModelError:  # the template has no place for a system message, so no prompt holds one
                continue
        # Some templates write a system message into the user's turn, others one of their own: what says more is looked
        # for first.
        self._openings.sort(key=lambda opening: -len(opening[1].pieces[0]))
        self._bridges: dict[Answerer, Frame] = {
            role: Frame.of(codec, lambda contents, role=role: codec.bridge(contents[0], role=role), 1)
            for role in codec.answerers
        }

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
            f"these ids are no conversation of {self.codec.name}: they begin "
            f"{self.codec.decode(ids[:20], special=True)!r}",
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
            last = position == len(pieces) - 1
            end, after = self._before_turn(ids, piece, start) if last else (_find(ids, piece, start), start)
            if end < 0:
                return None
            text = frame.content(self.codec.decode(ids[start:end]), position)
            found.append(Passage(Message(role, text), start, end))
            start = after if last else end + len(piece)
        return found + self._turns(ids, start)

    def _turns(self, ids: list[int], start: int) -> list[Passage]:
        found: list[Passage] = []
        while start < len(ids):
            followed = self._followed(ids, start)
            if followed is None:
                closed = ids[-1] == self.codec.end_id
                return [*found, self._turn(ids, start, len(ids) - closed)]
            end, seen, start_next = followed
            found += [self._turn(ids, start, end), seen]
            start = start_next
        return found

    def _followed(self, ids: list[int], start: int) -> tuple[int, Passage, int] | None:
        """Returns where a turn ends, what is observed after it, and where the next turn begins; None for a last
        turn."""
        ways: list[tuple[int, int, Passage, int]] = []
        for role, frame in self._bridges.items():
            before, after = [self.codec.end_id, *frame.pieces[0]], frame.pieces[1]
            end = _find(ids, before, start)
            seen = end + len(before)
            close, following = self._before_turn(ids, after, seen) if end >= 0 else (-1, -1)
            if close >= 0:
                text = self.codec.heard(role, frame.content(self.codec.decode(ids[seen:close]), 0))
                ways.append((end, -seen, Passage(Message(role, text), seen, close), following))
        # What a tool answers may begin as a user's message does, and then go on: the longer beginning is the one
        # that is there.
        end, _, passage, following = min(ways, key=lambda way: way[:2], default=(0, 0, None, 0))
        return None if passage is None else (end, passage, following)

    def _before_turn(self, ids: list[int], piece: list[int], start: int) -> tuple[int, int]:
        """Finds what stands before a turn of the agent: as in a prompt, or as before an earlier turn without its
        reasoning."""
        hiding = self.codec.hiding
        forms = [piece] if hiding is None or not hiding.opened else [piece, [*piece[: -hiding.opened], *hiding.instead]]
        found = [(at, at + len(form)) for form in forms if (at := _find(ids, form, start)) >= 0]
        return min(found, key=lambda place: (place[0], -place[1]), default=(-1, -1))

    def _turn(self, ids: list[int], start: int, end: int) -> Passage:
        return Passage(Message("assistant", self.codec.said(self.codec.decode(ids[start:end]))), start, end)


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


# rows as messages -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class SpokenRow:
    """A row as messages.

    Attributes:
        messages: The opening, then turns of the agent and observations in turn.
        trained: For each message, whether it is a target.
        respelled: Whether the tokenizer spells the text in other tokens than the row has.
        partial: Whether targets are no whole turns of the agent: observations, or a turn that was cut off.
        reasoned: Whether a target begins with reasoning that is context.
    """

    messages: list[Message]
    trained: list[bool]
    respelled: bool
    partial: bool
    reasoned: bool

    @property
    def has_context(self) -> bool:
        """Whether a turn of the agent is no target."""
        return any(
            message.role == "assistant" and not target
            for message, target in zip(self.messages, self.trained, strict=True)
        )


@dataclass(frozen=True)
class SpokenPair:
    """A pair as messages: a prompt and two ways to go on, each beginning and ending with a turn of the agent.

    Attributes:
        respelled: As `SpokenRow`.
        partial: Whether targets are others than all turns of the agent.
        reasoned: As `SpokenRow`.
    """

    prompt: list[Message]
    chosen: list[Message]
    rejected: list[Message]
    respelled: bool
    partial: bool
    reasoned: bool

    @property
    def has_observations(self) -> bool:
        """Whether a side is more than one turn, so that observations are between its turns."""
        return len(self.chosen) > 1 or len(self.rejected) > 1


def spoken_row(row: Row, reader: ConversationReader) -> SpokenRow:
    """Returns a row as messages.

    Raises:
        DataError: The row is of another tokenizer.
    """
    passages = reader.conversation(row.input_ids)
    messages, trained = [p.message for p in passages], [_is_target(p, row.loss_mask) for p in passages]
    first = next((i for i, m in enumerate(messages) if m.role == "assistant"), len(messages))
    prompt = reader.codec.prompt(messages[:first])
    ids, mask = answers(reader.codec, messages[first:], trained[first:])
    respelled, partial = (*prompt, *ids) != row.input_ids, (*(0 for _ in prompt), *mask) != row.loss_mask
    return SpokenRow(messages, trained, respelled, partial, _reasoned(passages, row.loss_mask))


def spoken_pair(pair: Preference, reader: ConversationReader) -> SpokenPair:
    """Returns a pair as messages.

    Raises:
        DataError: The pair is of another tokenizer.
    """
    prompt = [p.message for p in reader.conversation(pair.prompt_ids)]
    sides = [reader.continuation(ids) for ids in (pair.chosen_ids, pair.rejected_ids)]
    chosen, rejected = ([p.message for p in side] for side in sides)
    made = [answers(reader.codec, side, [True] * len(side)) for side in (chosen, rejected)]
    ids = tuple(reader.codec.prompt(prompt)), made[0][0], made[1][0]
    masks = made[0][1], made[1][1]
    respelled = ids != (pair.prompt_ids, pair.chosen_ids, pair.rejected_ids)
    reasoned = any(
        _reasoned(side, mask) for side, mask in zip(sides, (pair.chosen_mask, pair.rejected_mask), strict=True)
    )
    return SpokenPair(prompt, chosen, rejected, respelled, masks != (pair.chosen_mask, pair.rejected_mask), reasoned)


def by_turn(row: Row, reader: ConversationReader) -> Iterator[Row]:
    """Yields a row for each trained turn of a row: the conversation up to it, and the turn as the only target."""
    for passage in reader.conversation(row.input_ids):
        if _is_target(passage, row.loss_mask):
            end = passage.end + 1
            mask = (*(0 for _ in range(passage.start)), *row.loss_mask[passage.start : end])
            yield Row(row.input_ids[:end], mask, row.provenance, row.logprobs[:end])


def parting(pair: Preference, reader: ConversationReader) -> Preference | None:
    """Returns the turns in which the sides of a pair part, after a prompt with what they begin with together.

    Returns:
        None if there are none to prefer: one side is the beginning of the other, or a turn there is no target.
    """
    sides = [(pair.chosen_ids, pair.chosen_mask), (pair.rejected_ids, pair.rejected_mask)]
    turns = [[p for p in reader.continuation(ids) if p.message.role == "assistant"] for ids, _ in sides]
    for better, worse in zip(*turns, strict=False):
        if pair.chosen_ids[: better.start] != pair.rejected_ids[: worse.start]:
            return None
        if better.message != worse.message:
            (chosen, chosen_mask), (rejected, rejected_mask) = (
                (ids[p.start : p.end + 1], mask[p.start : p.end + 1])
                for (ids, mask), p in zip(sides, (better, worse), strict=True)
            )
            if not any(chosen_mask) or not any(rejected_mask):
                return None
            prompt = (*pair.prompt_ids, *pair.chosen_ids[: better.start])
            return Preference(prompt, chosen, chosen_mask, rejected, rejected_mask, pair.provenance)
    return None


def _reasoned(passages: Sequence[Passage], mask: Sequence[int]) -> bool:
    return any(_is_target(passage, mask) and not mask[passage.start] for passage in passages)


def _is_target(passage: Passage, mask: Sequence[int]) -> bool:
    # One further than the content: an empty turn is its end-of-turn token alone.
    return passage.message.role == "assistant" and any(mask[passage.start : passage.end + 1])
