"""Token-exact conversations.

A conversation is a growing list of token ids. The first prompt is rendered once with the model's chat template;
after that each completion is appended as it was generated and each observation as a *bridge*: the ids that close the
assistant's turn, hold the user's turn and open the next assistant's turn. Nothing is ever rendered again, so the
prefix cache, the stored log-probabilities and the loss masks refer to the same tokens.

The template's text around the contents (the *frame*) is rendered around marks and tokenized with special tokens; the
contents are tokenized as plain text. An observation that says "<|im_end|>" is therefore seven or so ordinary tokens
and cannot end a turn.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from agentr.errors import ModelError
from agentr.types import Message

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

_MARK = "content7c1f{}end"
_PROBE = (
    Message("user", "Go."),
    Message("assistant", "Thought: probe\nAction: look"),
    Message("user", "You see a probe."),
)
_PLAIN_TEMPLATE = "Templates that drop or rewrite earlier turns (hidden reasoning, dates) cannot be used; set model.chat_template."


class ChatCodec:
    """Turns messages and observations into token ids for one tokenizer.

    Args:
        tokenizer: A Hugging Face tokenizer with a chat template.

    Raises:
        ModelError: There is no chat template or no end-of-turn token, or the template is not prefix-stable: the
            tokens of a longer conversation must start with those of the shorter one.
    """

    def __init__(self, tokenizer: PreTrainedTokenizerBase) -> None:
        self.tokenizer: Any = tokenizer
        self.name = getattr(tokenizer, "name_or_path", "") or "the tokenizer"
        if not getattr(tokenizer, "chat_template", None):
            raise ModelError(
                f"{self.name} has no chat template.",
                hint="Use an instruction-tuned model, or set model.chat_template.",
            )
        if tokenizer.eos_token_id is None:
            raise ModelError(f"{self.name} has no end-of-sequence token.", hint="Set 'eos_token' in its tokenizer_config.json.")
        self.eos_id: int = int(self.tokenizer.eos_token_id)
        #: The tokenizer itself, without what its wrapper does besides, which takes as long again.
        self._fast: Any = getattr(tokenizer, "backend_tokenizer", None)
        if self._fast is not None:
            self._fast.no_truncation()
            self._fast.no_padding()
        self._frames: dict[tuple[str, ...], list[list[int]]] = {}
        self._special = _special_tokens(self.tokenizer)
        self._special_text = re.compile("|".join(map(re.escape, sorted(self._special.values(), key=len, reverse=True))) or r"(?!)")
        self._check_prefix_stability()
        self._before, self._after = self._bridge_frame()

    def prompt(self, messages: Sequence[Message]) -> list[int]:
        """Encodes a conversation up to the beginning of the assistant's next turn.

        Raises:
            ModelError: The template does not show every message once and in order (some have no place for a system message).
        """
        frame = self._frame(tuple(m.role for m in messages))
        ids = list(frame[0])
        for message, following in zip(messages, frame[1:], strict=True):
            ids += self.encode(message.content)
            ids += following
        return ids

    def encode(self, text: str) -> list[int]:
        """Encodes plain text. Text that looks like a special token stays text: no id in the result is special."""
        ids = self._encode(text)
        if self._special.keys().isdisjoint(ids):
            return ids
        ids = []
        for piece in self._cut(text):
            part = self._encode(piece)
            if not self._special.keys().isdisjoint(part):  # a spelling that the tokenizer normalises first
                part = [i for character in piece for i in self._encode(character)]
            ids += part
        return ids

    def turn(self, text: str) -> list[int]:
        """Encodes an assistant turn that was not generated (a demonstration), with the end-of-turn token."""
        return [*self.encode(text), self.eos_id]

    def bridge(self, observation: str, *, closed: bool = True) -> list[int]:
        """Encodes all tokens between one completion and the next.

        Args:
            observation: Text of the user's turn.
            closed: Whether the completion ends with the end-of-turn token; if not, the bridge starts with one.
        """
        ids = [*self._before, *self.encode(observation), *self._after]
        return ids if closed else [self.eos_id, *ids]

    def decode(self, ids: Sequence[int], *, special: bool = False) -> str:
        """Decodes ``ids``, without special tokens unless ``special`` is set."""
        return self.tokenizer.decode(list(ids), skip_special_tokens=not special)

    # ------------------------------------------------------------------------------------------------------------------

    def _encode(self, text: str) -> list[int]:
        if self._fast is None:
            return list(self.tokenizer.encode(text, add_special_tokens=False))
        return self._fast.encode(text, add_special_tokens=False).ids

    def _cut(self, text: str) -> list[str]:
        """Cuts ``text`` after the first character of every spelling of a special token."""
        cuts = [0]
        while found := self._special_text.search(text, cuts[-1]):
            cuts.append(found.start() + 1)
        return [text[a:b] for a, b in zip(cuts, [*cuts[1:], len(text)], strict=True)]

    def _text(self, messages: Sequence[Message]) -> str:
        from jinja2 import TemplateError

        as_dicts = [{"role": m.role, "content": m.content} for m in messages]
        try:
            return self.tokenizer.apply_chat_template(as_dicts, tokenize=False, add_generation_prompt=True)
        except TemplateError as error:
            roles = ", ".join(m.role for m in messages)
            raise ModelError(f"{self.name}: its chat template refuses the roles {roles}: {error}") from error

    def _pieces(self, roles: Sequence[str]) -> list[str]:
        """Renders the frame: the texts before, between and after the contents, ``len(roles) + 1`` of them."""
        marks = [_MARK.format(i) for i in range(len(roles))]
        rest = self._text([Message(role, mark) for role, mark in zip(roles, marks, strict=True)])  # type: ignore[arg-type]
        pieces = []
        for role, mark in zip(roles, marks, strict=True):
            piece, found, rest = rest.partition(mark)
            if not found or mark in rest:
                raise ModelError(
                    f"{self.name}: its chat template does not show the {role} message of ({', '.join(roles)}) once and in its place.",
                    hint="Set prompt.system to '' if there is no place for a system message, or set model.chat_template.",
                )
            pieces.append(piece)
        return [*pieces, rest]

    def _frame(self, roles: tuple[str, ...]) -> list[list[int]]:
        if roles not in self._frames:
            self._frames[roles] = [self._encode(piece) for piece in self._pieces(roles)]
        return self._frames[roles]

    def _bridge_frame(self) -> tuple[list[int], list[int]]:
        _, _, between, after = self._pieces(("user", "assistant", "user"))
        return self._encode(between.removeprefix(self.tokenizer.eos_token)), self._encode(after)

    def _check_prefix_stability(self) -> None:
        go, answer, seen = _PROBE
        _, opening = self._pieces(("user",))
        first, opened, between, _ = self._pieces(("user", "assistant", "user"))
        if not between.startswith(self.tokenizer.eos_token):
            raise ModelError(
                f"{self.name}: its chat template does not end the assistant's turn with the end-of-sequence token "
                f"{self.tokenizer.eos_token!r}.",
                hint="Set 'eos_token' to the token that ends a turn (for Llama 3: <|eot_id|>).",
            )
        unstable = ModelError(
            f"{self.name}: its chat template is not prefix-stable: a longer conversation does not start with the tokens of the "
            "shorter one.",
            hint=_PLAIN_TEMPLATE,
        )
        if opening != opened or first != self._pieces(("user",))[0]:
            raise unstable
        before, after = self._bridge_frame()
        built = [*self.prompt([go]), *self.turn(answer.content), *before, *self.encode(seen.content), *after]
        if built != self._encode(self._text(_PROBE)):
            raise unstable


def _special_tokens(tokenizer: Any) -> dict[int, str]:
    """Returns ids and texts of the tokens that plain text must not produce: special ones, and the template's."""
    added = {i: t.content for i, t in tokenizer.added_tokens_decoder.items()}
    template = str(tokenizer.chat_template)
    declared = {i for i, t in tokenizer.added_tokens_decoder.items() if t.special} | set(tokenizer.all_special_ids)
    # Whitespace and single characters are added tokens in some vocabularies; they carry no structure.
    written = {i for i, text in added.items() if len(text.strip()) > 1 and text in template}
    return {i: added[i] for i in declared | written if added.get(i)}
