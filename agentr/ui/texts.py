"""Texts for pages: of tokens, one by one, and of what is too long to be shown whole."""

from __future__ import annotations

import json
import math
import threading
from collections.abc import Callable, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

from agentr.observe.problems import PageProblem, read_or
from agentr.read.run import Run

#: Most characters of a text in an answer, unless the whole is asked for.
LONGEST = 20_000
#: A page asks for several things at once, and transformers cannot be imported by two threads at a time.
_LOADING = threading.Lock()


def shortened(text: str, whole: bool = False) -> tuple[str, int]:
    """Returns the beginning of a text, and how many characters were left out."""
    return (text, 0) if whole or len(text) <= LONGEST else (text[:LONGEST], len(text) - LONGEST)


class Texts:
    """The texts of token ids of a run; without its tokenizer there are none, and ``problem`` says why."""

    def __init__(self, decode: Callable[[Sequence[int]], str] | None, problem: str = "") -> None:
        self._decode = decode
        self.problem = problem

    @classmethod
    def of(cls, run: Run) -> Texts:
        """Returns the texts of a run's tokens; loading the tokenizer again is spared where nothing of the run has
        changed."""
        problems: list[PageProblem] = []
        with _LOADING:
            decode = read_or(
                None, lambda: _decoder(run.path, run.layout.config.stat().st_mtime_ns), problems, "the tokenizer"
            )
        return cls(decode, f"Tokens have no texts: {problems[0]['message']}" if problems else "")

    def pieces(self, ids: Sequence[int]) -> list[str] | None:
        """Returns the text of each token. Tokens that make a character only together have it at the first of them."""
        if self._decode is None:
            return None
        pieces: list[str] = []
        open_from = 0
        for number, _ in enumerate(ids):
            if number < open_from:
                continue
            end = number + 1
            text = self._decode([ids[number]])
            while "\ufffd" in text and end < min(len(ids), number + 8):
                longer = self._decode(list(ids[number : end + 1]))
                end, text = end + 1, longer
            if "\ufffd" in text:  # no character at all
                end, text = number + 1, self._decode([ids[number]])
            pieces += [text, *[""] * (end - number - 1)]
            open_from = end
        return pieces


@lru_cache(maxsize=8)
def _decoder(path: Path, _: int) -> Callable[[Sequence[int]], str]:
    from agentr.models.load import load_tokenizer

    tokenizer = load_tokenizer(Run(path).model)
    return lambda ids: tokenizer.decode(list(ids))


def as_json(answer: Any) -> str:
    """Returns an answer as JSON that a browser reads: numbers that are none are null, and halves of surrogate pairs are
    escaped."""
    try:
        text = json.dumps(answer, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    except ValueError:
        text = json.dumps(_finite(answer), ensure_ascii=False, separators=(",", ":"))
    return text.encode("utf-8", "backslashreplace").decode()


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _finite(below) for key, below in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(below) for below in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
