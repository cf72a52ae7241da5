"""Token-exact conversations.

A conversation is a growing list of token ids. The first prompt is rendered once with the model's chat template; after
that each completion is appended as it was generated and each observation as a *bridge*: the ids that close the
assistant's turn, hold the user's turn and open the next assistant's turn. Nothing is ever rendered again, so the prefix
cache, the stored log-probabilities and the loss masks refer to the same tokens.

The template's text around the contents (`agentr.policy.template`) may hold special tokens; the contents are plain text
(`agentr.policy.plain_text`). An observation that says "<|im_end|>" is therefore seven or so ordinary tokens and cannot
end a turn.
"""

from __future__ import annotations

import json
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from agentr.config.turns import Dialect, TurnFormat, TurnsConfig
from agentr.errors import ModelError
from agentr.policy.plain_text import Piece, PlainText, pieces_of
from agentr.policy.template import REASONS, Template
from agentr.policy.tools import ToolFrames, dialect_of
from agentr.tasks.tool_calls import ToolCalls, ToolOffer
from agentr.types import REASONED, Answerer, Message
from env_servers.protocol import Tool

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

_PROBE = ("Go.", "Thought: probe\nAction: look", "You see a probe.")


class TurnReader:
    """Reads what a model has generated: ids as text, and reasoning apart from answers.

    Args:
        marks: Special tokens that mark a tool call, which stay in decoded text.
        reasons: Whether the model's template knows that turns may hold reasoning.
        opened: Whether prompts open it.
    """

    def __init__(self, tokenizer: Any, marks: Mapping[int, str], reasons: bool, opened: bool) -> None:
        self._tokenizer, self._marks, self._reasons, self._opened = tokenizer, marks, reasons, opened

    def decode(self, ids: Sequence[int], *, special: bool = False) -> str:
        """Decodes ``ids``, without special tokens unless ``special`` is set; those that mark a tool call stay."""
        if special or self._marks.keys().isdisjoint(ids):
            return self._tokenizer.decode(list(ids), skip_special_tokens=not special)
        texts, start = [], 0
        for at, mark in [*((n, self._marks[i]) for n, i in enumerate(ids) if i in self._marks), (len(ids), "")]:
            texts += [self._tokenizer.decode(list(ids[start:at]), skip_special_tokens=True), mark]
            start = at + 1
        return "".join(texts)

    def shown(self, text: str, ids: Sequence[int]) -> str:
        """Returns an engine's text of a completion, with the marks of tool calls that its ids have and it leaves
        out."""
        return self.decode(ids) if any(i in ids and mark not in text for i, mark in self._marks.items()) else text

    def answer(self, text: str, ids: Sequence[int]) -> str:
        """Returns a turn without its reasoning; all of it is reasoning if that was opened and never closed.

        Args:
            ids: Those of the turn: where the prompt opens the reasoning, a turn that was written closes it in its ids
                alone.
        """
        if not self._reasons:
            return text
        _, closed, said = text.rpartition(REASONED)
        if closed:
            return said.lstrip("\n")
        if self._opened:
            return text if REASONED in self.decode(ids, special=True) else ""
        return "" if text.lstrip().startswith(REASONS) else text

    def begins_in_reasoning(self, text: str, ids: Sequence[int]) -> bool:
        """Whether a turn begins in reasoning that the prompt has opened, and that its ids do not close at once (as in
        `answer`)."""
        return self._opened and (REASONED in text or REASONED not in self.decode(ids, special=True))

    def reply(self, text: str) -> str:
        """Returns the answer to a question without its reasoning, which ends with the first ``</think>``: the answer
        may quote turns."""
        if not self._reasons or not (self._opened or text.lstrip().startswith(REASONS)):
            return text
        return text.partition(REASONED)[2].lstrip("\n")

    def reasoning(self, ids: Sequence[int]) -> int:
        """Counts the ids of a turn's reasoning, from the first one on: up to the last ``</think>`` and the white space
        after it.

        Returns:
            All of them if reasoning was opened and never closed, 0 if there is none. A token that holds the end of
            ``</think>`` and the beginning of the answer counts as answer.
        """
        if not self._reasons:
            return 0
        text = self.decode(ids, special=True)
        end = text.rfind(REASONED) + len(REASONED)
        if REASONED not in text:
            return len(ids) if self._opened or text.lstrip().startswith(REASONS) else 0
        count = bisect_left(range(len(ids)), end, key=lambda n: len(self.decode(ids[:n], special=True)))
        if self.decode(ids[:count], special=True)[end:].strip():
            return count - 1
        while count < len(ids) and not self.decode([ids[count]], special=True).strip():
            count += 1
        return count


