"""Summarising what a search found by a second language model, as ET-Agent does with pages."""

import re
from collections.abc import Sequence
from typing import Any, Protocol

from env_servers.retrieval.base import Passage
from env_servers.retrieval.cache import Cache, Mode
from env_servers.retrieval.http import Key, Service

PROMPT = """\
Someone is answering a question with the help of a search engine. Read the passages that the latest search found, and \
write down what \
in them helps: facts that answer the question, or that the next search can build on. Use only what the passages say, \
keep names and \
numbers as they stand there, and do not answer the question yourself. If nothing helps, write: No helpful information \
found.

Question: {question}
Earlier searches: {earlier}
Latest search: {query}

Passages:
{passages}"""


class Summariser(Protocol):
    """Makes a short text of what a search found."""

    def summarise(self, question: str, earlier: Sequence[str], query: str, passages: Sequence[Passage]) -> str:
        """The text for the agent.

        Args:
            earlier: The queries of the episode so far.

        Raises:
            RetrievalFailure: The summary could not be had.
        """
        ...


class ChatSummariser:
    """A model behind an OpenAI-compatible ``/chat/completions``.

    Args:
        base_url: Address up to and with ``/v1``.
        model: Its name there.
        key_env: Environment variable with the key; None for a server that wants none.
        max_tokens: Longest summary.
        passage_chars: Longest part of a passage that the model reads.
        cache: Where summaries are kept, if anywhere.

    Raises:
        RetrievalFailure: The key is not set, and summaries are not only replayed.
    """

    def __init__(
        self,
        *,
        base_url: str,
        model: str,
        key_env: str | None = None,
        max_tokens: int = 512,
        temperature: float = 0.0,
        passage_chars: int = 3000,
        deadline_s: float = 18.0,
        attempts: int = 4,
        cache: Cache | None = None,
    ) -> None:
        self._service = Service(
            f"the summariser {model} at {base_url}",
            Key(key_env) if key_env else None,
            deadline_s=deadline_s,
            attempts=attempts,
        )
        self._url = f"{base_url.rstrip('/')}/chat/completions"
        self._settings = {"model": model, "max_tokens": max_tokens, "temperature": temperature}
        self._passage_chars = passage_chars
        self._source = f"summary({model}, {max_tokens}, {temperature:g})"
        self._cache = cache
        if cache is None or cache.mode is not Mode.REPLAY:
            self._service.check()

    def summarise(self, question: str, earlier: Sequence[str], query: str, passages: Sequence[Passage]) -> str:
        listed = "\n\n".join(
            f"[{i}] {passage.title}\n{passage.text[: self._passage_chars]}" for i, passage in enumerate(passages, 1)
        )
        prompt = PROMPT.format(question=question, earlier="; ".join(earlier) or "none", query=query, passages=listed)
        if self._cache is None:
            return self._ask(prompt)
        return self._cache.get(self._source, prompt, lambda: self._ask(prompt))

    def _ask(self, prompt: str) -> str:
        body = {**self._settings, "messages": [{"role": "user", "content": prompt}]}
        return self._service.call("POST", self._url, _content, json=body)


def _content(answer: Any) -> str:
    """The text of a completion, without what a reasoning model thought before it."""
    text = re.sub(r"^.*</think>", "", answer["choices"][0]["message"]["content"], flags=re.DOTALL).strip()
    if not text:
        raise ValueError("the summary is empty")
    return text
