"""Text as token ids, for a tokenizer and the special tokens that only a chat template may write.

Ids are always those that the tokenizer gives the text where it stands, since many tokenizers encode pieces otherwise
than the whole: those of Llama 2 put a space before a piece, some swallow white space around a special token.
"""

import re
from collections.abc import Sequence
from functools import lru_cache
from typing import Any, NamedTuple

#: Stands before a piece from the middle of a text. No tokenizer joins a line break and the letter after it.
_ANCHOR = "\n"


class Piece(NamedTuple):
    """A part of a text.
    Special tokens are read in a template's own text (``trusted``), and are plain characters elsewhere."""

    text: str
    trusted: bool = True


class PlainText:
    """Encodes texts in which only trusted pieces may hold special tokens.

    Args:
        tokenizer: A Hugging Face tokenizer.
        template: Text of its chat template. What it writes of the tokenizer's added tokens counts as special, declared
            so or not.
    """

    def __init__(self, tokenizer: Any, template: str) -> None:
        self._tokenizer = tokenizer
        #: The tokenizer itself, without what its wrapper does besides, which takes as long again.
        self._fast: Any = getattr(tokenizer, "backend_tokenizer", None)
        if self._fast is not None:
            self._fast.no_truncation()
            self._fast.no_padding()
        #: Texts of the special tokens by their ids.
        self.special = _special_tokens(tokenizer, template)
        by_length = sorted(self.special.values(), key=len, reverse=True)
        #: Finds their texts.
        self.spelled = re.compile("|".join(map(re.escape, by_length)) or r"(?!)")
        self._known = lru_cache(maxsize=256)(self.raw)
        anchor = self.raw(_ANCHOR)
        found = self.raw(_ANCHOR + "a")
        self._prepends = found[: len(anchor)] == anchor and found[len(anchor) :] != self.raw("a")

    def raw(self, text: str) -> list[int]:
        """Encodes text as the tokenizer does; special tokens in it are read as such."""
        if self._fast is None:
            return list(self._tokenizer.encode(text, add_special_tokens=False))
        return self._fast.encode(text, add_special_tokens=False).ids

    def encode(self, text: str) -> list[int]:
        """Encodes plain text from the middle of another.
        What looks like a special token stays text: no id in the result is special."""
        ids = self._inner(text)
        if self.special.keys().isdisjoint(ids):
            return ids
        ids = []
        for piece in self._cut(text):
            part = self._inner(piece)
            if not self.special.keys().isdisjoint(part):  # a spelling that the tokenizer normalises first
                part = [i for character in piece for i in self._inner(character)]
            ids += part
        return ids

    def after(self, context: str, *pieces: Piece) -> list[int]:
        """Encodes pieces of a text that follow ``context``, a trusted text whose own ids are there already.

        The ids are those of the whole text without those of the context. Where the tokenizer would join the two, or
        where a piece that is not trusted spells a special token, the pieces are encoded one by one.
        """
        whole = self.raw("".join([context, *(piece.text for piece in pieces)]))
        begin = self._known(context)
        wanted = [
            i
            for text in (context, *(p.text for p in pieces if p.trusted))
            for i in self._known(text)
            if i in self.special
        ]
        if whole[: len(begin)] == begin and [i for i in whole if i in self.special] == wanted:
            return whole[len(begin) :]
        return [i for n, piece in enumerate(pieces) for i in self._alone(piece, context if n == 0 else "")]

    def last_special(self, text: str) -> int:
        """Returns where the last special token of a trusted text begins; 0 if it has none."""
        return max((found.start() for found in self.spelled.finditer(text)), default=0)

    # ------------------------------------------------------------------------------------------------------------------

    def _alone(self, piece: Piece, context: str) -> list[int]:
        """Encodes a piece by itself, where it can be after its context."""
        if not piece.trusted:
            return self.encode(piece.text)
        whole, begin = self._known(context + piece.text), self._known(context)
        if context and whole[: len(begin)] == begin:
            return whole[len(begin) :]
        return self._known(piece.text) if self.spelled.match(piece.text) else self._inner(piece.text)

    def _inner(self, text: str) -> list[int]:
        if not self._prepends or not text:
            return self.raw(text)
        anchor = self._known(_ANCHOR)
        whole = self.raw(_ANCHOR + text)
        return whole[len(anchor) :] if whole[: len(anchor)] == anchor else self.raw(text)

    def _cut(self, text: str) -> list[str]:
        """Cuts ``text`` after the first character of every spelling of a special token."""
        cuts = [0]
        while found := self.spelled.search(text, cuts[-1]):
            cuts.append(found.start() + 1)
        return [text[a:b] for a, b in zip(cuts, [*cuts[1:], len(text)], strict=True)]


def _special_tokens(tokenizer: Any, template: str) -> dict[int, str]:
    """Returns ids and texts of the tokens that plain text must not produce: special ones, and the template's."""
    added = {i: t.content for i, t in tokenizer.added_tokens_decoder.items()}
    declared = {i for i, t in tokenizer.added_tokens_decoder.items() if t.special} | set(tokenizer.all_special_ids)
    # Whitespace and single characters are added tokens in some vocabularies; they carry no structure.
    written = {i for i, text in added.items() if len(text.strip()) > 1 and text in template}
    return {i: added[i] for i in declared | written if added.get(i)}


def pieces_of(frame: Sequence[str], contents: Sequence[str]) -> list[Piece]:
    """Returns a frame's texts, all trusted, with contents between them; there is one text more than there are
    contents."""
    found = [Piece(frame[0])]
    for content, following in zip(contents, frame[1:], strict=True):
        found += [Piece(content, trusted=False), Piece(following)]
    return found