class ChatCodec:
    """Turns messages and observations into token ids for one tokenizer.

    Args:
        tokenizer: A Hugging Face tokenizer with a chat template.
        end_of_turn: Text of the special token that ends a turn of the agent; empty takes what the template writes
            there.
        replaced: The tokenizer's template, if it is another one than the model's own.
        offers: The tools that openings offer and the way to call them (`offering`, `with_tools`).

    Attributes:
        end_id: Id of the token that ends a turn.
        stop_ids: Ids that end a completion, besides the tokenizer's own end of a sequence.
        reasons: Whether a turn may hold reasoning that the model's own template knows of.
        hiding: How turns are shown once others follow, where their reasoning is left out then; None if the template
            knows of none.
        encode: Encodes plain text (`PlainText.encode`).
        decode, shown, answer, begins_in_reasoning, reply, reasoning: Read what the model has generated (`TurnReader`).
        plain: The same codec without tools, for conversations that are not the agent's own (a judge's).

    Raises:
        ModelError: There is no chat template, or conversations cannot be built by appending: see
            `agentr.policy.template.Template`; or the tokenizer joins a turn with what stands around it.
    """

    def __init__(
        self,
        tokenizer: PreTrainedTokenizerBase,
        end_of_turn: str = "",
        replaced: str = "",
        offers: ToolOffer | None = None,
    ) -> None:
        self.tokenizer: Any = tokenizer
        self.offers = offers
        self.plain: ChatCodec = self
        self._with = lru_cache(64)(self._calling)  # a program may offer other tools in each call
        self._shows_tools = offers is not None and bool(offers.schemas)
        self._end_of_turn = end_of_turn
        self.replaced = replaced
        self.name = _checked_name(tokenizer)
        self._plain = PlainText(tokenizer, str(tokenizer.chat_template))
        self._template = Template(tokenizer, self.name, self._plain, end_of_turn)
        self.end_id: int = self._plain.raw(self._template.ending.token)[0]
        self.stop_ids: tuple[int, ...] = () if self.end_id == self.tokenizer.eos_token_id else (self.end_id,)
        self.reasons = self._template.reasons
        self._tools = ToolFrames(self._template, self._plain, self.name, offers) if offers else None
        self.hiding = self._template.hiding() if self.reasons else None
        marks = {i: text for i, text in self._plain.special.items() if offers and text in offers.dialect.marks}
        reader = TurnReader(tokenizer, marks, self.reasons, self._template.opens_reasoning)
        self.encode, self.decode, self.shown = self._plain.encode, reader.decode, reader.shown
        self.answer, self.begins_in_reasoning = reader.answer, reader.begins_in_reasoning
        self.reply, self.reasoning = reader.reply, reader.reasoning
        _check_tokens(self, self._template, self._plain)

    def offering(self, tools: Sequence[Tool], turns: TurnsConfig) -> ChatCodec:
        """Returns the codec for agents whose turns are as ``turns`` says: this one, or one that offers ``tools``.

        Raises:
            ModelError: The template has no place for tools, or writes calls in no way that is known.
        """
        if turns.format is TurnFormat.environment:
            return self
        return self._opened_by(ToolCalls(tools, dialect_of(self._template, self.name, turns.dialect)))

    def with_tools(self, tools: Sequence[str], dialect: Dialect = Dialect.auto) -> ChatCodec:
        """Returns the codec for conversations in which a program offers tools, or in which there are calls.

        Args:
            tools: Each a JSON object of ``name``, ``description``, ``parameters``; there may be none.
            dialect: How calls are written.

        Raises:
            ModelError: As in `offering`.
        """
        return self._with(tuple(tools), dialect)

    def _calling(self, tools: tuple[str, ...], dialect: Dialect) -> ChatCodec:
        schemas = [{"type": "function", "function": json.loads(tool)} for tool in tools]
        return self._opened_by(ToolOffer(schemas, dialect_of(self._template, self.name, dialect)))

    def _opened_by(self, offers: ToolOffer) -> ChatCodec:
        codec = ChatCodec(self.tokenizer, self._end_of_turn, self.replaced, offers)
        codec.plain = self
        return codec

    def prompt(self, messages: Sequence[Message]) -> list[int]:
        """Encodes a conversation up to the beginning of the assistant's next turn.

        Raises:
            ModelError: The template does not show every message once and in order (some have no place for a system
                message).
        """
        first, *others = _groups(messages)
        frame = self._template.frame(tuple(m.role for m in first), self._shows_tools)
        return [*self._plain.after("", *pieces_of(frame, [m.content for m in first])), *self._turns(others)]

    def begin(self, text: str, begun: str = "") -> list[int]:
        """Encodes the beginning of an assistant turn that was not generated, without an end; ``begun`` is what of the
        turn is encoded already, and stands before ``text``."""
        return self._said(text, begun)

    def turn(self, text: str, begun: str = "") -> list[int]:
        """Encodes an assistant turn that was not generated (a demonstration), as `begin` does, with its end."""
        return self._said(text, begun, Piece(self._template.ending.before + self._template.ending.token))

    def bridge(self, observation: str, *, closed: bool = True, role: Answerer = "user") -> list[int]:
        """Encodes all tokens between one completion and the next.

        Args:
            observation: Text of the next message.
            closed: Whether the completion ends with the end-of-turn token; if not, the bridge starts with one.
            role: Whose message it is (`answered_by`).
        """
        return self.behind([Message(role, observation)], closed=closed)

    def behind(self, messages: Sequence[Message], *, closed: bool = True) -> list[int]:
        """Encodes messages behind a completion as `bridge` does one; the first is not the assistant's.

        Raises:
            ModelError: As in `prompt`.
        """
        first, *others = _groups(messages)
        return [*([] if closed else [self.end_id]), *self._after_turn(first), *self._turns(others)]

    def instead(self, messages: Sequence[Message]) -> tuple[list[int], list[int]]:
        """Encodes messages in place of a completion that is left out.

        Returns:
            The ids at the end of each prompt that they come in place of, and the ids that stand there then.

        Raises:
            ModelError: As in `prompt`.
        """
        first, *others = _groups(messages)
        _, *frame = self._template.frame(("user", *(m.role for m in first)), self._shows_tools)
        ids = [*self._plain.after("", *pieces_of(frame, [m.content for m in first])), *self._turns(others)]
        return self._plain.raw(self._template.opening), ids

    @property
    def calls(self) -> ToolCalls | None:
        """The action format of agents that act by calls of their environment's tools."""
        return self.offers if isinstance(self.offers, ToolCalls) else None

    @property
    def answerers(self) -> tuple[Answerer, ...]:
        """The roles that an observation may have."""
        return ("user", "tool") if self._tools is not None and self._tools.answers else ("user",)

    def answered_by(self, turn: str) -> Answerer:
        """Returns the role of what is observed after a turn: the tool's if it holds a call, and the template has such
        messages."""
        return (
            "tool"
            if "tool" in self.answerers and self.offers is not None and self.offers.called(turn) is not None
            else "user"
        )

    def heard(self, role: str, content: str) -> str:
        """Returns the content of a message, from what the template wrote of it."""
        return self._tools.read(content) if role == "tool" and self._tools is not None else content

    def said(self, text: str) -> str:
        """Returns the text of a turn as `turn` takes it: without what the template writes around it."""
        return text.removeprefix(self._template.lead).removesuffix(self._template.ending.before)

    def remarks(self, keeps: bool = True, trains: bool | None = True) -> list[str]:
        """Returns sentences on what the template would do otherwise, and on reasoning
        (`agentr.policy.template.Template.remarks`)."""
        return list(self._template.remarks(keeps, trains))

    # ------------------------------------------------------------------------------------------------------------------

    def _turns(self, groups: Sequence[Sequence[Message]]) -> list[int]:
        """Encodes turns of the agent, each with the messages behind it."""
        return [i for turn, *more in groups for i in (*self.turn(turn.content), *self._after_turn(more))]

    def _said(self, text: str, begun: str, *end: Piece) -> list[int]:
        tail, lead = self._template.tail, self._template.lead
        if begun:
            return self._plain.after(tail + lead + begun, *self._pieces(text), *end)
        if self._tools is not None and self.offers is not None and self.offers.called(text) == 0:
            lead = self._tools.lead
        return self._plain.after(tail, Piece(lead), *self._pieces(text), *end)

    def _pieces(self, text: str) -> list[Piece]:
        """Cuts a turn where it marks a tool call: there alone it may hold special tokens."""
        pieces, start = [], 0
        for first, last in self.offers.marked(text) if self.offers is not None else ():
            pieces += [Piece(text[start:first], trusted=False), Piece(text[first:last])]
            start = last
        return [*pieces, Piece(text[start:], trusted=False)]

    def _after_turn(self, messages: Sequence[Message]) -> list[int]:
        roles = [m.role if m.role != "tool" or "tool" in self.answerers else "user" for m in messages]
        said = [
            self._tools.heard(m.content) if r == "tool" and self._tools is not None else m.content
            for m, r in zip(messages, roles, strict=True)
        ]
        return self._plain.after(self._template.ending.token, *pieces_of(self._template.after_turn(roles), said))


