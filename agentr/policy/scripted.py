"""A policy that is a function: for tests whose point is determinism."""

from __future__ import annotations

from collections.abc import Callable

from agentr.policy.base import GenerateRequest, PolicyStats, sample_seed
from agentr.policy.chat import ChatCodec
from agentr.types import Completion, FinishReason


class ScriptedPolicy:
    """Answers with ``respond(prompt text, seed)``, so equal prompts and seeds get equal answers in any order and number.

    Args:
        respond: Gets the whole prompt with its special tokens and the seed of the sample, and returns the turn's text. What is longer
            than ``max_tokens`` is cut off, with finish LENGTH. Log-probabilities are 0: the answer is certain.
    """

    def __init__(self, codec: ChatCodec, respond: Callable[[str, int], str]) -> None:
        self._codec = codec
        self._respond = respond
        self._stats = PolicyStats()

    async def generate(self, request: GenerateRequest) -> list[Completion]:
        """See `Policy.generate`; never fails."""
        prompt = self._codec.decode(request.prompt_ids, special=True)
        completions = [self._complete(prompt, request, index) for index in range(request.n)]
        tokens = sum(len(c.token_ids) for c in completions)
        self._stats += PolicyStats(1, request.n, len(request.prompt_ids), 0, tokens)
        return completions

    async def stats(self) -> PolicyStats:
        """Counters so far."""
        return self._stats

    def _complete(self, prompt: str, request: GenerateRequest, index: int) -> Completion:
        text = self._respond(prompt, sample_seed(request.sampling.seed, index))
        ids = self._codec.turn(text)
        finish = FinishReason.STOP
        if len(ids) > request.sampling.max_tokens:
            ids, finish = ids[: request.sampling.max_tokens], FinishReason.LENGTH
            text = self._codec.decode(ids)
        return Completion(text, tuple(ids), (0.0,) * len(ids), finish)
