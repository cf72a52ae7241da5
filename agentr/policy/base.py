"""The seam between search and whatever answers: an engine, an API, or a script."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from agentr.types import Completion, Message, Sampling


@dataclass(frozen=True)
class GenerateRequest:
    """``n`` completions of one prompt.

    Attributes:
        prompt_ids: Token ids of the whole prompt.
        messages: The same prompt as text, for policies behind an API that takes messages and not token ids.
        affinity: Requests with the same affinity (those of one tree) go to the same engine where possible, for its prefix cache.
        reuse_prefix: Take what the prefix cache has; False computes the whole prompt, to measure what the cache saves.
    """

    prompt_ids: tuple[int, ...]
    n: int
    sampling: Sampling
    affinity: str = ""
    messages: tuple[Message, ...] = ()
    reuse_prefix: bool = True


@dataclass
class PolicyStats:
    """Counters since the start of the policy, in requests and tokens.

    ``prompt_tokens`` counts each request's prompt once, however many completions share it; ``cached_tokens`` of them came from the
    prefix cache, so ``prompt_tokens - cached_tokens`` were computed.
    """

    requests: int = 0
    completions: int = 0
    prompt_tokens: int = 0
    cached_tokens: int = 0
    completion_tokens: int = 0
    busy_s: float = 0.0
    cost: float = 0.0

    def __add__(self, other: PolicyStats) -> PolicyStats:
        return PolicyStats(*(a + b for a, b in zip(vars(self).values(), vars(other).values(), strict=True)))

    def __sub__(self, other: PolicyStats) -> PolicyStats:
        return PolicyStats(*(a - b for a, b in zip(vars(self).values(), vars(other).values(), strict=True)))


class Policy(Protocol):
    """Who answers. Implementations are safe to call from many coroutines at once."""

    async def generate(self, request: GenerateRequest) -> list[Completion]:
        """``request.n`` completions, in sample order.

        A completion ended by one of ``sampling.stop`` has finish STOP and a text that ends with that string (an API may leave it
        out), but its ids are those generated, which may reach a little further, and do not end with the end-of-turn token: whoever
        goes on looks at the last id, not at ``finish``.

        Raises:
            ContextOverflow: The prompt and ``sampling.max_tokens`` do not fit into the model's context.
            InfraError: No answer could be had within the deadline, after retries.
            BudgetExceeded: A spending limit was reached.
        """
        ...

    async def stats(self) -> PolicyStats:
        """Counters so far, over all engines."""
        ...
