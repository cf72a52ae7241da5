"""The interface between search and what generates: engines, an API, or a script.

Search asks a `Policy`. An `Engine` holds one set of weights in one process; `agentr.policy.router` makes a policy of
several engines.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from agentr.policy.chat import ChatCodec
from agentr.types import Completion, Cost, Message, Sampling


@dataclass(frozen=True)
class GenerateRequest:
    """A request for ``n`` completions of one prompt.

    Attributes:
        prompt_ids: Token ids of the whole prompt.
        messages: The same prompt as text, for policies behind an API that takes messages and not token ids.
        affinity: Requests with the same affinity (those of one tree) go to the same engine if possible, for its
            prefix cache.
        reuse_prefix: Use the prefix cache; False computes the whole prompt, to measure what the cache saves.
        codec: Of the conversation, with the tools that it offers; None where it offers none (a judge's).
        settings: What a program's call narrows (``Asked.settings``). Engines find it in ``sampling``.
    """

    prompt_ids: tuple[int, ...]
    n: int
    sampling: Sampling
    affinity: str = ""
    messages: tuple[Message, ...] = ()
    reuse_prefix: bool = True
    codec: ChatCodec | None = field(default=None, compare=False, repr=False)
    settings: Mapping[str, Any] = field(default_factory=dict, hash=False)


@dataclass
class PolicyStats:
    """Counters since the start of the policy.

    Attributes:
        cost: Requests, completions and tokens.
        busy_s: Seconds in which at least one request was in flight, summed over engines (over requests, for an API).
        spent: Money, in the currency of the configured prices.
    """

    cost: Cost = field(default_factory=Cost)
    busy_s: float = 0.0
    spent: float = 0.0

    def __add__(self, other: PolicyStats) -> PolicyStats:
        return PolicyStats(self.cost + other.cost, self.busy_s + other.busy_s, self.spent + other.spent)

    def __sub__(self, other: PolicyStats) -> PolicyStats:
        return PolicyStats(self.cost - other.cost, self.busy_s - other.busy_s, self.spent - other.spent)


def cost_of(request: GenerateRequest, completions: Sequence[Completion]) -> Cost:
    """Returns what one answered request cost."""
    return Cost(
        calls=1,
        completions=len(completions),
        prompt_tokens=len(request.prompt_ids),
        cached_tokens=sum(completion.cached_tokens for completion in completions),
        completion_tokens=sum(len(completion.token_ids) for completion in completions),
    )


class Policy(Protocol):
    """A source of completions. Safe to call from many coroutines at once."""

    async def generate(self, request: GenerateRequest) -> list[Completion]:
        """Returns ``request.n`` completions, in sample order.

        A completion ended by one of ``sampling.stop`` has finish STOP and a text that ends with that string (an API
        may leave the string out). Its ids are the generated ones: they may reach a little further than the text, and
        do not end with the end-of-turn token. To continue a conversation, look at the last id, not at ``finish``.

        Raises:
            ContextOverflow: The prompt and ``sampling.max_tokens`` do not fit into the model's context.
            InfraError: There was no answer within the deadline, after retries.
            BudgetExceeded: A spending limit was reached.
        """
        ...

    async def stats(self) -> PolicyStats:
        """Returns the counters so far, over all engines."""
        ...


@dataclass(frozen=True, kw_only=True)
class EngineHealth:
    """The state of an engine that lives.

    Attributes:
        checkpoint: Folder of the weights that it answers with.
        running: Sequences that are being decoded or wait for room in the batch.
        queued: Requests and reloads that were not admitted yet.
        stalled_s: Duration of the decoding step in progress, in seconds.
        prefix_queries: Prompt tokens looked up in the prefix cache, over all sequences.
        prefix_hits: Those of them that were found.
        waiting: Sequences among ``running`` that wait for room in the batch or the cache.
        preempted: How often these sequences were thrown out of the cache, to be computed again.
        cache_used: Share of the cache that sequences hold.
    """

    checkpoint: str
    running: int = 0
    queued: int = 0
    stalled_s: float = 0.0
    prefix_queries: int = 0
    prefix_hits: int = 0
    waiting: int = 0
    preempted: int = 0
    cache_used: float = 0.0


class Engine(Protocol):
    """An inference engine in this process, with one set of weights at a time.

    Safe to call from many coroutines at once.

    Invariant: all completions of a request come from the same weights.
    """

    async def generate(self, request: GenerateRequest, checkpoint: str = "") -> list[Completion]:
        """Returns ``request.n`` completions, in sample order, as `Policy.generate` describes them.

        Args:
            checkpoint: Weights that must answer; empty takes those that are loaded.

        Raises:
            StaleWeights: Other weights than ``checkpoint`` are loaded.
            ContextOverflow, ModelError: The request is refused; another engine would refuse it, too.
            InfraError: The engine died.
        """
        ...

    async def load(self, checkpoint: str) -> None:
        """Replaces the weights, after every request before the call and before every request after it. Idempotent.

        Raises:
            ModelError: There are no weights in ``checkpoint``; the old ones stay.
            InfraError: They could not be loaded; the engine is dead.
        """
        ...

    async def sleep(self) -> None:
        """Frees the memory of weights and cache, after every request before the call. ``load`` wakes the engine."""
        ...

    async def health(self) -> EngineHealth:
        """Returns the engine's state, also while it is busy.

        Raises:
            InfraError: See ``check``.
        """
        ...

    async def stats(self) -> PolicyStats:
        """Returns the counters since the start of this process."""
        ...

    def check(self) -> None:
        """Checks that the engine works.

        Raises:
            InfraError: It is dead or hangs.
        """
        ...

    def close(self) -> None:
        """Fails what is unfinished and frees the engine's memory."""
        ...