def _checked_name(tokenizer: Any) -> str:
    """What a tokenizer that has a chat template is called."""
    name = getattr(tokenizer, "name_or_path", "") or "the tokenizer"
    if not getattr(tokenizer, "chat_template", None):
        raise ModelError(
            f"{name} has no chat template.", hint="Use an instruction-tuned model, or set model.chat_template."
        )
    return name


def _check_tokens(codec: ChatCodec, template: Template, plain: PlainText) -> None:
    """Compares a conversation that is built by appending with its text, encoded as a whole."""
    go, answer, seen = _PROBE
    first = template.frame(("user",), codec._shows_tools)
    before, after = template.after_turn(["user"])
    text = [
        *first[:1],
        go,
        first[1],
        template.lead,
        answer,
        template.ending.before,
        template.ending.token,
        before,
        seen,
        after,
    ]
    built = [*codec.prompt([Message("user", go)]), *codec.turn(answer), *codec.bridge(seen)]
    if built != plain.raw("".join(text)):
        raise ModelError(
            f"{codec.name}: its tokenizer joins turns with what stands around them: a conversation has other ids "
            "than its turns have.",
            hint=(
                "Set model.chat_template to one that writes a special token or a line break before and after each turn."
            ),
        )


def _groups(messages: Sequence[Message]) -> list[list[Message]]:
    """Cuts a conversation before each turn of the agent; the first group has none, and may be empty."""
    groups: list[list[Message]] = [[]]
    for message in messages:
        if message.role == "assistant":
            groups.append([])
        groups[-1].append(message)
    return groups
